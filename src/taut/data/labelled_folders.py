"""Labelled sets in folders: one folder of images for each class, or idx files two by two."""

from pathlib import Path

import numpy as np

from taut.data.idx_classes import labels_beside
from taut.data.idx_pairs import read_idx_pair
from taut.data.images import ENDINGS, FolderSource
from taut.data.labelled import LabelledSet
from taut.data.labelled_files import Named
from taut.data.source import subject_of
from taut.errors import DataError

__all__ = ["read_idx_folder", "read_image_classes"]

_PARTS = ("train", "test")


def read_idx_folder(path: Path) -> tuple[LabelledSet, LabelledSet] | None:
    """The two parts of a folder with files named as MNIST's are; `None` if it has no such."""
    images = [
        next((file for file in sorted(path.iterdir()) if file.name.startswith(start)), None)
        for start in ("train-images", "t10k-images")
    ]
    if images[0] is None or images[1] is None:
        return None
    train = read_idx_pair(images[0], labels_beside(images[0]), None)
    return train, read_idx_pair(images[1], labels_beside(images[1]), train.classes)


def read_image_classes(path: Path) -> tuple[Named, Named | None]:
    """The images of a folder with a folder for each class, the name of which is that class.

    Where the folder has folders `train` and `test`, each of these has the folders of the classes.
    Images are scaled to [0, 1]; all must have one shape.
    """
    inner = _folders(path)
    if {folder.name for folder in inner} == set(_PARTS):
        train, test = (_classes(path / part, f"{path.name}/{part}") for part in _PARTS)
        return train, test
    return _classes(path, path.name), None


def _folders(path: Path) -> list[Path]:
    return sorted(item for item in path.iterdir() if item.is_dir() and item.name[0] not in "._")


def _classes(path: Path, name: str) -> Named:
    folders = _folders(path)
    if not folders:
        raise DataError(
            f"data: {name}: a labelled folder must hold a folder of images for each class; "
            "it holds no folders."
        )
    if stray := [item.name for item in path.iterdir() if item.suffix.lower() in ENDINGS]:
        raise DataError(
            f"data: {name}: every image must be in the folder of its class; {stray[0]} is beside "
            "them."
        )
    images: list[np.ndarray] = []
    names: list[str] = []
    shape: tuple[int, ...] = ()
    for folder in folders:
        source = FolderSource(folder)
        shape = shape or source.image_shape
        if source.image_shape != shape:
            raise DataError(
                f"{subject_of(path)}: images must have one shape; those of {folders[0].name} have "
                f"{shape}, those of {folder.name} {source.image_shape}. Resize or convert them first."
            )
        images += [block.values for block in source.blocks(1024)]
        names += [folder.name] * source.rows
    flat = np.concatenate(images)
    grey = (1, *shape) if len(shape) == 2 else shape
    return Named(flat.reshape(len(flat), *grey), names, (), 0.0, 1.0)
