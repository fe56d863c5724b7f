"""Transport between finite sets lies between proven ends, and bounds populations from above."""

import itertools
import math
import sys
from typing import Any

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import optimize, stats
from scipy.spatial.distance import cdist
from torch import Tensor

from support import seeded
from taut.errors import ArgumentError, DtypeError, MissingExtraError, NonFiniteError
from taut.transport import (
    Transport,
    bound_mean,
    bound_population_upper,
    coupling_upper_bound,
    exact_transport,
)
from taut.transport.coupling_bound import _sweep
from taut.transport.exact_solver import plan_cost


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def linear_programme(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> float:
    """W1 from the definition, by a general solver."""
    n, m = len(x), len(y)
    sums = np.zeros((n + m, n * m))
    for i in range(n):
        sums[i, i * m : (i + 1) * m] = 1
    for j in range(m):
        sums[n + j, j::m] = 1
    sides = np.concatenate([(a / a.sum()).numpy(), (b / b.sum()).numpy()])
    cost = cdist(x.numpy(), y.numpy()).ravel()
    # One equation follows from the others; leaving it out avoids an infeasible rounding.
    return optimize.linprog(cost, A_eq=sums[:-1], b_eq=sides[:-1], method="highs").fun


def check_proof(transport: Transport, truth: float, tol: float = 1e-9) -> None:
    lower, upper = transport.interval.lower.value, transport.interval.upper.value
    assert lower - 1e-12 <= truth <= upper + 1e-12
    assert 0 <= upper - lower <= tol and transport.cost == upper
    assert transport.interval.confidence == 1


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_equal_sets_are_an_assignment(dim):
    x, y = normal(40, dim), normal(40, dim, seed=1) + 0.3
    distance = cdist(x.numpy(), y.numpy())
    truth = distance[optimize.linear_sum_assignment(distance)].mean()
    check_proof(exact_transport(x, y), truth)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (7, 5), (12, 20)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sets_of_any_size_solve_the_linear_programme(sizes, weighted):
    x, y = normal(sizes[0], 3), normal(sizes[1], 3, seed=1)
    a, b = torch.ones(sizes[0]).double(), torch.ones(sizes[1]).double()
    if weighted:
        a, b = normal(sizes[0], seed=2).exp(), normal(sizes[1], seed=3).square()
    transport = exact_transport(x, y, a, b) if weighted else exact_transport(x, y)
    check_proof(transport, linear_programme(x, y, a, b))


def test_the_value_is_that_of_the_solver_it_wraps():
    x, y = normal(60, 4), normal(80, 4, seed=1)
    truth: Any = ot.emd2([], [], cdist(x.numpy(), y.numpy()))
    check_proof(exact_transport(x, y), float(truth))


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=12),
)
def test_duplicates_and_empty_weights_on_the_line(first, second):
    """Against the closed form on the line; the last point of each set has mass for certain."""
    x, a = torch.tensor(first, dtype=torch.float64).unbind(1)
    y, b = torch.tensor(second, dtype=torch.float64).unbind(1)
    a[-1], b[-1] = 1, 2
    truth = stats.wasserstein_distance(x.numpy(), y.numpy(), a.numpy(), b.numpy())
    transport = exact_transport(x, y, a, b)
    check_proof(transport, truth, tol=1e-10)
    points, f = torch.cat([x, y]), torch.cat([transport.x_potential, transport.y_potential])
    assert bool(((f[:, None] - f).abs() <= (points[:, None] - points).abs() + 1e-12).all())


def test_both_ends_hold_in_fifty_digits():
    """A translation: the optimum is the length of the shift, known beyond double precision."""
    x = (normal(30, 5) * 2**10).round() / 2**10
    shift = torch.tensor([0.25, 1.5, -0.125, 3.0, 0.5], dtype=torch.float64)
    interval = exact_transport(x, x + shift).interval
    with mp.workdps(50):
        truth = mp.sqrt(sum(mpf(float(s)) ** 2 for s in shift))
        assert mpf(interval.lower.value) <= truth <= mpf(interval.upper.value)
        assert mpf(interval.upper.value) - mpf(interval.lower.value) < mpf("1e-11")


