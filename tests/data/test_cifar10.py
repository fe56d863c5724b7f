"""CIFAR-10's binary archive: nothing but its records is read, nothing of it lands on the disk."""

import hashlib
import io
import tarfile
from typing import Literal

import numpy as np
import pytest

from taut.data import OFFICIAL_SETS, LabelledSet, labelled_files, labelled_loading, load_labelled
from taut.data.labelled_files import parse_cifar
from taut.data.official_sets import OfficialFile, OfficialSet
from taut.errors import DamagedFileError

RANDOM = np.random.default_rng(0)
NAMES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
PIXELS = {name: RANDOM.integers(0, 256, (4, 3072), dtype=np.uint8) for name in NAMES}
LABELS = {name: RANDOM.integers(0, 10, (4, 1), dtype=np.uint8) for name in NAMES}


def batches(**changes: bytes) -> dict[str, bytes]:
    whole = {name: np.hstack([LABELS[name], PIXELS[name]]).tobytes() for name in NAMES}
    return {**whole, "batches.meta.txt": b"never read", **changes}


def member(name: str, data: bytes = b"", **fields) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def archive(members, mode: Literal["w:gz", "w:bz2", "w:"] = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write(path, files: dict[str, bytes], *extra):
    folder = member("cifar-10-batches-bin", type=tarfile.DIRTYPE)
    inner = [member(f"cifar-10-batches-bin/{name}", data) for name, data in files.items()]
    data = archive([folder, *inner, *extra])
    path.write_bytes(data)
    return path, hashlib.sha256(data).hexdigest()


def read_cifar(path) -> tuple[LabelledSet, LabelledSet]:
    return parse_cifar(f"data: {path.name}", path.read_bytes())


def test_a_small_archive_of_that_format(tmp_path):
    path, _ = write(tmp_path / "mine.tar.gz", batches())
    train, test = read_cifar(path)
    pixels = np.concatenate([PIXELS[name] for name in NAMES[:5]])
    assert train.inputs.shape == (20, 3, 32, 32) and test.inputs.shape == (4, 3, 32, 32)
    assert np.array_equal(train.inputs.reshape(20, -1), pixels.astype(np.float32) / 255)
    assert train.labels.tolist() == np.concatenate([LABELS[n] for n in NAMES[:5]])[:, 0].tolist()
    assert test.labels.tolist() == LABELS["test_batch.bin"][:, 0].tolist()
    assert train.classes[3] == "cat" and (train.low, train.high) == (0, 1)
    data = load_labelled(path)
    assert (len(data.train), len(data.test)) == (20, 4)


def test_by_name_only_the_official_archive_is_opened(tmp_path, monkeypatch):
    write(tmp_path / "cifar-10-binary.tar.gz", batches())

    def never(*args):
        raise AssertionError("opened before its checksum was right")

    monkeypatch.setattr(labelled_files, "_read_members", never)
    with pytest.raises(DamagedFileError, match="whose SHA-256 is c4a38c50a1bc5f3a...; got"):
        load_labelled("cifar10", data_dir=tmp_path)


def test_by_name_after_its_checksum(tmp_path, monkeypatch):
    path, digest = write(tmp_path / "c.tar.gz", batches())
    file = OfficialFile("c.tar.gz", path.stat().st_size, digest)
    known = OfficialSet(
        "cifar10", "CIFAR-10", (file,), (), OFFICIAL_SETS["cifar10"].classes, (".",)
    )
    monkeypatch.setattr(labelled_loading, "OFFICIAL_SETS", {"cifar10": known})
    data = load_labelled("cifar10", data_dir=tmp_path)
    assert (len(data.train), len(data.test), data.name) == (20, 4, "cifar10")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "data_batch_3.bin: must be records of 3073 bytes, a label and an image each; got 0"),
        (bytes(3072), "got 3072 bytes"),
        (bytes(2 * 3073 + 1), "got 6147 bytes"),
        (b"\x0a" + bytes(3072), "data_batch_3.bin: labels must be from 0 to 9; got 10"),
    ],
)
def test_batches_that_hold_something_else(tmp_path, content, sentence):
    path, _ = write(tmp_path / "mine.tar.gz", batches(**{"data_batch_3.bin": content}))
    with pytest.raises(DamagedFileError) as caught:
        read_cifar(path)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("kept", [NAMES[:5], NAMES[5:], []])
def test_both_parts_must_be_there(tmp_path, kept):
    whole = batches()
    path, _ = write(tmp_path / "mine.tar.gz", {name: whole[name] for name in kept})
    with pytest.raises(DamagedFileError, match="must hold data_batch_1.bin and test_batch.bin"):
        read_cifar(path)


@pytest.mark.parametrize(
    "stray",
    [
        member("../test_batch.bin", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("test_batch.bin", type=tarfile.LNKTYPE, linkname="../x"),
        member("data_batch_1.bin", type=tarfile.FIFOTYPE),
        member("../../outside", b"x"),
    ],
    ids=["symlink", "hardlink", "pipe", "outside"],
)
def test_nothing_is_unpacked_and_no_link_is_followed(tmp_path, monkeypatch, stray):
    monkeypatch.chdir(tmp_path)
    path, _ = write(tmp_path / "mine.tar.gz", batches(), stray)
    train, test = read_cifar(path)
    assert (len(train), len(test)) == (20, 4)
    assert [item.name for item in tmp_path.iterdir()] == ["mine.tar.gz"]


def test_archives_that_are_damaged(tmp_path):
    path, _ = write(tmp_path / "mine.tar.gz", batches())
    whole = path.read_bytes()
    for data in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(DamagedFileError, match="the tar archive is cut short or altered"):
            read_cifar(path)
    huge, _ = member("test_batch.bin")
    huge.size = 2**40
    path.write_bytes(huge.tobuf() + bytes(1024))
    with pytest.raises(DamagedFileError):
        read_cifar(path)
