import gzip
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.data import count_rows, read_table
from taut.errors import ArgumentError, DamagedFileError, DataError

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture
def read(tmp_path):
    def read(text, name="t.csv", **kwargs):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_table(tmp_path / name, **kwargs)

    return read


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a,b\n1,2.5\n3,4\n", ("a", "b")),
        ("1,2.5\n3,4\n", ()),
        ("1,2.5\n3,4", ()),
        ("1;2.5\n3;4\n", ()),
        ("a\tb\n1\t2.5\n3\t4\n", ("a", "b")),
        ('"a";"b"\n"1";"2.5"\n3;"4"\n', ("a", "b")),
        ('"x, in cm",b\n1, "2.5"\n3,4\n', ("x, in cm", "b")),
        ("x; cm,b\n1,2.5\n3,4\n", ("x; cm", "b")),
        ("# a,b\n1.0e+00,2.5e+00\n3,4\n", ("a", "b")),
        ("\n\na,b\r\n1,2.5\r\n\r\n3,4\r\n\n", ("a", "b")),
        ("1,2.5\r3,4\r", ()),
        (" a , b \n 1 , 2.5 \n 3 , 4 \n", ("a", "b")),
        (b"\xef\xbb\xbf1,2.5\n3,4\n", ()),
        ("7,b\n1,2.5\n3,4\n", ("7", "b")),
        (gzip.compress(b"a,b\n1,2.5\n3,4\n", mtime=0), ("a", "b")),
        ("a|b\n1|2.5\n3|4\n", ("a", "b")),
        ("1   2.5\n 3 4 \n", ()),
        ("1 2.5\n3\t4\n", ()),
    ],
)
def test_one_table_in_many_forms(read, text, columns):
    table = read(text)
    assert table.values.tolist() == [[1, 2.5], [3, 4]]
    assert table.values.dtype == np.float64
    assert table.columns == columns
    assert (table.dim, len(table), table.image_shape, table.source) == (2, 2, None, "t.csv")


def test_one_column(read):
    assert read("1\n2\n3\n").values.tolist() == [[1], [2], [3]]
    assert read("size\n1\n2\n").columns == ("size",)


@given(st.integers(1, 4).flatmap(lambda d: st.lists(st.tuples(*[finite] * d), min_size=2)))
def test_what_is_written_is_read(tmp_path_factory, rows):
    """repr gives the shortest text that stands for a float and no other."""
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("\n".join(",".join(map(repr, row)) for row in rows))
    assert read_table(path).values.tolist() == [list(row) for row in rows]
    assert count_rows(path) == len(rows)


def test_booleans_are_numbers(read):
    assert read("a,b\nTrue,false\nFALSE,1\n").values.tolist() == [[1, 0], [0, 1]]
    assert read("true,2\nfalse,1\n").columns == ()


def test_columns_are_chosen_by_name_or_position_in_the_order_of_the_choice(read):
    text = "a,note,c\n1,x,2\n3,,4\n"
    assert read(text, columns=["c", "a"]).values.tolist() == [[2, 1], [4, 3]]
    assert read(text, columns=["c", "a"]).columns == ("c", "a")
    assert read(text, columns=[2, "a"]).columns == ("c", "a")
    assert read("1,2\n3,4\n", columns=[np.int64(1)]).values.tolist() == [[2], [4]]


def test_a_chosen_column_beside_text_with_line_breaks(read):
    assert read('a,b\n"x\ny",2\n"z",4\n', columns=["b"]).values.tolist() == [[2], [4]]


