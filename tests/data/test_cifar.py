"""CIFAR-10's archive of pickles: nothing of it runs, nothing of it lands on the disk."""

import builtins
import hashlib
import io
import os
import pickle
import struct
import tarfile
from typing import Literal

import numpy as np
import pytest

from taut.data import cifar, load, load_labelled
from taut.data.archives import read_members
from taut.data.cifar import load_arrays, read_cifar
from taut.data.known import KnownFile, KnownSet
from taut.errors import DamagedFileError

RANDOM = np.random.default_rng(0)
NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
PIXELS = {name: RANDOM.integers(0, 256, (4, 3072), dtype=np.uint8) for name in NAMES}
LABELS = {name: RANDOM.integers(0, 10, 4).tolist() for name in NAMES}


def python2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """As Python 2 wrote the official files: text is bytes, in protocol 2."""
    rows, width = pixels.shape
    return b"".join(
        [
            b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n",
            b"K\x00\x85U\x01b\x87R(K\x01M",
            struct.pack("<H", rows),
            b"M",
            struct.pack("<H", width),
            b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff",
            b"J\xff\xff\xff\xffK\x00tb\x89T",
            struct.pack("<I", pixels.size),
            pixels.tobytes(),
            b"tbU\x06labels](",
            b"".join(b"K" + bytes([label]) for label in labels),
            b"eu.",
        ]
    )


def batches(**changes: bytes) -> dict[str, bytes]:
    whole = {name: python2_pickle(PIXELS[name], LABELS[name]) for name in NAMES}
    return {**whole, "batches.meta": b"never read", **changes}


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
    folder = member("cifar-10-batches-py", type=tarfile.DIRTYPE)
    inner = [member(f"cifar-10-batches-py/{name}", data) for name, data in files.items()]
    data = archive([folder, *inner, *extra])
    path.write_bytes(data)
    return path, hashlib.sha256(data).hexdigest()


def test_a_small_archive_of_that_format(tmp_path):
    path, digest = write(tmp_path / "mine.tar.gz", batches())
    for spelling in (digest, digest.upper()):
        train, test = read_cifar(path, sha256=spelling)
        pixels = np.concatenate([PIXELS[name] for name in NAMES[:5]])
        assert train.inputs.shape == (20, 3, 32, 32) and test.inputs.shape == (4, 3, 32, 32)
        assert np.array_equal(train.inputs.reshape(20, -1), pixels.astype(np.float32) / 255)
        assert train.labels.tolist() == [label for name in NAMES[:5] for label in LABELS[name]]
        assert test.labels.tolist() == LABELS["test_batch"]
        assert train.classes[3] == "cat" and (train.low, train.high) == (0, 1)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_this_python_are_read_too(tmp_path, protocol):
    made = {
        name: pickle.dumps({b"data": PIXELS[name], "labels": LABELS[name]}, protocol)
        for name in NAMES
    }
    path, digest = write(tmp_path / "mine.tar.gz", made)
    train, _ = read_cifar(path, sha256=digest)
    assert np.array_equal(train.inputs[:4].reshape(4, -1) * np.float32(255), PIXELS["data_batch_1"])


def test_without_the_right_checksum_nothing_is_opened(tmp_path, monkeypatch):
    path, digest = write(tmp_path / "cifar-10-python.tar.gz", batches())

    def never(*args):
        raise AssertionError("opened before its checksum was right")

    monkeypatch.setattr(cifar, "read_members", never)
    for wrong in (None, "0" * 64, digest[:-1]):
        with pytest.raises(DamagedFileError, match="read only if its SHA-256 is"):
            read_cifar(path, sha256=wrong)
    for name in ("cifar10", path):
        with pytest.raises(DamagedFileError) as caught:
            load_labelled(name, data_dir=tmp_path)
        assert "is 6d958be074577803...; it is" in str(caught.value)


def test_by_name_after_its_checksum(tmp_path, monkeypatch):
    path, digest = write(tmp_path / "c.tar.gz", batches())
    file = KnownFile("c.tar.gz", path.stat().st_size, digest)
    known = KnownSet("cifar10", "CIFAR-10", (file,), (), cifar._OFFICIAL.classes, (".",))
    monkeypatch.setattr(cifar, "_OFFICIAL", known)
    monkeypatch.setattr(load, "KNOWN", {"cifar10": known})
    data = load_labelled("cifar10", data_dir=tmp_path)
    assert (len(data.train), len(data.test), data.name) == (20, 4, "cifar10")


