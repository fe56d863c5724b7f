import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch.utils.data import DataLoader, TensorDataset

from taut.data import Table, TableStream, as_table
from taut.errors import ArgumentError, DataError

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
ROWS = [[1, 0.5], [2, 1.5], [3, 2.5]]
ARRAY = np.array(ROWS)


@pytest.mark.parametrize(
    "data",
    [
        ARRAY,
        np.asfortranarray(ARRAY).astype(">f8"),
        ARRAY.astype(object),
        np.ma.array(ARRAY),
        torch.tensor(ROWS),
        torch.tensor(ROWS, dtype=torch.bfloat16, requires_grad=True),
        torch.tensor(ROWS).T.contiguous().T,
        FRAME,
        FRAME.astype(object),
        FRAME.astype("Float64"),
        pd.DataFrame(ARRAY),
        ROWS,
        tuple(map(tuple, ROWS)),
        [list(map(Decimal, row)) for row in ROWS],
        (row for row in ROWS),
        list(ARRAY),
        [torch.tensor(row) for row in ROWS],
        [ARRAY[:1], ARRAY[1:]],
        (torch.tensor(ROWS[i : i + 2]) for i in (0, 2)),
        [FRAME[:2], FRAME[2:]],
        DataLoader(TensorDataset(torch.tensor(ROWS)), batch_size=2),
        as_table(ROWS),
    ],
)
def test_one_sample_in_many_forms(data):
    table = as_table(data)
    assert isinstance(table, Table)
    assert table.values.tolist() == ROWS
    assert table.values.dtype in (np.float32, np.float64)
    assert (table.image_shape, table.source) == (None, "data")


def test_names(tmp_path):
    assert as_table(FRAME).columns == ("a", "b")
    assert as_table([FRAME, FRAME]).columns == ("a", "b")
    assert as_table(FRAME["b"]).columns == ("b",)
    assert as_table(FRAME.set_axis([2020, 2021], axis=1)).columns == ("2020", "2021")
    for nameless in (ARRAY, pd.DataFrame(ARRAY), pd.Series([1, 2])):
        assert as_table(nameless).columns == ()
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    table = as_table(TableStream(tmp_path / "t.csv", batch_rows=2))
    assert (table.columns, table.values.tolist()) == (("a", "b"), ROWS)


@pytest.mark.parametrize("data", [np.arange(3), torch.arange(3), [0, 1, 2], range(3)])
def test_numbers_make_one_column(data):
    assert as_table(data).values.tolist() == [[0], [1], [2]]


def test_shapes_of_images(tmp_path):
    images = torch.arange(24.0).reshape(2, 1, 3, 4)
    for data in (images, images.numpy(), [images[:1], images[1:]], images.tolist()):
        table = as_table(data)
        assert table.image_shape == (1, 3, 4)
        assert np.array_equal(table.values.reshape(2, 1, 3, 4), images)
    np.save(tmp_path / "t.npy", images.numpy())
    assert as_table(TableStream(tmp_path / "t.npy")).image_shape == (1, 3, 4)


