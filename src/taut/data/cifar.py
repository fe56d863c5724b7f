"""CIFAR-10 in its official binary archive: one byte of label and 3072 of pixels for each image."""

import hashlib
import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np

from taut.data.labelled import LabelledSet
from taut.data.official_sets import OFFICIAL_SETS
from taut.data.source import subject_of
from taut.errors import DamagedFileError

__all__ = ["read_cifar"]

_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_TEST = "test_batch.bin"
_SHAPE = (3, 32, 32)
_RECORD = 3073
_LARGEST = 2**28
_OFFICIAL = OFFICIAL_SETS["cifar10"]


def read_cifar(path: Path, official: bool = False) -> tuple[LabelledSet, LabelledSet]:
    """Training and test part of an archive in the format of `cifar-10-binary.tar.gz`.

    Args:
        path: the archive, compressed or not; it may hold fewer training batches.
        official: whether its SHA-256 must be that of the official file.

    Raises:
        DamagedFileError: the checksum is another, or the archive holds something else.
    """
    subject = subject_of(path)
    archive = path.read_bytes()  # what is checked is what is read
    expected, digest = _OFFICIAL.files[0].sha256, hashlib.sha256(archive).hexdigest()
    if official and digest != expected:
        raise DamagedFileError(
            subject=subject,
            rule=f"the SHA-256 of the official file must be {expected[:16]}...",
            got=f"{digest[:16]}..., of {len(archive)} bytes",
            remedy="Fetch it again; an archive of your own is read by its path.",
        )
    members = _read_members(subject, archive)
    batches = {name: _parse(f"{subject}: {name}", data) for name, data in members.items()}
    parts = {
        "train": [batches[name] for name in _TRAIN if name in batches],
        "test": [batches[_TEST]] if _TEST in batches else [],
    }
    if not all(parts.values()):
        raise DamagedFileError(
            subject=subject,
            rule=f"the archive must hold {_TRAIN[0]} and {_TEST}",
            got=", ".join(batches) or "neither",
        )
    train, test = (
        LabelledSet(
            inputs=np.concatenate([images for images, _ in part]),
            labels=np.concatenate([labels for _, labels in part]),
            classes=_OFFICIAL.classes,
            columns=(),
            low=0.0,
            high=1.0,
            source=f"{_OFFICIAL.title} {name}",
        )
        for name, part in parts.items()
    )
    return train, test


def _parse(subject: str, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    if not data or len(data) % _RECORD:
        rule = f"must be records of {_RECORD} bytes, a label and an image each"
        raise DamagedFileError(subject=subject, rule=rule, got=f"{len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        got = str(labels.max())
        raise DamagedFileError(subject=subject, rule="labels must be from 0 to 9", got=got)
    return records[:, 1:].reshape(-1, *_SHAPE).astype(np.float32) / np.float32(255), labels


def _read_members(subject: str, archive: bytes) -> dict[str, bytes]:
    """The batches of a tar file by their names, read in memory: nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                # Links are never followed, and a header that lies about its size costs no memory.
                if member.isreg() and name in (*_TRAIN, _TEST) and member.size <= _LARGEST:
                    file = tar.extractfile(member)
                    found[name] = file.read() if file else b""
                    if len(found[name]) != member.size:
                        raise EOFError(f"the archive ends inside {name}")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DamagedFileError(
            subject=subject,
            rule="the archive must be a complete tar file",
            got=str(error),
            remedy="Fetch it again.",
        ) from error
    return found
