"""`SandwichLinear` against dense Jacobians in float64, for weights of any kind."""

import numpy as np
import pytest
import torch
from torch import nn

import taut
from support import jacobian
from taut.nn import SandwichLinear, SandwichStep

modes = pytest.mark.parametrize("mode", ["train", "eval"])


@modes
@pytest.mark.parametrize("shape", [(1, 1), (3, 8), (8, 3), (6, 6)], ids=str)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_jacobian_passes_one_whatever_the_weight(mode, shape, scale, dtype):
    generator = torch.Generator().manual_seed(0)
    layer = SandwichLinear(*shape, bias=False, dtype=dtype).train(mode == "train")
    layer.weight.data = (scale * torch.randn(layer.weight.shape, generator=generator)).to(dtype)
    used = layer.effective_weight().detach().double()
    assert np.linalg.norm(used.numpy(), 2) <= 1 + 1e-14
    twin = SandwichStep(*shape, bias=False, dtype=torch.float64)
    twin.weight.data = used
    for _ in range(5):
        x = torch.randn(shape[0], generator=generator).double()
        assert np.linalg.norm(jacobian(twin, x), 2) <= 1 + 1e-14
    assert taut.bound_lipschitz(layer).value <= 1
    layer(torch.randn(3, shape[0], generator=generator).to(dtype)).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_a_step_of_any_weight_stays_below_its_constants(scale):
    generator = torch.Generator().manual_seed(1)
    step = SandwichStep(5, 7, bias=False, dtype=torch.float64)
    for _ in range(5):
        step.weight.data = scale * torch.randn(7, 12, generator=generator).double()
        for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
            bound = taut.bound_lipschitz(step, norm).value
            for _ in range(10):
                matrix = jacobian(step, torch.randn(5, generator=generator).double())
                assert np.linalg.norm(matrix, order) <= bound * (1 + 1e-12)


def test_the_constant_is_reached():
    step = SandwichStep(1, 1, bias=False, dtype=torch.float64)
    step.weight.data = torch.full((1, 2), 0.5**0.5, dtype=torch.float64)
    assert abs(jacobian(step, torch.ones(1).double()).item() - 1) <= 1e-15
    assert 1 <= taut.bound_lipschitz(step).value <= 1 + 1e-12


def test_it_is_the_published_formula():
    layer = SandwichLinear(4, 6, dtype=torch.float64).eval()
    outer, inner = layer.effective_weight().detach().split((6, 4), dim=1)
    torch.testing.assert_close(
        outer @ outer.T + inner @ inner.T, torch.eye(6).double(), atol=3e-3, rtol=0
    )
    psi, bias, x = torch.rand(6).double() + 0.5, torch.randn(6).double(), torch.randn(3, 4).double()
    hidden = (2**0.5 * (x @ inner.T) / psi + bias).relu()
    layer.bias.data = psi * bias / 2**0.5  # type: ignore[union-attr]
    torch.testing.assert_close(layer(x), 2**0.5 * (psi * hidden) @ outer)


@pytest.mark.parametrize("rate", [0.1, 30.0])
def test_networks_stay_below_one_in_training(rate):
    torch.manual_seed(0)
    net = nn.Sequential(SandwichLinear(5, 8), SandwichLinear(8, 8), taut.nn.OrthonormalLinear(8, 2))
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    for _ in range(4):
        optimiser.zero_grad()
        net(torch.randn(9, 5)).square().sum().backward()
        optimiser.step()
        assert taut.bound_lipschitz(net).value <= 1
        net(torch.randn(9, 5))
        held = net[0].weight.detach().double().numpy()  # type: ignore[union-attr]
        assert np.linalg.svd(held, compute_uv=False).min() >= 0.998


def test_what_overflows_between_the_products_is_not_certified():
    step = taut.nn.SandwichStep(2, 2, bias=False).eval()
    step.weight.data = torch.tensor([[0.0, 0.0, 1e30, 0.0], [0.0, 0.5, 0.0, 0.5]])
    x = torch.tensor([[1e10, 3.0]])
    assert step(x).isnan().all()
    lower, upper = taut.bound_outputs(step, x, x, arithmetic="float32")
    assert lower.isneginf().all() and upper.isposinf().all()
    assert (taut.certify(step, x, arithmetic="float32").radius == 0).all()


def test_what_underflows_between_the_products_is_within_the_bounds():
    step = taut.nn.SandwichStep(1, 1, bias=False).eval()
    step.weight.data = torch.tensor([[2.0**100, 2.0**-100]])
    x = torch.tensor([[2.0**-50]])
    assert step(x) == 0 and step.double()(x.double()) == 2.0**-49
    lower, upper = taut.bound_outputs(step.float(), x, x, arithmetic="float32")
    assert lower <= 0 and upper >= 2.0**-49
