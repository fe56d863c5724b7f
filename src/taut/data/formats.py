"""Which reader reads a path: by its ending, checked against its first bytes."""

import difflib
import os
import re
from pathlib import Path

from taut.data.arrays import NPY, open_npy, open_npz
from taut.data.columns import Columns
from taut.data.idx import IdxSource, looks_like_idx
from taut.data.idx_classes import open_idx_class
from taut.data.images import ENDINGS, FolderSource
from taut.data.parquet import ParquetSource
from taut.data.source import Source, open_bytes, reading, subject_of
from taut.data.text import TextSource
from taut.errors import ArgumentError, DamagedFileError, DataError

__all__ = ["PathLike", "detect_format", "open_source"]

PathLike = str | os.PathLike[str]

_BY_ENDING = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".data": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".idx": "idx",
    **dict.fromkeys(ENDINGS, "image"),
}
_IDX_NAME = re.compile(r".*[.-]idx\d-ubyte")
_IDX_CLASS = re.compile(r"(.*[.-]idx(?:\d-ubyte)?(?:\.gz)?):([^/\\]+)", re.DOTALL)
_CALLED = {
    "text": "delimited text",
    "parquet": "a parquet file",
    "npy": "a .npy file",
    "npz": "a zip archive such as .npz",
    "idx": "an idx file",
    "image": "one image",
}
_SHEETS = (".xlsx", ".xls", ".ods")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


def open_source(path: PathLike, columns: Columns = None) -> Source:
    """The reader of a file or folder.

    `archive.npz:key` names one array of several, `train-images-idx3-ubyte.gz:3` the images whose
    label is 3 in the file of labels beside it.

    The ending decides, or the first bytes where it says nothing. Where the two disagree the file
    is refused: one of them is wrong.
    """
    name, key = os.fspath(path), None
    if match := re.fullmatch(r"(.*\.npz):([^/\\]+)", name, re.IGNORECASE | re.DOTALL):
        name, key = match.groups()
    elif match := _IDX_CLASS.fullmatch(name):
        name, key = match.groups()
    place = Path(name)
    match detect_format(place):
        case "folder":
            return FolderSource(place, columns)
        case "text":
            return TextSource(place, columns)
        case "parquet":
            return ParquetSource(place, columns)
        case "npy":
            return open_npy(place, columns)
        case "npz":
            return open_npz(place, key, columns)
        case "idx":
            return IdxSource(place, columns) if key is None else open_idx_class(place, key, columns)
        case _:
            raise DataError(
                f"{subject_of(place)}: a sample must have several rows; this is one image. "
                "Give the folder it is in."
            )


def detect_format(path: Path) -> str:
    """`"folder"`, or the format of a file: by its ending, checked against its first bytes."""
    if path.is_dir():
        return "folder"
    _check_there(path)
    if path.suffix.lower() in _PICKLES + _SHEETS:  # some are zip archives, as .npz is
        raise _unknown(path)
    said, found = _ending_of(path), _look(path)
    if said and found and said != found:
        raise DamagedFileError(
            f"{subject_of(path)}: the ending must fit the content; the name says "
            f"{_CALLED[said]}, the first bytes say {_CALLED[found]}. Give it its right name."
        )
    if kind := said or found:
        return kind
    raise _unknown(path)


def _check_there(path: Path) -> None:
    if not path.exists():
        folder = path.parent
        nearby = [item.name for item in folder.iterdir()] if folder.is_dir() else []
        close = difflib.get_close_matches(path.name, nearby, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ArgumentError(
            f"data: `path` must be an existing file or folder; got {str(path)!r}.{hint}"
        )
    if not path.is_file():
        raise ArgumentError(
            subject="data", argument="path", rule="must be a file or folder", got=repr(str(path))
        )
    if not path.stat().st_size:
        raise DataError(f"{subject_of(path)}: a table must have rows; the file is empty.")


def _ending_of(path: Path) -> str | None:
    name = path.name.lower().removesuffix(".gz")
    if _IDX_NAME.fullmatch(name):
        return "idx"
    return _BY_ENDING.get(Path(name).suffix)


def _look(path: Path) -> str | None:
    """What the first bytes say, after unpacking."""
    with reading(path), open_bytes(path) as file:
        head = file.read(8)
    marks = {
        b"PAR1": "parquet",
        NPY: "npy",
        b"PK\x03\x04": "npz",
        b"PK\x05\x06": "npz",
        b"\x89PNG": "image",
        b"\xff\xd8\xff": "image",
    }
    for mark, kind in marks.items():
        if head.startswith(mark):
            return kind
    return "idx" if looks_like_idx(head) else None


def _unknown(path: Path) -> DataError:
    ending = path.suffix.lower()
    remedy = "Save it as one of these."
    if ending in _PICKLES:
        remedy = (
            "Files of that kind can run code when they are read. Save the array with numpy.save."
        )
    elif ending in _SHEETS:
        remedy = "Export the sheet as .csv."
    return DataError(
        f"{subject_of(path)}: the format must be .csv, .tsv, .parquet, .npy, .npz, idx (as MNIST, "
        f"also .gz) or a folder of images; got {ending or 'no ending'}. {remedy}"
    )
