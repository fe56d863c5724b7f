import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from taut.data import read_table
from taut.errors import ArgumentError, DamagedFileError, DataError


class Trap:
    """Unpickling it fails the test."""

    def __reduce__(self):
        return pytest.fail, ("a file was unpickled",)


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def forged(shape: str, descr: str = "'<f8'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        *[(t, "f4") for t in ("?", "i1", "u1", "i2", "u2", ">i2", "f2", "f4", ">f4")],
        *[(t, "f8") for t in ("i4", "u4", "i8", "u8", ">i8", "f8", ">f8", np.longdouble)],
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_are_kept_whatever_their_type(tmp_path, dtype, result, order):
    array = np.array([[1, 0, 1], [0, 1, 1]], dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    values = read_table(tmp_path / "a.npy").values
    assert values.dtype == np.dtype(result) and values.dtype.isnative
    assert np.array_equal(values, array)


@pytest.mark.parametrize("number", [255, 2**24 + 1, 2**53])
def test_no_whole_number_is_rounded(tmp_path, number):
    array = np.array([number, 1])
    array = array.astype(np.min_scalar_type(number))
    np.save(tmp_path / "a.npy", array)
    assert int(read_table(tmp_path / "a.npy").values[0, 0]) == number


def test_shapes(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(4))
    assert read_table(tmp_path / "a.npy").values.tolist() == [[0], [1], [2], [3]]
    images = np.arange(24).reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", images)
    table = read_table(tmp_path / "a.npy")
    assert table.image_shape == (3, 4)
    assert np.array_equal(table.values.reshape(2, 3, 4), images)
    table = read_table(tmp_path / "a.npy", columns=[11, 0])
    assert table.image_shape is None
    assert table.values.tolist() == [[11, 0], [23, 12]]


def test_the_file_may_go_after_the_reading(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    values = read_table(tmp_path / "a.npy").values
    (tmp_path / "a.npy").unlink()
    values += 1  # a copy, not a window on the file
    assert values.tolist() == [[2, 2]] * 3


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.array(1.0), "an array must have rows and columns; got shape ()."),
        (np.zeros((0, 3)), "got shape (0, 3)."),
        (np.zeros((3, 0)), "got shape (3, 0)."),
        (np.zeros((1, 3)), "a sample must have at least two rows; got one."),
        (np.zeros((2, 2), complex), "got complex numbers (dtype complex128). Give real and imag"),
        (np.array(["a", "b"]), "got text (dtype <U1). Drop it, or encode it as numbers."),
        (np.array(["2020-01-01"] * 2, "M8[D]"), "got dates (dtype datetime64[D])."),
        (np.array([1, 2], "m8[s]"), "got spans of time"),
        (np.zeros(2, [("a", float)]), "got records"),
        (np.array([2**53 + 1, 1]), "at most 2**53 in size, or they lose digits; got 90071992"),
        (np.array([-(2**53) - 1, 1]), "got -9007199254740993."),
        (np.array([2**64 - 1, 1], np.uint64), "got 18446744073709551615."),
        (
            np.array([[1, 2], [3, np.nan], [np.inf, 4]]),
            "2 values are missing or not finite, the first in row 1 (counted from 0), column 1 ",
        ),
        (np.full((2, 2), np.longdouble("1e400")), "4 values are missing or not finite"),
    ],
)
def test_arrays_that_are_no_sample(tmp_path, array, sentence):
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(DataError) as caught:
            read_table(tmp_path / name)
        assert str(caught.value).startswith(f"data: {name}: ") and sentence in str(caught.value)


@pytest.mark.parametrize(
    "array", [np.array([[Trap(), 1]], object), np.array([(Trap(),)] * 2, [("a", object)])]
)
def test_nothing_is_unpickled(tmp_path, array):
    (tmp_path / "a.npy").write_bytes(npy(array))
    np.savez(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(DataError, match="got Python objects, which could run code"):
            read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.csv", "a.idx", "a.parquet", "a", "a.gz"])
def test_a_pickle_by_any_name(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises((DataError, DamagedFileError)):
        read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["a.pkl", "a.pt", "a.joblib"])
def test_formats_that_run_code(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="Files of that kind can run code when they are read."):
        read_table(tmp_path / name)


def test_a_cut_is_found_wherever_it_is(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((5, 2)))
    np.savez(tmp_path / "a.npz", np.ones((5, 2)))
    for name in ("a.npy", "a.npz"):
        whole = (tmp_path / name).read_bytes()
        for length in range(1, len(whole), 3):
            (tmp_path / name).write_bytes(whole[:length])
            with pytest.raises((DamagedFileError, DataError)):
                read_table(tmp_path / name)
        assert length > 100


@pytest.mark.parametrize(
    "data",
    [
        forged("(99999999999, 99999999)"),
        forged("(99999999999,)"),
        forged("(-3, 2)"),
        forged("3"),
        forged("(3, 2)", "'zz'"),
        forged("(3, 2)", "__import__('os')"),
        b"\x93NUMPY\x09\x00" + bytes(100),
        b"\x93NUMPY\x01\x00" + b"\xff" * 100,
    ],
)
def test_forged_headers(tmp_path, data):
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(DamagedFileError, match="the file is cut short or altered"):
            read_table(tmp_path / name)


def test_wrong_mark(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"MUMPY stuff")
    with pytest.raises(DamagedFileError, match="must start with the mark of numpy's format; got b"):
        read_table(tmp_path / "a.npy")


def test_arrays_of_an_archive(tmp_path):
    np.savez(tmp_path / "one.npz", x=np.ones((2, 2)))
    assert read_table(tmp_path / "one.npz").values.tolist() == [[1, 1], [1, 1]]
    np.savez_compressed(tmp_path / "two.npz", x=np.ones((2, 2)), y=np.zeros((3, 2, 2)))
    table = read_table(f"{tmp_path}/two.npz:y")
    assert (table.values.shape, table.image_shape, table.source) == ((3, 4), (2, 2), "two.npz:y")
    with pytest.raises(ArgumentError) as caught:
        read_table(tmp_path / "two.npz")
    assert "the file holds 'x', 'y'. Use two.npz:x for the first." in str(caught.value)
    with pytest.raises(ArgumentError, match="the key must be among 'x', 'y'; got 'z'."):
        read_table(f"{tmp_path}/two.npz:z")
    with zipfile.ZipFile(tmp_path / "none.npz", "w"):
        pass
    with pytest.raises(DataError, match="this one holds none."):
        read_table(tmp_path / "none.npz")


def test_an_altered_archive(tmp_path):
    np.savez(tmp_path / "a.npz", np.arange(100.0))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[500] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(DamagedFileError, match="Bad CRC-32"):
        read_table(tmp_path / "a.npz")
