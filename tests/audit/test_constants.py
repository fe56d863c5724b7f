"""Constants compose soundly: never below what vectors really do."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.audit.constants import Constants, product_up, root_up, sum_up
from taut.norms import L1, L2, LINF

positive = st.floats(1e-200, 1e200)


@given(st.lists(positive, min_size=1, max_size=5))
def test_products_sums_and_roots_are_never_below_the_truth(numbers):
    exact = math.prod(map(Fraction, numbers), start=Fraction(1))
    assert product_up(*numbers) == math.inf or Fraction(product_up(*numbers)) >= exact
    assert Fraction(sum_up(numbers)) >= sum(map(Fraction, numbers))
    assert Fraction(root_up(numbers[0])) ** 2 >= Fraction(numbers[0])


def test_exact_results_stay_exact():
    assert product_up(1.0, 1.0) == 1.0
    assert product_up(0.0, math.inf) == 0.0
    assert sum_up([1.0, 1.0]) == 2.0
    assert root_up(9.0) == 3.0


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
