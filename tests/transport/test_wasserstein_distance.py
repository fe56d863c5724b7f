"""taut.wasserstein brackets known distances and says clearly what it cannot take."""

from typing import Any

import numpy as np
import ot
import pandas as pd
import pytest
import torch
from scipy import stats

import taut
from taut.errors import TautError
from taut.transport import wasserstein
from taut.transport.feature_scaling import fit_scaling

QUICK: dict[str, Any] = {"num_steps": 40, "num_permutations": 99}


def cubes(shift, n=200, dim=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.rand(2, n, dim, generator=g, dtype=torch.float64)
    return x + shift, y


def exact(x, y):
    cost: Any = ot.dist(x.numpy(), y.numpy(), metric="euclidean")
    return float(ot.emd2([], [], cost))  # type: ignore[arg-type]


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("critics", [("cones",), ("network",)])
def test_bounds_hold_for_shifted_cubes(shift, critics):
    x, y = cubes(shift)
    truth = shift * 2**0.5
    result = wasserstein(x, y, critics=critics, **QUICK)
    assert result.lower.value <= truth <= result.upper.value
    assert (result.lower.side, result.upper.side) == ("lower", "upper")
    assert result.confidence == pytest.approx(0.95)
    assert result.lipschitz.value <= 1 + 1e-12
    assert result.kind == critics[0]
    if shift:
        assert result.lower.value > 0.6 * truth
        # Two stages with the smallest p-value of 99 permutations each, at a fifth of the level.
        assert result.p_value == pytest.approx(5 * 5.16e-4, rel=1e-2)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer():
    x, y = cubes(1.0)
    first, second = (wasserstein(x, y, seed=3, **QUICK) for _ in range(2))
    assert (first.lower, first.upper, first.estimate) == (
        second.lower,
        second.upper,
        second.estimate,
    )


def test_another_default_dtype_of_torch_is_followed():
    x, y = np.random.default_rng(0).normal(size=(2, 60, 2))
    torch.set_default_dtype(torch.float64)
    try:
        found = wasserstein(x, y + 2, critics=("network",), num_steps=50)
    finally:
        torch.set_default_dtype(torch.float32)
    assert 0 < found.lower.value <= 8**0.5 <= found.upper.value


def test_a_constant_critic_proves_nothing_and_does_not_fail():
    x = torch.ones(40, 2)
    result = wasserstein(x, x, critics=("network",), **QUICK)
    assert result.lower.value == 0 <= result.upper.value


@pytest.mark.parametrize("dim", [1, 3])
def test_finite_sets_are_bracketed_around_exact_transport(dim):
    x, y = cubes(0.3, n=60, dim=dim)
    y = y[:45]
    result = wasserstein(x, y, finite=True)
    truth = exact(x, y)
    assert result.lower.value <= truth * (1 + 1e-12) and truth <= result.upper.value * (1 + 1e-12)
    assert result.gap < 1e-6 and result.confidence == 1 and result.p_value is None
    scores = result.score(x).mean() - result.score(y).mean()
    assert scores.item() == pytest.approx(truth, rel=1e-6)
    ends = str(result).partition("[")[2].partition("]")[0].split(", ")
    assert str(result).endswith("] proven")
    assert float(ends[0]) <= result.lower.value and result.upper.value <= float(ends[1])


def test_large_finite_sets_are_bracketed_by_a_critic_and_a_coupling(monkeypatch):
    monkeypatch.setattr("taut.transport.finite_comparison._MOST_PAIRS", 100)
    x, y = cubes(1.0, n=80)
    truth = exact(x, y)
    result = wasserstein(x, y, finite=True, num_steps=100)
    assert 0.7 * truth < result.lower.value <= truth <= result.upper.value * (1 + 1e-12)


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_scaling_makes_units_irrelevant(scaling: Any):
    x, y = cubes(1.0)
    units = torch.tensor([1.0, 1000.0], dtype=torch.float64)
    plain = wasserstein(x, y, scaling=scaling, critics=("cones",), **QUICK)
    scaled = wasserstein(x * units, y * units, scaling=scaling, critics=("cones",), **QUICK)
    assert scaled.estimate.value == pytest.approx(plain.estimate.value, rel=1e-3)
    assert scaled.scaling.method == scaling


@pytest.mark.parametrize("finite", [False, True])
def test_constant_columns_are_kept_and_noted(finite):
    x, y = (torch.cat([points, torch.full((200, 1), 7.0)], 1) for points in cubes(1.0))
    result = wasserstein(x, y, scaling="standard", critics=("cones",), finite=finite, **QUICK)
    assert 0 < result.lower.value <= result.upper.value
    noted = result.notes[0 if finite else 1]
    assert "constant, so they add nothing to distances: column 2 (counted" in noted


def test_data_far_from_the_origin_lose_no_digits():
    x, y = cubes(1.0)
    near = wasserstein(x, y, critics=("cones",), **QUICK)
    far = wasserstein(x + 2.0**30, y + 2.0**30, critics=("cones",), **QUICK)
    assert far.estimate.value == pytest.approx(near.estimate.value, rel=1e-4)


@pytest.mark.slow
def test_patience_ends_the_fit_before_all_steps_are_spent():
    x, y = cubes(1.0)
    told = []
    wasserstein(
        x, y, critics=("cones",), num_steps=800, on_progress=lambda *stage: told.append(stage)
    )
    fits = [(total) for stage, done, total in told if stage == "cones" and done == total]
    assert fits[:2] == [100, 100] and 800 not in fits
    assert ("transport", 1, 1) in told


def test_scores_are_those_of_the_rows_held_out():
    x, y = cubes(1.0, n=100)
    result = wasserstein(x, y, critics=("cones",), **QUICK)
    assert [len(side) for side in result.scores] == [40, 40] and result.rows == (100, 100)
    every, held = result.score(x).tolist(), result.scores[0].tolist()
    assert set(held) <= set(every) and held == [score for score in every if score in set(held)]
    assert result.scores[0].dtype == torch.float64


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_finite_sets_on_the_line_equal_scipy(shift):
    x, y = cubes(shift, n=70, dim=1)
    y = y[:50] ** 2
    truth = stats.wasserstein_distance(x[:, 0].numpy(), y[:, 0].numpy())
    result = wasserstein(x[:, 0], y, finite=True)
    assert result.lower.value <= truth + 1e-12 and truth - 1e-12 <= result.upper.value
    assert result.estimate.value == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("dim", [2, 10])
@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.slow
def test_bounds_cover_the_truth_of_gaussians_as_often_as_they_say(dim, shift):
    # Each bound may fail with probability 1/8: 12 failures of 24 have a chance below 1e-4.
    below = above = 0
    for seed in range(24):
        g = torch.Generator().manual_seed(seed)
        x, y = torch.randn(2, 60, dim, generator=g)
        x[:, 0] += shift
        result = wasserstein(
            x, y, critics=("cones",), num_steps=10, confidence=0.75, num_permutations=1, seed=seed
        )
        below += result.lower.value <= shift
        above += result.upper.value >= shift
    assert below > 12 and above > 12


def test_arrays_lists_batches_and_frames_are_one():
    x, y = cubes(1.0, n=40)
    batches = (part for part in x.split(7))
    values = {
        wasserstein(one, y.tolist(), finite=True).upper.value
        for one in (x, x.numpy(), x.tolist(), batches)
    }
    assert len(values) == 1


def test_the_estimator_is_a_plain_function_beside_its_package():
    assert taut.wasserstein([0.0, 1.0], [3.0, 4.0], finite=True).upper.value >= 3  # type: ignore[operator]
    assert taut.transport.cone(3).distance == 1


def frame(**columns):
    return pd.DataFrame(columns)


MISTAKES = [
    (lambda: wasserstein([], [1.0, 2.0]), "x: a sample must have at least two rows; got none"),
    (lambda: wasserstein([1.0], [1.0, 2.0]), "x: a sample must have at least two rows; got one"),
    (
        lambda: wasserstein([[1.0, np.nan], [1, 1]], [[1.0, 2.0], [1, 1]]),
        "1 value is missing .* row 0 .* column 1",
    ),
    (lambda: wasserstein([["a"], ["b"]], [[1.0], [2.0]]), "x: .* text"),
    (lambda: wasserstein([[1j], [2.0]], [[1.0], [2.0]]), "got complex numbers"),
    (
        lambda: wasserstein(np.ones((30, 2)), np.ones((30, 3))),
        "equally many columns; got 2 and 3",
    ),
    (
        lambda: wasserstein(np.ones((5, 2)), np.ones((30, 2))),
        "at least 20 rows .* finite=True",
    ),
    (lambda: wasserstein([1.0, 2], [1.0, 2], confidence=1.0), "`confidence` must lie inside"),
    (
        lambda: wasserstein([1.0, 2], [1.0, 2], critics=("gan",)),
        "some of 'linear', 'cones', 'network'",
    ),
    (lambda: wasserstein([1.0, 2], [1.0, 2], patience=0), "`patience` must be a whole number"),
    (lambda: wasserstein(iter(()), [1.0, 2.0]), "got none"),
    (
        lambda: wasserstein(frame(a=[1.0, 2], b=["s", "t"]), [[1.0, 2.0]] * 2),
        "got text in column 'b'",
    ),
    (lambda: wasserstein(frame(a=[1.0, 2]), frame(b=[1.0, 2])), "no 'a' in y, also 'b' in y"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes_are_answered_in_a_sentence(number):
    call, text = MISTAKES[number]
    with pytest.raises(TautError, match=text):
        call()


def test_named_columns_decide_and_their_reordering_is_noted():
    x, y = cubes(1.0, n=50)
    one = frame(a=x[:, 0], b=x[:, 1] * 3)
    two = frame(b=y[:, 1] * 3, a=y[:, 0])
    result = wasserstein(one, two, finite=True)
    plain = wasserstein(one.to_numpy(), two[["a", "b"]].to_numpy(), finite=True)
    assert result.upper.value == plain.upper.value and result.columns == ("a", "b")
    assert result.notes == ("columns of y were put into the order of x",)


@pytest.mark.parametrize("method", ["standard", "robust"])
@pytest.mark.parametrize("size", [1e200, 1e-200, 1.0])
def test_scaling_does_not_know_the_unit(method, size):
    x, _ = cubes(1.0)
    plain, _ = fit_scaling(method, x)
    scaled, notes = fit_scaling(method, x * size)
    np.testing.assert_allclose(scaled.scale, plain.scale * size, rtol=1e-12)
    np.testing.assert_allclose(scaled(x * size), plain(x), rtol=1e-9, atol=1e-9)
    assert notes == []


@pytest.mark.parametrize("method", ["standard", "robust"])
def test_what_has_no_spread_is_divided_by_one(method):
    constant, rare = torch.full((101, 1), 0.1), torch.zeros(101, 1)
    rare[7] = 5.0
    scaling, notes = fit_scaling(method, torch.cat([constant, rare], 1).double(), ["a", "b"])
    assert scaling.scale[0] == 1
    assert len(notes) == (method == "robust")
    result = wasserstein(rare, 2 * rare, scaling=method, finite=True)
    assert any("not scaled" in note for note in result.notes) == (method == "robust")


def test_what_cannot_be_centred_is_refused():
    x = torch.tensor([[1.7e308], [-1.7e308]], dtype=torch.float64)
    with pytest.raises(taut.errors.DataError, match="got column 0 .* from -1.7e"):
        fit_scaling("standard", x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cones", "network"])
@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_large_and_small_units_are_no_obstacle(kind, size):
    x, y = cubes(2.0)
    truth = size * 8**0.5
    result = wasserstein(x * size, y * size, critics=(kind,), **QUICK)
    assert 0.6 * truth < result.lower.value <= truth <= result.upper.value
    assert result.lipschitz.value <= 1 + 1e-9
    assert max(result.history) < 2 * truth


def test_values_without_finite_squares_are_refused_in_words():
    x, y = cubes(1.0)
    with pytest.raises(taut.errors.DataError, match="Divide them by a constant"):
        wasserstein(x * 1e160, y * 1e160, **QUICK)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("seed", seed) for seed in (-1, 2**63, 1.0, "0", None)),
        *(("confidence", level) for level in (0, 1, "0.9", float("nan"), 1 - 2**-53)),
        *(("diameter", width) for width in (0, -1.0, float("nan"), "2")),
        *(("num_permutations", count) for count in (0, 1.5)),
    ],
)
def test_arguments_are_checked_before_any_row_is_read(argument, value):
    def rows():
        raise AssertionError("rows were read")
        yield

    with pytest.raises(taut.errors.ArgumentError, match=f"^wasserstein: `{argument}`"):
        wasserstein(rows(), rows(), **{argument: value})


def test_numpy_seeds_are_seeds():
    x, y = cubes(1.0, n=20)
    seeds: tuple[Any, Any] = (3, np.int64(3))
    first, second = (wasserstein(x, y, seed=seed, **QUICK) for seed in seeds)
    assert first.lower == second.lower


def test_an_upper_bound_that_dimension_makes_useless_is_not_printed():
    x, y = torch.randn(2, 100, 20, generator=torch.Generator().manual_seed(0))
    loose, tight = (wasserstein(x + shift, y, critics=("linear",), **QUICK) for shift in (0, 9))
    assert loose.upper.value > 3 * loose.estimate.value and not loose.upper_is_useful
    assert any("in 20 dimensions are far apart even if" in n for n in loose.notes)
    assert "no useful upper bound" in str(loose) and f"{loose.upper.value:.4g}" not in str(loose)
    assert tight.upper_is_useful and not any("no useful" in note for note in tight.notes)
    x, y = cubes(0.0, n=1000)
    plane = wasserstein(x, y, critics=("linear",), **QUICK)
    assert plane.upper_is_useful


def test_the_bootstrap_interval_is_about_the_estimate():
    x, y = cubes(1.0, n=400)
    result = wasserstein(x, y, critics=("linear",), **QUICK)
    low, high = result.bootstrap or (0.0, 0.0)
    assert low < result.estimate.value < high < low + 0.2
    assert wasserstein(x, y, finite=True).bootstrap is None


def test_a_critic_that_has_learned_noise_is_noted():
    x, y = torch.randn(2, 300, 30, generator=torch.Generator().manual_seed(1))
    noted = "it has learned noise"
    notes = wasserstein(x, y, critics=("cones",), **QUICK).notes
    assert any(noted in n for n in notes)
    # One population: nothing shows that the distance is larger than the estimate.
    assert not any("likely larger" in n for n in notes)
    assert not any(noted in n for n in wasserstein(x + 9, y, critics=("linear",), **QUICK).notes)


@pytest.mark.slow
def test_a_small_shift_of_a_small_sample_is_proven():
    """200 rows against 2,000, 0.4 standard deviations apart in three dimensions."""
    found = 0
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        x, y = torch.randn(2000, 3, generator=g), torch.randn(200, 3, generator=g) + 0.4 / 3**0.5
        result = wasserstein(x, y, critics=("linear",), num_permutations=199, seed=seed)
        found += result.lower.value > 0 and (result.p_value or 0) <= 0.05
    assert found >= 7


def test_the_assumption_about_the_supports_comes_first():
    x, y = cubes(1.0, n=40)
    assumed, stated = (wasserstein(x, y, diameter=width, **QUICK) for width in (None, 2.0))
    assert (
        assumed.notes[0] == "the upper bound assumes that neither population is wider than the data"
    )
    assert stated.notes[0].endswith("is wider than 2, as stated")
    assert "at 95 % if neither population is wider than the data, p = " in str(assumed)
    assert "at 95 % if neither population is wider than 2, p = " in str(stated)
