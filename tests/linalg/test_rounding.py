import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import ArgumentError, DtypeError
from taut.linalg.rounding import (
    float_up,
    gamma,
    multiply_by_power_of_two,
    round_down,
    round_up,
    scale_to_unit,
    sqrt_up,
    sum_up,
    unit_roundoff,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
magnitudes = st.floats(min_value=0, max_value=1e300)


@pytest.mark.parametrize(
    "dtype, bits", [(torch.float64, 53), (torch.float32, 24), (torch.float16, 11)]
)
def test_unit_roundoff_is_half_the_spacing_above_one(dtype, bits):
    assert unit_roundoff(dtype) == 2.0**-bits


def test_unit_roundoff_refuses_integers():
    with pytest.raises(DtypeError, match="real floating-point type; got dtype=torch.int64"):
        unit_roundoff(torch.int64)


@given(st.integers(0, 2**52), st.sampled_from([torch.float64, torch.float32]))
def test_gamma_is_the_next_float_above_the_rational(k, dtype):
    u = Fraction(unit_roundoff(dtype))
    if k * u >= 1:
        with pytest.raises(ArgumentError, match="wider dtype"):
            gamma(k, dtype)
        return
    truth = k * u / (1 - k * u)
    assert Fraction(gamma(k, dtype)) >= truth
    assert k == 0 or Fraction(math.nextafter(gamma(k, dtype), 0)) < truth


@given(finite)
def test_rounding_steps_by_one_number_and_agrees_with_tensors(x):
    assert round_down(x) < x < round_up(x)
    assert round_down(round_up(x)) == x
    assert float(round_up(torch.tensor(x, dtype=torch.float64))) == round_up(x)


@given(st.fractions())
def test_float_up_is_the_least_float_above(x):
    assert Fraction(float_up(x)) >= x
    assert Fraction(math.nextafter(float_up(x), -math.inf)) < x


def test_float_up_beyond_the_range():
    assert float_up(Fraction(10) ** 400) == math.inf
    assert float_up(Fraction(1, 10**400)) == 5e-324


@given(st.fractions(min_value=0))
def test_sqrt_up_is_above_and_close(x):
    root = Fraction(sqrt_up(x))
    assert root**2 >= x
    assert root**2 <= x * (1 + Fraction(1, 2**50))


@given(st.lists(finite, min_size=1, max_size=6))
def test_scaling_is_exact_or_says_so(values):
    x = torch.tensor(values, dtype=torch.float64)
    y, exponent, exact = scale_to_unit(x)
    if not x.any():
        assert exponent == 0
        assert torch.equal(y, x)
        return
    assert 0.5 <= float(y.abs().max()) < 1
    errors = [
        abs(Fraction(a) - Fraction(b) * Fraction(2) ** exponent)
        for a, b in zip(values, y.tolist(), strict=True)
    ]
    assert max(errors) <= (0 if exact else Fraction(2) ** (exponent - 1022))


def test_scaling_reports_what_underflows():
    x = torch.tensor([1e300, 1e-300], dtype=torch.float64)
    assert not scale_to_unit(x)[2]
    assert scale_to_unit(x[:1])[2]


@pytest.mark.parametrize("start, exponent", [(5e-324, 1500), (1e300, -1500), (1.0, -1074)])
def test_powers_of_two_outside_the_range_are_applied_in_parts(start, exponent):
    x = torch.tensor([start], dtype=torch.float64)
    assert float(multiply_by_power_of_two(x, exponent)) == math.ldexp(start, exponent)


@given(st.lists(magnitudes, min_size=1, max_size=40))
def test_sum_up_is_never_below_the_exact_sum_and_close(values):
    bound = Fraction(float(sum_up(torch.tensor(values, dtype=torch.float64))))
    truth = sum(map(Fraction, values))
    assert bound >= truth
    assert bound <= truth * (1 + Fraction(1, 2**52)) + Fraction(1, 2**1000)


def test_sum_up_of_adversarial_rows_where_plain_summation_falls_short():
    # Each small term is lost when it is added to 1 on its own.
    x = torch.full((3, 1001), 2.0**-54, dtype=torch.float64)
    x[:, 0] = 1.0
    x[1] *= 2.0**-700
    x[2] *= 2.0**900
    truth = 1 + 1000 * Fraction(1, 2**54)
    for row, power in zip(sum_up(x).tolist(), (0, -700, 900), strict=True):
        assert 1 <= Fraction(row) / (truth * Fraction(2) ** power) <= 1 + Fraction(1, 2**51)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=64))
def test_sum_up_of_integers_is_exact(values):
    assert float(sum_up(torch.tensor(values, dtype=torch.float64))) == sum(values)


def test_sum_up_does_not_pass_the_float_above_a_tie():
    # The exact sum lies halfway between two floats, so the upper one is the least bound.
    x = torch.tensor([1.0, 2.0**-53], dtype=torch.float64)
    assert float(sum_up(x)) == 1 + 2.0**-52


def test_sum_up_survives_sums_beyond_the_range():
    assert float(sum_up(torch.full((4,), 1e308, dtype=torch.float64))) == math.inf
    assert sum_up(torch.zeros(2, 0, dtype=torch.float64)).tolist() == [0.0, 0.0]
