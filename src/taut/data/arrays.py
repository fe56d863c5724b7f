"""numpy's own files: .npy by memory map, .npz by one of its arrays. Nothing is ever unpickled."""

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from taut.data.columns import Columns, list_some, select_positions
from taut.data.numbers import to_floats
from taut.data.source import Block, subject_of
from taut.errors import ArgumentError, DamagedFileError, DataError

__all__ = ["ArraySource", "npz_arrays", "open_npy", "open_npz"]

NPY = b"\x93NUMPY"
_OBJECTS = re.compile(rb"'[|<>=]?O'")
_BAD = (ValueError, TypeError, SyntaxError, OverflowError, EOFError, MemoryError, OSError)


class ArraySource:
    """The rows of an array; those of more than two dimensions are made flat."""

    columns = ()

    def __init__(self, subject: str, array: np.ndarray, columns: Columns = None):
        if array.ndim == 0 or 0 in array.shape:
            raise DataError(
                subject=subject,
                rule="an array must have rows and columns",
                got=f"shape {array.shape}",
            )
        to_floats(subject, array[:0])
        self._subject = subject
        self._array = array
        self.rows = len(array)
        width = math.prod(array.shape[1:])
        self._chosen = select_positions(subject, (), width, columns)
        self.dim = len(self._chosen)
        whole = self._chosen == list(range(width))
        self._picks = slice(None) if whole else self._chosen
        self.image_shape = array.shape[1:] if array.ndim > 2 and whole else None

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """See `Source`."""
        for start in range(0, self.rows, batch_rows):
            block = np.asarray(self._array[start : start + batch_rows])
            block = block.reshape(len(block), -1)[:, self._picks]
            yield Block(to_floats(self._subject, block))

    def count(self) -> int:
        """See `Source`."""
        return self.rows


def open_npy(path: Path, columns: Columns = None) -> ArraySource:
    """The array of a .npy file, which stays on disk."""
    subject = subject_of(path)
    with open(path, "rb") as file:
        _check_head(subject, file.read(16384))
    try:
        with np.errstate(over="ignore"):  # a forged shape may have no size
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _BAD as error:
        raise _damaged(subject, error) from error
    return ArraySource(subject, array, columns)


def open_npz(path: Path, key: str | None = None, columns: Columns = None) -> ArraySource:
    """One array of a .npz file, unpacked into memory.

    Args:
        path: the file.
        key: the name of the array; needed where there is more than one.
        columns: the columns to keep.
    """
    subject = subject_of(path)
    with _archive(subject, path) as archive:
        data = archive.read(_member(subject, path, archive.namelist(), key))
    return ArraySource(subject, _parse(subject, data), columns)


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a .npz file by their names, as they are."""
    subject = subject_of(path)
    with _archive(subject, path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if _is_array(name)}
    if not members:
        raise _empty(subject)
    return {name.removesuffix(".npy"): _parse(subject, data) for name, data in members.items()}


@contextmanager
def _archive(subject: str, path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, *_BAD) as error:
        if isinstance(error, (ArgumentError, DataError)):
            raise
        raise _damaged(subject, error) from error


def _parse(subject: str, data: bytes) -> np.ndarray:
    _check_head(subject, data[:16384])
    try:
        with np.errstate(over="ignore"):
            return np.load(io.BytesIO(data), allow_pickle=False)
    except _BAD as error:
        raise _damaged(subject, error) from error


def _is_array(name: str) -> bool:
    return name.endswith(".npy")


def _empty(subject: str) -> DataError:
    return DataError(f"{subject}: a .npz file must hold an array; this one holds none.")


def _member(subject: str, path: Path, members: list[str], key: str | None) -> str:
    keys = [name.removesuffix(".npy") for name in members if _is_array(name)]
    if not keys:
        raise _empty(subject)
    if key is None and len(keys) > 1:
        raise ArgumentError(
            f"{subject}: `path` must say which array is meant; the file holds {list_some(keys)}. "
            f"Use {path.name}:{keys[0]} for the first."
        )
    if key is not None and key not in keys:
        raise ArgumentError(
            subject=subject, rule=f"the key must be among {list_some(keys)}", got=repr(key)
        )
    return f"{keys[0] if key is None else key}.npy"


def _check_head(subject: str, head: bytes) -> None:
    if not head.startswith(NPY):
        raise DamagedFileError(
            subject=subject,
            rule="an array must start with the mark of numpy's format",
            got=repr(head[:6]),
            remedy="Write it with numpy.save.",
        )
    if _OBJECTS.search(head.partition(b"\n")[0]):
        raise DataError(
            subject=subject,
            rule="an array must hold numbers",
            got="Python objects, which could run code when they are read, so they never are",
            remedy="Save numbers: numpy.save(path, array.astype(float)).",
        )


def _damaged(subject: str, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"{subject}: the file is cut short or altered ({error}). Write or fetch it again."
    )
