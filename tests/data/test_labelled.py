import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from taut.data import LabelledData, LabelledSet, load_labelled
from taut.data.labelled_files import read_digits
from taut.errors import ArgumentError, DataError


def make(labels, classes=("a", "b", "c"), **changes) -> LabelledSet:
    labels = np.asarray(labels, np.int64)
    fields = {
        "inputs": np.arange(2.0 * len(labels), dtype=np.float32).reshape(-1, 2),
        "labels": labels,
        "classes": classes,
        "columns": (),
        "low": None,
        "high": None,
        "source": "made",
    }
    return LabelledSet(**{**fields, **changes})


def test_the_digits_are_those_of_scikit_learn():
    (pixels, labels), ours = load_digits(return_X_y=True), read_digits()
    assert np.array_equal(ours.inputs.reshape(1797, 64) * 16, pixels)
    assert np.array_equal(ours.labels, labels)
    assert ours.inputs.dtype == np.float32 and ours.labels.dtype == np.int64
    assert ours.image_shape == (1, 8, 8) and ours.dim == 64
    assert (ours.low, ours.high) == (0, 1) == (ours.inputs.min(), ours.inputs.max())


def test_the_parts_of_the_digits_never_change():
    data = load_labelled("digits")
    digest = hashlib.sha256(np.ascontiguousarray(data.test.inputs).tobytes()).hexdigest()
    assert digest.startswith("ba1df66f2044f85a")
    assert len(data.train) + len(data.test) == 1797
    other = load_labelled("Digits", seed=1, test_fraction=0.5)
    assert abs(len(other.test) - 898) < 5
    assert not np.array_equal(load_labelled("digits", seed=1).test.inputs, data.test.inputs)


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(lambda c: max(c) > 1),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_split_is_a_partition_that_keeps_the_shares(counts, fraction, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    whole = make(labels, tuple("abcde")[: len(counts)])
    rest, part = whole.split(fraction, seed)
    rows = [set(map(tuple, side.inputs.tolist())) for side in (rest, part)]
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == set(map(tuple, whole.inputs.tolist()))
    for all_of, in_rest, in_part in zip(counts, rest.counts, part.counts, strict=True):
        assert in_rest + in_part == all_of
        assert abs(in_part - fraction * all_of) <= 1
        if all_of > 1:
            assert in_rest and in_part
    for side in (rest, part):
        assert (np.diff(side.inputs[:, 0]) > 0).all()  # rows keep their order
        assert np.array_equal(side.labels, labels[(side.inputs[:, 0] / 2).astype(int)])
    again, _ = whole.split(fraction, seed)
    assert np.array_equal(again.inputs, rest.inputs)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 2, float("nan")])
def test_a_split_needs_two_sides(fraction):
    with pytest.raises(ArgumentError, match=r"`fraction` must lie in \(0, 1\)"):
        make([0, 0, 1]).split(fraction, seed=0)


def test_single_rows_cannot_be_split():
    with pytest.raises(DataError, match="every class has one"):
        make([0, 1, 2]).split(0.5, seed=0)


@pytest.mark.parametrize(
    ("labels", "changes", "sentence"),
    [
        (
            [0, 3],
            {},
            "labels must be from 0 to 2, one for each class; row 1 (counted from 0) has 3",
        ),
        ([-1], {}, "row 0 (counted from 0) has -1"),
        ([0, 1], {"inputs": np.zeros((3, 2), np.float32)}, "got 3 inputs and 2 labels"),
        ([], {}, "must have rows; got none"),
    ],
)
def test_what_is_no_labelled_set(labels, changes, sentence):
    with pytest.raises(DataError) as caught:
        make(labels, **changes)
    assert str(caught.value).startswith("data: made: ") and sentence in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"classes": ("a", "b", "d")}, "the same classes"),
        ({"inputs": np.zeros((2, 3), np.float32)}, "one shape; got 2 in made and 3 in other"),
        ({"columns": ("u", "v")}, "the same columns in the same order"),
        ({"low": 0.0, "high": 1.0}, "one range"),
    ],
)
def test_parts_that_do_not_fit(changes, sentence):
    with pytest.raises(DataError) as caught:
        LabelledData(make([0, 1]), make([0, 1], source="other", **changes), "both")
    assert str(caught.value).startswith("data: both: ") and sentence in str(caught.value)


def test_taking_rows():
    taken = make([0, 1, 2]).take([2, 0])
    assert taken.labels.tolist() == [2, 0] and taken.inputs.tolist() == [[4, 5], [0, 1]]
    assert repr(taken) == "LabelledSet(2 x 2, 3 classes, from made)"
