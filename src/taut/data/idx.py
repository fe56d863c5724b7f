"""The idx format, in which MNIST comes: a big-endian header, then the numbers, often in gzip."""

import io
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from taut.data.columns import Columns
from taut.data.numbers import to_floats
from taut.data.source import Block, open_bytes, reading, subject_of
from taut.errors import ArgumentError, DamagedFileError, DataError

__all__ = ["IdxSource", "looks_like_idx", "parse_idx"]

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def looks_like_idx(head: bytes) -> bool:
    """Whether these first bytes, after unpacking, open an idx file.

    Example:
        >>> looks_like_idx(bytes([0, 0, 8, 3])), looks_like_idx(b"PAR1")
        (True, False)
    """
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _TYPES and 1 <= head[3] <= 8


def parse_idx(subject: str, content: bytes) -> np.ndarray:
    """The array in the bytes of an idx file, of any rank.

    Example:
        >>> parse_idx("data", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
        array([7, 9], dtype=uint8)
    """
    file = io.BytesIO(content)
    dtype, shape = _read_header(subject, file)
    body = len(content) - file.tell()
    if body != math.prod(shape) * dtype.itemsize:
        raise DamagedFileError(
            f"{subject}: the header promises {math.prod(shape) * dtype.itemsize} bytes of shape "
            f"{shape}; the file has {body}. Fetch it again."
        )
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape)


class IdxSource:
    """The rows of an idx file; unsigned bytes are grey levels and scaled to [0, 1]."""

    columns = ()

    def __init__(self, path: Path, columns: Columns = None):
        self._path = path
        self._subject = subject_of(path)
        with reading(path), open_bytes(path) as file:
            self._dtype, shape = _read_header(self._subject, file)
        if len(shape) == 1:
            raise DataError(
                f"{self._subject}: a sample must have rows of several numbers; this file has one "
                f"number for each of {shape[0]} rows, as files of labels do. Give the file of "
                "images, whose name has idx3."
            )
        if 0 in shape:
            raise DataError(
                subject=str(self._subject), rule="a sample must have rows", got=f"shape {shape}"
            )
        if columns is not None:
            raise ArgumentError(
                subject=str(self._subject),
                argument="columns",
                rule="must be left out for images",
                got=f"columns={columns!r}",
            )
        self.rows = shape[0]
        self.dim = math.prod(shape[1:])
        self.image_shape = shape[1:] if len(shape) > 2 else None

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """See `Source`."""
        size = self.dim * self._dtype.itemsize
        with reading(self._path), open_bytes(self._path) as file:
            _read_header(self._subject, file)
            for start in range(0, self.rows, batch_rows):
                wanted = min(batch_rows, self.rows - start)
                data = _read_up_to(file, wanted * size)
                if len(data) < wanted * size:
                    raise DamagedFileError(
                        f"{self._subject}: the header promises {self.rows} rows; the file ends "
                        f"after {start + len(data) // size}. Fetch it again."
                    )
                yield Block(self._convert(np.frombuffer(data, self._dtype).reshape(wanted, -1)))
            if file.read(1):
                raise DamagedFileError(
                    f"{self._subject}: the header promises {self.rows} rows; the file has more. "
                    "Fetch it again."
                )

    def count(self) -> int:
        """See `Source`."""
        return self.rows

    def _convert(self, rows: np.ndarray) -> np.ndarray:
        if rows.dtype == np.uint8:
            return rows.astype(np.float32) / np.float32(255)
        return to_floats(self._subject, rows)


def _read_header(subject: str, file: BinaryIO) -> tuple[np.dtype, tuple[int, ...]]:
    head = file.read(4)
    if not looks_like_idx(head):
        raise DamagedFileError(
            subject=subject,
            rule="an idx file must start with 00 00, a type and a rank",
            got=str(head.hex(" ") or "nothing"),
        )
    sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise DamagedFileError(f"{subject}: the file ends inside its header.")
    return np.dtype(_TYPES[head[2]]), struct.unpack(f">{head[3]}I", sizes)


def _read_up_to(file: BinaryIO, size: int, step: int = 2**22) -> bytearray:
    """At most `size` bytes: a header with a wrong size costs no memory."""
    data = bytearray()
    while len(data) < size and (piece := file.read(min(step, size - len(data)))):
        data += piece
    return data
