"""CIFAR-10 in its official archive, whose files are pickles: checksum first, then arrays alone.

A pickle can name any function of Python and have it called. Two doors are between that and the
user: an archive is opened only if its SHA-256 is the one expected, and the unpickler knows numpy's
arrays, lists, dicts, text and numbers, and no other name.
"""

import codecs
import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from taut.data.archives import read_members
from taut.data.known import KNOWN
from taut.data.labelled import LabelledSet
from taut.data.source import subject_of
from taut.errors import DamagedFileError

__all__ = ["load_arrays", "read_cifar"]

_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST = ("test_batch",)
_SHAPE = (3, 32, 32)
_OFFICIAL = KNOWN["cifar10"]


def read_cifar(path: Path, sha256: str | None = None) -> tuple[LabelledSet, LabelledSet]:
    """Training and test part of an archive in the format of `cifar-10-python.tar.gz`.

    Args:
        path: the archive, packed or not.
        sha256: what its SHA-256 must be; the official one by default. For an archive of your own
            give the checksum that you computed where you made it.

    Raises:
        DamagedFileError: the checksum is another, or the archive holds something else.
    """
    subject = subject_of(path)
    archive = path.read_bytes()  # what is checked is what is read
    digest = hashlib.sha256(archive).hexdigest()
    expected = sha256 or _OFFICIAL.files[0].sha256
    if digest != expected.lower():
        raise DamagedFileError(
            f"{subject}: an archive of pickles is read only if its SHA-256 is {expected[:16]}...; "
            f"it is {digest[:16]}..., of {len(archive)} bytes. Fetch it again; for an archive of "
            "your own use taut.data.cifar.read_cifar(path, sha256=...)."
        )
    members = read_members(subject, archive, (*_TRAIN, *_TEST))
    if missing := [name for name in (*_TRAIN, *_TEST) if name not in members]:
        raise DamagedFileError(
            f"{subject}: the archive must hold {', '.join(missing)}; it does not."
        )
    batches = {name: _batch(f"{subject}: {name}", data) for name, data in members.items()}
    train, test = (
        LabelledSet(
            inputs=np.concatenate([batches[name][0] for name in names]),
            labels=np.concatenate([batches[name][1] for name in names]),
            classes=_OFFICIAL.classes,
            columns=(),
            low=0.0,
            high=1.0,
            source=f"{_OFFICIAL.title} {part}",
        )
        for part, names in (("train", _TRAIN), ("test", _TEST))
    )
    return train, test


def _batch(subject: str, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    content = load_arrays(subject, data)
    fields = (
        {_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    )
    pixels, labels = fields.get("data"), fields.get("labels")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        raise DamagedFileError(
            f"{subject}: must hold an array `data` and a list `labels`; got {sorted(fields)}."
        )
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        raise DamagedFileError(
            f"{subject}: `data` must be bytes of shape (n, 3072); got {pixels.dtype} of shape "
            f"{pixels.shape}."
        )
    if len(labels) != len(pixels):
        raise DamagedFileError(
            f"{subject}: there must be a label for every image; got {len(labels)} labels and "
            f"{len(pixels)} images."
        )
    if wrong := [label for label in labels if type(label) is not int or not 0 <= label < 10]:
        raise DamagedFileError(f"{subject}: labels must be from 0 to 9; got {wrong[0]!r}.")
    images = pixels.reshape(-1, *_SHAPE).astype(np.float32) / np.float32(255)
    return images, np.array(labels, np.int64)


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 calls to rebuild bytes from a pickle of protocol 2."""
    return codecs.latin_1_encode(text)[0] if encoding == "latin1" else _refuse(encoding)


def _frombuffer(buffer: bytes, dtype: np.dtype, shape: tuple[int, ...], order: Any) -> np.ndarray:
    """What numpy calls to rebuild an array from a pickle of protocol 5."""
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


def _refuse(name: str) -> Any:
    raise pickle.UnpicklingError(f"it asks for {name}, which is no array, list or text")


_CORES = "numpy.core", "numpy._core"  # before and since numpy 2
_ADMITTED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    **{(f"{core}.numeric", "_frombuffer"): _frombuffer for core in _CORES},
    # numpy's own function, wherever this release keeps it.
    **{(f"{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in _CORES},
}


class _ArraysAlone(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        """One of the names that arrays need, or an error."""
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            return _refuse(f"{module_name}.{global_name}")


def load_arrays(subject: str, data: bytes) -> Any:
    """What a pickle of arrays, lists, dicts, text and numbers holds; runs nothing else.

    Example:
        >>> load_arrays("data", pickle.dumps({"labels": [3, 8]}))
        {'labels': [3, 8]}
        >>> load_arrays("data", pickle.dumps(print))
        Traceback (most recent call last):
        taut.errors.DamagedFileError: data: the pickle is refused: it asks for builtins.print, ...
    """
    try:
        return _ArraysAlone(io.BytesIO(data), encoding="bytes").load()
    # A damaged pickle can fail in any way that Python knows.
    except Exception as error:
        raise DamagedFileError(f"{subject}: the pickle is refused: {error}.") from error
