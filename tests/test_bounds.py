import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.bounds import Bound, Estimate, Interval, LayerBound, LayerTable, format_bound
from taut.errors import ArgumentError
from taut.norms import L2

numbers = st.floats(allow_nan=False, allow_infinity=False)


def shown(bound):
    text = repr(bound)
    return float(text.split("= ")[1].split(",")[0])


@given(numbers)
def test_what_is_printed_lies_on_the_stated_side(value):
    # Within the largest double; beyond it the next decimal is infinity.
    if abs(value) < 1e308:
        assert shown(Bound(value)) >= value
        assert shown(Bound(value, side="lower")) <= value


@given(numbers, st.integers(1, 8))
def test_few_digits_lie_on_the_stated_side(value, digits):
    if abs(value) < 1e307:
        assert float(format_bound(value, "upper", digits)) >= value
        assert float(format_bound(value, "lower", digits)) <= value


@given(st.floats(1e-300, 1e300), st.sampled_from(["upper", "lower"]), st.sampled_from([1, -1]))
def test_what_is_printed_is_close(value, side, sign):
    assert shown(Bound(sign * value, side=side)) == pytest.approx(sign * value, rel=1.01e-4)


@pytest.mark.parametrize("value", [1.0, 0.5, 0.0, -2.0, 3.1416, 1e-30, 1e20])
def test_short_numbers_are_printed_as_they_are(value):
    assert shown(Bound(value)) == value == shown(Bound(value, side="lower"))


def test_printing_tells_side_norm_and_confidence():
    assert repr(Bound(1.0, L2, method="Cholesky")) == "Bound(<= 1.0, l2, proven)"
    assert repr(Bound(0.25, side="lower", confidence=0.95)) == "Bound(>= 0.25, at 95 %)"
    assert repr(Bound(math.inf)) == "Bound(<= inf, proven)"
    assert repr(Estimate(0.98, L2, "power iteration")) == "Estimate(~ 0.98, l2, power iteration)"


def test_bounds_are_values():
    assert float(Bound(2.5)) == 2.5
    assert float(Estimate(2.5)) == 2.5
    assert Bound(1.0, L2) == Bound(1.0, L2) != Bound(1.0, L2, side="lower")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Bound(1.0).value = 2.0  # type: ignore[misc]


def test_layers_are_kept_and_not_printed():
    layer = LayerBound("0", "OrthonormalLinear", 1.0, "Cholesky", L2, L2)
    bound = Bound(1.0, L2, layers=LayerTable((layer,)))
    assert bound.layers == (layer,)
    assert "Orthonormal" not in repr(bound)


def test_nan_bounds_nothing():
    with pytest.raises(
        ArgumentError, match="Bound: `value` must be a number; got NaN, which bounds"
    ):
        Bound(math.nan)


def test_sides_are_two():
    with pytest.raises(ArgumentError, match="Bound: `side` must be one of 'upper', 'lower'; got"):
        Bound(1.0, side="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.0, -0.1, 1.1, math.nan])
def test_confidence_is_a_probability(confidence):
    with pytest.raises(ArgumentError, match=r"`confidence` must lie in \(0, 1\]; got confidence="):
        Bound(1.0, confidence=confidence)


def test_intervals():
    interval = Interval(Bound(0.37, side="lower", confidence=0.975), Bound(0.61, confidence=0.975))
    assert interval.confidence == pytest.approx(0.95)
    assert 0.37 in interval and 0.5 in interval and 0.61 in interval
    assert 0.36 not in interval and 0.62 not in interval and math.nan not in interval
    assert repr(Interval(Bound(0.0, side="lower"), Bound(1.0))) == "Interval([0.0, 1.0] proven)"


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_the_confidence_of_an_interval_is_the_union_bound(low, high):
    interval = Interval(Bound(0.0, side="lower", confidence=low), Bound(1.0, confidence=high))
    assert 0 <= interval.confidence <= min(low, high) + 1e-12
    assert interval.confidence == pytest.approx(max(0, 1 - (1 - low) - (1 - high)))


def test_the_ends_of_an_interval_have_their_sides():
    with pytest.raises(
        ArgumentError, match="Interval: `lower` and `upper` must be bounds of those"
    ):
        Interval(Bound(0.0), Bound(1.0))