def test_near_points_far_from_the_origin_keep_their_distance():
    """Expanding the square would give 0, or a number made of rounding errors."""
    x = 1e6 + normal(20, 3).abs().cumsum(0) * 1e-4
    y = x + torch.tensor([3e-7, 0.0, 4e-7], dtype=torch.float64)
    truth = float(torch.linalg.vector_norm(y - x, dim=-1).mean())
    assert exact_transport(x, y).interval.upper.value == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_the_scale_of_the_points_is_free(scale):
    x, y = normal(25, 2), normal(25, 2, seed=1)
    one, other = exact_transport(x, y).cost, exact_transport(x * scale, y * scale).interval
    assert other.upper.value == pytest.approx(one * scale, rel=1e-10)
    assert other.upper.value - other.lower.value < 1e-10 * scale


def test_the_plan_has_the_marginals_and_the_cost():
    x, y = normal(30, 2), normal(20, 2, seed=1)
    a = normal(30, seed=2).exp()
    a[3] = 0
    t = exact_transport(x, y, a)
    rows = torch.zeros(30, dtype=torch.float64).index_add_(0, t.rows, t.mass)
    columns = torch.zeros(20, dtype=torch.float64).index_add_(0, t.columns, t.mass)
    assert torch.allclose(rows, a / a.sum(), rtol=0, atol=1e-13)
    assert torch.allclose(columns, torch.full_like(columns, 1 / 20), rtol=0, atol=1e-13)
    assert bool((t.mass > 0).all()) and len(t.mass) <= 30 + 20 - 1
    cost = float(t.mass @ torch.linalg.vector_norm(x[t.rows] - y[t.columns], dim=-1))
    assert cost <= t.cost <= cost + 1e-10


def test_the_critic_is_one_lipschitz_everywhere_and_attains_the_value():
    x, y = normal(40, 3), normal(50, 3, seed=1) + 1
    t = exact_transport(x, y)
    assert torch.allclose(t.critic(x), t.x_potential, rtol=0, atol=1e-13)
    assert torch.allclose(t.critic(y), t.y_potential, rtol=0, atol=1e-13)
    assert float(t.critic(x).mean() - t.critic(y).mean()) == pytest.approx(t.cost, abs=1e-10)
    points = torch.cat([x, y, 5 * normal(300, 3, seed=2)])
    f = t.critic(points)
    slope = (f[:, None] - f).abs() - torch.from_numpy(cdist(points.numpy(), points.numpy()))
    assert float(slope.max()) <= 1e-12


def test_equal_sets_are_at_no_distance():
    x = normal(30, 4)
    transport = exact_transport(x, x[torch.randperm(30, generator=seeded())])
    assert transport.interval.lower.value == 0 and transport.cost < 1e-11


def test_images_are_flattened_and_gradients_left_behind():
    x, y = normal(6, 2, 3).float().requires_grad_(), normal(6, 2, 3, seed=1)
    t = exact_transport(x, y)
    assert t.cost == exact_transport(x.detach().flatten(1), y.flatten(1)).cost
    assert t.x_potential.dtype == torch.float64 and not t.x_potential.requires_grad


@given(st.integers(0, 10**6))
def test_a_wrong_plan_is_charged_for_its_repair(seed):
    """Any non-negative triplets at all give an upper bound: the theorem asks no more."""
    x, y = normal(6, 2, seed=seed), normal(5, 2, seed=seed + 1)
    a, b = normal(6, seed=seed + 2).exp(), normal(5, seed=seed + 3).exp()
    a, b = a / a.sum(), b / b.sum()
    t = exact_transport(x, y, a, b)
    keep = torch.rand(len(t.mass), generator=seeded(seed)) < 0.7
    mass = t.mass * (0.5 + torch.rand(len(t.mass), generator=seeded(seed + 1)).double())
    upper = plan_cost(x, y, a, b, (t.rows[keep], t.columns[keep], mass[keep]))
    assert upper >= t.interval.lower.value


@pytest.mark.parametrize(
    ("sizes", "dim", "weighted"),
    [((300, 300), 2, False), ((257, 111), 3, True), ((1, 90), 2, True)],
)
def test_cheap_couplings_are_above_the_truth_and_near_it(sizes, dim, weighted):
    x, y = normal(sizes[0], dim), normal(sizes[1], dim, seed=1) + 0.5
    weights = (normal(sizes[0], seed=2).exp(), normal(sizes[1], seed=3).exp()) if weighted else ()
    truth = exact_transport(x, y, *weights).interval
    bound = coupling_upper_bound(x, y, *weights, generator=seeded(), block_size=48, num_sweeps=6)
    assert truth.lower.value <= bound.value <= 1.05 * truth.upper.value
    assert bound.side == "upper" and bound.confidence == 1


