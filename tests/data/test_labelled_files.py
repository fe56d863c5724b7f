"""Tables with a column of labels, archives of two arrays, folders of folders of images."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from taut.data import NoLabelError, load_labelled, read_labelled
from taut.data.labels import name_classes, number_classes
from taut.errors import ArgumentError, DamagedFileError, DataError

RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "height": RANDOM.normal(size=40).round(3),
        "kind": np.tile(["oak", "ash", "elm", "oak"], 10),
        "width": RANDOM.integers(0, 9, 40),
        "quality": np.tile([3, 5, 10, 4], 10),
    }
)


def save(folder, name, frame: Any = FRAME, **how):
    path = folder / name
    if name.endswith("parquet"):
        frame.to_parquet(path, **how)
    else:
        frame.to_csv(path, **{"index": False, **how})
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_free_text_is_left_out(tmp_path, ending):
    notes = [f"remark {number}, written by hand" for number in range(300)]
    numbers = np.arange(300.0)
    frame = pd.DataFrame({"a": numbers, "note": notes, "b": -numbers, "kind": ["x", "y"] * 150})
    data = load_labelled(save(tmp_path, f"table.{ending}", frame), label="kind")
    rows = np.concatenate([data.train.inputs, data.test.inputs])
    assert data.train.columns == ("a", "b")
    assert (rows[:, 0] == -rows[:, 1]).all() and sorted(rows[:, 0]) == numbers.tolist()


def rejoin(data):
    """All rows of both parts, in an order that does not depend on the split."""
    values = np.concatenate([data.train.inputs, data.test.inputs])
    labels = np.concatenate([data.train.labels, data.test.labels])
    order = np.lexsort(values.T)
    return values[order], [data.classes[i] for i in labels[order]]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_words_are_classes(tmp_path, name):
    data = load_labelled(save(tmp_path, name), label="kind")
    assert data.classes == ("ash", "elm", "oak")
    assert data.train.columns == ("height", "width", "quality")
    assert data.train.inputs.dtype == np.float64 and data.train.low is None
    assert data.train.counts == (8, 8, 16) and data.test.counts == (2, 2, 4)
    expected = FRAME[["height", "width", "quality"]].to_numpy(np.float64)
    order = np.lexsort(expected.T)
    values, names = rejoin(data)
    assert np.array_equal(values, expected[order])
    assert names == FRAME["kind"].to_numpy()[order].tolist()


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("label", ["quality", 3, -1, "3", "-1"])
def test_numbers_are_classes_by_size(tmp_path, name, label):
    path = save(tmp_path, name)
    data = load_labelled(path, label=label, columns=["height", "width"])
    assert data.classes == ("3", "4", "5", "10")
    assert data.train.columns == ("height", "width")
    _, names = rejoin(data)
    order = np.lexsort(FRAME[["height", "width"]].to_numpy(np.float64).T)
    assert names == FRAME["quality"].to_numpy()[order].astype(str).tolist()


@pytest.mark.parametrize("label", [1, -3, "1"])
def test_no_header_and_words(tmp_path, label):
    data = load_labelled(save(tmp_path, "t.csv", header=False), label=label)
    assert len(data.train) + len(data.test) == 40 and data.train.columns == ()
    assert data.classes == ("ash", "elm", "oak")


def test_a_header_of_numbers(tmp_path):
    frame = pd.DataFrame({"0": [1.0, 2, 3, 4], "1": [5, 6, 7, 8], "target": [0, 1, 0, 1]})
    data = load_labelled(save(tmp_path, "t.csv", frame))
    assert data.train.columns == ("0", "1")
    assert len(data.train) + len(data.test) == 4
    frame.columns = ["0", "1", "2"]
    data = load_labelled(save(tmp_path, "t.csv", frame), label="2")
    assert data.train.columns == ("0", "1")


@pytest.mark.parametrize("title", ["label", "target", "Class", "Y"])
def test_usual_names_need_not_be_given(tmp_path, title):
    frame = FRAME.rename(columns={"kind": title})
    assert load_labelled(save(tmp_path, "t.csv", frame)).classes == ("ash", "elm", "oak")


def test_a_test_file_of_its_own(tmp_path):
    first, second = save(tmp_path, "a.csv", FRAME[:30]), save(tmp_path, "b.csv", FRAME[30:32])
    data = load_labelled(first, label="kind", test=second)
    assert len(data.train) == 30 and data.test.counts == (0, 1, 1)
    turned = save(tmp_path, "c.csv", FRAME[["width", "height", "kind", "quality"]])
    again = load_labelled(first, label="kind", test=turned).test
    assert again.columns == data.train.columns and len(again) == 40
    assert np.array_equal(again.inputs[:30], data.train.inputs)
    fewer = save(tmp_path, "e.csv", FRAME[["height", "kind", "quality"]])
    with pytest.raises(DataError, match="data: e.csv: .*'height', 'width', 'quality', in any ord"):
        load_labelled(first, label="kind", test=fewer)
    strange = save(tmp_path, "d.csv", FRAME.assign(kind="yew"))
    with pytest.raises(
        DataError, match="known from training, 'ash', 'elm', 'oak'; got 'yew', first in row 0"
    ):
        load_labelled(first, label="kind", test=strange)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize(
    ("frame", "label", "error", "sentence"),
    [
        (FRAME, None, NoLabelError, "`label` must say which of the 4 columns holds the classes"),
        (FRAME.rename(columns={"width": "y", "kind": "label"}), None, NoLabelError, "just one"),
        (FRAME, "sort", ArgumentError, "`label` must be among 'height', 'kind'"),
        (FRAME, 4, ArgumentError, "`label` must be names, or positions from 0 to 3; got 4"),
        (
            FRAME.drop(columns="kind"),
            "height",
            DataError,
            "A column of measurements is for regression",
        ),
        (FRAME.assign(kind="oak"), "kind", DataError, "at least two classes; every row has 'oak'"),
        (FRAME[["kind"]], "kind", DataError, "there must be a column beside the label"),
        (
            FRAME.assign(kind=FRAME["kind"].where(FRAME.index != 7)),
            "kind",
            DataError,
            "every row must have a label; row 7 (counted from 0) has none",
        ),
        (FRAME.assign(height=1e300), "kind", DataError, "40 values are missing or not finite"),
    ],
    ids=range(9),
)
def test_tables_that_cannot_be_learnt_from(tmp_path, name, frame, label, error, sentence):
    with pytest.raises(error) as caught:
        load_labelled(save(tmp_path, name, frame), label=label)
    assert sentence in str(caught.value) and str(caught.value).startswith(f"data: {name}: ")


def test_arguments_that_do_not_fit(tmp_path):
    path = save(tmp_path, "t.csv")
    with pytest.raises(ArgumentError, match="`columns` must leave out the label"):
        load_labelled(path, label="kind", columns=["height", "kind"])
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    with pytest.raises(ArgumentError, match="must be left out unless the file is a table"):
        load_labelled(tmp_path / "a.npz", label="y")
    np.save(tmp_path / "a.npy", np.zeros((4, 2)))
    with pytest.raises(NoLabelError, match="a.npy cannot. Put the arrays x and y in one .npz"):
        load_labelled(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (["1", " 2 ", "1.0"], ["1", "2", "1"]),
        ([1.0, 2.0, -3.0], ["1", "2", "-3"]),
        (["a", "1", "b"], ["a", "1", "b"]),
        (["none", "cat"], ["none", "cat"]),
        (["True", "False"], ["True", "False"]),
        ([True, False], ["True", "False"]),
        (["?", "-"], ["?", "-"]),
    ],
)
def test_names_of_classes(raw, named):
    assert name_classes("data", raw) == named


@pytest.mark.parametrize("raw", [["1", ""], ["a", None], ["1", "NA"], [1.0, float("nan")]])
def test_labels_that_are_missing(raw):
    with pytest.raises(DataError, match="row 1 .counted from 0. has none"):
        name_classes("data", raw)


@pytest.mark.parametrize("raw", [["1", "1.5"], [2, float("inf")]])
def test_measures_are_no_labels(raw):
    with pytest.raises(
        DataError, match="row 1 .counted from 0. has (1.5|inf). A column of measurements"
    ):
        name_classes("data", raw)


def test_tables_keep_the_digits_that_float32_would_lose(tmp_path):
    stamps = 1_700_000_320 + np.arange(8)
    frame = pd.DataFrame({"t": stamps, "label": stamps % 2})
    np.savez(tmp_path / "a.npz", x=stamps[:, None], y=stamps % 2)
    for path in (save(tmp_path, "a.csv", frame), save(tmp_path, "a.parquet", frame)):
        assert read_labelled(path).inputs[:, 0].tolist() == stamps.tolist()
    assert read_labelled(tmp_path / "a.npz").inputs[:, 0].tolist() == stamps.tolist()


def test_numbers_of_classes():
    labels, classes = number_classes("data", ["-1", "10", "9"])
    assert classes == ("-1", "9", "10") and labels.tolist() == [0, 2, 1]
    assert labels.dtype == np.int64
    with pytest.raises(DataError, match="Drop such rows, or train with them"):
        number_classes("data", ["1", "3"], ("1", "2"))
    with pytest.raises(DataError, match="got '3', '4', .* No row has any of them: is this the r"):
        number_classes("data", ["3", "4"], ("1", "2"))


# Archives of numpy.


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((20, 5, 6), (1, 5, 6)),
        ((20, 3, 5, 6), (3, 5, 6)),
        ((20, 5, 6, 3), (3, 5, 6)),
        ((20, 5, 6, 1), (1, 5, 6)),
        ((20, 1, 5, 3), (1, 5, 3)),
    ],
)
def test_images_in_an_archive(tmp_path, shape, expected):
    pixels = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    pixels.reshape(20, -1)[:, 0] = np.arange(20)  # tells the rows apart
    np.savez(tmp_path / "a.npz", x=pixels, y=np.arange(20) % 2)
    data = load_labelled(tmp_path / "a.npz", test_fraction=0.5)
    assert data.train.image_shape == expected and data.train.inputs.shape[1:] == expected
    assert (data.train.low, data.train.high) == (0, 1)
    channels_last = expected != shape[1:] and len(shape) == 4
    for part in (data.train, data.test):
        rows = np.rint(part.inputs[:, 0, 0, 0] * 255).astype(int)
        assert np.array_equal(part.labels, rows % 2)
        assert part.inputs.flags.c_contiguous
        scaled = pixels[rows].astype(np.float32) / 255
        if channels_last:
            scaled = np.moveaxis(scaled, -1, 1)
        assert np.array_equal(part.inputs, scaled.reshape(part.inputs.shape))


def test_four_arrays_and_words(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        X_train=np.eye(4),
        y_train=np.array([["cat"], ["dog"], ["cat"], ["dog"]]),
        X_test=np.eye(4)[:1],
        y_test=np.array(["dog"]),
    )
    data = load_labelled(tmp_path / "a.npz")
    assert data.classes == ("cat", "dog") and data.train.inputs.shape == (4, 4)
    assert data.test.labels.tolist() == [1] and data.train.low is None
    with pytest.raises(
        ArgumentError, match="`test` must be left out where the data has a test part"
    ):
        load_labelled(tmp_path / "a.npz", test=tmp_path / "a.npz")


def test_floats_outside_the_unit_range_have_no_range(tmp_path):
    np.savez(tmp_path / "a.npz", images=RANDOM.normal(size=(8, 2, 2)), labels=np.arange(8) % 2)
    data = load_labelled(tmp_path / "a.npz")
    assert (data.train.low, data.train.high) == (None, None)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.eye(3)}, "must hold arrays x and y, or x_train"),
        ({"x": np.eye(3), "y": np.arange(4)}, "x has 3 rows, y has 4"),
        ({"x": np.eye(3), "y": np.eye(3)}, "For one-hot rows use .argmax(1)"),
        ({"x": np.eye(3), "data": np.eye(3), "y": np.arange(3)}, "must occur once"),
        ({"x": np.ones(3), "y": np.arange(3)}, "inputs must be rows of numbers, or images"),
        ({"x": np.full((2, 2), np.nan), "y": np.arange(2)}, "every value must be a finite number"),
        ({"x": np.array([["a"], ["b"]]), "y": np.arange(2)}, "values must be real numbers"),
        ({"x": np.eye(2), "y": np.array([0, None])}, "could run code when they are read"),
    ],
    ids=range(8),
)
def test_archives_that_cannot_be_learnt_from(tmp_path, arrays, sentence):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises((ArgumentError, DataError)) as caught:
        load_labelled(tmp_path / "a.npz")
    assert sentence in str(caught.value) and str(caught.value).startswith("data: a.npz: ")


def test_a_cut_archive(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(30), y=np.arange(30))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-100])
    with pytest.raises(DamagedFileError, match="cut short or altered"):
        load_labelled(tmp_path / "a.npz")


# Folders of images.


def draw(folder, classes, mode="L", size=(5, 4), count=6):
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            colour = number * 20 + i
            Image.new(mode, size, colour if mode == "L" else (colour, 1, 2)).save(
                folder / name / f"{i}.png"
            )
    return folder


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_a_folder_for_each_class(tmp_path, mode, channels):
    draw(tmp_path / "set", ["10", "9", "8"], mode)
    (tmp_path / "set" / ".hidden").mkdir()
    data = load_labelled(tmp_path / "set", test_fraction=1 / 3)
    assert data.classes == ("8", "9", "10") and data.name == "set"
    assert data.train.image_shape == (channels, 4, 5)
    assert data.train.counts == (4, 4, 4) and data.test.counts == (2, 2, 2)
    assert (data.train.low, data.train.high) == (0, 1)
    colours = np.rint(data.train.inputs[:, 0, 0, 0] * 255).astype(int)
    assert [data.classes[i] for i in data.train.labels] == [
        ["10", "9", "8"][colour // 20] for colour in colours
    ]


def test_folders_of_both_parts(tmp_path):
    draw(tmp_path / "set" / "train", ["cat", "dog"])
    draw(tmp_path / "set" / "test", ["dog"], count=2)
    data = load_labelled(tmp_path / "set")
    assert data.train.counts == (6, 6) and data.test.counts == (0, 2)


def test_folders_that_cannot_be_learnt_from(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="data: empty: .* it holds no folders"):
        load_labelled(tmp_path / "empty")
    mixed = draw(tmp_path / "mixed", ["a", "b"])
    Image.new("L", (5, 4)).save(mixed / "stray.png")
    with pytest.raises(DataError, match="stray.png is beside them"):
        load_labelled(mixed)
    (mixed / "stray.png").unlink()
    draw(mixed, ["c"], size=(9, 9))
    with pytest.raises(DataError, match="those of a have .4, 5., those of c .9, 9."):
        load_labelled(mixed)
    bare = draw(tmp_path / "bare", ["a", "b"])
    (bare / "none").mkdir()
    with pytest.raises(DataError, match="data: none: a folder must hold images"):
        load_labelled(bare)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_words_and_gaps_are_encoded(tmp_path, name):
    frame = FRAME.assign(height=FRAME["height"].where(FRAME.index != 7))
    data = load_labelled(save(tmp_path, name, frame), label="quality")
    rows = np.concatenate([data.train.inputs, data.test.inputs])
    assert np.isnan(rows).sum() == 1, "a gap stands apart by its own feature"
    assert any("kind=" in column for column in data.train.columns)
