"""Labelled sets in files and folders, one reader per format; nothing is unpickled or unpacked to disk.

Readers of formats that may have a test part return two sets, the second of which is `None` without a
test part. With `classes`, labels are indices into these, otherwise into all classes that occur.
"""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from taut.data.column_selection import list_some
from taut.data.column_values import to_floats
from taut.data.idx_files import labels_beside, parse_idx, parse_labels
from taut.data.image_files import IMAGE_ENDINGS, FolderSource
from taut.data.labelled import LabelledSet, label_images
from taut.data.labelled_tables import check_range
from taut.data.labels import NoLabelError, name_classes, number_classes
from taut.data.numpy_files import read_npz
from taut.data.official_sets import OFFICIAL_SETS
from taut.data.source_base import read_bytes, refuse_damage
from taut.errors import DamagedFileError, DataError

Classes = Sequence[str] | None
_INPUTS = ("x", "inputs", "images", "data", "features")
_LABELS = ("y", "labels", "label", "target", "targets")
_PARTS = ("train", "test")
_CIFAR_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_CIFAR_TEST = "test_batch.bin"
_CIFAR_RECORD = 3073
_CIFAR_LARGEST = 2**28
_CIFAR = OFFICIAL_SETS["cifar10"]


def read_labelled_npz(path: Path, classes: Classes) -> tuple[LabelledSet, LabelledSet | None]:
    """Reads the arrays x and y of a .npz file, or x_train, y_train, x_test and y_test."""
    arrays = {key.lower(): array for key, array in read_npz(path).items()}
    if (train := _pair_arrays(path.name, arrays, "_train", classes)) is not None:
        return train, _pair_arrays(path.name, arrays, "_test", train.classes)
    if (whole := _pair_arrays(path.name, arrays, "", classes)) is not None:
        return whole, None
    rule = "a labelled .npz file must hold arrays x and y, or x_train, y_train, x_test and y_test"
    raise NoLabelError(f"data: {path.name}", rule=rule, got=list_some(arrays))


def _pair_arrays(
    source: str, arrays: dict[str, np.ndarray], ending: str, classes: Classes
) -> LabelledSet | None:
    subject = f"data: {source}"
    inputs, labels = (
        [name + ending for name in names if name + ending in arrays] for names in (_INPUTS, _LABELS)
    )
    if not inputs or not labels:
        return None
    if len(inputs) > 1 or len(labels) > 1:
        got = list_some(inputs + labels)
        raise DataError(subject, rule="inputs and labels must occur once", got=got)
    x, y = arrays[inputs[0]], arrays[labels[0]]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "biufU":
        got, remedy = f"{y.dtype} of shape {y.shape}", "For one-hot rows use .argmax(1)."
        raise DataError(
            subject, rule=f"{labels[0]} must be one label a row", got=got, remedy=remedy
        )
    if len(x) != len(y):
        rule = "there must be a label for every input"
        message = f"{rule}; {inputs[0]} has {len(x)} rows, {labels[0]} has {len(y)}"
        raise DataError(subject, rule=message)
    values = _as_images(subject, x)
    unit = values.ndim == 4 and 0 <= values.min() and values.max() <= 1
    low, high = (0.0, 1.0) if unit else (None, None)
    numbers, class_names = number_classes(subject, name_classes(subject, y.tolist()), classes)
    return LabelledSet(values, numbers, class_names, (), low, high, source)


def _as_images(subject: str, values: np.ndarray) -> np.ndarray:
    """Returns rows of numbers unchanged, and images with channels first and bytes scaled to [0, 1]."""
    if values.ndim not in (2, 3, 4) or 0 in values.shape:
        rule = (
            "inputs must be rows of numbers, or images of shape (n, height, width), (n, "
            "channels, height, width) or (n, height, width, channels)"
        )
        raise DataError(subject, rule=rule, got=str(values.shape))
    floats = to_floats(subject, values)
    check_range(subject, floats.reshape(len(values), -1))
    if values.ndim == 2:
        return floats
    floats = floats.astype(np.float32, copy=False)
    if values.dtype == np.uint8:
        floats /= np.float32(255)
    if values.ndim == 3:
        return floats[:, None]
    if values.shape[-1] in (1, 3) and values.shape[1] not in (1, 3):
        return np.ascontiguousarray(floats.transpose(0, 3, 1, 2))
    return floats


def read_image_classes(path: Path, classes: Classes) -> tuple[LabelledSet, LabelledSet | None]:
    """Reads images from a folder with one subfolder per class, named after the class.

    If the folder has subfolders `train` and `test`, each of these contains the subfolders of the classes.
    Images are scaled to [0, 1]; all must have one shape.
    """
    if {folder.name for folder in _folders(path)} != set(_PARTS):
        return _read_classes(path, path.name, path.name, classes), None
    train = _read_classes(path / "train", f"{path.name}/train", path.name, classes)
    return train, _read_classes(path / "test", f"{path.name}/test", path.name, train.classes)


def _folders(path: Path) -> list[Path]:
    return sorted(item for item in path.iterdir() if item.is_dir() and item.name[0] not in "._")


