"""What the types of columns say is kept: categories, their order, booleans, fractions of a second."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import taut
from taut.data import ColumnEncoding, Encoding, FrameSource, fit_encoding, open_source
from taut.errors import DataError
from taut.transport import WassersteinResult


def distance(x: pd.DataFrame, y: pd.DataFrame, **options) -> WassersteinResult:
    return taut.wasserstein(x, y, finite=True, scaling="none", **options)


def holds(result: WassersteinResult, truth: float) -> bool:
    return result.lower.value <= truth * (1 + 1e-9) and truth <= result.upper.value * (1 + 1e-9)


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("numbers", [[1, 5, 9], [0.5, 5.0, 1e9], [True, False, True]])
def test_unordered_categories_that_are_numbers_are_categories(numbers, gap):
    x, y = ([*numbers, *numbers[:2]] * 6 for _ in "xy")
    y[0] = numbers[1]
    if gap:
        x[1] = y[1] = None  # pandas then gives floats
    tables = [pd.DataFrame({"c": pd.Categorical(side)}) for side in (x, y)]
    result = distance(*tables)
    assert result.encoding is not None and result.encoding.columns[0].kind == "category"
    assert holds(result, 1 / len(x))  # one row changes its category, which is 1 away


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "parquet"])
def test_libraries_declare_categories(library, tmp_path):
    table = pd.DataFrame({"c": pd.Categorical(["1", "5", "9"] * 10), "v": np.arange(30.0)})
    source: object = table
    if library == "polars":
        source = pl.from_pandas(table)
    if library == "pyarrow":
        source = pa.Table.from_pandas(table)
    if library == "parquet":
        table["c"] = pd.Categorical([1, 5, 9] * 10)  # as plain numbers in the file
        table.to_parquet(tmp_path / "t.parquet")
        opened = open_source(tmp_path / "t.parquet")
    else:
        opened = FrameSource(source, "t")
    found = fit_encoding(opened)  # type: ignore[arg-type]
    assert found.columns[0].categories == ("1", "5", "9")


@pytest.mark.parametrize("levels", [[10, 50, 90], [0.5, 1.0, 2.0], ["lo", "mid", "hi"], [3, 2, 1]])
def test_ordered_categories_are_their_positions(levels):
    def column(level, gap=False):
        cells = [level] * 29 + [None if gap else level]
        return pd.DataFrame({"c": pd.Categorical(cells, categories=levels, ordered=True)})

    for a, b in itertools.product(range(3), repeat=2):
        assert holds(distance(column(levels[a]), column(levels[b])), abs(a - b))
    # One gap on each side moves no mass.
    assert distance(column(levels[0], True), column(levels[2], True)).lower.value <= 2 * 29 / 30


def test_two_orders_are_refused_unless_one_is_stated():
    first, second = ["lo", "mid", "hi"], ["lo", "hi", "mid"]
    x, y = (
        pd.DataFrame({"c": pd.Categorical([cell] * 30, categories=order, ordered=True)})
        for cell, order in (("lo", first), ("hi", second))
    )
    with pytest.raises(
        DataError, match="'c' must have one order.*lo < mid < hi, and lo < hi < mid"
    ):
        distance(x, y)
    assert holds(distance(x, y, encoding={"encode": {"c": "lo<mid<hi"}}), 2)
    assert holds(distance(x, y, encoding={"categorical": ["c"]}), 1)


@pytest.mark.parametrize("words", [("true", "false"), ("True", "False"), ("TRUE", "FALSE")])
@pytest.mark.parametrize("gap", [False, True])
def test_booleans_are_the_words_true_and_false(words, gap):
    cells = [True, False] * 15
    told = [words[0] if cell else words[1] for cell in cells]
    if gap:
        cells[3] = told[3] = None  # type: ignore[call-overload]
    numbers = np.arange(30.0)
    result = distance(
        pd.DataFrame({"b": cells, "v": numbers}), pd.DataFrame({"b": told, "v": numbers})
    )
    assert result.lower.value == 0 and result.upper.value < 1e-9
    ordered = {"encode": {"b": "false<true"}}
    frame = pd.DataFrame({"b": told, "v": numbers})
    assert fit_encoding(FrameSource(frame, "t"), **ordered).columns[0].kind == "ordered"


@pytest.mark.parametrize(
    ("one", "other", "seconds"),
    [
        ("13/02/2020 10:00:00.25", "13/02/2020 10:00:00.75", 0.5),
        ("02/13/2020 1:00:00.25 PM", "02/13/2020 1:00:00.5 PM", 0.25),
        ("2020-02-13 10:00:00.000001", "2020-02-13 10:00:00.5", 0.499999),
        ("2020-02-13T10:00:00.25+01:00", "2020-02-13T10:00:00.75+01:00", 0.5),
        ("1970-01-01 00:00:00.0000000005", "1970-01-01 00:00:00.0000000009", 4e-10),
    ],
)
def test_fractions_of_a_second_in_text_are_kept(one, other, seconds):
    x, y = (pd.DataFrame({"d": [text] * 30, "z": 0.0}) for text in (one, other))
    result = distance(x, y)
    days = seconds / 86400
    # Days of this century are rounded to 4e-12.
    slack = 1e-14 if one.startswith("1970") else 8e-12
    assert result.lower.value - slack <= days <= result.upper.value + slack
    assert result.lower.value > days / 2


@pytest.mark.parametrize("boxed", [False, True])
def test_nanoseconds_are_kept(boxed):
    def column(nanoseconds, kind):
        values = pd.Series([kind(nanoseconds)] * 30)
        return pd.DataFrame({"t": values.astype(object) if boxed else values, "z": 0.0})

    spans = [column(n, lambda n: pd.Timedelta(n, unit="ns")) for n in (1, 900)]
    assert holds(distance(*spans), 899e-9 / 3600)
    dates = [column(n, lambda n: pd.Timestamp(n, unit="ns")) for n in (1, 900)]
    assert holds(distance(*dates), 899e-9 / 86400)
    zoned = [column(n, lambda n: pd.Timestamp(n, unit="ns", tz="CET")) for n in (1, 900)]
    assert holds(distance(*zoned), 899e-9 / 86400)


def test_feature_names_that_collide_are_numbered():
    table = pd.DataFrame(
        {
            "a": ["b", "c", "d"] * 10,
            "a=b": np.arange(30.0),
            "age": [np.nan, 1.0, 2.0] * 10,
            "age missing": np.arange(30.0),
        }
    )
    encoding = fit_encoding(FrameSource(table, "t"))
    assert len(set(encoding.features)) == len(encoding.features) == 7
    assert "a=b (2)" in encoding.features and "age missing (2)" in encoding.features
    assert Encoding.from_json(encoding.to_json()).features == encoding.features
    tricky = (*(ColumnEncoding(name, "number") for name in ("a=b", "a=b (2)")), encoding.columns[0])
    assert len(set(Encoding(tricky).features)) == 5


def test_every_column_that_is_left_out_is_told():
    v = np.arange(100.0)
    x = pd.DataFrame({"name": [f"a{i}" for i in range(100)], "id": 2**60 + np.arange(100), "v": v})
    y = pd.DataFrame({"name": [f"b{i}" for i in range(100)], "id": np.arange(100), "v": v})
    sentence = (
        "left out: name (text, 200 different values), "
        "id (an identifier, whole numbers beyond 2**53)"
    )
    result = distance(x, y)
    assert sentence in result.notes and sentence in str(result)
    for populations in (
        taut.wasserstein(x, y, num_steps=20),
        taut.wasserstein(x, y, num_steps=20, encoding=result.encoding),
    ):
        assert sentence in populations.notes and sentence in str(populations)
    assert (
        "left out: w (dropped)"
        in distance(x[["v"]].assign(w=v), x[["v"]].assign(w=v), encoding={"drop": ["w"]}).notes
    )
