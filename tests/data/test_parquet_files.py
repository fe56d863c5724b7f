import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taut.data import TableStream, as_table, count_rows, load_labelled, read_table
from taut.errors import DamagedFileError, DataError, MissingExtraError

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": [True, False, True]})


@pytest.fixture
def read(tmp_path):
    def read(table, **kwargs):
        table = pa.Table.from_pandas(table) if isinstance(table, pd.DataFrame) else table
        pq.write_table(table, tmp_path / "t.parquet")
        return read_table(tmp_path / "t.parquet", **kwargs)

    return read


def test_a_frame_comes_back(read):
    table = read(FRAME)
    assert table.columns == ("a", "b", "c")
    assert np.array_equal(table.values, FRAME.to_numpy(float))
    assert np.array_equal(table.values, as_table(FRAME).values)


def test_types(read):
    small = {t: np.array([1, 2], t) for t in ("float32", "uint8", "float16")}
    assert read(pa.table(small)).values.dtype == np.float32
    assert read(pa.table(small | {"d": [7, 8]})).values.dtype == np.float64
    decimals = pa.table({"a": [Decimal("1.50"), Decimal("2.25")]})
    assert read(decimals).values.tolist() == [[1.5], [2.25]]


def test_the_index_of_a_frame_is_no_column(read):
    for name in (None, "row"):
        indexed = FRAME.set_index(pd.Index([7, 9, 8], name=name))
        assert read(indexed).columns == as_table(indexed).columns == ("a", "b", "c")


def test_columns_are_chosen(read):
    table = read(FRAME.assign(note="x"), columns=["c", "a"])
    assert table.columns == ("c", "a")
    assert table.values.tolist() == [[1, 1], [0, 2], [1, 3]]
    dotted = pa.table({"a": [1.0, 2.0], "a.b": [3.0, 4.0]})
    assert read(dotted, columns=["a"]).values.tolist() == [[1], [2]]
    assert read(dotted, columns=[1]).values.tolist() == [[3], [4]]


def test_a_name_that_repeats_is_no_choice(read, tmp_path):
    table = pa.Table.from_arrays([pa.array([1, 2])] * 3, ["a", "a", "b"])
    assert read(table, columns=["b"]).values.tolist() == [[1], [2]]
    with pytest.raises(DataError, match="got 'a' more than once"):
        read(table, columns=[0])
    with pytest.raises(DataError, match="got 'a' more than once"):
        load_labelled(tmp_path / "t.parquet", label=0, columns=["b"])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            pa.table({"t": ["x", "y"], "n": [1, 2]}),
            "got text in column 't', such as 'x' in row 0 (counted from 0). Drop it",
        ),
        (pa.table({"l": [[1], [2]]}), "got text in column 'l', such as '[1]'"),
        (pa.table({"z": pa.nulls(2)}), "2 values are missing or not finite"),
        (pd.DataFrame({"k": pd.Categorical(["u", "v"])}), "got text in column 'k', such as 'u'"),
        (
            pd.DataFrame({"d": pd.to_datetime(["2020-01-01"] * 2)}),
            "column 'd': values must be real numbers; got dates",
        ),
        (pa.table({"i": [2**53 + 1, 1]}), "column 'i': whole numbers must be at most 2**53"),
        (pa.table({"i": [None, 2**53 + 1]}), "whole numbers must be at most 2**53"),
        (
            pa.table({"i": [1, 2], "j": [5, None]}),
            "the first in row 1 (counted from 0), column 'j'",
        ),
        (pa.table({"b": [True, None]}), "got text in column 'b', such as 'True'"),
        (pa.table({"f": [1.0, float("nan"), None]}), "2 values are missing or not finite"),
        (pa.table({"f": [1.0]}), "at least two rows; got one."),
        (FRAME[:0], "must have rows and columns; got 0 rows, 3 columns."),
        (pa.Table.from_arrays([pa.array([1, 2])] * 2, ["a", "a"]), "got 'a' more than once."),
    ],
)
def test_what_is_no_sample_of_numbers_is_refused(read, table, sentence):
    with pytest.raises(DataError) as caught:
        read(table)
    assert sentence in str(caught.value)


def test_a_cut_is_found_wherever_it_is(read, tmp_path):
    read(FRAME)
    whole = (tmp_path / "t.parquet").read_bytes()
    for length in range(1, len(whole), 31):
        (tmp_path / "t.parquet").write_bytes(whole[:length])
        with pytest.raises(DamagedFileError, match="the parquet file is cut short or altered"):
            read_table(tmp_path / "t.parquet")


def test_checksums_are_checked_where_they_are_written(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"a": np.random.default_rng(0).random(1000)})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="the parquet file is cut short or altered"):
        read_table(path)


def test_batches_cross_row_groups(tmp_path):
    path = tmp_path / "t.parquet"
    numbers = np.arange(100.0)
    pq.write_table(pa.table({"a": numbers, "b": -numbers}), path, row_group_size=7)
    batches = list(TableStream(path, batch_rows=30))
    assert np.array_equal(np.concatenate(batches)[:, 0], numbers)
    assert max(map(len, batches)) <= 30
    assert count_rows(path) == len(TableStream(path)) == 100


def test_without_pyarrow(read, tmp_path, monkeypatch):
    read(FRAME)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError) as caught:
        read_table(tmp_path / "t.parquet")
    assert str(caught.value) == (
        "data: a parquet file needs pyarrow. Install it with pip install 'taut[data]'."
    )


def test_row_groups_that_were_read_are_let_go(tmp_path):
    # Arrow's memory, which tracemalloc does not see.
    rows, groups = 10_000, 20
    column = np.random.default_rng(0).standard_normal(rows * groups)
    table = pa.table({"a": column, "b": column[::-1].copy()})
    path = tmp_path / "long.parquet"
    pq.write_table(table, path, row_group_size=rows, use_dictionary=False)
    del table
    before, held = pa.total_allocated_bytes(), []
    for _ in TableStream(path, batch_rows=rows):
        held.append(pa.total_allocated_bytes() - before)
    assert len(held) == groups
    assert max(held) < 6 * rows * 16  # of twenty row groups