def _read_classes(path: Path, title: str, source: str, classes: Classes) -> LabelledSet:
    folders, subject = _folders(path), f"data: {title}"
    if not folders:
        rule = "a labelled folder must hold a folder of images for each class; it holds no folders"
        raise DataError(subject, rule=rule)
    if stray := [item.name for item in path.iterdir() if item.suffix.lower() in IMAGE_ENDINGS]:
        rule = f"every image must be in the folder of its class; {stray[0]} is beside them"
        raise DataError(subject, rule=rule)
    opened = [FolderSource(folder) for folder in folders]
    shape = opened[0].image_shape
    if other := next((each for each in opened if each.image_shape != shape), None):
        rule = (
            f"images must have one shape; those of {opened[0].name} have {shape}, those of "
            f"{other.name} {other.image_shape}"
        )
        raise DataError(subject, rule=rule, remedy="Resize or convert them first.")
    images = np.concatenate([block for each in opened for block in each.blocks(1024)])
    names = [each.name for each in opened for _ in range(each.rows)]
    labels, class_names = number_classes(f"data: {source}", names, classes)
    channels = (1, *shape) if len(shape) == 2 else shape
    return LabelledSet(images.reshape(-1, *channels), labels, class_names, (), 0.0, 1.0, source)


def read_idx_folder(path: Path) -> tuple[LabelledSet, LabelledSet] | None:
    """Reads both parts from a folder with files named like MNIST's; `None` if there are none."""
    images = [
        next((file for file in sorted(path.iterdir()) if file.name.startswith(start)), None)
        for start in ("train-images", "t10k-images")
    ]
    if images[0] is None or images[1] is None:
        return None
    train = read_idx_pair(images[0])
    return train, read_idx_pair(images[1], train.classes)


def read_idx_pair(path: Path, classes: tuple[str, ...] = ()) -> LabelledSet:
    """Reads the images of an idx file and the labels in the file beside it; see `pair_idx`."""
    beside = labels_beside(path)
    subject = f"data: {beside.name}"
    return pair_idx(path.name, read_bytes(path), subject, read_bytes(beside), classes)


def pair_idx(
    source: str, images: bytes, label_subject: str, labels: bytes, classes: tuple[str, ...]
) -> LabelledSet:
    """Parses images and labels from the bytes of two idx files; classes are 0, 1, ... by default."""
    subject = f"data: {source}"
    pixels = parse_idx(subject, images)
    if pixels.ndim == 1:
        rule = (
            "the file of images must hold images; it holds one number for each of "
            f"{len(pixels)} rows, as files of labels do"
        )
        raise DataError(subject, rule=rule, remedy="The two files may be swapped.")
    if pixels.ndim not in (3, 4) or pixels.dtype != np.uint8:
        rule = "images must be bytes of shape (n, height, width) or (n, channels, height, width)"
        raise DataError(subject, rule=rule, got=f"{pixels.dtype} of shape {pixels.shape}")
    numbers = parse_labels(label_subject, labels, len(pixels))
    names = classes or tuple(map(str, range(int(numbers.max(initial=0)) + 1)))
    return label_images(pixels[:, None] if pixels.ndim == 3 else pixels, numbers, names, source)


def parse_cifar(subject: str, archive: bytes) -> tuple[LabelledSet, LabelledSet]:
    """Parses the training and test part of a tar file in the format of `cifar-10-binary.tar.gz`.

    It may be uncompressed and may hold fewer training batches.
    """
    members = _read_members(subject, archive)
    batches = {name: _parse_batch(f"{subject}: {name}", data) for name, data in members.items()}
    train_batches = [name for name in _CIFAR_TRAIN if name in batches]
    if not train_batches or _CIFAR_TEST not in batches:
        rule = f"the archive must hold {_CIFAR_TRAIN[0]} and {_CIFAR_TEST}"
        raise DamagedFileError(subject, rule=rule, got=", ".join(batches) or "neither")

    def join(names: list[str], part: str) -> LabelledSet:
        records = np.concatenate([batches[name] for name in names])
        pixels = records[:, 1:].reshape(-1, 3, 32, 32)
        source = f"{_CIFAR.title} {part}"
        return label_images(pixels, records[:, 0], _CIFAR.classes, source)

    return join(train_batches, "train"), join([_CIFAR_TEST], "test")


def _parse_batch(subject: str, data: bytes) -> np.ndarray:
    if not data or len(data) % _CIFAR_RECORD:
        rule = f"must be records of {_CIFAR_RECORD} bytes, a label and an image each"
        raise DamagedFileError(subject, rule=rule, got=f"{len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_RECORD)
    largest = records[:, 0].max()
    if largest > 9:
        raise DamagedFileError(subject, rule="labels must be from 0 to 9", got=str(largest))
    return records


def _read_members(subject: str, archive: bytes) -> dict[str, bytes]:
    """Reads the batches of a tar file by name, in memory: nothing is unpacked to disk."""
    members: dict[str, bytes] = {}
    with (
        refuse_damage(subject, "the tar archive", (tarfile.TarError, OSError)),
        tarfile.open(fileobj=io.BytesIO(archive)) as tar,
    ):
        for member in tar:
            name = PurePosixPath(member.name).name
            is_batch = name in (*_CIFAR_TRAIN, _CIFAR_TEST)
            # Links are never followed, and a wrong size in a header costs no memory.
            if is_batch and member.isreg() and member.size <= _CIFAR_LARGEST:
                file = tar.extractfile(member)
                members[name] = file.read() if file else b""
                if len(members[name]) != member.size:
                    raise EOFError(f"it ends inside {name}")
    return members


def read_digits() -> LabelledSet:
    """Loads all 1797 digits, scaled from 0 ... 16 to [0, 1]."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as arrays:
        images, labels = arrays["images"][:, None], arrays["labels"]
    return label_images(images, labels, tuple("0123456789"), "digits", largest=16)
