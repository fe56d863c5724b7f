"""Bounds of means hold as often as they say, for laws chosen to break them, and have known sizes."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats
from torch import Tensor

from support import seeded
from taut.errors import ArgumentError, DtypeError, NonFiniteError
from taut.transport import (
    bound_difference,
    bound_mean,
    distance_bounds,
    permutation_p_value,
    resampling,
)
from taut.transport import mean_bounds as module
from taut.transport.distance_bounds import (
    Scores,
    Stage,
    _bound_deviation,
    bound_population_lower,
)
from taut.transport.mean_bounds import shuffle

METHODS: list[module.Method] = ["betting", "bernstein", "hoeffding"]


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)


def two_points(p: float, shape: tuple[int, int], low: float = 0.0) -> Tensor:
    return torch.where(uniform(*shape) < p, 1.0, low).double()


# name -> (reps, n) draws in [0, 1] and their exact mean
LAWS = {
    "rare one": lambda shape: (two_points(0.01, shape), 0.01),
    "rare zero": lambda shape: (two_points(0.98, shape), 0.98),
    "fair coin": lambda shape: (two_points(0.5, shape), 0.5),
    "skew near one": lambda shape: (two_points(0.05, shape, low=0.9), 0.905),
    "constant": lambda shape: (torch.full(shape, 0.3, dtype=torch.float64), 0.3),
    "uniform": lambda shape: (uniform(*shape), 0.5),
    "mixture": lambda shape: (
        torch.where(uniform(*shape) < 0.03, 1.0, 0.2 + 0.02 * uniform(*shape, seed=1)),
        0.03 + 0.97 * 0.21,
    ),
}


def too_many(misses: int, repetitions: int, delta: float) -> bool:
    """More misses than one run in ten thousand shows, if each is at most `delta` likely."""
    return misses > float(stats.binom.isf(1e-4, repetitions, delta))


def lower_bounds(draws: Tensor, confidence: float, method: module.Method) -> Tensor:
    """All rows at once; a test below says that `bound_mean` gives the same for each."""
    n, delta = draws.shape[-1], 1 - confidence
    if method == "betting":
        return module.lower_by_betting(draws, delta)
    if method == "hoeffding":
        return draws.mean(-1) - math.sqrt(math.log(1 / delta) / (2 * n))
    log = math.log(2 / delta)
    return draws.mean(-1) - (2 * draws.var(-1) * log / n).sqrt() - 7 * log / (3 * (n - 1))


@pytest.mark.parametrize("method", METHODS)
def test_many_rows_at_once_are_each_row_alone(method):
    draws = uniform(5, 400) / 4
    for row, value in zip(draws, lower_bounds(draws, 0.9, method), strict=True):
        alone = bound_mean(row, 0.0, 1.0, 0.9, method=method).value
        assert alone == pytest.approx(max(0.0, float(value)), abs=1e-12)


@pytest.mark.parametrize("confidence", [0.95, 0.6])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("method", METHODS)
def test_the_mean_is_missed_no_more_often_than_stated(method, law, confidence):
    repetitions = 2000
    for n in (5, 60):
        draws, mean = LAWS[law]((repetitions, n))
        below = int((lower_bounds(draws, confidence, method) > mean).sum())
        above = int((1 - lower_bounds(1 - draws, confidence, method) < mean).sum())
        assert not too_many(below, repetitions, 1 - confidence), (n, below)
        assert not too_many(above, repetitions, 1 - confidence), (n, above)


def test_the_check_of_coverage_catches_the_normal_approximation():
    draws, mean = LAWS["rare one"]((1000, 60))
    upper = draws.mean(-1) + 1.645 * draws.std(-1) / math.sqrt(60)
    assert too_many(int((upper < mean).sum()), 1000, 0.05)


def test_the_check_of_coverage_can_tell_90_from_95_per_cent():
    assert too_many(int(stats.binom.ppf(1e-3, 2000, 0.1)), 2000, 0.05)


def test_bets_that_know_the_draw_are_caught():
    """Sorted draws tell the next one: the wealth runs ahead before the small ones come."""
    draws = two_points(0.5, (1000, 60)).sort(-1, descending=True).values
    assert too_many(int((lower_bounds(draws, 0.95, "betting") > 0.5).sum()), 1000, 0.05)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("sizes", "p", "q"), [((40, 40), 0.5, 0.5), ((100, 37), 0.05, 0.02), ((7, 50), 0.95, 0.9)]
)
def test_the_difference_is_missed_no_more_often_than_stated(method, sizes, p, q):
    repetitions = 500
    x = 3 * two_points(p, (repetitions, sizes[0])) - 1
    y = 3 * (uniform(repetitions, sizes[1], seed=1) < q).double() - 1
    misses = sum(
        bound_difference(a, b, -1.0, 2.0, 0.8, method).value > 3 * (p - q)
        for a, b in zip(x, y, strict=True)
    )
    assert not too_many(misses, repetitions, 0.2), misses


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_low_variance_ranks_the_methods(side):
    draws = 0.4 + 0.05 * uniform(2000)
    slack = [
        abs(bound_mean(draws, 0.0, 1.0, 0.95, side, method).value - float(draws.mean()))
        for method in METHODS
    ]
    assert slack[0] < 0.7 * slack[1] and slack[1] < 0.7 * slack[2]


def test_the_figures_of_five_thousand_normal_scores():
    normal = torch.randn(2, 5000, generator=seeded(), dtype=torch.float64).clamp(-3.5, 3.5)
    x, y = normal[0] + 0.0, normal[1]
    difference = float(x.mean() - y.mean())
    slack = {
        method: difference - bound_difference(x, y, -3.5, 3.5, method=method).value
        for method in METHODS
    }
    assert slack["hoeffding"] == pytest.approx(0.1713, abs=1e-3)
    assert slack["bernstein"] == pytest.approx(0.112, abs=3e-3)
    # 1.645 * sqrt(2 / 5000) = 0.033 is the normal one, sqrt(4 ln 20 / 5000) = 0.049 its tail bound.
    assert 0.033 < slack["betting"] < 0.052


def test_betting_is_the_wealth_of_its_theorem():
    """Against a plain loop in 50 digits: rejected at the bound, not rejected just above it."""
    draws = [float(z) for z in uniform(40, seed=3) * 0.5 + 0.3]
    delta = 1 - 0.9
    value = float(module.lower_by_betting(torch.tensor(draws, dtype=torch.float64), delta))

    def richest(m):
        with mp.workdps(50):
            past, deviations, wealth, best = mpf(1) / 2, mpf(1) / 4, mpf(1), mpf(0)
            for i, z in enumerate(map(mpf, draws), start=1):
                bet = mp.sqrt(2 * mp.log(1 / mpf(delta)) / (len(draws) * deviations / i))
                wealth *= 1 + min(bet, mpf(3) / 4 / m) * (z - m)
                best = max(best, wealth)
                past += z
                deviations += (z - past / (i + 1)) ** 2
            return best

    assert richest(mpf(value)) >= 1 / mpf(delta) > richest(mpf(value) + mpf("1e-10"))


def test_bets_depend_on_the_past_alone():
    draws = uniform(30)
    bets = module.predictable_bets(draws, 3.0, 30)
    for i in range(30):
        changed = draws.clone()
        changed[i:] = 1 - changed[i:]
        assert torch.equal(module.predictable_bets(changed, 3.0, 30)[: i + 1], bets[: i + 1])


@given(
    st.lists(st.floats(-2, 5), min_size=1, max_size=30),
    st.sampled_from(METHODS),
    st.floats(0.01, 0.999),
)
def test_sides_mirror_and_stay_inside_the_range(values, method, confidence):
    draws = torch.tensor(values, dtype=torch.float64)
    lower = bound_mean(draws, -2.0, 5.0, confidence, "lower", method)
    upper = bound_mean(-draws, -5.0, 2.0, confidence, "upper", method)
    assert lower.value == -upper.value and (lower.side, upper.side) == ("lower", "upper")
    assert -2 <= lower.value <= 5 and lower.confidence == confidence
    if method != "betting":
        assert lower.value <= np.mean(values) + 1e-12


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50), st.floats(0.5, 0.999))
def test_closed_forms_in_fifty_digits(values, confidence):
    draws = torch.tensor(values, dtype=torch.float64)
    n = len(values)
    with mp.workdps(50):
        z, delta = [mpf(value) for value in values], 1 - mpf(confidence)
        mean = sum(z) / n
        variance = sum((value - mean) ** 2 for value in z) / (n - 1)
        log = mp.log(2 / delta)
        exact: dict[module.Method, Any] = {
            "hoeffding": mean - mp.sqrt(mp.log(1 / delta) / (2 * n)),
            "bernstein": mean - mp.sqrt(2 * variance * log / n) - 7 * log / (3 * (n - 1)),
        }
        for method, truth in exact.items():
            value = mpf(bound_mean(draws, 0.0, 1.0, confidence, method=method).value)
            assert value <= max(mpf(0), truth) <= value + mpf("1e-13")


def test_closed_forms_of_the_difference():
    """One inequality for both samples by Hoeffding; by Bernstein one each, at half the error."""
    x, y, delta = 3 * uniform(900), 3 * uniform(400, seed=1).square(), 1 - 0.9
    difference = float(x.mean() - y.mean())
    joint = 3 * math.sqrt(math.log(1 / delta) / 2 * (1 / 900 + 1 / 400))
    log = math.log(4 / delta)
    each = [
        math.sqrt(2 * float(z.var()) * log / len(z)) + 7 * 3 * log / (3 * (len(z) - 1))
        for z in (x, y)
    ]
    value = bound_difference(x, y, 0.0, 3.0, 0.9, "hoeffding").value
    assert value == pytest.approx(difference - joint, abs=1e-12)
    value = bound_difference(x, y, 0.0, 3.0, 0.9, "bernstein").value
    assert value == pytest.approx(difference - sum(each), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_one_or_two_draws_prove_little_but_nothing_false(method, n, value):
    draws = torch.full((n,), value)
    lower = bound_mean(draws, 0.0, 1.0, method=method)
    upper = bound_mean(draws, 0.0, 1.0, side="upper", method=method)
    # 1 - delta^(1/n): the largest zero-probability p with which n draws of this value still occur.
    assert 0 <= lower.value <= value * 0.05 ** (1 / n) + 1e-12
    assert 1 >= upper.value >= 1 - (1 - value) * 0.05 ** (1 / n) - 1e-12
    assert bound_difference(draws, draws, 0.0, 1.0, method=method).value <= 0


@pytest.mark.parametrize("method", METHODS)
def test_more_draws_of_a_constant_prove_more(method):
    values = [bound_mean(torch.full((n,), 0.25), 0.0, 1.0, method=method).value for n in
              (10, 100, 1000, 10000)]  # fmt: skip
    assert values == sorted(values) and 0.23 < values[-1] <= 0.25


def test_float32_draws_are_read_exactly():
    draws = uniform(50).float()
    assert bound_mean(draws, 0.0, 1.0) == bound_mean(draws.double(), 0.0, 1.0)


def test_a_far_range_is_rounded_outward():
    """At 1e8 + [0, 1] the unit interval has 26 bits left: they are enough, and charged for."""
    draws = uniform(200)
    there = (draws + 1e8).double()
    near = bound_mean(there - 1e8, 0.0, 1.0).value
    far = bound_mean(there, 1e8, 1e8 + 1).value - 1e8
    assert near - 1e-6 < far <= near


def test_a_generator_shuffles_what_was_sorted():
    draws = uniform(500).sort().values
    values = [bound_mean(draws, 0.0, 1.0, generator=seeded(seed)).value for seed in range(20)]
    assert max(values) < 0.52 and len(set(values)) > 1
    assert bound_mean(draws, 0.0, 1.0, generator=seeded(3)).value == values[3]
    one = bound_difference(draws, draws, 0.0, 1.0, generator=seeded(1))
    assert one.value <= 0.05


def test_groups_share_a_sample_evenly():
    means = module._group_means(torch.arange(7, dtype=torch.float64), 3)
    assert means.tolist() == [1.0, 3.5, 5.5]


@pytest.mark.parametrize("sizes", [(6, 9), (9, 6)])
@pytest.mark.parametrize("kind", ["continuous", "ties"])
def test_p_values_are_super_uniform_under_the_null(sizes, kind):
    repetitions = 1500
    scores = uniform(repetitions, sum(sizes))
    scores = (scores < 0.3).double() if kind == "ties" else scores
    generator = seeded(5)
    p = torch.tensor(
        [
            permutation_p_value(row[: sizes[0]], row[sizes[0] :], 39, generator=generator)
            for row in scores
        ]
    )
    for level in (0.025, 0.05, 0.1, 0.25, 0.5, 0.9):
        small = int((p <= level + 1e-9).sum())
        assert not too_many(small, repetitions, level)
        if kind == "continuous":  # and not idle either: 39 shuffles make these levels exact
            assert small >= stats.binom.ppf(1e-4, repetitions, level)


def test_p_value_approaches_the_enumeration_of_all_labels():
    x, y = torch.tensor([2.0, 1.5, 0.3]), torch.tensor([1.0, 0.2, 0.1, 0.4, -0.5])
    pooled = torch.cat([x, y]).tolist()
    count = sum(
        sum(pooled[i] for i in chosen) >= float(x.sum()) - 1e-9
        for chosen in itertools.combinations(range(8), 3)
    )
    p = permutation_p_value(x, y, 20000, generator=seeded())
    assert p == pytest.approx(count / math.comb(8, 3), abs=0.005)
    q = permutation_p_value(-y, -x, 20000, generator=seeded(1))
    assert q == pytest.approx(p, abs=0.007)


def test_p_value_of_equal_scores_is_one_and_of_distant_ones_the_smallest():
    same = torch.full((11,), 0.1)
    assert permutation_p_value(same, same[:7], 50, generator=seeded()) == 1
    assert permutation_p_value(same + 1, same, 199, generator=seeded()) == 1 / 200
    assert permutation_p_value(same - 1, same, 199, generator=seeded()) == 1


def test_chunks_do_not_change_the_p_value(monkeypatch):
    x, y = uniform(30), uniform(20, seed=1)
    whole = permutation_p_value(x, y, 300, generator=seeded())
    monkeypatch.setattr(resampling, "_CHUNK_ENTRIES", 500)
    assert permutation_p_value(x, y, 300, generator=seeded()) == whole


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"sample": torch.tensor([0.5, 1.5])}, ArgumentError, "must lie in [low, high]"),
        ({"sample": torch.tensor([-0.1])}, ArgumentError, "chosen before they were seen"),
        ({"sample": torch.empty(0)}, ArgumentError, "must have shape (n,) with n >= 1"),
        ({"sample": torch.zeros(2, 2)}, ArgumentError, "got shape (2, 2)"),
        ({"sample": torch.tensor([1])}, DtypeError, "must be a floating-point tensor"),
        ({"sample": torch.tensor([math.nan])}, NonFiniteError, "`sample` must be finite"),
        ({"low": 1.0, "high": 1.0}, ArgumentError, "with low < high"),
        ({"low": -math.inf}, ArgumentError, "must be finite with low < high"),
        ({"confidence": 1.0}, ArgumentError, "must lie inside (0, 1)"),
        ({"confidence": 0.0}, ArgumentError, "must lie inside (0, 1)"),
        ({"side": "both"}, ArgumentError, "`side` must be one of"),
        ({"method": "normal"}, ArgumentError, "`method` must be one of"),
    ],
)
def test_refusals_say_what_to_do(change, error, sentence):
    arguments = {"sample": torch.tensor([0.5]), "low": 0.0, "high": 1.0, **change}
    with pytest.raises(error) as caught:
        bound_mean(**arguments)
    assert sentence in str(caught.value)


def staged_lower(draws: Tensor, delta: float) -> float:
    """Two stages of scores of one law: the second critic is the sign that the first stage liked."""
    (x1, y1), (x2, y2) = draws.chunk(2, -1)
    sign = 1.0 if x1.mean() > y1.mean() else -1.0
    stages = []
    for x, y, s in ((x1, y1, 1.0), (x2, y2, sign)):
        first, second = (Scores(s * z, torch.zeros_like(z)) for z in (x, y))
        low, high = sorted((0.0, s))
        stages.append(Stage(first, second, (low, high), 1.0, (0.5, 0.5)))
    return bound_population_lower(stages, 1 - delta, "betting", seeded()).value


@pytest.mark.parametrize("law", ["rare one", "fair coin", "mixture"])
def test_stages_prove_no_difference_of_one_law_more_often_than_stated(law):
    repetitions, delta = 400, 0.2
    draws, _ = LAWS[law]((repetitions, 160))
    misses = sum(staged_lower(row.reshape(2, 80), delta) > 0 for row in draws)
    assert not too_many(misses, repetitions, delta)


def test_one_stage_is_the_difference_of_means_and_two_prove_more():
    x, y = uniform(2, 400) * 0.5
    none = torch.zeros(400, dtype=torch.float64)
    stage = Stage(Scores(x + 0.5, none), Scores(y, none), (0.0, 1.0), 1.0)
    one = bound_population_lower([stage], 0.95, "betting", seeded()).value
    plain = bound_difference(x + 0.5, y, 0.0, 1.0, generator=seeded()).value
    assert one == pytest.approx(plain, abs=1e-9)
    assert bound_population_lower([stage, stage], 0.95, "betting", seeded()).value > one
    wide = stage._replace(limits=(0.0, 4.0), lipschitz=2.0)
    assert 0 < bound_population_lower([wide], 0.95, "betting", seeded()).value < 0.25


def test_combined_p_values_are_super_uniform_whatever_the_first_decides():
    """The weight of luck: the second stage looks where the first one pointed."""
    generator, repetitions = seeded(9), 600
    found = []
    for _ in range(repetitions):
        a, b, c, d = torch.randn(4, 12, generator=generator)
        first = permutation_p_value(a, b, 39, generator=generator)
        sign = 1.0 if first < 0.5 else -1.0
        second = permutation_p_value(sign * c, sign * d, 39, generator=generator)
        found.append(resampling.combine_p_values([first, second], [24, 24]))
    for level in (0.01, 0.05, 0.2):
        assert not too_many(sum(p <= level for p in found), repetitions, level)


def test_a_diameter_from_the_data_bounds_the_variance_without_bets():
    """Its range is random, so bets in units of it would not be predictable."""
    x = uniform(300, 2)
    points = x.reshape(300, 2)
    width = 2 * float((points - points.mean(0)).norm(dim=-1).max())
    found = _bound_deviation(points, width, 0.01, seeded(), width_is_known=False) ** 2 * 300
    first, second = shuffle(points, seeded()).chunk(2)
    draws = (first - second).square().sum(-1) / 2
    oracle = bound_mean(draws, 0.0, width**2 / 2, 0.99, "upper", "bernstein").value
    assert found == pytest.approx(oracle, rel=1e-9)
    doubled = _bound_deviation(points, 2 * width, 0.01, seeded(), width_is_known=False) ** 2 * 300
    assert doubled > found  # so a range that is too wide stays valid


def test_bets_of_a_stage_do_not_depend_on_later_critics(monkeypatch):
    bets: list[torch.Tensor] = []
    real = distance_bounds.predictable_bets
    monkeypatch.setattr(
        distance_bounds, "predictable_bets", lambda *args: bets.append(real(*args)) or bets[-1]
    )
    x, y = torch.rand(2, 300, generator=seeded(0), dtype=torch.float64)
    first = Stage(Scores(x, 0 * x), Scores(y, 0 * y), (0.0, 1.0), 1.0)
    found = []
    # The critic of the second stage, trained on rows of the first, may turn out to be constant.
    for second in (first, first._replace(limits=(0.5, 0.5)), first._replace(lipschitz=0.0)):
        bets.clear()
        bound_population_lower([first, second], 0.95, "betting", seeded(1))
        found.append(bets[0])
    assert len(found[0]) > 0
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
