"""Monotone networks: ordered pairs, adversarial pairs, stale proofs, and every form they take."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import taut
from support import seeded
from taut.certificates import bound_order_gap
from taut.errors import ArgumentError, NoRuleError
from taut.nn import Monotone, mlp


def steep(seed: int = 0, outputs: int = 1) -> nn.Sequential:
    """A network that uses its slope: random weights, biases spread over the inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = mlp([4, 32, 32, outputs], constraint="linf" if seed % 2 else "orthonormal")
        for name, value in net.named_parameters():
            if name.endswith("bias"):
                value.data.uniform_(-1, 1)
    return net


def falling_line() -> nn.Sequential:
    """-2.5 x on the first input: every bit of the slope that is added is needed."""
    layer = nn.Linear(4, 1)
    layer.weight.data.copy_(torch.tensor([[-2.5, 1.0, 0.5, 0.0]]))
    return nn.Sequential(layer)


@torch.no_grad()
def pairs(net: Monotone, count: int, size: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs at inputs, and at inputs moved along the directions by up to `size`."""
    x = 4 * torch.rand(count, 4, generator=seeded()) - 2
    step = size * torch.rand(count, 4, generator=seeded(1)) * net.directions
    return net(x), net(x + step)


@pytest.mark.parametrize("make", [steep, lambda: steep(1), falling_line])
def test_a_million_ordered_pairs_in_float32_are_in_order(make):
    net = Monotone(make(), [1, 0, -1, 0]).eval()
    low, high = pairs(net, 334_000, 1.0)
    assert low.dtype == torch.float32
    assert bool((low <= high).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_proven_gap_orders_the_steepest_pairs_and_hardly_more_is_needed(dtype):
    # Along a line that falls as fast as it may, only the slack is left against roundoff.
    net = Monotone(falling_line(), [1, 0, 0, 0]).to(dtype).eval()
    name = "float32" if dtype == torch.float32 else "float64"
    gap = bound_order_gap(net, net.bound_increase().value, torch.zeros(4), 2.0, name)
    x = (3 * torch.rand(100_000, 4, generator=seeded()) - 1.5).to(dtype)
    moved = x.clone()
    moved[:, 0] += 1.01 * gap
    apart = (moved - x)[:, 0] > gap
    assert float(apart.double().mean()) > 0.9
    with torch.no_grad():
        assert bool((net(x) < net(moved))[apart].all())
        close = x.clone()
        close[:, 0] = torch.nextafter(x[:, 0], torch.full_like(x[:, 0], 9.0))
        assert bool((net(x) > net(close)).any()), (
            "roundoff does exchange neighbours: a gap is needed"
        )


def test_the_slope_is_needed_and_reached():
    net = Monotone(falling_line(), [1, 0, 0, 0], slack=0.01).eval()
    slope = torch.autograd.functional.jacobian(net, torch.zeros(1, 4)).flatten()
    assert slope[0].item() == pytest.approx(0.025, abs=1e-5)
    assert 0 < net.bound_increase().value <= slope[0].item() + 1e-6


def test_the_slope_follows_weights_that_change_behind_its_back():
    net = Monotone(falling_line(), [1, 0, 0, 0]).eval()
    with torch.no_grad():
        net.network.get_parameter("0.weight").data.mul_(100)  # raises no version counter
        rise = net(torch.tensor([[1.0, 0, 0, 0]])) - net(torch.zeros(1, 4))
    assert rise.item() > 0
    wild = Monotone(steep(), [1, 1, 1, 1])
    optimizer = torch.optim.SGD(wild.parameters(), lr=100.0)
    for _ in range(3):
        wild(torch.randn(8, 4, generator=seeded())).square().mean().backward()
        optimizer.step()
    low, high = pairs(wild.eval(), 1000, 1.0)
    assert bool((low <= high).all())


def test_dense_jacobians_never_point_the_other_way():
    net = Monotone(steep(3, outputs=2), [[1, 0, 0, -1], [-1, 1, 0, 0]]).double().eval()
    for x in torch.randn(50, 1, 4, generator=seeded(), dtype=torch.float64):
        jacobian = torch.autograd.functional.jacobian(net, x).reshape(2, 4)
        signed = (jacobian * net.directions)[net.directions != 0]
        assert float(signed.min()) >= net.bound_increase().value * (1 - 1e-9)


@pytest.mark.parametrize("form", ["fold", "save", "state dict", "copy"])
def test_other_forms_compute_the_same(form, tmp_path):
    net = Monotone(steep(), [1, 0, -1, 0]).eval()
    x = torch.randn(64, 4, generator=seeded())
    if form == "fold":
        other = taut.fold(net)
    elif form == "save":
        bound = taut.save(net, tmp_path / "net.safetensors", norm="l1")
        other = taut.load(tmp_path / "net.safetensors")
        assert bound.value <= 2.02
    elif form == "copy":
        other = copy.deepcopy(net)
    else:
        other = Monotone(steep(7).double(), [1, 0, -1, 0]).float().eval()
        other.network = steep()
        other.load_state_dict(net.state_dict())
        other.eval()
    with torch.no_grad():
        np.testing.assert_allclose(other(x).numpy(), net(x).numpy(), atol=2e-6)


def test_the_constant_is_that_of_both_parts():
    net = Monotone(steep(), [1, 0, -1, 0])
    assert 1 < taut.bound_lipschitz(net, "l1").value <= 2.0101
    assert taut.bound_lipschitz(net, "l2").value <= 1 + 1.0101 * 2**0.5


def test_what_cannot_be_is_refused():
    with pytest.raises(ArgumentError, match="must be -1, 0 or 1"):
        Monotone(steep(), [2, 0, 0, 0])
    with pytest.raises(ArgumentError, match="2 rows of directions"):
        Monotone(steep(outputs=3), [[1, 0, 0, 0], [0, 1, 0, 0]])
    with pytest.raises(NoRuleError, match="LayerNorm"):
        Monotone(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), [1, 0, 0, 0])
    with pytest.raises(ArgumentError, match="slack"):
        Monotone(steep(), [1, 0, 0, 0], slack=0.0)


class Gain(nn.Module):
    """A factor that is a whole number."""

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.tensor(1))

    def forward(self, x):
        return x * self.factor


def with_last(layer):
    return Monotone(nn.Sequential(taut.nn.mlp([3, 16, 1]), layer), [1, 0, 0]).eval()


def smallest_rise(net):
    x = 3 * torch.randn(2000, 3, generator=torch.Generator().manual_seed(1))
    moved = x + torch.tensor([1.0, 0, 0]) * torch.rand(2000, 1)
    with torch.no_grad():
        return (net(moved) - net(x)).min().item()


@pytest.mark.parametrize(
    ("layer", "change"),
    [
        (taut.nn.Scale(1.0), lambda last: setattr(last[1], "factor", 50.0)),
        (nn.LeakyReLU(0.5), lambda last: setattr(last[1], "negative_slope", -50.0)),
        (nn.Identity(), lambda last: last.__setitem__(1, taut.nn.Scale(50.0).eval())),
        (
            Gain(),
            lambda last: last.load_state_dict(
                {**last.state_dict(), "1.factor": 50 + 0 * last[1].factor}
            ),
        ),
    ],
    ids=["attribute", "slope", "replaced layer", "whole number"],
)
def test_a_change_that_no_weight_shows_is_proven_again(layer, change):
    net = with_last(layer)
    change(net.network)
    assert smallest_rise(net) >= -1e-4
    assert net.bound_increase().value > 0.3


def test_what_the_proof_cannot_see_is_refused():
    net = with_last(nn.Identity())
    net.network.get_submodule("1").register_forward_hook(lambda *call: 50 * call[-1])  # type: ignore
    with pytest.raises(NoRuleError, match="has forward hooks"):
        smallest_rise(net)
    net = with_last(nn.Identity())
    net.network.train()
    with pytest.raises(
        ArgumentError, match="must be in evaluation mode, as the layer around it is"
    ):
        smallest_rise(net)


def test_a_compiled_network_proves_again_after_a_change():
    net = Monotone(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), [1, 0, 0]).eval()
    compiled = torch.compile(net, backend="eager")
    compiled(torch.randn(2, 3))
    with torch.no_grad():
        for weight in net.network.parameters():
            weight.mul_(30)
    assert smallest_rise(compiled) >= -1e-2
