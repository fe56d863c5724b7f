"""The universal network goes through the points, never steeper than 1, and that is proven."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut.errors import ArgumentError, DtypeError, NonFiniteError
from taut.lattice import interpolate
from taut.linalg import bound_operator_norm
from taut.nn import MaxMin

DOUBLE = torch.float64
NORMS = {"l1": 1, "l2": 2, "linf": np.inf}


def length(x, p):
    """By numpy, over the last dimension."""
    return torch.as_tensor(np.linalg.norm(x.numpy(), NORMS[p], axis=-1))


def distance_to_centres(x, p, seed, count=5):
    """A function of slope exactly 1 almost everywhere, with kinks and several valleys."""
    centres = np.random.default_rng(seed).uniform(-1, 1, (count, x.shape[-1]))
    return length(x[..., None, :] - torch.from_numpy(centres), p).amin(-1)


def wave(x, p, seed):
    """A smooth function of slope at most 1: sin of a linear form of dual norm 1."""
    direction = np.random.default_rng(seed).normal(size=x.shape[-1])
    dual = {"l1": np.inf, "l2": 2, "linf": 1}[p]
    direction /= np.linalg.norm(direction, dual)
    return torch.sin(x @ torch.from_numpy(direction) * 3) / 3


def assert_in_class(network, p):
    """Norms of the stored weights, as rational numbers and as the library proves them."""
    assert all(isinstance(module, nn.Linear) for module in network[::2])
    assert all(isinstance(module, MaxMin) for module in network[1::2])
    weights = [module.weight.detach() for module in network[::2]]
    for row in weights[0].tolist():
        entries = [abs(Fraction(entry)) for entry in row]
        exact = {"l1": max(entries), "l2": sum(e * e for e in entries), "linf": sum(entries)}[p]
        assert exact <= 1
    assert bound_operator_norm(weights[0], p, "linf").value <= 1
    for weight in weights[1:]:
        assert ((weight == 0) | (weight == 1)).all() and (weight.sum(1) == 1).all()
        assert bound_operator_norm(weight, "linf").value <= 1


def assert_no_slope_above_1(network, x, p):
    """Between all pairs, between neighbours far too close, and of the gradient."""
    generator = torch.Generator().manual_seed(0)
    near = x + 1e-4 * torch.randn(x.shape, generator=generator, dtype=DOUBLE)
    y = torch.cat([x, near, 2 * torch.randn(x.shape, generator=generator, dtype=DOUBLE)])
    values = network(y).detach().squeeze(1)
    rises = (values[:, None] - values).abs()
    rounding = 1e-14 * float(y.abs().amax() + values.abs().amax())
    assert (rises <= length(y[:, None] - y, p) + rounding).all()
    y.requires_grad_()
    gradients = torch.autograd.grad(network(y).sum(), y)[0]
    dual = {"l1": np.inf, "l2": 2, "linf": 1}[p]
    assert np.linalg.norm(gradients.numpy(), dual, axis=1).max() <= 1 + 1e-15


@pytest.mark.parametrize("function", [distance_to_centres, wave])
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_64_points_in_space(function, p, dtype):
    points = torch.rand(64, 3, dtype=DOUBLE) * 2 - 1
    values = function(points, p, seed=1)
    network = interpolate(points.to(dtype), values.to(dtype), p)
    found = network(points.to(dtype)).detach().squeeze(1).double()
    assert (found - values).abs().amax() <= (1e-6 if dtype == torch.float32 else 1e-14)
    assert_in_class(network, p)
    assert sum(parameter.nbytes for parameter in network.parameters()) < 10e6
    if dtype == DOUBLE:
        assert_no_slope_above_1(network, points, p)


@pytest.mark.parametrize("p", NORMS)
def test_between_the_points_it_is_within_twice_the_distance_to_them(p):
    points = torch.rand(200, 2, dtype=DOUBLE)
    network = interpolate(points, distance_to_centres(points, p, seed=3), p)
    x = torch.rand(500, 2, dtype=DOUBLE)
    gap = length(x[:, None] - points, p).amin(1)
    error = (network(x).detach().squeeze(1) - distance_to_centres(x, p, seed=3)).abs()
    assert (error <= 2 * gap + 1e-14).all()
    assert error.mean() < 0.1


@settings(max_examples=40)
@given(
    st.sampled_from(list(NORMS)),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 2**32),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_any_values_of_slope_at_most_1(p, count, dimension, seed, scale):
    """Random values made feasible by the largest extension; some pairs have slope exactly 1."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(-2, 3, (count, dimension), generator=generator).double() * scale
    wild = 3 * scale * torch.randn(count, generator=generator, dtype=DOUBLE)
    values = (wild[:, None] + length(points[:, None] - points, p)).amin(0)
    network = interpolate(points, values, p)
    found = network(points).detach().squeeze(1)
    size = values.abs().amax() + length(points, p).amax()
    # The stated bound, and a few roundings more: the values break the rule by as much.
    assert (found - values).abs().amax() <= (14 * dimension + 72) * 2**-53 * size
    assert_in_class(network, p)
    if count > 1:
        assert_no_slope_above_1(network, points, p)


