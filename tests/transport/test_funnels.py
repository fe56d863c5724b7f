"""The funnels are what they claim: every pair is paid in full by the potential."""

import pickle
from importlib import import_module

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from support import seeded
from taut.errors import ArgumentError
from taut.transport import funnels
from taut.transport.funnel_problem import Funnels

CELLS = [(1, 3), (2, 1), (2, 64), (3, 200), (16, 32), (64, 5)]
each_cell = pytest.mark.parametrize(("dim", "count"), CELLS)


def landscape(dim: int, count: int, seed: int = 0) -> Funnels:
    potential = funnels(dim, count, seed, num_pairs=2).potential
    return potential.__self__  # type: ignore[attr-defined]


def height(funnel: Funnels, points: np.ndarray) -> np.ndarray:
    """The minimum of cones, by another library."""
    return (cdist(points, funnel.apexes.numpy()) + funnel.depths.numpy()).min(1)


def cube(n: int, dim: int, seed: int = 1) -> torch.Tensor:
    return (torch.rand(n, dim, generator=seeded(seed), dtype=torch.float64) * 2 - 1) * 2.5


@each_cell
def test_potential_is_minus_a_minimum_of_cones(dim: int, count: int) -> None:
    funnel, points = landscape(dim, count), cube(300, dim) * 2
    np.testing.assert_allclose(
        funnel.potential(points).numpy(), -height(funnel, points.numpy()), atol=1e-12
    )
    near = points + 1e-3 * torch.randn(300, dim, generator=seeded(2), dtype=torch.float64)
    for other in (near, points.flip(0)):
        rise = (funnel.potential(other) - funnel.potential(points)).abs()
        assert (rise <= (other - points).norm(dim=-1) + 1e-12).all()


@each_cell
def test_every_pair_is_paid_in_full(dim: int, count: int) -> None:
    """Duality: a 1-Lipschitz function that falls by the length of each pair proves it optimal."""
    funnel, y = landscape(dim, count), cube(2000, dim)
    x = funnel.descend(y)
    fall = height(funnel, y.numpy()) - height(funnel, x.numpy())
    np.testing.assert_allclose(fall, np.linalg.norm(x - y, axis=1), atol=1e-12)
    assert x.abs().max() <= 2.5
    assert np.linalg.norm(x - y, axis=1).max() > 0.05


@each_cell
def test_rays_end_where_the_funnel_does(dim: int, count: int) -> None:
    """Just before the end the ray is in its own funnel and the cube; just after, it is not."""
    funnel, y = landscape(dim, count), cube(500, dim)
    heights = cdist(y, funnel.apexes) + funnel.depths.numpy()
    owner = torch.from_numpy(heights.argmin(1))
    direction = torch.nn.functional.normalize(y - funnel.apexes[owner], dim=-1)
    length = funnel.ray_length(owner, direction)

    def inside(reach: torch.Tensor) -> np.ndarray:
        z = (funnel.apexes[owner] + reach.unsqueeze(-1) * direction).numpy()
        own = (
            np.linalg.norm(z - funnel.apexes[owner].numpy(), axis=1) + funnel.depths[owner].numpy()
        )
        return (own <= height(funnel, z) + 1e-12) & (np.abs(z).max(1) <= 2.5 + 1e-12)

    assert inside(length * (1 - 1e-6)).all()
    assert not inside(length * (1 + 1e-4)).any()
    # The ray through a point of the cube reaches at least that point.
    assert (length >= (y - funnel.apexes[owner]).norm(dim=-1) - 1e-12).all()


def test_the_border_of_two_funnels_by_root_finding() -> None:
    apexes = torch.tensor([[-1.0, 0.0], [1.0, 0.3]], dtype=torch.float64)
    funnel = Funnels(apexes, torch.tensor([0.2, -0.1], dtype=torch.float64))
    for angle in np.linspace(-0.6, 0.6, 7):
        w = np.array([np.cos(angle), np.sin(angle)])

        def gap(s: float, w: np.ndarray = w) -> float:
            z = funnel.apexes[0].numpy() + s * w
            return float(np.linalg.norm(z - funnel.apexes[1].numpy())) - 0.1 - (s + 0.2)

        expected = brentq(gap, 0.0, 2.5)
        found = funnel.ray_length(torch.tensor([0]), torch.from_numpy(w)[None])
        assert found.item() == pytest.approx(expected, abs=1e-12)


