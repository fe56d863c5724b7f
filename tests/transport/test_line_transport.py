"""Transport on a line is exact to the last rounding, and bounds populations as often as stated."""

import sys
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from support import seeded
from taut.audit import bound_lipschitz
from taut.certificates import BoundedEvaluation
from taut.errors import DataError, NonFiniteError
from taut.transport import exact_transport, load_critic, wasserstein
from taut.transport.line_transport import line_distance, line_potential, score_line


def normal(n: int, shift: float = 0.0, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=seeded(seed), dtype=torch.float64) + shift


def area(x: Tensor, y: Tensor) -> Fraction:
    """The area between the distribution functions, in fractions."""
    xs, ys = ([Fraction(value) for value in side.tolist()] for side in (x, y))
    points = sorted({*xs, *ys})
    total = Fraction(0)
    for left, right in pairwise(points):
        f, g = (Fraction(sum(value <= left for value in side), len(side)) for side in (xs, ys))
        total += (right - left) * abs(f - g)
    return total


numbers = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-1e6, 1e6),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
)
samples = st.lists(numbers, min_size=1, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


@given(samples, samples)
def test_the_interval_holds_in_fractions(x: Tensor, y: Tensor):
    found, truth = line_distance(x, y), area(x, y)
    lower, upper = found.lower.value, found.upper.value
    assert Fraction(lower) <= truth <= Fraction(upper)
    assert upper - lower <= 1e-13 * upper + 1e-300
    assert found.confidence == 1


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 2), (500, 500), (1000, 77), (40_000, 30_000)])
def test_the_distance_is_that_of_scipy(n: int, m: int):
    for x in (normal(n, 0.3), normal(n).round(), normal(n) ** 3):
        y = normal(m, seed=1)
        found = line_distance(x, y)
        truth = stats.wasserstein_distance(x.numpy(), y.numpy())
        assert found.lower.value - 1e-12 <= truth <= found.upper.value + 1e-12
        assert found.upper.value - found.lower.value <= 1e-10 * truth


def test_equal_sets_are_exactly_0_apart():
    x = normal(50)
    found = line_distance(x.repeat(3), x)
    assert found.lower.value == found.upper.value == 0
    with pytest.raises(NonFiniteError, match="`y` must be finite"):
        line_distance(x, torch.tensor([float("nan")]))


@pytest.mark.parametrize("shift", [0.0, 0.5, -2.0])
def test_the_potential_of_few_points_is_optimal(shift: float):
    x, y = normal(90, shift), normal(120, seed=1).round(decimals=1)
    potential = line_potential(x, y)
    at_x, at_y = (potential(side[:, None]).mean() for side in (x, y))
    assert (at_x - at_y).item() == pytest.approx(line_distance(x, y).upper.value, rel=1e-9)
    assert bound_lipschitz(potential).value == 1


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_potential_of_many_points_is_nearly_optimal_with_few_pieces(shift: float):
    x, y = normal(20_000, shift), 1.2 * normal(30_000, seed=1)
    potential = line_potential(x, y)
    assert potential.num_centres <= 129
    value = score_line(potential, x)[0].mean() - score_line(potential, y)[0].mean()
    truth = line_distance(x, y).upper.value
    assert 0.99 * truth <= value.item() <= truth


@pytest.mark.parametrize("size", [1.0, 1e100, 1e-100])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scores_are_those_of_the_critic_within_their_errors(size: float, offset: float):
    x, y = size * (normal(900) + offset), size * (normal(800, seed=1) + offset)
    potential, points = line_potential(x, y), size * (3 * normal(2000, seed=2) + offset)
    values, errors = score_line(potential, points)
    others, their_errors = BoundedEvaluation(potential, 1)(points[:, None])
    assert bool(((values - others).abs() <= errors + their_errors).all())
    assert errors.max() <= 1e-12 * (points.abs().max() + potential.offsets.abs().max()) * 2


def test_scores_hold_in_fractions():
    x, y = normal(300), normal(200, seed=1)
    potential = line_potential(x, y)
    cones = [
        (Fraction(c), Fraction(b))
        for c, b in zip(potential.centres[:, 0].tolist(), potential.offsets.tolist(), strict=True)
    ]
    points = 2 * normal(60, seed=2)
    scored = torch.stack([points, *score_line(potential, points)], 1)
    for at, value, error in scored.tolist():
        exact = min(abs(Fraction(at) - c) + b for c, b in cones)
        assert abs(Fraction(value) - exact) <= Fraction(error)


def uniform(shift: float):
    return lambda n, g: torch.rand(n, generator=g, dtype=torch.float64) + shift


def atoms(share: float):
    return lambda n, g: (torch.rand(n, generator=g, dtype=torch.float64) < share).double()


def tail(scale: float):
    """Pareto of index 1.1 from 1 to 1000, by inversion."""
    most = 1 - 1000.0**-1.1
    return lambda n, g: scale * (1 - most * torch.rand(n, generator=g).double()) ** (-1 / 1.1)