@pytest.mark.parametrize("p", NORMS)
def test_the_least_slope_allowed_is_used_in_full(p):
    """Two points with slope exactly 1 between them force the slope; it is not shrunk away."""
    points = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 2.0]], dtype=DOUBLE)
    values = torch.stack([torch.zeros((), dtype=DOUBLE), length(points[1], p)])
    network = interpolate(points, values, p)
    torch.testing.assert_close(network(points).detach().squeeze(1), values, rtol=0, atol=1e-13)


def test_an_affine_function_needs_one_layer():
    points = torch.randn(50, 1, dtype=DOUBLE)
    network = interpolate(points, 0.5 * points.squeeze(1) + 3)
    assert len(network) == 1
    torch.testing.assert_close(network(points), 0.5 * points + 3, rtol=0, atol=1e-14)
    constant = interpolate(points[:1], torch.tensor([7.0]))
    assert constant(torch.tensor([[100.0]], dtype=DOUBLE)).item() == 7.0


def test_points_may_repeat_if_their_values_agree():
    points = torch.tensor([[0.0], [0.0], [1.0]], dtype=DOUBLE)
    values = torch.tensor([0.5, 0.5, 1.0], dtype=DOUBLE)
    found = interpolate(points, values)(points).detach().squeeze(1)
    torch.testing.assert_close(found, values, rtol=0, atol=1e-15)


def test_values_off_by_less_than_tol_are_met_within_tol():
    points = torch.tensor([[0.0], [1.0], [2.0]], dtype=DOUBLE)
    values = torch.tensor([0.0, 1.0005, 0.0], dtype=DOUBLE)
    with pytest.raises(ArgumentError):
        interpolate(points, values)
    network = interpolate(points, values, tol=1e-3)
    assert_in_class(network, "l2")
    assert (network(points).detach().squeeze(1) - values).abs().amax() <= 1e-3


@pytest.mark.parametrize(
    ("points", "values", "error", "sentence"),
    [
        (
            torch.tensor([[0.0], [1.0], [1.5]]),
            torch.tensor([0.0, 0.5, 2.0]),
            ArgumentError,
            "must have slope at most 1 in l2; got slope 3 between points 1 and 2: "
            "the values differ by 1.5 over a distance of 0.5",
        ),
        (torch.zeros(2, 1), torch.tensor([0.0, 1.0]), ArgumentError, "got slope inf .* coincide"),
        (torch.zeros(2, 1), torch.zeros(3), ArgumentError, r"got \(2, 1\) and \(3,\)"),
        (torch.zeros(0, 1), torch.zeros(0), ArgumentError, r"n and d at least 1"),
        (torch.zeros(2), torch.zeros(2), ArgumentError, r"must be \(n, d\)"),
        (torch.zeros(2, 1).half(), torch.zeros(2), DtypeError, "got torch.float16"),
        (torch.zeros(2, 1), torch.zeros(2).long(), DtypeError, "and torch.int64"),
        (torch.tensor([[np.nan], [0.0]]), torch.zeros(2), NonFiniteError, "Drop those rows"),
    ],
)
def test_data_that_no_such_network_fits_are_refused(points, values, error, sentence):
    with pytest.raises(error, match=f"^interpolate: .*{sentence}"):
        interpolate(points, values)


def test_the_norm_and_the_tolerance_are_checked():
    with pytest.raises(ArgumentError, match="interpolate: `norm` must be"):
        interpolate(torch.zeros(1, 1), torch.zeros(1), "l3")
    with pytest.raises(ArgumentError, match="`tol` must be finite and positive"):
        interpolate(torch.zeros(1, 1), torch.zeros(1), tol=0.0)
