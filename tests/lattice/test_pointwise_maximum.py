"""Maxima and minima of networks are networks, equal to those of the values, in the same class."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut.errors import ArgumentError
from taut.lattice import maximum, maximum_of, minimum, minimum_of
from taut.linalg import bound_operator_norm
from taut.nn import GroupSort, LinfLinear, MaxMin, MixedLinear, OrthonormalLinear, Scale, mlp

DOUBLE = torch.float64


def random_network(p, inputs, widths, outputs, generator, activation=MaxMin):
    """A network of the class LN_p with random weights and biases."""
    sizes = [inputs, *widths, outputs]
    modules = []
    for at, (before, after) in enumerate(pairwise(sizes)):
        layer = (
            MixedLinear(before, after, p, dtype=DOUBLE)
            if at == 0
            else LinfLinear(before, after, dtype=DOUBLE)
        )
        with torch.no_grad():
            layer.weight.copy_(torch.randn(after, before, generator=generator, dtype=DOUBLE))
            assert layer.bias is not None
            layer.bias.copy_(0.2 * torch.randn(after, generator=generator, dtype=DOUBLE))
        modules += [layer, activation()]
    return nn.Sequential(*modules[:-1])


def exact_norms(weight, p):
    """The dual norms of the rows (for p = 2 their squares), as rational numbers."""
    rows = [[abs(Fraction(entry)) for entry in row] for row in weight.tolist()]
    dual = {"l1": max, "l2": lambda row: sum(entry**2 for entry in row), "linf": sum}[p]
    return [dual(row) for row in rows]


def assert_in_class(network, p):
    """The first weight takes p to L-inf with norm at most 1, the others L-inf to L-inf."""
    weights = [module.weight.detach() for module in network if isinstance(module, nn.Linear)]
    assert [type(module) for module in network[1::2]] == [MaxMin] * (len(weights) - 1)
    assert [type(module) for module in network[::2]] == [nn.Linear] * len(weights)
    for at, weight in enumerate(weights):
        norm = p if at == 0 else "linf"
        # Rows that a layer keeps on the sphere of L2 are on it up to a rounding.
        limit = 1 + 2**-50 if norm == "l2" else 1
        assert max(exact_norms(weight, norm)) <= limit
        assert bound_operator_norm(weight, norm, "linf").value <= 1 + 1e-14


shapes = st.lists(st.integers(1, 4).map(lambda half: 2 * half), max_size=4)


def first_norms(network, p):
    layer = network[0]
    assert isinstance(layer, MixedLinear)
    return exact_norms(layer.effective_weight(), p)


def level(f, g, x):
    """Shifts `g` so that each network is the larger one at about half of the points."""
    with torch.no_grad():
        g[-1].bias += (f(x) - g(x)).median(0).values


@settings(max_examples=40)
@given(
    st.sampled_from(["l1", "l2", "linf"]), shapes, shapes, st.integers(1, 3), st.integers(0, 2**32)
)
def test_they_are_the_extrema_of_the_values(p, widths_f, widths_g, outputs, seed):
    generator = torch.Generator().manual_seed(seed)
    f = random_network(p, 3, widths_f, outputs, generator)
    g = random_network(p, 3, widths_g, outputs, generator)
    x = 3 * torch.randn(50, 3, generator=generator, dtype=DOUBLE)
    level(f, g, x)
    for combined, extremum in ((maximum, torch.maximum), (minimum, torch.minimum)):
        h = combined(f, g)
        torch.testing.assert_close(h(x), extremum(f(x), g(x)), rtol=0, atol=1e-12)
        assert len(h) == max(len(f), len(g)) + 2
        assert_in_class(h, p)
        rows_f, rows_g = (first_norms(network, p) for network in (f, g))
        assert max(exact_norms(h[0].weight, p)) == max(rows_f + rows_g)


@given(st.lists(shapes, min_size=1, max_size=6), st.integers(0, 2**32))
@settings(max_examples=25)
def test_many_at_once_in_logarithmic_depth(all_widths, seed):
    generator = torch.Generator().manual_seed(seed)
    networks = [random_network("l1", 2, widths, 2, generator) for widths in all_widths]
    x = 3 * torch.randn(40, 2, generator=generator, dtype=DOUBLE)
    values = torch.stack([network(x) for network in networks])
    deepest = max(len(widths) + 1 for widths in all_widths)
    for combined, expected in ((maximum_of, values.amax(0)), (minimum_of, values.amin(0))):
        h = combined(iter(networks))
        torch.testing.assert_close(h(x), expected, rtol=0, atol=1e-12)
        assert (len(h) + 1) // 2 <= deepest + (len(networks) - 1).bit_length()
        assert_in_class(h, "l1")


def test_distributivity_of_the_lattice():
    generator = torch.Generator().manual_seed(0)
    f, g, h = (random_network("linf", 2, widths, 1, generator) for widths in ([4], [2, 6], []))
    x = torch.randn(100, 2, generator=generator, dtype=DOUBLE)
    left = minimum(f, maximum(g, h))
    right = maximum(minimum(f, g), minimum(f, h))
    torch.testing.assert_close(left(x), right(x), rtol=0, atol=1e-12)


def test_the_draws_do_test_the_comparison():
    generator = torch.Generator().manual_seed(1)
    f, g = (random_network("l2", 3, [4], 1, generator) for _ in range(2))
    x = 3 * torch.randn(50, 3, generator=generator, dtype=DOUBLE)
    level(f, g, x)
    assert 15 <= (f(x) > g(x)).sum() <= 35


def test_every_accepted_way_to_write_a_network():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(60, 4, generator=generator, dtype=DOUBLE)
    plain = nn.Linear(4, 2, dtype=DOUBLE)
    networks = {
        "one layer": plain,
        "no bias": nn.Linear(4, 2, bias=False, dtype=DOUBLE),
        "constrained": OrthonormalLinear(4, 2, dtype=DOUBLE),
        "nested": nn.Sequential(nn.Sequential(nn.Linear(4, 2), nn.Identity()), MaxMin()).double(),
        "ascending pairs": nn.Sequential(nn.Linear(4, 6), GroupSort(2), nn.Linear(6, 2)).double(),
        "ends in a sort": nn.Sequential(nn.Linear(4, 2), GroupSort(2)).double(),
        "linear twice": nn.Sequential(
            nn.Linear(4, 3), nn.Linear(3, 4), MaxMin(), nn.Linear(4, 5), nn.Linear(5, 2)
        ).double(),
        "scaled": nn.Sequential(nn.Linear(4, 2), Scale(-0.5), MaxMin()).double(),
        "built": mlp([4, 8, 2], lipschitz=2.0).double(),
    }
    for name, network in networks.items():
        torch.testing.assert_close(
            maximum(network, plain)(x),
            torch.maximum(network(x), plain(x)),
            rtol=0,
            atol=1e-12,
            msg=name,
        )
        torch.testing.assert_close(
            minimum_of([network])(x), network(x), rtol=0, atol=1e-12, msg=name
        )


def test_linear_layers_in_a_row_keep_the_class():
    network = nn.Sequential(LinfLinear(3, 3), LinfLinear(3, 3), LinfLinear(3, 1)).double()
    assert_in_class(maximum(network, LinfLinear(3, 1, dtype=DOUBLE)), "linf")


def test_the_result_shares_nothing_and_draws_nothing():
    f, g = nn.Linear(2, 1), nn.Linear(2, 1)
    before = torch.get_rng_state()
    h = maximum(f, g)
    assert torch.equal(torch.get_rng_state(), before)
    x = torch.randn(5, 2)
    expected = h(x)
    with torch.no_grad():
        f.weight.fill_(7.0)
    assert torch.equal(h(x), expected)
    assert all(parameter.requires_grad for parameter in h.parameters())


@pytest.mark.parametrize(
    ("networks", "sentence"),
    [
        ([nn.Linear(2, 1), nn.Linear(3, 1)], r"must agree.*got 2 -> 1 .* and 3 -> 1"),
        ([nn.Linear(2, 1), nn.Linear(2, 2)], r"must agree.*got 2 -> 1 .* and 2 -> 2"),
        ([nn.Linear(2, 1), nn.Linear(2, 1).double()], "float32 on cpu and 2 -> 1 in torch.float64"),
        ([], "at least one network; got none"),
        ([nn.Sequential(nn.Linear(2, 2), nn.ReLU())], r"got ReLU\(\).*Build other activations"),
        ([nn.Sequential(nn.Linear(2, 3), GroupSort(3))], "got GroupSort"),
        ([nn.Sequential(nn.Linear(2, 2), MaxMin(dim=0))], r"got MaxMin\(dim=0\)"),
        ([nn.Sequential(nn.Linear(2, 3), MaxMin())], r"even widths before each"),
        ([nn.Sequential(MaxMin(), nn.Linear(2, 2))], r"got MaxMin"),
        ([MaxMin()], "must have a linear layer; got MaxMin"),
        ([nn.Sequential(Scale(2.0), nn.Linear(2, 2))], "right behind a linear layer"),
    ],
)
def test_what_does_not_fit_is_named(networks, sentence):
    with pytest.raises(ArgumentError, match=f"(?s)^maximum_of: .*{sentence}"):
        maximum_of(networks)