def test_one_block_is_exact():
    x, y = normal(50, 2), normal(40, 2, seed=1)
    bound = coupling_upper_bound(x, y, generator=seeded(), block_size=64, num_sweeps=0)
    assert bound.value == pytest.approx(exact_transport(x, y).cost, abs=1e-10)


def test_sweeps_never_cost_more():
    x, y = normal(200, 3), normal(200, 3, seed=1)
    a = torch.full((200,), 1 / 200, dtype=torch.float64)
    plan = (torch.arange(200), torch.arange(200), a)
    costs = [plan_cost(x, y, a, a, plan)]
    for _ in range(4):
        plan = _sweep(x, y, plan, 32, seeded(len(costs)))
        costs.append(plan_cost(x, y, a, a, plan))
    assert all(after <= before + 1e-10 for before, after in itertools.pairwise(costs))
    assert costs[-1] < 0.8 * costs[0]


def test_blocks_need_no_matrix_of_all_distances(monkeypatch):
    widest = []
    whole = torch.cdist

    def watched(x, y, **options):
        widest.append(max(len(x), len(y)))
        return whole(x, y, **options)

    monkeypatch.setattr(torch, "cdist", watched)
    x = torch.rand(2000, 2, generator=seeded())
    bound = coupling_upper_bound(x, x + 1, generator=seeded(), block_size=64, num_sweeps=1)
    assert max(widest) <= 64 and bound.value == pytest.approx(math.sqrt(2), rel=1e-5)


def test_identical_points_do_not_trouble_couplings():
    same = torch.ones(70, 2)
    bound = coupling_upper_bound(same, same[:30], generator=seeded(), block_size=8)
    assert 0 <= bound.value < 1e-8


def population_misses(draw, truth: float, repetitions: int, **options) -> int:
    misses = 0
    for repetition in range(repetitions):
        generator = seeded(repetition)
        bound = bound_population_upper(*draw(generator), generator=generator, **options)
        misses += bound.value < truth
    return misses


@pytest.mark.parametrize(("dim", "diameter"), [(1, 1.0), (2, math.sqrt(2)), (3, None)])
def test_shifted_cubes_are_bounded_as_often_as_stated(dim, diameter):
    shift = torch.full((dim,), 0.4, dtype=torch.float64)

    def draw(generator):
        x, y = torch.rand(2, 100, dim, generator=generator, dtype=torch.float64)
        return x, y + shift

    truth = 0.4 * math.sqrt(dim)
    misses = population_misses(draw, truth, 200, diameter=diameter)
    assert misses <= stats.binom.isf(1e-4, 200, 0.05)


def test_two_points_are_bounded_as_often_as_stated_where_samples_have_no_bias():
    """P on {0, 1} and Q at 0: the cost is unbiased, so only the deviation term covers."""

    def draw(generator):
        x = (torch.rand(64, generator=generator) < 0.5).double()
        return x, torch.zeros(64)

    misses = population_misses(draw, 0.5, 200, diameter=1.0, confidence=0.6)
    assert misses <= stats.binom.isf(1e-4, 200, 0.4)
    without = sum(float(draw(seeded(seed))[0].mean()) < 0.5 for seed in range(200))
    assert without > stats.binom.isf(1e-4, 200, 0.3)


def test_clipped_normals_of_one_population_stay_above_zero_and_shrink():
    x, y = normal(2, 1600, 1).clamp(-3, 3)
    values = [
        bound_population_upper(x[:n], y[:n], diameter=6.0, generator=seeded())
        for n in (100, 400, 1600)
    ]
    assert values[0].value > values[1].value > values[2].value > 0


def test_the_deviation_is_that_of_mcdiarmid():
    """Two point masses: transport is exact, and all that is left is the formula."""
    x, y = torch.zeros(60, 2), torch.ones(40, 2)
    bound = bound_population_upper(x, y, 0.9, diameter=3.0, generator=seeded())
    deviation = 3 * math.sqrt(math.log(10) / 2 * (1 / 60 + 1 / 40))
    assert bound.value == pytest.approx(math.sqrt(2) + deviation, abs=1e-10)
    assert (bound.side, bound.confidence) == ("upper", 0.9)
    assert "of 60 x 40 points, McDiarmid" in bound.method and "assuming" not in bound.method


