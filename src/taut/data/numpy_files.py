"""numpy files: .npy as a memory map, one array of .npz. Nothing is ever unpickled."""

import io
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from taut.data.column_selection import list_some
from taut.data.column_values import to_floats
from taut.data.source_base import Source, refuse_damage
from taut.errors import ArgumentError, DamagedFileError, DataError

NPY = b"\x93NUMPY"
_OBJECTS = re.compile(rb"'[|<>=]?O'")
_HEAD = 16384
_BAD_ARRAY = (ValueError, TypeError, SyntaxError, OverflowError, MemoryError, OSError)
_BAD_ARCHIVE = (*_BAD_ARRAY, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class ArraySource(Source):
    """The rows of an array, flattened if it has more than two dimensions."""

    rows: int

    def __init__(self, name: str, array: np.ndarray):
        super().__init__(name)
        if array.ndim == 0 or 0 in array.shape:
            raise self.refuse("an array must have rows and columns", f"shape {array.shape}")
        to_floats(self.subject, array[:0])
        self._array = array
        self._set_columns((), math.prod(array.shape[1:]))
        self.rows = len(array)
        self.image_shape = array.shape[1:] if array.ndim > 2 else None

    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """See `Source`."""
        for start in range(0, self.rows, batch_rows):
            block = np.asarray(self._array[start : start + batch_rows])
            rows = block.reshape(len(block), -1)
            yield to_floats(
                self.subject, rows if self.selection is None else rows[:, self.selection]
            )


def open_npy(path: Path) -> ArraySource:
    """Opens the array of a .npy file, which stays on disk."""
    subject = f"data: {path.name}"
    with open(path, "rb") as file:
        _check_head(subject, file.read(_HEAD))
    # The shape in a forged header may overflow.
    with refuse_damage(subject, "the file", _BAD_ARRAY), np.errstate(over="ignore"):
        return ArraySource(path.name, np.load(path, mmap_mode="r", allow_pickle=False))


def open_npz(path: Path, key: str | None = None) -> ArraySource:
    """Opens one array of a .npz file, unpacked into memory; `key` is required if there are several."""
    name = path.name if key is None else f"{path.name}:{key}"

    def choose(keys: list[str]) -> list[str]:
        if key is None and len(keys) > 1:
            rule = f"must say which array is meant; the file holds {list_some(keys)}"
            remedy = f"Use {path.name}:{keys[0]} for the first."
            raise ArgumentError(f"data: {name}", "path", rule, remedy=remedy)
        if key is not None and key not in keys:
            rule = f"the key must be among {list_some(keys)}"
            raise ArgumentError(f"data: {name}", rule=rule, got=repr(key))
        return keys if key is None else [key]

    (array,) = read_npz(path, choose).values()
    return ArraySource(name, array)


def read_npz(
    path: Path, choose: Callable[[list[str]], list[str]] = lambda keys: keys
) -> dict[str, np.ndarray]:
    """Reads the arrays of a .npz file by key: all, or those that `choose` returns."""
    subject = f"data: {path.name}"
    with refuse_damage(subject, "the file", _BAD_ARCHIVE), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        keys = [name.removesuffix(".npy") for name in names if name.endswith(".npy")]
        if not keys:
            raise DataError(subject, rule="a .npz file must hold an array; this one holds none")
        return {key: _parse(subject, archive.read(f"{key}.npy")) for key in choose(keys)}


def _parse(subject: str, data: bytes) -> np.ndarray:
    _check_head(subject, data[:_HEAD])
    with np.errstate(over="ignore"):
        return np.load(io.BytesIO(data), allow_pickle=False)


def _check_head(subject: str, head: bytes) -> None:
    if not head.startswith(NPY):
        rule, got = "an array must start with the mark of numpy's format", repr(head[:6])
        raise DamagedFileError(subject, rule=rule, got=got, remedy="Write it with numpy.save.")
    if _OBJECTS.search(head.partition(b"\n")[0]):
        got = "Python objects, which could run code when they are read, so they never are"
        remedy = "Save numbers: numpy.save(path, array.astype(float))."
        raise DataError(subject, rule="an array must hold numbers", got=got, remedy=remedy)
