"""Images and labels in idx files: sets known by checksum, folders of one's own, single classes."""

import gzip
import hashlib
import pickle
import struct

import numpy as np
import pytest

from taut.data import (
    TableStream,
    count_rows,
    labelled_loading,
    load_labelled,
    official_sets,
    read_table,
)
from taut.data.official_sets import OFFICIAL_SETS, OfficialFile, OfficialSet, data_folder
from taut.errors import ArgumentError, DamagedFileError, DataError

NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (30, 3, 4), dtype=np.uint8)
LABELS = RANDOM.permutation(np.repeat(np.arange(3, dtype=np.uint8), 10))


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def contents(shift: int = 0) -> dict[str, bytes]:
    pixels = PIXELS + np.uint8(shift)
    arrays = (pixels[:20], LABELS[:20], pixels[20:], LABELS[20:])
    return {name: idx(array) for name, array in zip(NAMES, arrays, strict=True)}


def known(name: str, shift: int) -> OfficialSet:
    files = tuple(
        OfficialFile(
            file,
            len(gzip.compress(content, mtime=0)),
            hashlib.sha256(gzip.compress(content, mtime=0)).hexdigest(),
            hashlib.sha256(content).hexdigest(),
        )
        for file, content in contents(shift).items()
    )
    return OfficialSet(name, name.upper(), files, (), ("x", "y", "z"), (name, "."))


@pytest.fixture
def two_known(monkeypatch):
    sets = {name: known(name, shift) for name, shift in (("tiny", 0), ("shady", 1))}
    monkeypatch.setattr(labelled_loading, "OFFICIAL_SETS", sets)
    monkeypatch.setattr(official_sets, "OFFICIAL_SETS", sets)


def write(folder, files, pack=True):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        data = gzip.compress(content, mtime=0) if pack else content
        (folder / (name if pack else name.removesuffix(".gz"))).write_bytes(data)
    return folder


@pytest.mark.usefixtures("two_known")
@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("inner", ["tiny", "."])
def test_a_known_set_is_found_packed_or_not(tmp_path, monkeypatch, pack, inner):
    write(tmp_path / inner, contents(), pack)
    data = load_labelled("tiny", data_dir=tmp_path)
    assert np.array_equal(data.train.inputs, PIXELS[:20, None].astype(np.float32) / 255)
    assert np.array_equal(data.test.labels, LABELS[20:])
    assert data.train.image_shape == (1, 3, 4) and data.classes == ("x", "y", "z")
    assert (data.train.low, data.train.high, data.name) == (0, 1, "tiny")
    monkeypatch.setenv("TAUT_DATA", str(tmp_path))
    assert len(load_labelled("TINY").train) == 20