def test_the_deviation_of_larger_samples_is_that_of_bernstein():
    """Points at two places a unit apart, all pairs of one place: the variance bound is the bet's."""
    x, y = torch.zeros(60, 2), torch.ones(80, 2)
    bound = bound_population_upper(x, y, 0.9, diameter=3.0, generator=seeded())
    squares = [
        9 * bound_mean(torch.zeros(n // 2), 0, 0.5, 0.99, "upper").value / n for n in (60, 80)
    ]
    log = math.log(1 / 0.08)
    c = log / 3 * 3 / 60
    deviation = c + math.sqrt(c**2 + 2 * sum(squares) * log)
    assert bound.value == pytest.approx(math.sqrt(2) + deviation, abs=1e-10)
    assert "of 60 x 80 points, Bernstein" in bound.method


def test_a_sorted_sample_has_the_variance_of_a_shuffled_one():
    x, y = normal(2000, 1), normal(2000, 1, seed=1)
    shuffled = bound_population_upper(x, y, generator=seeded()).value
    ordered = bound_population_upper(x.sort(0).values, y.sort(0).values, generator=seeded()).value
    assert ordered == pytest.approx(shuffled, rel=0.02)


def test_a_diameter_from_the_data_is_named_an_assumption():
    x = normal(40, 2)
    bound = bound_population_upper(x, x + 9, generator=seeded())
    assert "assuming that neither population is wider than the data" in bound.method
    width = float(torch.cdist(x, x).max()) * (1 + 1e-9)
    known = bound_population_upper(x, x + 9, generator=seeded(), diameter=width)
    assert known.value <= bound.value


def test_large_samples_are_coupled_and_the_generator_decides_how(monkeypatch):
    x, y = normal(700, 2), normal(600, 2, seed=1)
    exact = bound_population_upper(x, y, generator=seeded()).value
    monkeypatch.setattr("taut.transport.distance_bounds._MOST_PAIRS", 100)
    coupled, again, other = (
        bound_population_upper(x, y, generator=seeded(seed)).value for seed in (0, 0, 1)
    )
    assert coupled == again != other
    # The cost of any coupling is at least that of the best one, and the deviation is the same.
    assert exact * (1 - 1e-12) <= coupled < 1.05 * exact


def test_a_missing_solver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot.lp", None)
    with pytest.raises(MissingExtraError) as caught:
        exact_transport(torch.zeros(2), torch.ones(2))
    assert "pip install 'taut[ot]'" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: exact_transport(torch.zeros(3, 2), torch.zeros(3, 1)), ArgumentError,
         "must have points of the same dimension; got 2 and 1"),
        (lambda: exact_transport(torch.zeros(0, 2), torch.zeros(3, 2)), ArgumentError,
         "`x` must have shape (n, ...) with n >= 1"),
        (lambda: exact_transport(torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 2)),
         DtypeError, "`x` must be a floating-point tensor"),
        (lambda: exact_transport(torch.zeros(3), torch.tensor([math.inf])), NonFiniteError,
         "`y` must be finite"),
        (lambda: exact_transport(torch.zeros(3), torch.full((2,), 1e300, dtype=torch.float64)),
         NonFiniteError, "Divide the points by a constant"),
        (lambda: exact_transport(torch.zeros(3), torch.zeros(2), torch.ones(2)), ArgumentError,
         "`x_weights` must have shape (3,)"),
        (lambda: exact_transport(torch.zeros(2), torch.zeros(2), None, torch.tensor([1.0, -1.0])),
         ArgumentError, "`y_weights` must be finite, non-negative and not all zero"),
        (lambda: exact_transport(torch.zeros(2), torch.zeros(1), torch.zeros(2)),
         ArgumentError, "not all zero"),
        (lambda: exact_transport(torch.zeros(99, 1), torch.zeros(99, 1), max_bytes=1000),
         ArgumentError, "got 78408 bytes. Use coupling_upper_bound"),
        (lambda: coupling_upper_bound(torch.zeros(2), torch.zeros(2), generator=seeded(),
                                      block_size=1), ArgumentError, "`block_size`"),
        (lambda: bound_population_upper(torch.arange(9.0), torch.zeros(9),
                                        diameter=7.0, generator=seeded()),
         ArgumentError, "two points of the first sample 8 apart"),
        (lambda: bound_population_upper(torch.zeros(9), torch.zeros(9), 1.0,
                                        generator=seeded()),
         ArgumentError, "`confidence` must lie inside (0, 1)"),
        (lambda: exact_transport(torch.zeros(3), torch.ones(3)).critic(torch.zeros(2, 2)),
         ArgumentError, "got 2 coordinates instead of 1"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert sentence in str(caught.value)
