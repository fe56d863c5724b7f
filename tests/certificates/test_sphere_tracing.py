"""Rays never pass through the surface of a distance field."""

from typing import Any

import pytest
import torch
from torch import nn

import taut
from support import seeded
from taut.certificates import trace_rays
from taut.errors import ArgumentError


def _rays(count: int, dim: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    origins = torch.randn(count, dim, generator=seeded(seed), dtype=torch.float64)
    origins = 2.5 * origins / origins.norm(dim=1, keepdim=True)
    targets = torch.rand(count, dim, generator=seeded(seed + 1), dtype=torch.float64) * 2 - 1
    return origins, targets - origins


class Sphere(nn.Module):
    """The exact distance to a sphere: |x - c| - r, by the cone critic's own formula."""

    def __init__(self) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64))

    def forward(self, x):
        return torch.linalg.vector_norm(x - self.centre, dim=-1, keepdim=True) - 0.7


def _sphere_network() -> Any:
    """min over planes of a polytope around it: exactly evaluated, faces known."""
    torch.manual_seed(0)
    normals = torch.nn.functional.normalize(torch.randn(32, 3, dtype=torch.float64), dim=1)
    net: Any = nn.Sequential(
        nn.Linear(3, 32).double(), taut.nn.FullSort(), nn.Linear(32, 1).double()
    )
    net[0].weight.data.copy_(normals)
    net[0].bias.data.fill_(-0.5)
    net[2].weight.data.zero_()
    net[2].weight.data[0, -1] = 1.0
    net[2].bias.data.zero_()
    return net.eval()


def test_a_polytope_is_never_entered_and_is_reached():
    """Its signed bound is the largest of 32 plane distances; the exact entry is a linear programme."""
    net = _sphere_network()
    normals, offset = net[0].weight.data, 0.5
    origins, directions = _rays(500)
    found = trace_rays(net, origins, directions, max_distance=6.0, tol=1e-6, max_steps=20000)
    unit = directions / directions.norm(dim=1, keepdim=True)
    # Half-spaces n.x <= 0.5: the ray is inside between the latest entry and the earliest exit.
    speed, gap = unit @ normals.T, offset - origins @ normals.T
    times = gap / speed
    entry = times.masked_fill(speed >= 0, -torch.inf).amax(1)
    leave = times.masked_fill(speed <= 0, torch.inf).amin(1)
    enters = (entry < leave) & (entry > 0)
    assert enters.sum() > 100
    assert (found.distance[enters] <= entry[enters] * (1 + 1e-15)).all()
    assert found.hit[enters].all()
    # The spectral norm of many normals is about 3, so steps are short, but they arrive.
    assert (entry - found.distance)[enters].max() < 1e-3


def test_a_trained_field_has_no_sign_change_before_the_end():
    torch.manual_seed(0)
    net = taut.nn.mlp([3, 32, 32, 1])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    exact = Sphere().float()
    for _ in range(150):
        x = 4 * torch.rand(256, 3) - 2
        loss = (net(x) - exact(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net = net.double().eval()
    origins, directions = _rays(300)
    found = trace_rays(net, origins, directions, max_distance=5.0)
    assert found.lipschitz <= 1 and found.hit.sum() > 50
    unit = directions / directions.norm(dim=1, keepdim=True)
    with torch.no_grad():
        for share in torch.linspace(0, 1, 200, dtype=torch.float64):
            x = origins + share * found.distance[:, None] * unit
            assert (net(x)[found.distance > 0] > 0).all()


def test_the_error_against_another_field_is_kept_clear_of():
    net = nn.Linear(2, 1).double()
    net.weight.data.copy_(torch.tensor([[1.0, 0.0]]))
    net.bias.data.fill_(-1.0)
    start = torch.tensor([[5.0, 0.0], [0.5, 0.0]], dtype=torch.float64)
    found = trace_rays(net, start, torch.tensor([[-1.0, 0.0]] * 2), max_distance=9.0, error=0.25)
    assert 3.74 < found.distance[0] <= 3.75
    assert found.distance[1] == 0 and found.hit[1]


def test_rays_that_hit_nothing_end_where_they_should():
    net = nn.Linear(2, 1).double()
    net.weight.data.copy_(torch.tensor([[1.0, 0.0]]))
    net.bias.data.zero_()
    found = trace_rays(
        net, torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]), max_distance=7.0
    )
    assert found.distance.item() == 7.0 and not found.hit.item()


def test_mistakes_are_refused():
    net = nn.Linear(2, 1)
    with pytest.raises(ArgumentError, match="none of length 0"):
        trace_rays(net, torch.zeros(1, 2), torch.zeros(1, 2), max_distance=1.0)
    with pytest.raises(ArgumentError, match="max_distance"):
        trace_rays(net, torch.zeros(1, 2), torch.ones(1, 2), max_distance=0.0)


@pytest.mark.parametrize("length", [5e-324, 3e-162, 2.2e-162, 1e-160, 1.0, 1e160, 1e308])
def test_directions_of_every_length_are_the_same_rays(length):
    """Squares of these lengths underflow or overflow."""
    plane = nn.Linear(3, 1).double()
    plane.weight.data.copy_(torch.tensor([[1.0, 0.0, 0.0]]))
    plane.bias.data.fill_(-1.0)
    ways = torch.tensor([[-1.0, 0.0, 0.0], [-1.0, 1.0, 1.0]], dtype=torch.float64) * length
    origins = torch.tensor([[5.0, 0.0, 0.0]], dtype=torch.float64).expand(2, 3)
    found = trace_rays(plane, origins, ways, max_distance=10.0)
    exact = torch.tensor([4.0, 4.0 * 3**0.5], dtype=torch.float64)
    assert (found.distance <= exact).all() and (found.distance > exact - 0.01).all()
