"""Spectral and rescaled convolutions are built such that the size-free proof finds nothing to shrink."""

from typing import Any

import pytest
import torch

import taut
from cases import CONVOLUTIONS, operator_norm
from taut.linalg import bound_autocorrelation, bound_convolution
from taut.nn.conv_aol import AOLConv
from taut.norms import L2

SPECTRAL = [case for case in CONVOLUTIONS if case.norm == L2 and not case.orthonormal]
SHAPES: dict[str, dict[str, Any]] = {
    "square": {"args": (6, 6, 3)},
    "widening": {"args": (3, 8, 2)},
    "narrowing": {"args": (8, 2, 3)},
    "stride": {"args": (4, 6, 3), "stride": 2},
    "dilation": {"args": (4, 4, 2), "dilation": 2},
    "groups": {"args": (4, 8, 3), "groups": 4},
}
LEARNING_RATES = {"tiny": 1e-6, "small": 1e-3, "sane": 1e-2, "wild": 10.0}


def train(layer, x, lr, num_steps):
    target = torch.randn_like(layer(x))
    optimiser = torch.optim.Adam(layer.parameters(), lr=lr)
    for _ in range(num_steps):
        optimiser.zero_grad()
        (layer(x) - target).square().mean().backward()
        optimiser.step()
    return layer.eval()


@pytest.mark.parametrize("case", SPECTRAL, ids=str)
@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("lr", LEARNING_RATES.values(), ids=LEARNING_RATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_evaluation_weight_is_proven_as_it_is(case, options, lr, dtype):
    given = dict(options)
    args = given.pop("args")
    layer = case.make(*args, **given, dtype=dtype)
    size = {1: (9,), 2: (5, 6), 3: (5, 5, 5)}[case.dims]
    layer = train(layer, torch.randn(2, args[0], *size, dtype=dtype), lr, num_steps=3)
    geometry = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    kernel = layer.evaluation_weight()
    if isinstance(layer, AOLConv):
        bound = bound_autocorrelation(kernel, **geometry)
    else:
        bound = bound_convolution(kernel, L2, **geometry).value
    assert bound <= 1
    if case.dims < 3:
        plain = layer.as_plain(layer.evaluation_weight().double()).double()
        assert operator_norm(case.dense(plain, size), L2, L2) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("coupling", [1e-3, 1e-6, 1e-9])
def test_nearly_independent_channels_are_proven_too(coupling):
    layer = taut.nn.AOLConv2d(12, 12, 3, padding=1).eval()
    with torch.no_grad():
        layer.weight.copy_(coupling * torch.randn_like(layer.weight))
        layer.weight[range(12), range(12), 1, 1] += 1
        layer.weight.mul_(torch.exp(2 * torch.randn(12, 1, 1, 1)))
    assert bound_autocorrelation(layer.evaluation_weight(), stride=(1, 1), dilation=(1, 1)) <= 1


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_folding_a_trained_layer_moves_outputs_by_rounding_alone(padding_mode):
    layer = taut.nn.SpectralConv2d(3, 16, 3, padding=1, padding_mode=padding_mode)
    x = torch.randn(8, 3, 12, 12)
    train(layer, x, 1e-2, num_steps=50)
    folded: Any = taut.fold(layer)
    with torch.no_grad():
        moved = (folded(x) - layer(x)).abs().max() / layer(x).abs().max()
    assert moved <= 2e-6


def test_folding_a_trained_network_moves_logits_by_rounding_alone():
    net = torch.nn.Sequential(
        taut.nn.SpectralConv2d(1, 8, 3, padding=1),
        taut.nn.MaxMin(dim=1),
        taut.nn.SpectralConv2d(8, 8, 4, stride=2, padding=1),
        taut.nn.MaxMin(dim=1),
        torch.nn.Flatten(),
        taut.nn.OrthonormalLinear(8 * 16, 5),
    )
    x = torch.randn(16, 1, 8, 8)
    train(net, x, 1e-2, num_steps=50)
    folded: Any = taut.fold(net)
    with torch.no_grad():
        assert (folded(x) - net(x)).abs().max() <= 2e-6 * net(x).abs().max()