def test_what_is_given_stays_as_it_is():
    array, tensor = ARRAY.copy(), torch.tensor(ROWS, dtype=torch.float64)
    for data in (array, tensor):
        as_table(data).values[:] = 0
        assert np.array_equal(data, ARRAY)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "x: a sample must have at least two rows; got none."),
        (np.zeros((0, 3)), "x: a sample must have at least two rows; got none."),
        (np.zeros((1, 3)), "x: a sample must have at least two rows; got one."),
        (np.zeros((3, 0)), "x: a sample must have columns; got shape (3, 0)."),
        (np.array(3.0), "x: a sample must have rows; got one number, 3.0."),
        (pd.DataFrame(), "x: a frame must have columns; got none."),
        ([[1, 2], [3, 4], [5]], "as many cells as the first, 2; row 2 (counted from 0) has 1."),
        ([[1, 2], 3], "row 1 (counted from 0) has 1."),
        (
            FRAME.assign(t="x", u="y"),
            "x: every column must hold numbers; got text in columns 't', 'u', such as 'x' in row 0 "
            "(counted from 0). Drop them or encode them as numbers.",
        ),
        (pd.Series(["x", "y"], name="q"), "got text in column 'q', such as 'x'."),
        (
            pd.DataFrame({"k": pd.Categorical(["u", "v"])}),
            "got text in column 'k', such as 'u' in row 0",
        ),
        (FRAME.assign(d=pd.Timestamp("2020-01-01")), "x: column 'd': values must be real numbers"),
        (
            FRAME.assign(p=Decimal("0.5"), d=pd.Timestamp("1970-01-05")),
            "x: column 'd': values must be real numbers; got dates",
        ),
        (
            FRAME.assign(d=pd.Timestamp("2020-01-01", tz="UTC")),
            "x: column 'd': values must be real n",
        ),
        (
            [[datetime.date(2020, 1, 1)], [2]],
            "got dates in column 0 (counted from 0), such as '2020-01-01'",
        ),
        ([[1, "a"], [2, "b"]], "got text in column 1 (counted from 0), such as 'a'."),
        (["1", "2"], "got text in column 0 (counted from 0), such as '1'"),
        (np.array([["a"], ["b"]]), "got text (dtype <U1)."),
        (np.array([[1, {}]], object), "got text in column 1 (counted from 0), such as '{}'."),
        ([[1j, 1], [2, 3]], "got complex numbers (dtype complex128)."),
        (torch.ones(3, 2, dtype=torch.complex64), "got complex numbers (dtype complex64)."),
        ([[2**70, 1], [1, 2]], "at most 2**53 in size, or they lose digits; got 11805916207174"),
        (torch.tensor([2**60, 1]), "at most 2**53 in size"),
        ([[2**60, 0.5], [1, 2]], "at most 2**53 in size"),
        (np.ma.masked_equal(np.array([2**60, 1, 0]), 0), "at most 2**53 in size"),
        ([[1, None], [2, 3]], "1 value is missing or not finite, the first in row 0 (counted fro"),
        ([[1, 2], [float("nan"), float("inf")]], "2 values are missing or not finite, the first"),
        (
            pd.DataFrame({"a": pd.array([1, None, 3], "Int64")}),
            "in row 1 (counted from 0), column '",
        ),
        (np.ma.array([1, 2, 3], mask=[False, False, True]), "the first in row 2"),
        (FRAME.set_axis(["a", "a"], axis=1), "columns must have different names; got 'a'"),
        ([np.ones((2, 3)), np.ones((2, 4))], "item 0 has shape (2, 3), item 1 has shape (2, 4)."),
        ([np.ones((2, 3)), np.ones(3)], "item 0 has shape (2, 3), item 1 has shape (3,)."),
        ([FRAME, FRAME[["b", "a"]]], "batch 0 has 'a', 'b', batch 1 has 'b', 'a'."),
    ],
)
def test_what_is_no_sample_of_numbers_is_refused(data, sentence):
    with pytest.raises(DataError) as caught:
        as_table(data, "x")
    assert str(caught.value).startswith("x: ") and sentence in str(caught.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("a.csv", "x: must be numbers; got 'a.csv'. To read a file use taut.data.read_table."),
        ({"a": [1, 2]}, "got dict. Use pandas.DataFrame(...) of it."),
        (None, "got NoneType."),
        (3.0, "got float."),
        ({1, 2}, "got set."),
        (b"ab", "got bytes."),
        (scipy.sparse.csr_array(np.eye(3)), "x: must be dense; got csr_array. Use .toarray()."),
        (torch.eye(3).to_sparse(), "x: must be a dense tensor with values; got torch.sparse_coo"),
        (torch.eye(3, device="meta"), "on meta."),
        (
            DataLoader(TensorDataset(torch.ones(4, 2), torch.ones(4)), batch_size=2),
            "x: a batch must be one array; got 2 of them, as loaders with labels give.",
        ),
    ],
)
def test_what_is_no_data_at_all(data, sentence):
    with pytest.raises(ArgumentError) as caught:
        as_table(data, "x")
    assert sentence in str(caught.value)
