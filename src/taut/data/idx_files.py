"""The idx format of MNIST: a big-endian header, then the numbers, often compressed by gzip."""

import io
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from taut.data.column_selection import list_some
from taut.data.column_values import to_floats
from taut.data.source_base import Source, open_bytes, read_bytes, refuse_damage
from taut.errors import ArgumentError, DamagedFileError, DataError

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_STEP = 2**22


def looks_like_idx(head: bytes) -> bool:
    """Whether a file with these first bytes, after decompression, is an idx file."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _TYPES and 1 <= head[3] <= 8


def parse_idx(subject: str, content: bytes) -> np.ndarray:
    """Parses the bytes of an idx file into an array of any rank."""
    dtype, shape = _read_header(subject, io.BytesIO(content))
    blocks = list(_read_blocks(subject, io.BytesIO(content), max(1, shape[0])))
    return blocks[0] if blocks else np.empty(shape, dtype)


def parse_labels(subject: str, content: bytes, count: int) -> np.ndarray:
    """Parses the labels of `count` images from the bytes of an idx file, as int64."""
    labels = parse_idx(subject, content)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        rule = "a file of labels must hold one whole number a row"
        got = f"{labels.dtype} of shape {labels.shape}, as files of images do"
        raise DataError(subject, rule=rule, got=got, remedy="The two files may be swapped.")
    if len(labels) != count:
        rule = "there must be a label for every image"
        got = f"{len(labels)} labels and {count} images"
        remedy = "Give the two files that belong together."
        raise DataError(subject, rule=rule, got=got, remedy=remedy)
    return labels.astype(np.int64)


def labels_beside(path: Path) -> Path:
    """The label file that belongs to an image file, by its name."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
    fits = name != path.name.removesuffix(".gz")
    for candidate in (path.with_name(f"{name}.gz"), path.with_name(name)):
        if fits and candidate.is_file():
            return candidate
    reason = "its name has neither images nor idx3"
    if fits:
        reason = f"there is no {name}.gz in {path.parent.resolve()}"
    raise ArgumentError(
        f"data: {path.name}",
        rule="the file of labels must be beside the images, as train-labels-idx1-ubyte.gz "
        f"beside train-images-idx3-ubyte.gz; {reason}",
    )


class IdxSource(Source):
    """The rows of an idx file; unsigned bytes are grey levels and scaled to [0, 1].

    With `label`, only the images with this label in the label file beside them.
    """

    selectable = False
    rows: int

    def __init__(self, path: Path, label: str | None = None):
        super().__init__(path.name if label is None else f"{path.name}:{label}")
        self._path = path
        with refuse_damage(self.subject), open_bytes(path) as file:
            _, shape = _read_header(self.subject, file)
        count, *sizes = shape
        if not sizes:
            raise self.refuse(
                "a sample must have rows of several numbers; this file has one number for "
                f"each of {count} rows, as files of labels do",
                remedy="Give the file of images, whose name has idx3.",
            )
        if 0 in shape:
            raise self.refuse("a sample must have rows", f"shape {shape}")
        self._set_columns((), math.prod(sizes))
        self.image_shape = tuple(sizes) if len(sizes) > 1 else None
        self._wanted = None if label is None else self._find(label, count)
        self.rows = count if self._wanted is None else int(self._wanted.sum())

    def _find(self, label: str, count: int) -> np.ndarray:
        """Whether each of the images has the label."""
        if not label.strip().isdecimal():
            rule = "what follows the colon must be a label, a whole number"
            raise self.refuse(rule, repr(label), error=ArgumentError)
        beside = labels_beside(self._path)
        labels = parse_labels(f"data: {beside.name}", read_bytes(beside), count)
        wanted = labels == int(label)
        if not wanted.any():
            choices = list_some(np.unique(labels).tolist(), 12)
            rule = f"the label must be among {choices}; no row has {int(label)}"
            raise self.refuse(rule, error=ArgumentError)
        return wanted

    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """See `Source`."""
        pending, num_read = None, 0
        with refuse_damage(self.subject), open_bytes(self._path) as file:
            for block in _read_blocks(self.subject, file, batch_rows):
                rows = block.reshape(len(block), -1)
                if self._wanted is not None:
                    rows = rows[self._wanted[num_read : num_read + len(block)]]
                num_read += len(block)
                floats = to_floats(self.subject, rows)
                if rows.dtype == np.uint8:
                    floats /= np.float32(255)
                pending = floats if pending is None else np.concatenate([pending, floats])
                if len(pending) >= batch_rows:
                    yield pending[:batch_rows]
                    pending = pending[batch_rows:]
        if pending is not None and len(pending):
            yield pending


def _read_header(subject: str, file: BinaryIO) -> tuple[np.dtype, tuple[int, ...]]:
    head = file.read(4)
    if not looks_like_idx(head):
        rule = "an idx file must start with 00 00, a type and a rank"
        raise DamagedFileError(subject, rule=rule, got=head.hex(" ") or "nothing")
    sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise DamagedFileError(subject, rule="the file ends inside its header")
    return np.dtype(_TYPES[head[2]]), struct.unpack(f">{head[3]}I", sizes)


def _read_blocks(subject: str, file: BinaryIO, batch_rows: int) -> Iterator[np.ndarray]:
    """Yields batches of `batch_rows` rows; raises unless the file is as long as its header states."""

    def refuse(end: str) -> DamagedFileError:
        rule = f"the header promises {count} rows; the file {end}"
        return DamagedFileError(subject, rule=rule, remedy="Fetch it again.")

    dtype, (count, *shape) = _read_header(subject, file)
    size = math.prod(shape) * dtype.itemsize
    for start in range(0, count, batch_rows):
        rows = min(batch_rows, count - start)
        data = bytearray()
        # In steps, so that a wrong size in the header costs no memory.
        while piece := file.read(min(_STEP, rows * size - len(data))):
            data += piece
        if len(data) < rows * size:
            raise refuse(f"ends after {start + len(data) // size}")
        yield np.frombuffer(data, dtype).reshape(rows, *shape)
    if file.read(1):
        raise refuse("has more")
