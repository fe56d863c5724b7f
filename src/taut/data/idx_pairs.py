"""Images and labels in two idx files, as in MNIST-style datasets."""

import hashlib
from pathlib import Path

import numpy as np

from taut.data.idx import parse_idx
from taut.data.labelled import LabelledSet
from taut.data.official_sets import OFFICIAL_SETS, OfficialFile, OfficialSet
from taut.data.source import open_bytes, reading, subject_of
from taut.errors import DamagedFileError, DataError

__all__ = ["read_idx_labels", "read_idx_pair", "read_known_idx"]


def read_idx_labels(path: Path, count: int | None = None) -> np.ndarray:
    """The labels of an idx file as int64; `count` is how many there must be."""
    return _labels(subject_of(path), _content(path), count)


def read_idx_pair(images: Path, labels: Path, classes: tuple[str, ...] | None) -> LabelledSet:
    """Images and their labels; without `classes` the labels 0, 1, ... are their names."""
    return _pair(images.name, _content(images), subject_of(labels), _content(labels), classes)


def read_known_idx(known: OfficialSet, found: dict[str, Path]) -> tuple[LabelledSet, LabelledSet]:
    """Training and test part of MNIST or Fashion-MNIST, each file after its checksum."""

    def content(file: OfficialFile) -> bytes:
        return _official(known, file, found[file.name])

    files = known.files
    train, test = (
        _pair(
            f"{known.title} {part}",
            content(images),
            subject_of(found[labels.name]),
            content(labels),
            known.classes,
        )
        for part, images, labels in (("train", *files[:2]), ("test", *files[2:]))
    )
    return train, test


def _content(path: Path) -> bytes:
    with reading(path), open_bytes(path) as file:
        return file.read()


def _official(known: OfficialSet, file: OfficialFile, path: Path) -> bytes:
    """What the file unpacks to, if it is what the world knows under that name."""
    content = _content(path)
    digest = hashlib.sha256(content).hexdigest()
    if digest == file.content_sha256:
        return content
    owner = next(
        (
            f"{other.title}'s {twin.name.removesuffix('.gz')}"
            for other in OFFICIAL_SETS.values()
            for twin in other.files
            if twin.content_sha256 == digest
        ),
        None,
    )
    what = f"it is {owner}" if owner else f"its SHA-256 is {digest[:16]}..."
    remedy = (
        "Put it in the folder of its name."
        if owner
        else "Fetch it again; data of your own in this format is read by the path of its folder."
    )
    raise DamagedFileError(
        f"{subject_of(path)}: must be the official file of {known.title} after unpacking; "
        f"{what}, in {path.parent}. {remedy}"
    )


def _pair(
    source: str,
    images: bytes,
    labels_subject: str,
    labels: bytes,
    classes: tuple[str, ...] | None,
) -> LabelledSet:
    pixels = parse_idx(f"data: {source}", images)
    if pixels.ndim == 1:
        raise DataError(
            f"data: {source}: the file of images must hold images; it holds one number for each of "
            f"{len(pixels)} rows, as files of labels do. The two files may be swapped."
        )
    if pixels.ndim not in (3, 4) or pixels.dtype != np.uint8:
        raise DataError(
            subject=f"data: {source}",
            rule="images must be bytes of shape (n, height, width) or (n, channels, height, width)",
            got=f"{pixels.dtype} of shape {pixels.shape}",
        )
    numbers = _labels(labels_subject, labels, len(pixels))
    names = classes or tuple(str(number) for number in range(int(numbers.max(initial=0)) + 1))
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    return LabelledSet(
        inputs=pixels.astype(np.float32) / np.float32(255),
        labels=numbers,
        classes=names,
        columns=(),
        low=0.0,
        high=1.0,
        source=source,
    )


def _labels(subject: str, content: bytes, count: int | None) -> np.ndarray:
    numbers = parse_idx(subject, content)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise DataError(
            subject=subject,
            rule="a file of labels must hold one whole number a row",
            got=f"{numbers.dtype} of shape {numbers.shape}, as files of images do",
            remedy="The two files may be swapped.",
        )
    if count is not None and len(numbers) != count:
        raise DataError(
            subject=subject,
            rule="there must be a label for every image",
            got=f"{len(numbers)} labels and {count} images",
            remedy="Give the two files that belong together.",
        )
    return numbers.astype(np.int64)
