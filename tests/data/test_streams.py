import pickle
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taut.data import TableStream, count_rows, read_table
from taut.errors import ArgumentError, DamagedFileError, DataError

ROWS, DIM = 10_000, 8


def write(path, values):
    if path.suffix == ".csv":
        np.savetxt(path, values, delimiter=",", header="a,b,c,d,e,f,g,h", fmt="%.17g")
    elif path.suffix == ".parquet":
        names = list("abcdefgh")
        pq.write_table(pa.table(dict(zip(names, values.T, strict=True))), path, row_group_size=1000)
    else:
        np.save(path, values)


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(0).normal(size=(ROWS, DIM))


@pytest.fixture(scope="module", params=["t.csv", "t.parquet", "t.npy"])
def path(request, values, tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / request.param
    write(path, values)
    return path


def test_every_pass_gives_the_same_rows(path, values):
    stream = TableStream(path, batch_rows=1500)
    assert stream.dim == DIM
    for _ in range(2):
        batches = list(stream)
        assert [len(batch) for batch in batches[:-1]] == [1500] * 6
        assert np.array_equal(np.concatenate(batches), values)
    assert np.array_equal(np.concatenate(list(TableStream(path))), read_table(path).values)


def test_passes_do_not_disturb_each_other(path):
    stream = TableStream(path, batch_rows=5000)
    for one, other in zip(stream, stream, strict=True):
        assert np.array_equal(one, other)


def test_memory_does_not_grow_with_the_file(path):
    """The whole is 0.6 MB of numbers; text needs some ten times its numbers while it is parsed."""
    list(TableStream(path, batch_rows=5000))  # imports are no part of it
    tracemalloc.start()
    try:
        rows = sum(len(batch) for batch in TableStream(path, batch_rows=100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == ROWS
    assert peak < ROWS * DIM * 8 / 3


def test_the_number_of_rows(path):
    assert count_rows(path) == ROWS
    stream = TableStream(path)
    if path.suffix == ".csv":
        assert stream.rows is None
        with pytest.raises(TypeError, match="t.csv does not say how many rows it has. Use taut.da"):
            len(stream)
    else:
        assert len(stream) == stream.rows == ROWS


def test_chosen_columns(path, values):
    stream = TableStream(path, columns=[5, 2, 0])
    again = stream.select([2, 0])
    assert stream.columns == (() if path.suffix == ".npy" else ("f", "c", "a"))
    assert again.columns == (() if path.suffix == ".npy" else ("a", "f"))
    assert np.array_equal(np.concatenate(list(again)), values[:, [0, 5]])


def test_a_stream_travels_to_other_processes_as_its_path(path):
    data = pickle.dumps(TableStream(path, columns=[1, 0], batch_rows=10))
    assert len(data) < 1000
    assert np.array_equal(next(iter(pickle.loads(data))), read_table(path).values[:10, [1, 0]])


def test_missing_values_are_found_where_they_are(tmp_path):
    values = np.zeros((10, DIM))
    values[7, 3] = np.nan
    for name, where in [
        ("t.csv", "line 9, column 'd'"),  # the header is line 1
        ("t.parquet", "row 7 (counted from 0), column 'd'"),
        ("t.npy", "row 7 (counted from 0), column 3 (counted from 0)"),
    ]:
        write(tmp_path / name, values)
        batches = iter(TableStream(tmp_path / name, batch_rows=4))
        next(batches)
        with pytest.raises(DataError) as caught:
            next(batches)
        assert where in str(caught.value)


def test_rows_are_counted_where_only_some_columns_are_numbers(tmp_path):
    pq.write_table(pa.table({"a": [1, 2, 3], "note": ["x", "y", "z"]}), tmp_path / "t.parquet")
    assert count_rows(tmp_path / "t.parquet", columns=["a"]) == 3


def test_one_row_is_no_sample(tmp_path):
    write(tmp_path / "t.csv", np.zeros((1, DIM)))
    with pytest.raises(DataError, match="at least two rows; got one."):
        list(TableStream(tmp_path / "t.csv"))


@pytest.mark.parametrize("batch_rows", [0, -1, 1.5, True])
def test_sizes_of_batches(tmp_path, batch_rows):
    with pytest.raises(ArgumentError, match="`batch_rows` must be a whole number >= 1"):
        TableStream(tmp_path, batch_rows=batch_rows)


def test_missing_files_and_wrong_names(tmp_path):
    write(tmp_path / "wine-red.npy", np.zeros((3, 2)))
    with pytest.raises(ArgumentError, match="exist.*; got .* Did you mean 'wine-red.npy'?"):
        read_table(tmp_path / "wine-rde.npy")
    with pytest.raises(ArgumentError, match="must be an existing file or folder"):
        read_table(tmp_path / "nowhere" / "a.npz:key")
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(ArgumentError, match="existing file or folder; got '[^']*link.csv'.$"):
        read_table(tmp_path / "link.csv")
    (tmp_path / "wine-red.npy").rename(tmp_path / "wine.csv")
    with pytest.raises(DamagedFileError) as caught:
        read_table(tmp_path / "wine.csv")
    assert str(caught.value) == (
        "data: wine.csv: the ending must fit the content; the name says text, the first bytes say "
        "npy. Rename it."
    )
    for name, remedy in [("a.xlsx", "Export the sheet as .csv."), ("a.json", "got .json. Save")]:
        (tmp_path / name).write_bytes(b"PK\x03\x04" if name == "a.xlsx" else b"[1]")
        with pytest.raises(DataError) as caught:
            read_table(tmp_path / name)
        assert remedy in str(caught.value)
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(DataError, match="the file is empty."):
        read_table(tmp_path / "empty.parquet")
