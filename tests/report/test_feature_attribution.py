"""The parts of the features add up to the whole, and say what they should of critics in closed form."""

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from support import seeded
from taut.nn import ConeCritic, mlp
from taut.report.feature_attribution import attribute


def draw(rows: int, dim: int, shift: float, seed: int) -> Tensor:
    points = torch.randn(rows, dim, generator=seeded(seed), dtype=torch.float64)
    points[:, 0] += shift
    return points


def cones() -> nn.Module:
    return ConeCritic(40, 4, sign=-1, generator=seeded(1)).double().eval()


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return mlp([4, 16, 16, 1], activation="maxmin").double().eval()


def steep() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double()


@pytest.mark.parametrize("make", [cones, network, steep])
@pytest.mark.parametrize("num_steps", [1, 16])
def test_parts_add_up_to_the_whole_for_any_number_of_steps(make, num_steps):
    critic, x, y = make(), draw(50, 4, 2.0, 5), draw(50, 4, 0.0, 6)
    parts, total = attribute(critic, x, y, num_steps=num_steps, generator=seeded())
    with torch.no_grad():
        rise = (critic(x).mean() - critic(y).mean()).item()
    assert total == pytest.approx(rise, abs=1e-9)
    assert parts.sum().item() == pytest.approx(rise, abs=1e-9)


@pytest.mark.parametrize("make", [cones, network, steep])
def test_parts_tend_to_the_integral_over_scipys_pairs(make):
    critic, x, y = make(), draw(30, 4, 2.0, 7), draw(30, 4, 0.0, 8)
    parts, _ = attribute(critic, x, y, num_steps=64, generator=seeded())
    rows, columns = linear_sum_assignment(torch.cdist(x, y).numpy())
    start, way = y[columns], x[rows] - y[columns]
    places = (torch.arange(1000, dtype=torch.float64)[:, None, None] + 0.5) / 1000
    at = (start + places * way).reshape(-1, 4).requires_grad_()
    (slope,) = torch.autograd.grad(critic(at).sum(), at)
    oracle = (slope.reshape(1000, 30, 4) * way).mean((0, 1)).numpy()
    assert parts.numpy() == pytest.approx(oracle, abs=5e-3)


def test_a_linear_critic_has_its_weights_times_the_means():
    critic = nn.Linear(3, 1).double()
    x, y = draw(40, 3, 1.0, 1), draw(40, 3, 0.0, 2)
    parts, _ = attribute(critic, x, y, num_steps=2, generator=seeded())
    expected = critic.weight[0].detach() * (x.mean(0) - y.mean(0))
    assert torch.allclose(parts, expected, atol=1e-12)


def test_a_feature_that_the_critic_does_not_see_has_no_part():
    critic = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        critic.weight[0, 1] = 0
    parts, _ = attribute(critic, draw(30, 3, 1.0, 1), draw(30, 3, 0.0, 2), generator=seeded())
    assert parts[1].abs() < 1e-12 < parts[0].abs()


def test_equal_sides_have_no_parts_and_no_nan():
    x = draw(20, 4, 0.0, 1)
    parts, total = attribute(cones(), x, x, generator=seeded())
    assert total == 0
    assert (parts == 0).all()


def test_sides_of_different_length_and_many_rows_are_drawn_from():
    parts, total = attribute(
        cones(), draw(90, 4, 2.0, 1), draw(33, 4, 0.0, 2), num_pairs=20, generator=seeded()
    )
    assert parts.shape == (4,)
    assert parts.sum().item() == pytest.approx(total, abs=1e-9)
