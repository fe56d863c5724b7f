"""The problems are what they claim: potential and transport meet at the stated distance."""

import pickle
from typing import Any

import numpy as np
import ot
import pytest
import torch
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import ks_2samp, kstest, laplace, norm

from support import seeded
from taut.errors import ArgumentError
from taut.transport import (
    Problem,
    absolute_value,
    cone,
    laplaces,
    shells,
    shifted_gaussians,
    three_cones,
)

PROBLEMS = [absolute_value(), three_cones(), cone(1), cone(2), cone(128)]
PAIRED = [
    shifted_gaussians(1, -0.75),
    shifted_gaussians(16, 2.0),
    shells(1),
    shells(3, 0.5, 2.0),
    shells(64, 3.0, 1.0),
    laplaces(),
    laplaces(0.25, 1.0),
]
each_paired = pytest.mark.parametrize("problem", PAIRED, ids=lambda problem: problem.name)
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


def transport_cost(cost: np.ndarray, p: ArrayLike, q: ArrayLike) -> float:
    """Exact, by POT's network simplex; empty weights are uniform."""
    return np.asarray(ot.emd2(p, q, cost)).item()


@each_problem
def test_potential_is_one_lipschitz(problem: Problem) -> None:
    generator = seeded()
    near = torch.randn(2000, problem.dim, generator=generator, dtype=torch.float64) * 2
    for scale in (1e-3, 0.1, 3.0):
        step = torch.randn(2000, problem.dim, generator=generator, dtype=torch.float64) * scale
        rise = (problem.potential(near + step) - problem.potential(near)).abs()
        assert (rise <= step.norm(dim=-1) + 1e-12).all()


@each_problem
def test_potential_attains_the_distance(problem: Problem) -> None:
    x, y = problem.sample(500, seeded())
    dual = problem.potential(x).double().mean() - problem.potential(y).double().mean()
    assert abs(dual.item() - problem.distance) < 1e-6


@each_problem
def test_a_transport_plan_attains_the_distance(problem: Problem) -> None:
    """The upper side: each atom of one sample, its mass set to that of P or Q, moves for 1."""
    x, y = (side.double().numpy() for side in problem.sample(300, seeded(1)))
    cost = cdist(x, y)
    if problem.name == "three cones":
        masses = []
        for side in (x, y):
            owner = cdist(side, np.array([[-2.0, 0], [0, 0], [2, 0]])).argmin(1)
            masses.append(1 / (3 * np.bincount(owner)[owner]))
        total = transport_cost(cost, *masses)
    else:
        rows, columns = linear_sum_assignment(cost)
        total = cost[rows, columns].mean()
    assert abs(total - problem.distance) < 1e-6


def test_three_cones_samples_transport_to_at_least_the_distance() -> None:
    """Uneven counts can only cost more: the potential is worth exactly 1 on any sample."""
    for seed in range(5):
        x, y = (side.double().numpy() for side in three_cones().sample(200, seeded(seed)))
        assert 1 - 1e-6 <= transport_cost(cdist(x, y), [], []) < 1.5


def test_supports_are_those_of_the_paper() -> None:
    x, y = absolute_value().sample(400, seeded())
    assert set(x.flatten().tolist()) == {-1.0, 1.0}
    assert set(y.flatten().tolist()) == {0.0}
    assert abs(x.mean().item()) < 0.2

    centres, circles = three_cones().sample(900, seeded())
    found, counts = centres.unique(dim=0, return_counts=True)
    assert found.tolist() == [[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]]
    assert counts.min() > 240
    gap = torch.cdist(circles, found).amin(1)
    torch.testing.assert_close(gap, torch.ones(900))
    assert circles.mean(0).abs().max() < 0.2


@each_problem
def test_samples_follow_the_generator_alone(problem: Problem) -> None:
    first = problem.sample(7, seeded(4))
    torch.manual_seed(123)
    again = problem.sample(7, seeded(4))
    other = problem.sample(7, seeded(5))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[0].shape == first[1].shape == (7, problem.dim)
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_problems_survive_pickling() -> None:
    problem = pickle.loads(pickle.dumps(three_cones()))
    assert problem.potential(torch.zeros(1, 2)).item() == 1.0


def test_wrong_arguments_teach() -> None:
    with pytest.raises(ArgumentError, match="last dimension 2; got shape"):
        three_cones().potential(torch.zeros(5, 3))
    with pytest.raises(ArgumentError, match="cone: `dim` must be a whole number >= 1"):
        cone(0)
    with pytest.raises(ArgumentError, match=r"Problem\.sample: `n` must be"):
        cone(2).sample(0, seeded())


@each_paired
def test_optimal_pairs_are_paid_in_full_by_the_potential(problem: Problem) -> None:
    assert problem.draw_paired is not None
    x, y = (side.double() for side in problem.draw_paired(2000, seeded()))
    lengths = (x - y).norm(dim=-1)
    rise = problem.potential(x) - problem.potential(y)
    torch.testing.assert_close(rise, lengths, atol=1e-5, rtol=0)
    noise = lengths.std().item() / len(x) ** 0.5
    assert abs(lengths.mean().item() - problem.distance) < 5 * noise + 1e-5
    other = x.flip(0)
    steep = (problem.potential(other) - problem.potential(x)).abs()
    assert (steep <= (other - x).norm(dim=-1) + 1e-12).all()


@each_paired
def test_pairs_have_the_marginals_that_are_drawn_alone(problem: Problem) -> None:
    assert problem.draw_paired is not None
    for alone, paired in zip(
        problem.sample(20000, seeded(1)), problem.draw_paired(20000, seeded(2)), strict=True
    ):
        for one, other in ((alone.norm(dim=-1), paired.norm(dim=-1)), (alone[:, 0], paired[:, 0])):
            # Rounded, because the norms on a sphere differ by rounding alone.
            result: Any = ks_2samp(one.numpy().round(4), other.numpy().round(4))
            assert result.pvalue > 1e-4


def test_laws_on_the_line_by_quantiles() -> None:
    levels = (np.arange(100000) + 0.5) / 100000
    gap = np.abs(laplace(scale=0.25).ppf(levels) - laplace(scale=1.0).ppf(levels)).mean()
    assert gap == pytest.approx(laplaces(0.25, 1.0).distance, rel=1e-3)
    x = laplaces(0.25, 1.0).draw_p(20000, seeded()).flatten().numpy()
    assert kstest(x, laplace(scale=0.25).cdf).pvalue > 1e-4
    z = shifted_gaussians(4, 6.0).draw_p(20000, seeded())[:, 2].numpy()
    assert kstest(z, norm(loc=3.0).cdf).pvalue > 1e-4
