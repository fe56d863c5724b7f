"""Theorem 2: what it says is so, what the paper says too much is caught, conditions are checked."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut.errors import ArgumentError
from taut.lattice import unit_singular_values
from taut.nn import Abs, FullSort, GroupSort, MaxMin, SpectralLinear

DOUBLE = torch.float64


def orthonormal(rows, columns, generator):
    draw = torch.randn(max(rows, columns), min(rows, columns), generator=generator, dtype=DOUBLE)
    q = torch.linalg.qr(draw).Q
    return q if rows >= columns else q.T


def layer(weight, generator=None):
    made = nn.Linear(weight.shape[1], weight.shape[0], dtype=DOUBLE)
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(torch.randn(len(weight), generator=generator, dtype=DOUBLE))
    return made


def shrunk_beside(kept, generator, columns):
    """`kept` extended by rows of length below 1, orthogonal to it: norm 1, but not all values."""
    count = columns - len(kept)
    _, _, vh = torch.linalg.svd(kept, full_matrices=True)
    rotation = orthonormal(count, count, generator)
    lengths = torch.rand(count, 1, generator=generator, dtype=DOUBLE) * 0.9
    return torch.cat([kept, lengths * (rotation @ vh[len(kept) :])])


def interleaved(weight, kept):
    """Rows reordered so that MaxMin compares kept rows with each other, the rest with the rest."""
    rest = len(weight) - kept
    a, b = range(kept), range(kept, kept + rest)
    order = [*a[: kept // 2], *b[: rest // 2], *a[kept // 2 :], *b[rest // 2 :]]
    return weight[order], order


def network_with_idle_directions(seed, inputs=6, depth=3, activation=MaxMin):
    """Gradient norm 1 everywhere; two of the channels of each layer are shrunk and never used."""
    generator = torch.Generator().manual_seed(seed)
    used = inputs - 2
    weight, order = interleaved(
        shrunk_beside(orthonormal(used, inputs, generator), generator, inputs), used
    )
    modules = [layer(weight, generator), activation()]
    for _ in range(depth - 1):
        kept = torch.zeros(used, inputs, dtype=DOUBLE)
        kept[:, [order.index(at) for at in range(used)]] = orthonormal(used, used, generator)
        weight, order = interleaved(shrunk_beside(kept, generator, inputs), used)
        modules += [layer(weight, generator), activation()]
    last = torch.zeros(1, inputs, dtype=DOUBLE)
    last[:, [order.index(at) for at in range(used)]] = orthonormal(1, used, generator)
    return nn.Sequential(*modules, layer(last, generator))


def singular_values(network):
    return [
        torch.linalg.svdvals(module.weight.detach())
        for module in network
        if isinstance(module, nn.Linear)
    ]


def assert_all_1(network, atol=1e-13):
    for values in singular_values(network):
        torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=atol)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([4, 6, 8]), st.integers(1, 4))
def test_idle_directions_become_orthonormal_and_nothing_changes(seed, inputs, depth):
    network = network_with_idle_directions(seed, inputs, depth)
    assert min(values.min() for values in singular_values(network)) < 0.95
    x = 4 * torch.randn(30, inputs, dtype=DOUBLE)
    replaced = unit_singular_values(network, x)
    assert_all_1(replaced)
    elsewhere = 4 * torch.randn(200, inputs, dtype=DOUBLE)
    torch.testing.assert_close(replaced(elsewhere), network(elsewhere), rtol=0, atol=1e-11)
    assert [type(module) for module in replaced] == [type(module) for module in network]


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(0, 0.99))
def test_a_layer_that_mixes_is_replaced_too(seed, shrink):
    """`W = v q' + shrink * rest` in front of `v'` keeps `q'` alone, in no coordinate direction."""
    generator = torch.Generator().manual_seed(seed)
    left, right = orthonormal(4, 4, generator), orthonormal(6, 6, generator)
    values = torch.tensor([1.0, shrink, shrink / 2, 0.0], dtype=DOUBLE)
    network = nn.Sequential(
        layer(orthonormal(6, 6, generator), generator),
        MaxMin(),
        layer(left @ torch.diag(values) @ right[:4], generator),
        layer(left[:, :1].T, generator),
    )
    x = torch.randn(40, 6, generator=generator, dtype=DOUBLE)
    replaced = unit_singular_values(network, x)
    assert_all_1(replaced)
    torch.testing.assert_close(replaced(x), network(x), rtol=0, atol=1e-12)


def test_orthonormal_networks_stay_as_they_are():
    generator = torch.Generator().manual_seed(0)
    for activation in (MaxMin(), GroupSort(3), FullSort(), Abs()):
        network = nn.Sequential(
            layer(orthonormal(6, 6, generator), generator),
            activation,
            layer(orthonormal(1, 6, generator), generator),
        )
        x = torch.randn(20, 6, generator=generator, dtype=DOUBLE)
        replaced = unit_singular_values(network, x)
        for old, new in zip(network.parameters(), replaced.parameters(), strict=True):
            torch.testing.assert_close(new, old, rtol=0, atol=1e-13)


def counterexample():
    """|x_1| as max(|z_1|, |z_2|) with z = diag(1, 0) x: gradient norm 1 almost everywhere."""
    first, last = (
        layer(torch.tensor(weight)) for weight in ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0]])
    )
    nn.init.zeros_(first.bias)
    nn.init.zeros_(last.bias)
    return nn.Sequential(first, Abs(), MaxMin(), last)


def test_the_theorem_of_the_paper_needs_the_clause_on_sorting():
    network = counterexample()
    x = torch.randn(50, 2, dtype=DOUBLE)
    torch.testing.assert_close(network(x).squeeze(1), x[:, 0].abs())
    with pytest.raises(ArgumentError, match="must sort alike.*decides a comparison"):
        unit_singular_values(network, x)
    where_it_holds = x[x[:, 0].abs() > x[:, 1].abs()]
    replaced = unit_singular_values(network, where_it_holds)
    assert_all_1(replaced)
    torch.testing.assert_close(replaced(where_it_holds), network(where_it_holds))
    torch.testing.assert_close(replaced(x).squeeze(1), x.abs().amax(1))


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(1e-6, 1e-2))
def test_the_change_is_within_the_bound_where_gradients_are_nearly_1(seed, tilt):
    """The last row is tilted by `tilt` into shrunk directions: the gradient loses about tilt^2."""
    generator = torch.Generator().manual_seed(seed)
    left, right = orthonormal(3, 3, generator), orthonormal(3, 3, generator)
    values = torch.tensor([1.0, 0.3, 0.1], dtype=DOUBLE)
    direction = torch.nn.functional.normalize(left[:, 0] + tilt * left[:, 1], dim=0)
    first = layer(left @ torch.diag(values) @ right, generator)
    last = layer(direction[None], generator)
    network = nn.Sequential(first, last)
    x = torch.randn(30, 3, generator=generator, dtype=DOUBLE)
    replaced = unit_singular_values(network, x, tol=1e-3)
    gradient = last.weight @ first.weight
    lost = 1 - torch.linalg.vector_norm(gradient) + 1e-15  # rounding of the norm itself
    received = x.norm(dim=1) + replaced[0](x).norm(dim=1)
    change = (replaced(x) - network(x)).squeeze(1).abs()
    assert (change <= (2 * lost).sqrt() * received + 1e-13).all()
    assert change.amax() > 0.1 * tilt  # so the bound is at work


def test_constrained_layers_in_float32():
    first = SpectralLinear(4, 4)
    with torch.no_grad():
        first.weight.copy_(torch.diag(torch.tensor([1.0, 1.0, 0.5, 0.2])))
    last = nn.Linear(4, 1)
    last.weight.data = torch.tensor([[0.6, 0.8, 0.0, 0.0]])
    network = nn.Sequential(first, last).eval()
    x = torch.randn(20, 4)
    replaced = unit_singular_values(network, x, tol=1e-4)
    assert replaced[0].weight.dtype == torch.float32
    assert_all_1(replaced, atol=1e-6)
    torch.testing.assert_close(replaced(x), network(x), rtol=0, atol=1e-3)


def two_layers(scale=1.0, outputs=1):
    eye = torch.eye(2, dtype=DOUBLE)
    return nn.Sequential(layer(scale * eye), MaxMin(), layer(eye[:outputs]))


POINTS = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=DOUBLE)


@pytest.mark.parametrize(
    ("network", "points", "sentence"),
    [
        (two_layers(1.1), POINTS, r"spectral norm at most 1; got 1.1 in linear layer 0. Use"),
        (two_layers(0.9), POINTS, r"must have length 1 at all points; got 0.9 at point 0"),
        (two_layers(outputs=2), POINTS, r"one output; got 2 outputs.*one by one"),
        (two_layers(), POINTS[:0], r"at least one point; got shape \(0, 2\)"),
        (two_layers(), POINTS[0], r"must be \(count, 2\).*got shape \(2,\)"),
        (nn.Sequential(two_layers(), nn.Tanh()), POINTS, r"got Tanh\(\)"),
        (nn.Sequential(two_layers(), Abs()), POINTS, r"must end in a linear layer"),
    ],
)
def test_conditions_that_fail_are_named(network, points, sentence):
    with pytest.raises(ArgumentError, match=f"^unit_singular_values: .*{sentence}"):
        unit_singular_values(network, points)


def test_relu_cannot_keep_gradients_where_it_is_off():
    """Theorem 1 at work: a ReLU network of gradient norm 1 on both sides of a kink is refused."""
    first = layer(torch.eye(1, dtype=DOUBLE))
    nn.init.zeros_(first.bias)
    network = nn.Sequential(first, nn.ReLU(), layer(torch.ones(1, 1)))
    unit_singular_values(network, torch.tensor([[1.0]], dtype=DOUBLE))
    with pytest.raises(ArgumentError, match="got 0 at point 1"):
        unit_singular_values(network, torch.tensor([[1.0], [-1.0]], dtype=DOUBLE))
