"""Constants compose soundly: never below what vectors really do."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.norms import L1, L2, LINF
from taut.rules import Constants
from taut.rules.upward_rounding import add_up, multiply_up, sqrt_up

any_size = st.floats(0, allow_infinity=False, allow_nan=False)


def exact(x):
    return Fraction(float(x))


@given(any_size, any_size)
def test_sums_products_and_roots_are_never_below_the_truth_and_never_far_above(a, b):
    x, y = torch.full((), a, dtype=torch.float64), torch.full((), b, dtype=torch.float64)
    for found, truth in (
        (add_up(x, y), exact(a) + exact(b)),
        (multiply_up(x, y), exact(a) * exact(b)),
    ):
        if found.isinf():
            assert truth > exact(1.7e308)
            continue
        assert exact(found) >= truth
        below = torch.nextafter(
            torch.nextafter(found, -torch.ones_like(found)), -torch.ones_like(found)
        )
        assert exact(below) <= truth
    root = sqrt_up(x)
    assert exact(root) ** 2 >= exact(a)
    assert exact(root) <= math.sqrt(a) * (1 + Fraction(1, 2**50))


def test_exact_results_stay_exact():
    one, three, zero = (torch.tensor(v).double() for v in (1.0, 3.0, 0.0))
    inf = torch.tensor(math.inf).double()
    assert multiply_up(one, one) == 1 and add_up(one, one) == 2 and sqrt_up(three * three) == 3
    assert multiply_up(zero, inf) == 0 and add_up(one, inf) == inf and sqrt_up(inf) == inf


@pytest.mark.parametrize("norm", [L1, L2, LINF])
@given(st.integers(1, 50))
def test_the_input_is_known_in_every_norm_once_its_size_is(norm, size):
    constants = Constants.of_input(norm, size)
    # A vector of ones and a unit vector attain the equivalences between norms.
    for vector in ([1.0] * size, [1.0] + [0.0] * (size - 1)):
        lengths = {L1: sum(vector), L2: math.sqrt(sum(vector)), LINF: 1.0}
        for other in (L1, L2, LINF):
            assert lengths[other] <= constants[other] * lengths[norm] * (1 + 1e-15)


def test_unknown_sizes_leave_larger_norms_unknown():
    assert Constants.of_input(LINF) == Constants(math.inf, math.inf, 1.0)
    assert Constants.of_input(L1) == Constants(1.0, 1.0, 1.0)


def test_only_matching_norms_compose():
    into_linf = Constants.of_input(L2).through(
        lambda p, q: 1.0 if (p, q) == (L2, LINF) else math.inf
    )
    assert into_linf == Constants(math.inf, math.inf, 1.0)
    # The next map is known from L2 alone, which nothing has reached.
    lost = into_linf.through(lambda p, q: 1.0 if (p, q) == (L2, L2) else math.inf)
    assert lost == Constants(math.inf, math.inf, math.inf)
