"""Mixed tables: the encoded L2 distance is the stated metric, and every column is accounted for."""

import json
import math
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.data import (
    ColumnEncoding,
    Encoding,
    FrameSource,
    TableStream,
    fit_encoding,
    open_source,
    read_table,
)
from taut.errors import ArgumentError, DataError
from taut.transport import load_critic


def frame(rows: int, seed: int = 0, shift: float = 0.0) -> pd.DataFrame:
    """A table as it comes: gaps, categories, dates, free text, an identifier."""
    random = np.random.default_rng(seed)
    gaps = random.random(rows) < 0.1
    days = pd.to_timedelta(random.integers(0, 300, rows), unit="D")
    return pd.DataFrame(
        {
            "id": 2**60 + np.arange(rows),
            "age": np.where(gaps, np.nan, random.normal(40 + shift, 10, rows)),
            "town": random.choice(np.array(["Bonn", "Ulm", "Hof", None]), rows),
            "member": random.random(rows) < 0.5,
            "joined": pd.Timestamp("2024-01-01") + days,
            "size": pd.Categorical(random.choice(list("SML"), rows), list("SML"), ordered=True),
            "note": [f"row {i} of {seed}" for i in range(rows)],
        }
    )


def encode(table: pd.DataFrame, **options) -> tuple[Encoding, np.ndarray]:
    source = FrameSource(table, "t")
    encoding = fit_encoding(source, **options)
    (cells,) = source.select(encoding.select(source.names)).column_batches(len(table))
    return encoding, encoding.encode(cells)


def test_every_column_is_accounted_for():
    encoding, rows = encode(frame(200))
    assert list(encoding.accounts) == list(frame(2).columns)
    assert encoding.accounts == {
        "id": "left out: an identifier, whole numbers beyond 2**53",
        "age": "number; a missing value is 1 from the centre",
        "town": "4 categories, 1 apart, one of them for missing values",
        "member": "2 categories, 1 apart",
        "joined": "date, in days",
        "size": "ordered, one step apart: S < M < L",
        "note": "left out: text, 200 different values",
    }
    assert rows.shape == (200, len(encoding.features)) == (200, 9)
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


def test_the_encoded_distance_is_the_stated_metric():
    table = frame(60)
    _, rows = encode(table, category_distance=3.0, missing_distance=2.0, drop=["note"])
    known = np.where(np.isnan(rows), 40.0, rows)  # the centre of the only column with gaps
    for i in range(0, 60, 7):
        for j in range(60):
            one, two = table.iloc[i], table.iloc[j]
            ages = [40.0 if math.isnan(row["age"]) else row["age"] for row in (one, two)]
            total = (ages[0] - ages[1]) ** 2
            total += 4.0 * (math.isnan(one["age"]) != math.isnan(two["age"]))
            towns = [None if pd.isna(row["town"]) else row["town"] for row in (one, two)]
            total += 9.0 * (towns[0] != towns[1]) + 9.0 * (one["member"] != two["member"])
            total += ((one["joined"] - two["joined"]) / pd.Timedelta(days=1)) ** 2
            total += ("SML".index(one["size"]) - "SML".index(two["size"])) ** 2
            assert np.linalg.norm(known[i] - known[j]) == pytest.approx(math.sqrt(total), abs=1e-9)


@given(st.integers(1, 6), st.booleans(), st.floats(0.1, 10))
def test_unseen_values_are_never_farther_than_the_metric_says(count, missing, distance):
    names = tuple("abcdef"[:count])
    column = ColumnEncoding("c", "category", "number", names, distance, missing)
    cells = np.array([*names, *([None] if missing else []), "new", "other"], object)
    rows = column.encode(cells)
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    known = len(rows) - 2
    off = ~np.eye(known, dtype=bool)
    np.testing.assert_allclose(apart[:known, :known][off], distance)
    assert (apart <= distance * (1 + 1e-12)).all()


def test_a_text_file_as_it_comes(tmp_path):
    text = "Tag;Zeit;Preis;Ort;leer\n" + "".join(
        f"{1 + i % 28:02}.03.2024;{i % 24}:30;{i},5;{'Bonn' if i % 3 else '?'};\n"
        for i in range(40)
    )
    (tmp_path / "t.csv").write_text(text)
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(tmp_path / "t.csv", "inner/t.csv")
    encoding = fit_encoding(open_source(tmp_path / "t.csv"))  # type: ignore[arg-type]
    assert encoding.accounts == {
        "Tag": "date, in days, day first",
        "Zeit": "time, in hours",
        "Preis": "number, decimal comma",
        "Ort": "2 categories, 1 apart, one of them for missing values",
        "leer": "left out: it has no values",
    }
    table = read_table(tmp_path / "t.csv", encoding=encoding)
    assert table.values[1].tolist() == [19784, 1.5, 1.5, 0]
    assert encoding.decode(table.values[:2])[0] == ["2024-03-01", "00:30", "0.5", "missing"]
    for path in ("t.zip", "t.zip:inner/t.csv"):
        assert np.array_equal(read_table(tmp_path / path, encoding=encoding).values, table.values)
    stream = TableStream(tmp_path / "t.csv", batch_rows=7, encoding=encoding)
    assert np.array_equal(np.concatenate(list(stream)), table.values)


