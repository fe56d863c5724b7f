"""Selection of the reader of a path, by its ending, checked against its first bytes."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from taut.data.idx_files import IdxSource, looks_like_idx
from taut.data.image_files import IMAGE_ENDINGS, FolderSource
from taut.data.numpy_files import NPY, open_npy, open_npz
from taut.data.parquet_files import ParquetSource
from taut.data.source_base import Source, open_bytes, refuse_damage
from taut.data.text_tables import TextSource
from taut.errors import ArgumentError, DamagedFileError, DataError, did_you_mean

PathLike = str | os.PathLike[str]

_BY_ENDING = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data", ".test"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".npy": "npy",
    ".npz": "npz",
    ".idx": "idx",
    **dict.fromkeys(IMAGE_ENDINGS, "image"),
}
_BY_FIRST_BYTES = {
    b"PAR1": "parquet",
    NPY: "npy",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
    b"\x89PNG": "image",
    b"\xff\xd8\xff": "image",
}
_IDX_NAME = re.compile(r".*[.-]idx\d-ubyte")
_WITH_KEY = re.compile(
    r"(.*(?:\.(?i:npz)|[.-]idx(?:\d-ubyte)?(?:\.gz)?)):([^/\\]+)|(.*\.(?i:zip)):(.+)",
    flags=re.DOTALL,
)
_REMEDIES = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "Export the sheet as .csv."),
    **dict.fromkeys(
        (".pkl", ".pickle", ".pt", ".pth", ".joblib"),
        "Files of that kind can run code when they are read. Save the array with numpy.save.",
    ),
}


def open_source(
    path: PathLike, names: Sequence[str] = (), label: str | int | None = None
) -> Source:
    """Opens a file or folder with the reader of its format, with all columns; see `detect_format`.

    `archive.npz:key` names one array of several, `archive.zip:name.csv` one file,
    `train-images-idx3-ubyte.gz:3` the images whose label is 3 in the file of labels beside it.

    Args:
        path: file or folder.
        names: names of all columns, for a table without a header.
        label: name or position of the label column, which helps to recognise a header.
    """
    name, key = os.fspath(path), None
    if match := _WITH_KEY.fullmatch(name):
        name, key = (group for group in match.groups() if group is not None)
    file = Path(name)
    match detect_format(file):
        case "folder":
            source = FolderSource(file)
        case "text":
            source = TextSource(file, key, None if names else label)
        case "parquet":
            source = ParquetSource(file)
        case "npy":
            source = open_npy(file)
        case "npz":
            source = open_npz(file, key)
        case "idx":
            source = IdxSource(file, key)
        case _:
            rule = "a sample must have several rows; this is one image"
            raise DataError(f"data: {file.name}", rule=rule, remedy="Give the folder it is in.")
    if names:
        source.rename(names)
    return source


def detect_format(path: Path) -> str:
    """`"folder"`, or the format of a file: by its ending, or else by its first bytes.

    If the two disagree, the file is refused.
    """
    if path.is_dir():
        return "folder"
    _check_exists(path)
    subject, ending = f"data: {path.name}", path.suffix.lower()
    by_name = by_content = None
    if ending == ".zip":
        return "text"
    if ending not in _REMEDIES:  # some of these are zip archives, such as .npz
        name = path.name.lower().removesuffix(".gz")
        by_name = "idx" if _IDX_NAME.fullmatch(name) else _BY_ENDING.get(Path(name).suffix)
        by_content = _format_by_content(path)
    if by_name and by_content and by_name != by_content:
        rule = "the ending must fit the content; the name says {}, the first bytes say {}"
        raise DamagedFileError(subject, rule=rule.format(by_name, by_content), remedy="Rename it.")
    if kind := by_name or by_content:
        return kind
    rule = (
        "the format must be .csv, .tsv, .zip of one of these, .parquet, .npy, .npz, idx (as "
        "MNIST, also .gz) or a folder of images"
    )
    remedy = _REMEDIES.get(ending, "Save it as one of these.")
    raise DataError(subject, rule=rule, got=ending or "no ending", remedy=remedy)


def _check_exists(path: Path) -> None:
    if not path.is_file():
        others = path.parent.iterdir() if path.parent.is_dir() else ()
        nearby = [repr(item.name) for item in others if item.name != path.name]  # not a broken link
        rule, got = "must be an existing file or folder", repr(str(path))
        raise ArgumentError("data", "path", rule, got, did_you_mean(repr(path.name), nearby))
    if not path.stat().st_size:
        raise DataError(f"data: {path.name}", rule="a table must have rows; the file is empty")


def _format_by_content(path: Path) -> str | None:
    with refuse_damage(f"data: {path.name}"), open_bytes(path) as file:
        head = file.read(8)
    if looks_like_idx(head):
        return "idx"
    return next((kind for mark, kind in _BY_FIRST_BYTES.items() if head.startswith(mark)), None)
