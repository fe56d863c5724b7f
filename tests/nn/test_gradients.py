"""Derivatives of the dense layers: against finite differences, polar, and the tangent projection."""

from typing import Any

import pytest
import torch

import taut.nn
from cases import DENSE, SHAPES
from support import randn
from taut.linalg import polar, project_tangent

shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
leadings = pytest.mark.parametrize("leading", [(), (5,), (2, 3)], ids=str)


def orthonormal_layer(shape) -> Any:
    """A layer whose weight is orthonormal to the last bits, which it accepts as it is."""
    layer = taut.nn.OrthonormalLinear(*shape, dtype=torch.float64)
    layer.weight.data = polar(layer.weight.data) * (1 - 1e-14)
    return layer


@shapes
@leadings
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_gradient_of_retract_is_the_tangent_part_of_the_euclidean_one(shape, leading, mode):
    layer = orthonormal_layer(shape).train(mode == "train")
    x, g = randn(*leading, shape[0]), randn(*leading, shape[1])
    (layer(x) * g).sum().backward()
    euclidean = g.reshape(-1, shape[1]).T @ x.reshape(-1, shape[0])
    expected = project_tangent(layer.effective_weight().detach(), euclidean)
    torch.testing.assert_close(layer.weight.grad, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.bias.grad, g.reshape(-1, shape[1]).sum(0))


@shapes
@leadings
def test_the_gradient_of_retract_is_that_of_polar(shape, leading):
    layer = orthonormal_layer(shape)
    x, g = randn(*leading, shape[0]).requires_grad_(), randn(*leading, shape[1])

    def loss(y):
        return (g * y.sin()).sum()

    loss(layer(x)).backward()
    weight = layer.weight.detach().clone().requires_grad_()
    z = x.detach().clone().requires_grad_()
    loss(z @ polar(weight).mT + layer.bias.detach()).backward()
    torch.testing.assert_close(layer.weight.grad, weight.grad, rtol=0, atol=1e-11)
    torch.testing.assert_close(x.grad, z.grad, rtol=0, atol=1e-12)


@shapes
def test_the_gradient_of_retract_is_the_slope_of_finite_differences(shape):
    layer = orthonormal_layer(shape)
    x, g, direction = randn(4, shape[0]), randn(4, shape[1]), randn(shape[1], shape[0])
    (layer(x) * g).sum().backward()
    point, step = layer.weight.detach().clone(), 1e-5

    def value(t):
        return (g * (x @ polar(point + t * direction).mT)).sum()

    slope = (value(step) - value(-step)) / (2 * step)
    assert (layer.weight.grad * direction).sum().item() == pytest.approx(slope.item(), abs=1e-7)


class PolarLinear(torch.nn.Module):
    """The oracle of second derivatives: autograd all the way through a singular value decomposition."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())
        self.bias = torch.nn.Parameter(bias.detach().clone())

    def forward(self, x):
        # The polar factor by plain operations: W (W'W)^(-1/2), the root by eigenvalues.
        w = self.weight
        wide = w.shape[0] < w.shape[1]
        values, vectors = torch.linalg.eigh(w @ w.mT if wide else w.mT @ w)
        root = (vectors * values.rsqrt()) @ vectors.mT
        return x @ (root @ w if wide else w @ root).mT + self.bias


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("sizes", [(6, 6, 6), (4, 10, 6), (10, 6, 3)], ids=str)
def test_gradient_penalties_differentiate_exactly(sizes, mode):
    net: Any = torch.nn.Sequential(
        orthonormal_layer(sizes[:2]), taut.nn.MaxMin(), orthonormal_layer(sizes[1:])
    ).train(mode == "train")
    # The same function with each weight a polar factor; equal eigenvalues bar eigh from deriving,
    # so the weights are the same points off the manifold, W = Q S with S near the identity.
    oracle: Any = torch.nn.Sequential(
        PolarLinear(net[0].effective_weight(), net[0].bias),
        taut.nn.MaxMin(),
        PolarLinear(net[2].effective_weight(), net[2].bias),
    )
    for ours, theirs in ((net[0], oracle[0]), (net[2], oracle[2])):
        least = min(ours.weight.shape)
        stretch = torch.diag(1 + 1e-4 * torch.arange(least, dtype=torch.float64))
        wide = ours.weight.shape[0] < ours.weight.shape[1]
        with torch.no_grad():
            theirs.weight.copy_(stretch @ theirs.weight if wide else theirs.weight @ stretch)

    def penalty(model):
        x = torch.linspace(-2, 2, 5 * sizes[0], dtype=torch.float64).view(5, -1).sin()
        x = x.requires_grad_()
        y = model(x).sin().sum()
        (dx,) = torch.autograd.grad(y, x, create_graph=True)
        return ((dx.norm(dim=1) - 0.3) ** 2).sum() + y

    penalty(net).backward()
    penalty(oracle).backward()
    for ours, theirs in ((net[0], oracle[0]), (net[2], oracle[2])):
        assert ours.weight.grad.abs().max() > 1e-2
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(ours.bias.grad, theirs.bias.grad, rtol=1e-3, atol=1e-3)


MAPPED = [case for case in DENSE if not case.kept]


@pytest.mark.parametrize("case", MAPPED, ids=str)
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (3, 3)], ids=str)
def test_mapped_layers_pass_gradcheck(case, mode, shape):
    layer = case.make(*shape, dtype=torch.float64).train(mode == "train")
    weight = randn(shape[1], shape[0])
    # A wide gap of singular values lets ten power steps converge.
    weight += 4 * torch.outer(weight[:, 0].sign(), weight[0].sign())

    def function(w, x):
        return torch.func.functional_call(layer, {"weight": w}, (x,))

    inputs = (weight.requires_grad_(), randn(2, shape[0]).requires_grad_())
    assert torch.autograd.gradcheck(function, inputs)
    if mode == "train" and case.twice:
        assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("case", DENSE, ids=str)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_input_gradients_can_be_penalised(case, mode):
    net: Any = torch.nn.Sequential(
        case.make(5, 6, dtype=torch.float64),
        taut.nn.MaxMin(),
        case.make(6, 1, dtype=torch.float64),
    ).train(mode == "train")
    x = randn(3, 5).requires_grad_()
    (dx,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (dx.norm(dim=1) - 1).square().sum().backward()
    for layer in (net[0], net[2]):
        assert torch.isfinite(layer.weight.grad).all()