def test_a_funnel_inside_a_deeper_one_owns_nothing() -> None:
    funnel = Funnels(
        torch.tensor([[0.0, 0.0], [0.1, 0.0], [1.5, 1.5]]).double(),
        torch.tensor([-1.0, 1.0, 0.0]).double(),
    )
    y = cube(2000, 2)
    x = funnel.descend(y)
    fall = height(funnel, y.numpy()) - height(funnel, x.numpy())
    np.testing.assert_allclose(fall, np.linalg.norm(x - y, axis=1), atol=1e-12)
    assert not torch.isnan(x).any()


def test_a_point_on_its_apex_stays() -> None:
    funnel = landscape(3, 4)
    owner = height(funnel, funnel.apexes.numpy()) == funnel.depths.numpy()
    assert owner.any()
    torch.testing.assert_close(funnel.descend(funnel.apexes)[owner], funnel.apexes[owner])


def test_one_funnel_in_one_dimension_by_integration() -> None:
    """Q uniform on each side of the apex: mean of (t - t^8) L is L (1/2 - 1/9) on a side of length L."""
    problem = funnels(1, 1, seed=3, num_pairs=2**16)
    apex = landscape(1, 1, seed=3).apexes.item()
    sides = np.array([2.5 - apex, 2.5 + apex])
    expected = (sides / 5 * sides * (1 / 2 - 1 / 9)).sum()
    assert abs(problem.distance - expected) < 5 * problem.standard_error < 0.02 * expected


def test_finite_samples_transport_for_about_the_distance() -> None:
    problem = funnels(2, 4, seed=1, num_pairs=2**15)
    x, y = (side.double().numpy() for side in problem.sample(1000, seeded(5)))
    cost = float(np.asarray(ot.emd2([], [], cdist(x, y))))
    assert problem.distance * 0.9 < cost < problem.distance * 1.25
    assert problem.draw_paired is not None
    x, y = (side.double().numpy() for side in problem.draw_paired(500, seeded(6)))
    # Pairs of an optimal coupling are optimal for their own samples.
    paired = np.linalg.norm(x - y, axis=1).mean()
    assert float(np.asarray(ot.emd2([], [], cdist(x, y)))) == pytest.approx(paired, rel=1e-5)


def test_distance_agrees_with_the_dual_on_other_samples() -> None:
    problem = funnels(8, 16, seed=2, num_pairs=2**14)
    x, y = problem.sample(2**14, seeded(7))
    values = problem.potential(x) - problem.potential(y)
    noise = values.std().item() / 2**7
    assert abs(values.mean().item() - problem.distance) < 5 * (noise + problem.standard_error)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = funnels(3, 20, seed=0, num_pairs=500)
    points = cube(100, 3)
    before = whole.potential(points), *whole.sample(50, seeded(1))
    # The function hides the module of the same name.
    monkeypatch.setattr(import_module("taut.transport.funnel_problem"), "_CHUNK", 70)
    after = whole.potential(points), *whole.sample(50, seeded(1))
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)


def test_the_seed_is_the_problem() -> None:
    first, again, other = (funnels(2, 8, seed, num_pairs=100) for seed in (0, 0, 1))
    assert first.distance == again.distance != other.distance
    y = first.draw_q(8, seeded(0)).double()
    assert torch.cdist(y, landscape(2, 8).apexes).min() > 1e-3
    kept = pickle.loads(pickle.dumps(first))
    assert torch.equal(kept.draw_p(5, seeded()), first.draw_p(5, seeded()))


def test_wrong_arguments_teach() -> None:
    with pytest.raises(ArgumentError, match="funnels: `num_funnels` must be a whole number >= 1"):
        funnels(2, 0, seed=0)
    with pytest.raises(ArgumentError, match="last dimension 2; got shape"):
        funnels(2, 3, seed=0, num_pairs=2).potential(torch.zeros(4, 3))
