"""Each activation made from another equals the one it is named after, on all inputs promised."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut import lattice
from taut.errors import ArgumentError
from taut.linalg import bound_operator_norm
from taut.nn import Abs, MaxMin, Maxout

DOUBLE = torch.float64
numbers = st.floats(-1e6, 1e6).map(lambda x: x + 0.0)


def vectors(count, elements=numbers):
    return st.lists(elements, min_size=count, max_size=count).map(
        lambda entries: torch.tensor(entries, dtype=DOUBLE)
    )


def assert_weights_at_most_1(network, *norms):
    for module in network:
        if isinstance(module, nn.Linear):
            for norm in norms:
                # The proof of a spectral norm costs some roundings, that of the others at most one.
                limit = 1 + (1e-12 if norm == "l2" else 1e-15)
                assert bound_operator_norm(module.weight, norm).value <= limit


@settings(max_examples=50)
@given(st.integers(1, 9).flatmap(vectors), st.floats(-1, 1))
def test_relu_and_its_variants_are_exact(x, slope):
    n = len(x)
    relu = lattice.relu_from_max_min(n, DOUBLE)
    assert torch.equal(relu(x), torch.relu(x))
    both = lattice.concatenated_relu_from_max_min(n, DOUBLE)
    assert torch.equal(both(x), torch.cat([torch.relu(x), torch.relu(-x)]))
    leaky = lattice.leaky_relu_from_max_min(n, slope, DOUBLE)
    assert torch.equal(leaky(x), nn.functional.leaky_relu(x, slope))
    assert_weights_at_most_1(relu, "l1", "l2", "linf")
    assert_weights_at_most_1(both, "l1", "l2", "linf")
    assert_weights_at_most_1(leaky, "linf")


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_maxout_is_exact(groups, group_size, data):
    x = data.draw(vectors(groups * group_size))
    network = lattice.maxout_from_group_sort(len(x), group_size, DOUBLE)
    assert torch.equal(network(x), Maxout(group_size)(x))
    assert_weights_at_most_1(network, "l1", "l2", "linf")


@settings(max_examples=50)
@given(st.integers(1, 9).flatmap(vectors))
def test_abs_from_max_min(x):
    exact = lattice.abs_from_max_min(len(x), "linf", DOUBLE)
    assert torch.equal(exact(x), Abs()(x))
    assert_weights_at_most_1(exact, "linf")
    orthonormal = lattice.abs_from_max_min(len(x), dtype=DOUBLE)
    torch.testing.assert_close(orthonormal(x), x.abs(), rtol=1e-15, atol=0)
    assert_orthonormal(orthonormal)


def assert_orthonormal(network):
    for module in network:
        if isinstance(module, nn.Linear):
            values = torch.linalg.svdvals(module.weight.detach())
            torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=1e-14)


bounded = st.tuples(st.integers(1, 6), st.floats(1e-3, 1e3)).flatmap(
    lambda pair: st.tuples(
        vectors(2 * pair[0], st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0]))),
        st.just(pair[1]),
    )
)


@settings(max_examples=50)
@given(bounded)
def test_max_min_from_abs_and_from_full_sort_up_to_the_bound(drawn):
    unit, bound = drawn
    x, n = bound * unit, len(unit)
    from_abs = lattice.max_min_from_abs(n, bound, DOUBLE)
    torch.testing.assert_close(from_abs(x), MaxMin()(x), rtol=0, atol=1e-14 * bound)
    assert_orthonormal(from_abs)
    from_sort = lattice.max_min_from_full_sort(n, bound, DOUBLE)
    torch.testing.assert_close(from_sort(x), MaxMin()(x), rtol=0, atol=1e-15 * n * bound)
    assert_weights_at_most_1(from_sort, "l1", "l2", "linf")


def test_the_bound_is_needed():
    x = torch.tensor([-3.0, 3.0, -3.5, 3.0], dtype=DOUBLE)
    assert not torch.allclose(lattice.max_min_from_abs(4, 1.0, DOUBLE)(x), MaxMin()(x))
    assert not torch.allclose(lattice.max_min_from_full_sort(4, 1.0, DOUBLE)(x), -MaxMin()(-x))
    ordered = torch.tensor([3.0, -3.0, 3.0, -3.0], dtype=DOUBLE)
    assert not torch.allclose(lattice.max_min_from_full_sort(4, 1.0, DOUBLE)(ordered), ordered)


@pytest.mark.parametrize("n", range(1, 13))
def test_the_bubble_sort_sorts_every_0_1_input(n):
    """By the 0-1 principle, which holds for networks of comparisons, it then sorts everything."""
    inputs = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)))
    assert torch.equal(lattice.full_sort_from_max_min(n)(inputs), inputs.sort(-1).values)


@settings(max_examples=50)
@given(st.integers(1, 24).flatmap(vectors))
def test_the_bubble_sort_is_exact(x):
    network = lattice.full_sort_from_max_min(len(x), DOUBLE)
    assert torch.equal(network(x), x.sort().values)
    assert sum(isinstance(module, MaxMin) for module in network) == len(x)


@pytest.mark.parametrize("n", [2, 6, 7, 16])
def test_the_weights_of_the_bubble_sort(n):
    for module in lattice.full_sort_from_max_min(n):
        if isinstance(module, nn.Linear):
            weight = module.weight.detach()
            assert ((weight == 0) | (weight == 1)).all() and (weight.sum(1) == 1).all()
            if n % 2 == 0:
                assert weight.shape == (n, n) and (weight.sum(0) == 1).all()


def test_they_work_on_batches_and_by_gradient():
    x = torch.randn(3, 5, 4, dtype=DOUBLE, requires_grad=True)
    for network, oracle in (
        (lattice.full_sort_from_max_min(4, DOUBLE), lambda x: x.sort(-1).values),
        (lattice.max_min_from_full_sort(4, 10.0, DOUBLE), MaxMin(dim=-1)),
        (lattice.relu_from_max_min(4, DOUBLE), torch.relu),
    ):
        weights = torch.randn(3, 5, 4, dtype=DOUBLE)
        found = torch.autograd.grad((network(x) * weights).sum(), x)[0]
        wanted = torch.autograd.grad((oracle(x) * weights).sum(), x)[0]
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: lattice.relu_from_max_min(0), "`num_channels` must be a whole number >= 1"),
        (
            lambda: lattice.leaky_relu_from_max_min(2, 1.5),
            r"`negative_slope` must lie in \[-1, 1\]",
        ),
        (lambda: lattice.leaky_relu_from_max_min(2, math.nan), "got negative_slope=nan"),
        (lambda: lattice.maxout_from_group_sort(4, 3), "must divide.*got group_size=3"),
        (lambda: lattice.abs_from_max_min(2, "l1"), "`norm` must be one of 'l2', 'linf'"),
        (lambda: lattice.max_min_from_abs(3, 1.0), "must be even; got num_channels=3. Use 4."),
        (lambda: lattice.max_min_from_full_sort(2, 0.0), "`bound` must be finite and positive"),
    ],
)
def test_what_does_not_fit_is_named(make, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        make()