def test_where_data_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TAUT_DATA", str(tmp_path / "env"))
    assert data_folder("~x/../given").name == "given"
    assert data_folder() == tmp_path / "env"
    monkeypatch.delenv("TAUT_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "taut"


@pytest.mark.usefixtures("two_known")
def test_a_file_of_another_set_is_recognised(tmp_path):
    write(tmp_path / "tiny", contents())
    write(tmp_path / "tiny", {NAMES[2]: contents(1)[NAMES[2]]})
    with pytest.raises(DamagedFileError) as caught:
        load_labelled("tiny", data_dir=tmp_path)
    assert str(caught.value).startswith(f"data: {NAMES[2]}: must be the official file of TINY")
    assert "got SHADY's t10k-images-idx3-ubyte, in " in str(caught.value)


@pytest.mark.usefixtures("two_known")
def test_one_changed_pixel_is_found(tmp_path):
    content = bytearray(contents()[NAMES[0]])
    content[100] ^= 1
    write(tmp_path, contents() | {NAMES[0]: bytes(content)})
    with pytest.raises(DamagedFileError, match="got SHA-256 .*Fetch it again"):
        load_labelled("tiny", data_dir=tmp_path)


@pytest.mark.usefixtures("two_known")
def test_files_that_are_not_there_are_named(tmp_path):
    write(tmp_path / "tiny", contents())
    (tmp_path / "tiny" / NAMES[1]).unlink()
    with pytest.raises(ArgumentError) as caught:
        load_labelled("tiny", data_dir=tmp_path)
    assert f"not there: {NAMES[1]}. Pass data_dir" in str(caught.value)
    assert "taut data fetch tiny" in str(caught.value)


@pytest.mark.usefixtures("two_known")
def test_a_cut_known_file(tmp_path):
    write(tmp_path, contents())
    packed = gzip.compress(contents()[NAMES[0]], mtime=0)
    (tmp_path / NAMES[0]).write_bytes(packed[:-20])
    with pytest.raises(DamagedFileError, match="the compressed file is cut short or altered"):
        load_labelled("tiny", data_dir=tmp_path)


def test_names_that_are_not_known():
    with pytest.raises(ArgumentError, match="got 'mnits'. Did you mean 'mnist'?"):
        load_labelled("mnits")
    with pytest.raises(ArgumentError, match="must be left out for digits, a named data set"):
        load_labelled("digits", label="class")


def test_the_registry_is_whole():
    for each in OFFICIAL_SETS.values():
        assert len(each.classes) == len(set(each.classes)) == 10
        assert all(mirror.endswith("/") for mirror in each.mirrors)
        assert all(len(file.sha256) == 64 and file.size > 0 for file in each.files)


# Folders of one's own need no checksum.


def test_a_folder_of_four_files(tmp_path):
    data = load_labelled(write(tmp_path / "mine", contents()))
    assert np.array_equal(data.train.labels, LABELS[:20])
    assert data.classes == ("0", "1", "2") and data.name == "mine"


def test_two_files_are_split(tmp_path):
    write(tmp_path, contents())
    data = load_labelled(tmp_path / NAMES[0])
    assert len(data.train) + len(data.test) == 20
    data = load_labelled(tmp_path / NAMES[0], test=tmp_path / NAMES[2])
    assert np.array_equal(data.test.inputs[:, 0], PIXELS[20:].astype(np.float32) / 255)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        (
            {NAMES[0]: idx(LABELS[:20]), NAMES[1]: idx(PIXELS[:20])},
            DataError,
            f"data: {NAMES[0]}: the file of images must hold images; it holds one number for each "
            "of 20 rows, as files of labels do. The two files may be swapped.",
        ),
        (
            {NAMES[1]: idx(PIXELS[:20])},
            DataError,
            f"data: {NAMES[1]}: a file of labels must hold one whole number a row; got uint8 of "
            "shape (20, 3, 4)",
        ),
        (
            {NAMES[3]: idx(LABELS[:20])},
            DataError,
            f"data: {NAMES[3]}: there must be a label for every image; got 20 labels and 10 images",
        ),
        (
            {NAMES[3]: idx(np.full(10, 7, np.uint8))},
            DataError,
            "labels must be from 0 to 2, one for each class; row 0 (counted from 0) has 7",
        ),
        (
            {NAMES[1]: idx(LABELS[:20])[:-3]},
            DamagedFileError,
            "the header promises 20 rows; the file ends after 17",
        ),
        ({NAMES[0]: b"PK\3\4" + bytes(50)}, DamagedFileError, "must start with 00 00, a type"),
        ({NAMES[1]: b""}, DamagedFileError, "got nothing"),
    ],
)
def test_files_that_do_not_fit(tmp_path, changes, error, sentence):
    write(tmp_path / "mine", contents() | changes)
    with pytest.raises(error) as caught:
        load_labelled(tmp_path / "mine")
    assert sentence in str(caught.value)


# images:label


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("batch_rows", [1, 3, 7, 4096])
def test_the_images_of_one_class(tmp_path, pack, batch_rows):
    write(tmp_path, {NAMES[0]: idx(PIXELS), NAMES[1]: idx(LABELS)}, pack)
    path = f"{tmp_path}/{NAMES[0] if pack else NAMES[0].removesuffix('.gz')}:2"
    expected = PIXELS[LABELS == 2].reshape(-1, 12).astype(np.float32) / 255
    table = read_table(path)
    assert np.array_equal(table.values, expected)
    assert table.image_shape == (3, 4) and table.source.endswith(":2")
    stream = pickle.loads(pickle.dumps(TableStream(path, batch_rows=batch_rows)))
    batches = list(stream)
    assert {len(batch) for batch in batches[:-1]} <= {batch_rows}
    assert np.array_equal(np.concatenate(batches), expected)
    assert len(stream) == count_rows(path) == 10
    assert np.array_equal(read_table(path, limit=4).values, expected[:4])


@pytest.mark.parametrize(
    ("key", "files", "sentence"),
    [
        ("9", {}, "the label must be among 0, 1, 2; no row has 9."),
        ("two", {}, "what follows the colon must be a label, a whole number; got 'two'."),
        ("-1", {}, "a whole number; got '-1'."),
        ("1", {NAMES[1]: None}, "there is no train-labels-idx1-ubyte.gz in "),
        ("1", {NAMES[1]: idx(LABELS[:5])}, "got 5 labels and 30 images"),
    ],
)
def test_a_class_that_cannot_be_chosen(tmp_path, key, files, sentence):
    write(tmp_path, {NAMES[0]: idx(PIXELS), NAMES[1]: idx(LABELS)})
    for name, content in files.items():
        (tmp_path / name).unlink()
        if content:
            write(tmp_path, {name: content})
    with pytest.raises((ArgumentError, DataError)) as caught:
        read_table(f"{tmp_path}/{NAMES[0]}:{key}")
    assert sentence in str(caught.value)


def test_a_file_whose_labels_have_no_name(tmp_path):
    (tmp_path / "a.idx").write_bytes(idx(PIXELS))
    with pytest.raises(
        ArgumentError, match="must be beside the images.*its name has neither images nor idx3"
    ):
        read_table(f"{tmp_path}/a.idx:1")
    with pytest.raises(ArgumentError, match="names a part of one, which has no labels"):
        load_labelled(f"{tmp_path}/a.idx:1")