def test_tables_without_a_header_are_named(tmp_path):
    path = tmp_path / "adult.data"
    path.write_text("39, State-gov, 7\n50, Private, 9\n28, Private, ?\n" * 10)
    bare = fit_encoding(open_source(path))  # type: ignore[arg-type]
    assert list(bare.accounts) == ["column 0", "column 1", "column 2"]
    named = fit_encoding(open_source(path, ["age", "work", "hours"]), drop=["hours"])  # type: ignore
    assert named.features == ("age", "work=State-gov")
    assert named.accounts["hours"] == "left out: dropped"
    with pytest.raises(ArgumentError, match="must name all 3 columns; got 2 names"):
        open_source(path, ["age", "work"])


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1,234.5", "12"], "number, thousands comma"),
        (["3/25/2024", "1/2/2024 13:05"], "date, in days, month first"),
        (["25/3/24", "1/2/24"], "date, in days, day first"),
        (["2024-03-01T10:00:00Z", "2024-03-01 12:00+02:00"], "date, in days"),
        (["1 Mar 2024", "12 Apr 2024"], "date, in days, month name"),
        (["18.00.00", "06.30.00"], "time, in hours"),
        (["0", "1", "3+"], "3 categories, 1 apart"),
        (["yes", "no"], "2 categories, 1 apart"),
    ],
)
def test_forms_of_text(texts, kind):
    table = pd.DataFrame({"c": texts * 8})
    assert encode(table)[0].accounts == {"c": kind}


def test_the_encoding_that_is_asked_for_decides():
    table = pd.DataFrame({"month": [1, 2, 3] * 10, "size": ["S", "M", "L"] * 10})
    options = {"month": "category:2", "size": "S<M<L"}
    encoding, rows = encode(table, encode=options)
    assert encoding.accounts == {
        "month": "3 categories, 2 apart",
        "size": "ordered, one step apart: S < M < L",
    }
    assert np.linalg.norm(rows[0] - rows[1]) == pytest.approx(math.sqrt(5))
    assert encode(table, categorical=["month"])[0].used[0].categories == ("1", "2", "3")
    for wrong, sentence in [
        ({"size": "S<M"}, "must list each of its values once; got also 'L' in the data"),
        ({"size": "shape"}, "must be number, category, date, time"),
        ({"size": "number"}, "column 'size' must hold a number in every cell; got 'S' in row 0"),
        ({"what": "number"}, "must be among 'month', 'size'; got 'what'"),
    ]:
        with pytest.raises((ArgumentError, DataError), match=".*".join(sentence.split("; "))):
            encode(table, encode=wrong)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_compared_as_they_are(library, tmp_path):
    a, b = frame(120), frame(100, 1, shift=30)
    if library == "polars":
        a, b = pl.from_pandas(a), pl.from_pandas(b)
    result = taut.wasserstein(a, b, num_steps=20, critics=("cones",), num_permutations=19)
    assert result.scaling.method == "standard" and result.encoding is not None
    assert 0 < result.lower.value <= result.upper.value
    scale = dict(zip(result.encoding.features, result.scaling.scale.tolist(), strict=True))
    assert scale["member=True"] == scale["age missing"] == 1 and scale["age"] > 5
    result.save(tmp_path / "critic.safetensors")
    critic = load_critic(tmp_path / "critic.safetensors")
    assert critic.encoding == result.encoding
    assert torch.equal(critic.score(a), result.score(a))


def test_finite_mixed_sets_are_measured_exactly():
    x = pd.DataFrame({"v": [0.0, 1.0, 2.0, 3.0], "c": ["a", "a", "b", "b"]})
    y = x.assign(c=["a", "b", "b", "b"])
    result = taut.wasserstein(x, y, finite=True, scaling="none")
    # The cheapest way is to change one category, and mass 1/4 pays 1 for it.
    assert result.lower.value <= 0.25 <= result.upper.value + 1e-12


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([*map(str, range(200)), "oops"], "must hold one kind of values; got numbers, and 'oops'"),
        ([1.0, math.inf, 2.0], "one is infinite, in row 1"),
        ([1j, 2j, 3j], "must hold numbers, text or dates; got complex128"),
        ([None, None, None], "a column must be left to compare; got none"),
        ([1.0], "at least two rows; got one"),
    ],
)
def test_broken_columns_are_refused_in_one_line(cells, sentence):
    with pytest.raises(DataError) as caught:
        encode(pd.DataFrame({"c": cells}))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
