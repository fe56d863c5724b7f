"""Residual layers of slope 1, against dense Jacobians in float64 and weights of any kind."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import taut
from support import jacobian
from taut.errors import ArgumentError
from taut.nn import (
    CPLResidual,
    CPLResidual2d,
    PotentialStep,
    PotentialStep2d,
    SLLResidual,
    SLLResidual2d,
)

layers = pytest.mark.parametrize("kind", [SLLResidual, CPLResidual], ids=lambda k: k.__name__)
modes = pytest.mark.parametrize("mode", ["train", "eval"])


def wild(shape, kind, generator):
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "spread":
        weight = weight * 10 ** (12 * torch.rand(shape[0], 1, generator=generator) - 6)
    if kind == "parallel":
        weight = weight[:1].repeat(shape[0], 1)
    if kind == "zero rows":
        weight[::2] = 0
    if kind == "zero columns":
        weight[:, ::2] = 0
    return weight * {"huge": 1e30, "tiny": 1e-30, "zero": 0.0}.get(kind, 1.0)


KINDS = ["normal", "spread", "parallel", "zero rows", "zero columns", "huge", "tiny", "zero"]


@layers
@modes
@pytest.mark.parametrize("weight", KINDS)
@pytest.mark.parametrize("hidden", [1, 6, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_jacobian_passes_one_whatever_the_weight(kind, mode, weight, hidden, dtype):
    generator = torch.Generator().manual_seed(hidden)
    layer = kind(6, hidden, dtype=dtype).train(mode == "train")
    layer.weight.data = wild((hidden, 6), weight, generator).to(dtype)
    layer.bias.data.zero_()  # so that wherever a unit is active, its neighbours are too
    used = layer.effective_weight().detach().double()
    assert np.linalg.norm(used.numpy(), 2) <= 1 + 1e-14
    twin = PotentialStep(6, hidden, bias=False, dtype=torch.float64)
    twin.weight.data = used
    for scale in (1e-3, 1.0, 1e3):
        x = scale * torch.randn(6, generator=generator, dtype=torch.float64)
        assert np.linalg.norm(jacobian(twin, x), 2) <= 1 + 1e-14
    assert taut.bound_lipschitz(layer).value == 1.0
    y = layer(torch.randn(3, 6, generator=generator).to(dtype))
    y.sum().backward()
    assert y.isfinite().all() and layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("scale", [0.1, 0.9, 1.0, 1.1, 3.0])
def test_a_step_of_any_weight_stays_below_its_constants(scale):
    generator = torch.Generator().manual_seed(0)
    step = PotentialStep(5, 7, bias=False, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(7, 5, generator=generator, dtype=torch.float64)).Q
    step.weight.data = scale * torch.cat([q, -q])  # for every x one of each two units is active
    step.hidden_features = 14
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        bound = taut.bound_lipschitz(step, norm).value
        seen = [
            np.linalg.norm(jacobian(step, torch.randn(5, generator=generator).double()), order)
            for _ in range(20)
        ]
        assert max(seen) <= bound * (1 + 1e-12)


def test_the_constant_of_a_single_unit_is_exact():
    step = PotentialStep(2, 1, bias=False, dtype=torch.float64)
    for length in (0.5, 1.0, 2.0):
        step.weight.data = torch.tensor([[length, 0.0]], dtype=torch.float64)
        expected = max(1.0, 2 * length**2 - 1)
        assert expected <= taut.bound_lipschitz(step).value <= expected * (1 + 1e-12)
        assert np.linalg.norm(jacobian(step, torch.ones(2).double()), 2) == expected


def test_sll_is_the_published_formula():
    layer: Any = SLLResidual(5, 8, dtype=torch.float64).eval()
    weight, q = torch.randn(8, 5).double(), torch.rand(8).double() + 0.1
    x, bias = torch.randn(3, 5).double(), torch.randn(8).double()
    t = (weight @ weight.T).abs() @ q / q
    expected = x - 2 * ((x @ weight.T + bias).relu() / t) @ weight
    layer.weight.data, layer.bias.data = q[:, None] * weight, bias / t.sqrt()
    torch.testing.assert_close(layer(x), expected)


def test_cpl_is_the_published_formula():
    layer: Any = CPLResidual(5, 8, dtype=torch.float64).eval()
    sigma = torch.linalg.matrix_norm(layer.weight.data.normal_(), 2)
    x, bias = torch.randn(3, 5).double(), torch.randn(8).double()
    expected = x - 2 / sigma**2 * (x @ layer.weight.T + bias).relu() @ layer.weight
    layer.bias.data = bias / sigma
    torch.testing.assert_close(layer(x), expected)


@layers
def test_deep_networks_keep_slope_one_folded_and_loaded(kind, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(*(kind(6, 9) for _ in range(4)), taut.nn.OrthonormalLinear(6, 3))
    optimiser = torch.optim.SGD(net.parameters(), lr=30.0)
    for _ in range(3):
        optimiser.zero_grad()
        net(torch.randn(8, 6)).square().sum().backward()
        optimiser.step()
    assert taut.bound_lipschitz(net.eval()).value <= 1
    folded = taut.fold(net)
    assert taut.bound_lipschitz(folded).value <= 1
    for model in (net, folded):
        assert taut.save(model, tmp_path / "net.safetensors").value <= 1
        x = torch.randn(5, 6)
        assert torch.equal(taut.load(tmp_path / "net.safetensors")(x), model(x))


@layers
def test_derivatives_are_those_of_the_outputs(kind):
    layer = kind(4, 6, dtype=torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(layer, (x.requires_grad_(),))


def dense_kernel(layer, size):
    """The unrolled convolution, from images of the basis vectors."""
    kernel = layer.effective_weight().detach().double()
    basis = torch.eye(3 * size**2, dtype=torch.float64).view(-1, 3, size, size)
    made = nn.functional.conv2d(basis, kernel, padding=kernel.shape[-1] // 2)
    return made.flatten(1).T


@modes
@pytest.mark.parametrize("kind", [SLLResidual2d, CPLResidual2d])
@pytest.mark.parametrize("weight", KINDS)
@pytest.mark.parametrize(("hidden", "kernel_size"), [(1, 1), (3, 3), (5, 3), (2, 5)])
def test_convolutions_are_the_dense_layer_of_their_unrolled_kernel(
    mode, kind, weight, hidden, kernel_size
):
    generator = torch.Generator().manual_seed(hidden)
    layer: Any = kind(3, hidden, kernel_size, dtype=torch.float64)
    layer.train(mode == "train")
    layer.weight.data = wild((hidden, 3 * kernel_size**2), weight, generator).view_as(layer.weight)
    unrolled = dense_kernel(layer, 4)
    assert np.linalg.norm(unrolled.numpy(), 2) <= 1 + 1e-14
    assert taut.bound_lipschitz(layer, input_shape=(3, 4, 4)).value <= 1 + 1e-14
    bias = layer.bias.repeat_interleave(16)
    x = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64)
    expected = x.flatten(1) - 2 * (x.flatten(1) @ unrolled.T + bias).relu() @ unrolled
    torch.testing.assert_close(layer(x).flatten(1), expected)
    plain = taut.fold(layer)
    torch.testing.assert_close(plain.run_direct(x), plain(x))


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_a_convolutional_step_of_any_kernel_stays_below_its_constants(scale):
    step = PotentialStep2d(2, 3, bias=False, dtype=torch.float64)
    step.weight.data.normal_().mul_(scale)
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        bound = taut.bound_lipschitz(step, norm, input_shape=(2, 4, 5)).value
        for _ in range(5):
            rows = torch.autograd.functional.jacobian(step, torch.randn(1, 2, 4, 5).double())
            matrix = rows.reshape(40, 40).numpy()  # type: ignore[union-attr]
            assert np.linalg.norm(matrix, order) <= bound * (1 + 1e-12)


def test_even_kernels_are_refused():
    with pytest.raises(ArgumentError, match="`kernel_size` must be odd"):
        SLLResidual2d(2, 2, 2)
