"""The label of a table with and without a header, by name and by position; one file read whole."""

import numpy as np
import pytest
from PIL import Image

from taut.data import load_labelled, read_labelled
from taut.errors import ArgumentError, DataError

# Wine: the first line holds an 11, as a measure and not as a name, and a 5, its label.
WINE = [
    "7.4,0.7,0,1.9,0.076,11,34,0.9978,3.51,0.56,9.4,5",
    "7.8,0.88,0,2.6,0.098,25,67,0.9968,3.2,0.68,9.8,6",
    "11.2,0.28,0.56,1.9,0.075,17,60,0.998,3.16,0.58,9.8,5",
    "7.9,0.6,0.06,1.6,0.069,15,59,0.9964,3.3,0.46,9.4,6",
]


def write(folder, lines, name="t.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("label", ["11", "-1", 11, -1])
def test_a_position_is_no_name_of_a_measure(tmp_path, label):
    whole = read_labelled(write(tmp_path, WINE), label=label)
    assert whole.inputs.shape == (4, 11) and whole.columns == ()
    assert [whole.classes[i] for i in whole.labels] == ["5", "6", "5", "6"]
    expected = np.loadtxt(WINE, delimiter=",", usecols=range(11))
    assert np.array_equal(whole.inputs, expected)


@pytest.mark.parametrize("label", ["3", "3 ", "-1", 3, -1])
def test_whole_numbers_that_could_be_names(tmp_path, label):
    path = write(tmp_path, ["3,1,2,0", "3,1,2,1"])
    if label == "3":
        # A header of the names 3, 1, 2, 0 would have its label in front.
        with pytest.raises(ArgumentError, match="may be a row or a header") as caught:
            read_labelled(path, label=label)
        assert "count from the end: -1" in str(caught.value)
    elif label == "3 ":
        with pytest.raises(ArgumentError, match="must be positions"):
            read_labelled(path, label=label)
    else:
        assert read_labelled(path, label=label).labels.tolist() == [0, 1]


@pytest.mark.parametrize("label", ["2", 2, "-1", -1])
@pytest.mark.parametrize("title", ["2", "kind"])
def test_a_header_that_counts_is_no_row(tmp_path, title, label):
    path = write(tmp_path, [f"0,1,{title}", "5,6,0", "7,8,1", "9,4,2"])
    whole = read_labelled(path, label=label)
    assert whole.columns == ("0", "1") and whole.classes == ("0", "1", "2")


@pytest.mark.parametrize("label", [-1, "1", 0])
def test_words_that_occur_again_are_no_header(tmp_path, label):
    whole = read_labelled(
        write(tmp_path, ["red,oak", "tan,ash", "red,ash", "tan,oak"]), label=label
    )
    assert len(whole) == 4 and len(whole.classes) == 2


def test_a_number_beyond_all_positions_beside_words_is_a_name(tmp_path):
    whole = read_labelled(write(tmp_path, ["50,x", "1,red", "2,tan", "1,tan", "2,red"]), label="50")
    assert len(whole) == 4 and whole.classes == ("1", "2")


def test_a_row_that_counts_is_a_row_if_its_word_is_a_class(tmp_path):
    whole = read_labelled(write(tmp_path, ["0,1,cat", "5,6,dog", "7,8,cat"]), label="2")
    assert whole.classes == ("cat", "dog") and len(whole) == 3


def test_a_name_beyond_all_positions_is_a_name(tmp_path):
    whole = read_labelled(write(tmp_path, ["10,20,30", "1,2,0", "3,4,1"]), label="30")
    assert whole.columns == ("10", "20") and len(whole) == 2


def test_a_name_that_is_the_position_of_another(tmp_path):
    path = write(tmp_path, ["id,0,1,2,kind", "9,5,6,0,1", "8,7,8,1,0"])
    with pytest.raises(
        ArgumentError, match="'2' is the name of the column at position 3"
    ) as caught:
        read_labelled(path, label="2")
    assert "'1' is at position 2. Count from the end: -2 or -3." in str(caught.value)
    assert read_labelled(path, label="-2").columns == ("id", "0", "1", "kind")


def test_positions_that_are_not_there(tmp_path):
    for label in ("12", "34", -13, "-13"):
        with pytest.raises(ArgumentError, match="positions from 0 to 11"):
            read_labelled(write(tmp_path, WINE), label=label)


# Known classes.


@pytest.mark.parametrize("classes", [("5", "6"), ("6", "7", "5")])
def test_rows_get_the_numbers_of_known_classes(tmp_path, classes):
    path = write(tmp_path, WINE)
    whole = read_labelled(path, label=-1, classes=classes)
    assert whole.classes == classes
    assert [classes[i] for i in whole.labels] == ["5", "6", "5", "6"]
    # One class alone cannot be learnt from, but be judged.
    single = read_labelled(write(tmp_path, WINE[::2]), label=-1, classes=classes)
    assert [classes[i] for i in single.labels] == ["5", "5"]


def test_an_unknown_class_is_told_with_its_row(tmp_path):
    with pytest.raises(DataError, match="one of the classes known from training, '5', '7'") as it:
        read_labelled(write(tmp_path, WINE), label=-1, classes=("5", "7"))
    assert "got '6', first in row 1 (counted from 0)" in str(it.value)


def test_every_kind_of_file_keeps_rows_and_numbers(tmp_path):
    known = ("3", "1", "2")
    x, y = np.arange(8.0).reshape(4, 2), np.array([1, 2, 1, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    found = read_labelled(tmp_path / "a.npz", classes=known)
    assert np.array_equal(found.inputs, x) and found.labels.tolist() == [1, 2, 1, 1]
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x[1:3], y_test=y[1:3])
    assert read_labelled(tmp_path / "b.npz", classes=known).labels.tolist() == [2, 1]
    for name, content in (("images-idx3", np.zeros((4, 2, 2))), ("labels-idx1", y)):
        head = bytes((0, 0, 8, content.ndim)) + b"".join(
            n.to_bytes(4, "big") for n in content.shape
        )
        (tmp_path / f"{name}-ubyte").write_bytes(head + content.astype(np.uint8).tobytes())
    pairs = read_labelled(tmp_path / "images-idx3-ubyte", classes=known)
    assert pairs.labels.tolist() == [1, 2, 1, 1]
    (tmp_path / "set" / "2").mkdir(parents=True)
    Image.new("L", (3, 2)).save(tmp_path / "set" / "2" / "a.png")
    assert read_labelled(tmp_path / "set", classes=known).labels.tolist() == [2]


def test_named_data_gives_what_is_tested_on():
    part = load_labelled("digits").test
    turned = read_labelled("digits", classes=part.classes[::-1])
    assert np.array_equal(turned.inputs, part.inputs)
    assert np.array_equal(turned.labels, 9 - part.labels)
