import gzip
import struct

import numpy as np
import pytest

from taut.data import TableStream, count_rows, read_table
from taut.errors import ArgumentError, DamagedFileError, DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 3, 4), dtype=np.uint8)


def header(kind: int, *shape: int) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


WHOLE = header(8, 5, 3, 4) + PIXELS.tobytes()


@pytest.mark.parametrize(
    "name", ["a.idx", "train-images-idx3-ubyte", "train-images.idx3-ubyte", "no-ending", "a.gz"]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_images_are_scaled_to_one_and_keep_their_shape(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(WHOLE))
    table = read_table(path)
    assert table.values.dtype == np.float32
    assert np.array_equal(table.values, PIXELS.reshape(5, 12).astype(np.float32) / 255)
    assert (table.image_shape, table.columns) == ((3, 4), ())
    assert count_rows(path) == len(TableStream(path)) == 5
    assert np.array_equal(read_table(path, limit=3).values, table.values[:3])


def test_the_whole_range_of_bytes(tmp_path):
    (tmp_path / "a.idx").write_bytes(header(8, 2, 1, 128) + bytes(range(256)))
    values = read_table(tmp_path / "a.idx").values.reshape(-1)
    assert values[0] == 0 and values[-1] == 1
    assert np.array_equal(np.rint(values * 255), np.arange(256))


@pytest.mark.parametrize(
    ("kind", "dtype"), [(9, "i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
def test_other_numbers_are_kept(tmp_path, kind, dtype):
    numbers = np.array([[1, -2, 3], [-4, 5, 100]], dtype=dtype)
    (tmp_path / "a.idx").write_bytes(header(kind, 2, 3) + numbers.tobytes())
    table = read_table(tmp_path / "a.idx")
    assert np.array_equal(table.values, numbers) and table.values.dtype.isnative
    assert table.image_shape is None


def test_labels_are_no_sample(tmp_path):
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(header(8, 7) + bytes(7)))
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert "one number for each of 7 rows, as files of labels do. Give the file of images" in str(
        caught.value
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_cut_is_found_wherever_it_is(tmp_path, pack):
    whole = pack(WHOLE)
    for length in range(1, len(whole)):
        (tmp_path / "a.idx").write_bytes(whole[:length])
        with pytest.raises(DamagedFileError, match="^data: a.idx: "):
            read_table(tmp_path / "a.idx")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (WHOLE[:-1], "the header promises 5 rows; the file ends after 4. Fetch it again."),
        (WHOLE + b"x", "the header promises 5 rows; the file has more."),
        (WHOLE[:9], "the file ends inside its header."),
        (header(8, *[2**32 - 1] * 3) + b"abc", "promises 4294967295 rows; the file ends after 0."),
        (b"words", "must start with 00 00, a type and a rank; got 77 6f 72 64."),
        (header(7, 2, 3) + bytes(6), "got 00 00 07 02."),
        (
            gzip.compress(WHOLE, mtime=0)[:-8] + bytes(8),
            "the compressed file is cut short or altered (CRC",
        ),
    ],
)
def test_damaged_files(tmp_path, data, sentence):
    (tmp_path / "a.idx").write_bytes(data)
    with pytest.raises(DamagedFileError) as caught:
        read_table(tmp_path / "a.idx")
    assert sentence in str(caught.value)


def test_empty_images_and_chosen_pixels(tmp_path):
    (tmp_path / "a.idx").write_bytes(header(8, 0, 3, 4))
    with pytest.raises(DataError, match="a sample must have rows; got shape"):
        read_table(tmp_path / "a.idx")
    (tmp_path / "a.idx").write_bytes(WHOLE)
    with pytest.raises(ArgumentError, match="`columns` must be left out for images"):
        read_table(tmp_path / "a.idx", columns=[0])