def test_the_limit_stops_the_reading(read):
    assert read("1,2\n3,4\n5,text\n6\n", limit=2).values.tolist() == [[1, 2], [3, 4]]
    assert len(read("1\n2\n3\n", limit=10)) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "data: t.csv: a table must have rows; the file is empty."),
        ("\n \n", "data: t.csv: a table must have rows; the file is empty."),
        ("a,b\n", "the file has a header and nothing else."),
        ("a,b\n1,2\n", "a sample must have at least two rows; got one."),
        (
            "a,b,c\n1,x,y\n2,z,w\n",
            "got text in columns 'b', 'c', such as 'x' in line 2. Drop them or encode them as "
            "numbers, or use columns=['a'].",
        ),
        ("a,b\n1,2\n\n3,oops\n", "got text in column 'b', such as 'oops' in line 4. Drop it"),
        ("1,2\n3,oops\n", "got text in column 1 (counted from 0), such as 'oops' in line 2."),
        ("d,b\n2024-01-31,2\n2024-02-01,3\n", "got dates in column 'd', such as '2024-01-31'"),
        ("d,b\n31.01.2024 12:00,2\n2,3\n", "got dates in column 'd'"),
        ("d,b\n2024-01-31,x\n2,3\n", "got text in columns 'd', 'b'"),
        ("a;b\n1,5;2\n3,5;1\n", "got decimal commas in column 'a', such as '1,5' in line 2. Write"),
        ("a,b\n1_0,1\n2,2\n", "got text in column 'a', such as '1_0'"),
        ("a,b\n1+2j,1\n2,2\n", "got text in column 'a', such as '1+2j'"),
        ("a,b\n1,\x00\n2,2\n", "got text in column 'b'"),
        ("a,b\n1,2\n3\n", "as many cells as the first, 2; got 1 on line 3. Fix it"),
        ("a,b\n1,2\n3,4,5\n", "as many cells as the first, 2; got 3 on line 3."),
        (
            "a,b\n1,2\n3,\nNA,5\n6,nan\n",
            "3 values are missing or not finite, the first in line 3, column 'b'. Drop those rows",
        ),
        ("1,,3\n4,5,6\n", "1 value is missing or not finite, the first in line 1, column 1 (cou"),
        ("1,2\n3,-inf\n", "first in line 2, column 1 (counted from 0)"),
        ("1,2\n3,1e999\n", "1 value is missing or not finite"),
        ("id,b\n9007199254740993,1\n2,2\n", "got 9007199254740993 in line 2, column 'id'. Drop"),
        ("a,a\n1,2\n3,4\n", "columns must have different names; got 'a' more than once."),
        (",a\n0,1\n1,2\n", "got none for column 0 (counted from 0), which is often an index"),
        (b"gr\xf6\xdfe,b\n1,2\n3,4\n", "text must be UTF-8; byte 0xf6 is not. Save the file"),
        ("a,b\n1,2\n".encode("utf-16"), "text must be UTF-8; byte 0xff is not."),
    ],
)
def test_what_is_no_sample_of_numbers_is_refused(read, text, sentence):
    with pytest.raises(DataError) as caught:
        read(text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('a,b\n"1,2\n3,4\n', "line 3 must be delimited text; got unexpected end of data."),
        ("a" * 200_000 + "\n1\n2\n", "line 1 must be delimited text; got field larger than"),
        (
            gzip.compress(bytes(range(48, 58)) * 400, mtime=0)[:-9],
            "the compressed file is cut short or al",
        ),
    ],
)
def test_damaged_text(read, text, sentence):
    with pytest.raises(DamagedFileError) as caught:
        read(text)
    assert sentence in str(caught.value)


def test_the_largest_whole_number_and_larger_floats_are_kept(read):
    assert read(f"{2**53},1e300\n{-(2**53)},2\n").values[0].tolist() == [2**53, 1e300]
    assert math.isfinite(read("9007199254740993.0\n2\n").values[0, 0])


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (["q"], "`columns` must be among 'a', 'b', 'b'; got 'q'."),
        ("a", "`columns` must be a list of names or positions, at least one; got columns='a'."),
        ([], "at least one; got columns=[]."),
        ([3], "positions from 0 to 2; got 3."),
        ([-1], "positions from 0 to 2; got -1."),
        ([True], "positions from 0 to 2; got True."),
        ([1.0], "positions from 0 to 2; got 1.0."),
        (["a", 0], "`columns` must name each column once; got 'a', 0 for the same one."),
        (["b"], "use positions where names repeat; got 'b', the name of 2."),
    ],
)
def test_columns_that_cannot_be_chosen(read, columns, sentence):
    with pytest.raises(ArgumentError) as caught:
        read("a,b,b\n1,2,3\n4,5,6\n", columns=columns)
    assert sentence in str(caught.value)


def test_names_of_a_table_without_header(read):
    with pytest.raises(ArgumentError, match="because the columns have no names; got 'a'"):
        read("1,2\n3,4\n", columns=["a"])


@pytest.mark.parametrize("limit", [0, 1, -1, 2.5, True])
def test_limits_that_leave_no_sample(read, limit):
    with pytest.raises(ArgumentError, match="read_table: `limit` must be a whole number >= 2"):
        read("1\n2\n", limit=limit)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", ["when{0}flow rate", "when{0}flow"])
def test_a_date_and_a_time_are_one_cell(tmp_path, delimiter, header):
    rows = [header, "2026-01-05 12:00:00{0}1.5", "05.01.2026 12:30{0}2.5"]
    text = "\n".join(rows).format(delimiter)
    (tmp_path / "t.csv").write_text(text + "\n")
    table = read_table(tmp_path / "t.csv", columns=[1])
    assert table.columns == (header.split("{0}")[1],)
    assert table.values.tolist() == [[1.5], [2.5]]
