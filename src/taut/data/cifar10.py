"""CIFAR-10 in its official binary archive: one byte of label and 3072 of pixels for each image."""

import io
import tarfile
from pathlib import PurePosixPath

import numpy as np

from taut.data.labelled import LabelledSet, label_images
from taut.data.official_sets import OFFICIAL_SETS
from taut.data.source import refuse_damage
from taut.errors import DamagedFileError

__all__ = ["parse_cifar"]

_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_TEST = "test_batch.bin"
_RECORD = 3073
_LARGEST = 2**28
_OFFICIAL = OFFICIAL_SETS["cifar10"]


def parse_cifar(subject: str, archive: bytes) -> tuple[LabelledSet, LabelledSet]:
    """Training and test part of a tar file in the format of `cifar-10-binary.tar.gz`.

    It may be compressed or not, and hold fewer training batches. One that is cut short or holds
    something else raises `DamagedFileError`.
    """
    members = _read_members(subject, archive)
    batches = {name: _parse_batch(f"{subject}: {name}", data) for name, data in members.items()}
    found = [name for name in _TRAIN if name in batches]
    if not found or _TEST not in batches:
        rule = f"the archive must hold {_TRAIN[0]} and {_TEST}"
        raise DamagedFileError(subject=subject, rule=rule, got=", ".join(batches) or "neither")

    def join(names: list[str], part: str) -> LabelledSet:
        records = np.concatenate([batches[name] for name in names])
        pixels = records[:, 1:].reshape(-1, 3, 32, 32)
        source = f"{_OFFICIAL.title} {part}"
        return label_images(pixels, records[:, 0], _OFFICIAL.classes, source)

    return join(found, "train"), join([_TEST], "test")


def _parse_batch(subject: str, data: bytes) -> np.ndarray:
    if not data or len(data) % _RECORD:
        rule = f"must be records of {_RECORD} bytes, a label and an image each"
        raise DamagedFileError(subject=subject, rule=rule, got=f"{len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    largest = records[:, 0].max()
    if largest > 9:
        raise DamagedFileError(subject=subject, rule="labels must be from 0 to 9", got=str(largest))
    return records


def _read_members(subject: str, archive: bytes) -> dict[str, bytes]:
    """The batches of a tar file by their names, read in memory: nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    with (
        refuse_damage(subject, "the tar archive", (tarfile.TarError, OSError)),
        tarfile.open(fileobj=io.BytesIO(archive)) as tar,
    ):
        for member in tar:
            name = PurePosixPath(member.name).name
            # Links are never followed, and a header that lies about its size costs no memory.
            if member.isreg() and name in (*_TRAIN, _TEST) and member.size <= _LARGEST:
                file = tar.extractfile(member)
                found[name] = file.read() if file else b""
                if len(found[name]) != member.size:
                    raise EOFError(f"it ends inside {name}")
    return found