# The mean of that tail law, the integral of t times 1.1 t**-2.1 / (1 - 1000**-1.1) from 1 to 1000.
TAIL = 11 * (1 - 1000**-0.1) / (1 - 1000**-1.1)
# Draws of P and of Q, the distance, a bound of the diameters, and the numbers of rows.
KNOWN = {
    "null": (uniform(0.0), uniform(0.0), 0.0, 1.0, 100, 100),
    "shift": (uniform(0.3), uniform(0.0), 0.3, 1.0, 150, 150),
    "few rows": (uniform(0.3), uniform(0.0), 0.3, 1.0, 24, 30),
    "atoms": (atoms(0.5), atoms(0.2), 0.3, 1.0, 200, 200),
    "one atom": (atoms(0.5), atoms(0.0), 0.5, 1.0, 60, 60),
    "unequal": (uniform(0.3), uniform(0.0), 0.3, 1.0, 1000, 60),
    "heavy tail": (tail(1.5), tail(1.0), 0.5 * TAIL, 1500.0, 300, 300),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.slow
def test_both_bounds_miss_no_more_often_than_stated(name: str):
    first, second, truth, diameter, n, m = KNOWN[name]
    above = below = 0
    for seed in range(100):
        g = seeded(seed)
        result = wasserstein(
            first(n, g), second(m, g), confidence=0.8, diameter=diameter, num_permutations=1, seed=seed
        )  # fmt: skip
        above += result.lower.value > truth
        below += result.upper.value < truth
    # Each bound may miss with probability 0.1.
    assert max(above, below) <= stats.binom.isf(1e-4, 100, 0.1)


def test_bounds_close_in_on_a_shift():
    result = wasserstein(normal(100_000, 0.4), normal(100_000, seed=1))
    assert 0.37 < result.lower.value <= 0.4 <= result.upper.value < 0.43
    assert result.kind == "transport potential" and result.history == ()
    assert "Bernstein" in result.upper.method and "betting" in result.lower.method


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("scaling", ["none", "standard", "robust"])
def test_scaling_divides_the_distance_and_its_bounds(finite, scaling):
    x, y = 1000 * normal(400, 0.5) + 7, 1000 * normal(300, seed=1) + 7
    plain = wasserstein(x, y, finite=finite)
    scaled = wasserstein(x, y, scaling=scaling, finite=finite)
    unit = scaled.scaling.scale.item()
    for end in ("lower", "upper", "estimate"):
        value = getattr(scaled, end).value
        assert unit * value == pytest.approx(getattr(plain, end).value, rel=1e-9)
    narrow = wasserstein(x, y, scaling=scaling, diameter=9000 / unit)
    assert narrow.upper.value * unit < wasserstein(x, y, diameter=90_000.0).upper.value


def test_finite_sets_need_no_solver(monkeypatch):
    x, y = normal(3000, 0.5), normal(2000, seed=1)
    expected = exact_transport(x[:300], y[:200]).cost
    monkeypatch.setitem(sys.modules, "ot.lp", None)
    assert wasserstein(x[:300], y[:200], finite=True).upper.value == pytest.approx(expected)
    assert wasserstein(x, y, finite=True).gap < 1e-9
    assert wasserstein(x, y).lower.value > 0.3


def test_later_rows_are_compared_by_the_saved_potential(tmp_path):
    result = wasserstein(normal(2000, 1.0), normal(2000, seed=1))
    result.save(tmp_path / "critic")
    from_x, from_y = load_critic(tmp_path / "critic").lower_bounds(normal(2000, seed=5))
    assert 0.8 < from_x.value <= 1 and from_y.value < 0.05


def test_a_negative_difference_is_an_estimate_of_0_with_a_note():
    results = [wasserstein(normal(50, seed=2 * i), normal(50, seed=2 * i + 1)) for i in range(8)]
    negative = [r for r in results if r.scores[0].mean() < r.scores[1].mean()]
    assert negative and all(r.estimate.value >= 0 for r in results)
    for result in results:
        noted = any("the held-out difference" in note for note in result.notes)
        assert noted == (result in negative)
        assert result.notes[0].endswith("neither population is wider than the data")


def test_values_whose_squares_overflow_are_refused():
    with pytest.raises(DataError, match="Divide them by a constant"):
        wasserstein(normal(50) * 1e200, normal(50, seed=1) * 1e200)
    scaled = wasserstein(normal(60, 1.0) * 1e200, normal(60) * 1e200, scaling="standard")
    assert 0 < scaled.lower.value < scaled.upper.value < 9


def test_streams_and_tables_give_one_answer():
    class Batches:
        def __init__(self, rows: Tensor) -> None:
            self.rows = rows

        def __iter__(self):
            return iter(self.rows[:, None].split(7))

    x, y = normal(300, 0.5), normal(200, seed=1)
    table, stream = wasserstein(x, y), wasserstein(Batches(x), Batches(y))
    assert (table.lower, table.upper, table.p_value) == (stream.lower, stream.upper, stream.p_value)