class Call:
    """Asks, when it is unpickled, for a function to be called."""

    def __init__(self, function, *args):
        self.made_of = function, args

    def __reduce__(self):
        return self.made_of


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "args", "name"),
    [
        (os.system, ("touch ran",), "system"),
        (eval, ("open('ran', 'w')",), "eval"),
        (builtins.getattr, ("", "join"), "getattr"),
        (np.load, ("ran",), "numpy"),
        (np.fromfile, ("ran",), "numpy"),
        (pickle.loads, (b"",), "loads"),
    ],
    ids=["system", "eval", "getattr", "load", "fromfile", "loads"],
)
def test_no_pickle_calls_anything(tmp_path, monkeypatch, protocol, function, args, name):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"data": Call(function, *args), "labels": [1]}, protocol)
    with pytest.raises(DamagedFileError) as caught:
        load_arrays("data: batch", data)
    assert str(caught.value).startswith("data: batch: the pickle is refused: it asks for ")
    assert name in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"cnumpy\nload\n.",
        b"cnumpy\nndarray.tofile\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        b"\x80\x04\x8c\x12numpy.core.numeric\x8c\x05array\x93.",
        b"c_codecs\nencode\n(U\x01xU\x05utf-8tR.",
        b"Pname\n.",
        b"\x80\x02\x82\x01.",
        b"not a pickle",
        b"",
        pickle.dumps({"labels": [1, 2, 3]})[:-4],
    ],
    ids=range(10),
)
def test_nor_do_those_written_by_hand(data):
    with pytest.raises(DamagedFileError, match="the pickle is refused"):
        load_arrays("data", data)


def test_any_cut_of_a_batch_is_an_error_of_ours():
    whole = python2_pickle(PIXELS["test_batch"], [1, 2, 3, 4])
    for length in [*range(200), *range(len(whole) - 60, len(whole))]:
        with pytest.raises(DamagedFileError):
            load_arrays("data", whole[:length])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "the archive must hold data_batch_3; it does not."),
        ([1, 2], "must hold an array `data` and a list `labels`; got []."),
        ({"data": [1], "labels": [1]}, "got ['data', 'labels']"),
        ({"data": np.zeros((2, 3072)), "labels": [1, 2]}, "got float64 of shape (2, 3072)"),
        ({"data": np.zeros((2, 100), np.uint8), "labels": [1, 2]}, "of shape (2, 100)"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "got 1 labels and 2 images"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10]}, "from 0 to 9; got 10"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, True]}, "got True"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": ["a", 1]}, "got 'a'"),
    ],
    ids=range(9),
)
def test_batches_that_hold_something_else(tmp_path, content, sentence):
    files = batches(data_batch_3=pickle.dumps(content, 2))
    if content is None:
        del files["data_batch_3"]
    path, digest = write(tmp_path / "mine.tar.gz", files)
    with pytest.raises(DamagedFileError) as caught:
        read_cifar(path, sha256=digest)
    assert sentence in str(caught.value) and "data_batch_3" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (member("../outside", b"x"), "its name leads out of the archive"),
        (member("a/../../outside", b"x"), "its name leads out of the archive"),
        (member("/etc/outside", b"x"), "its name leads out of the archive"),
        (member("..\\outside", b"x"), "its name leads out of the archive"),
        (member("C:/outside", b"x"), "its name leads out of the archive"),
        (member("link", type=tarfile.SYMTYPE, linkname="/etc"), "neither file nor folder"),
        (member("test_batch", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "neither file nor"),
        (member("link", type=tarfile.LNKTYPE, linkname="../x"), "neither file nor folder"),
        (member("pipe", type=tarfile.FIFOTYPE), "neither file nor folder"),
        (member("device", type=tarfile.CHRTYPE), "neither file nor folder"),
        (member("cifar-10-batches-py/test_batch", b"x"), "test_batch must be there once"),
    ],
    ids=range(11),
)
def test_archives_that_reach_out_are_refused(tmp_path, monkeypatch, bad, reason):
    monkeypatch.chdir(tmp_path)
    path, digest = write(tmp_path / "mine.tar.gz", batches(), bad)
    with pytest.raises(DamagedFileError, match=reason):
        read_cifar(path, sha256=digest)
    assert [item.name for item in tmp_path.iterdir()] == ["mine.tar.gz"]


def test_archives_that_are_damaged():
    whole = archive([member("a", b"12345" * 1000)])
    assert read_members("data", whole, ["a"]) == {"a": b"12345" * 1000}
    assert read_members("data", archive([member("a", b"1")], "w:bz2"), ["a", "b"]) == {"a": b"1"}
    for data in (b"", b"no archive", whole[: len(whole) // 2]):
        with pytest.raises(DamagedFileError, match="the archive is cut short or altered"):
            read_members("data", data, ["a"])
    plain = archive([member("a", b"12345" * 1000)], "w:")
    with pytest.raises(DamagedFileError, match="the archive"):
        read_members("data", plain[:1024], ["a"])
    huge, _ = member("a")
    huge.size = 2**40
    with pytest.raises(DamagedFileError, match="it would take 1099511627776 bytes"):
        read_members("data", huge.tobuf() + bytes(1024), ["a"])
