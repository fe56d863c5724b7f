"""taut.wasserstein brackets known distances and says clearly what it cannot take."""

from typing import Any

import numpy as np
import ot
import pytest
import torch

import taut
from taut.errors import ArgumentError
from taut.wasserstein import wasserstein

QUICK: dict[str, Any] = {"num_steps": 40, "num_permutations": 99}


def cubes(shift, n=200, dim=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.rand(2, n, dim, generator=g, dtype=torch.float64)
    return x + shift, y


def exact(x, y):
    cost: Any = ot.dist(x.numpy(), y.numpy(), metric="euclidean")
    return float(ot.emd2([], [], cost))  # type: ignore[arg-type]


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("kinds", [("cones",), ("network",)])
def test_bounds_hold_for_shifted_cubes(shift, kinds):
    x, y = cubes(shift)
    truth = shift * 2**0.5
    result = wasserstein(x, y, kinds=kinds, **QUICK)
    assert result.lower.value <= truth <= result.upper.value
    assert (result.lower.side, result.upper.side) == ("lower", "upper")
    assert result.confidence == pytest.approx(0.95)
    assert result.lipschitz.value <= 1 + 1e-12
    assert result.kind == kinds[0]
    if shift:
        assert result.lower.value > 0.6 * truth
        assert result.p_value == 0.01


def test_the_same_seed_gives_the_same_answer():
    x, y = cubes(1.0)
    first, second = (wasserstein(x, y, seed=3, **QUICK) for _ in range(2))
    assert (first.lower, first.upper, first.estimate) == (
        second.lower,
        second.upper,
        second.estimate,
    )


def test_a_constant_critic_proves_nothing_and_does_not_fail():
    x = torch.ones(40, 2)
    result = wasserstein(x, x, kinds=("network",), **QUICK)
    assert result.lower.value == 0 <= result.upper.value


@pytest.mark.parametrize("dim", [1, 3])
def test_finite_sets_are_bracketed_around_exact_transport(dim):
    x, y = cubes(0.3, n=60, dim=dim)
    y = y[:45]
    result = wasserstein(x, y, population=False)
    truth = exact(x, y)
    assert result.lower.value <= truth * (1 + 1e-12) and truth <= result.upper.value * (1 + 1e-12)
    assert result.gap < 1e-6 and result.confidence == 1 and result.p_value is None
    scores = result.score(x).mean() - result.score(y).mean()
    assert scores.item() == pytest.approx(truth, rel=1e-6)
    assert "proven" in str(result)


def test_large_finite_sets_are_bracketed_by_a_critic_and_a_coupling(monkeypatch):
    monkeypatch.setattr("taut.wasserstein.estimator._MOST_PAIRS", 100)
    x, y = cubes(1.0, n=80)
    truth = exact(x, y)
    result = wasserstein(x, y, population=False, num_steps=100)
    assert 0.7 * truth < result.lower.value <= truth <= result.upper.value * (1 + 1e-12)


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_scaling_makes_units_irrelevant(scaling: Any):
    x, y = cubes(1.0)
    units = torch.tensor([1.0, 1000.0], dtype=torch.float64)
    plain = wasserstein(x, y, scaling=scaling, kinds=("cones",), **QUICK)
    scaled = wasserstein(x * units, y * units, scaling=scaling, kinds=("cones",), **QUICK)
    assert scaled.estimate.value == pytest.approx(plain.estimate.value, rel=1e-3)
    assert scaled.scaling.method == scaling


def test_constant_columns_do_no_harm():
    x, y = (torch.cat([points, torch.full((200, 1), 7.0)], 1) for points in cubes(1.0))
    result = wasserstein(x, y, scaling="standard", kinds=("network",), **QUICK)
    assert 0 < result.lower.value < result.upper.value


def test_arrays_lists_batches_and_frames_are_one():
    x, y = cubes(1.0, n=40)
    batches = (part for part in x.split(7))
    values = {
        wasserstein(one, y.tolist(), population=False).upper.value
        for one in (x, x.numpy(), x.tolist(), batches)
    }
    assert len(values) == 1


def test_the_module_can_be_called_and_still_holds_its_problems():
    assert taut.wasserstein([0.0, 1.0], [3.0, 4.0], population=False).upper.value >= 3  # type: ignore[operator]
    assert taut.wasserstein.cone(3).distance == 1


class Frame(dict):
    """As much of a data frame as is needed to have columns."""

    @property
    def columns(self):
        return list(self)

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(column) for column in self.values()], 1)


MISTAKES = [
    (lambda: wasserstein([], [1.0]), "`x` must not be empty"),
    (lambda: wasserstein([[1.0, np.nan]], [[1.0, 2.0]]), "1 missing .* row 0, column 1"),
    (lambda: wasserstein([["a"]], [[1.0]]), "`x` must hold numbers"),
    (lambda: wasserstein([[1j]], [[1.0]]), "must be real"),
    (
        lambda: wasserstein(np.ones((30, 2)), np.ones((30, 3))),
        "same number of features; got 2 and 3",
    ),
    (
        lambda: wasserstein(np.ones((5, 2)), np.ones((30, 2))),
        "at least 20 rows .* population=False",
    ),
    (lambda: wasserstein([1.0], [1.0], confidence=1.0), "strictly between 0 and 1"),
    (lambda: wasserstein([1.0], [1.0], kinds=("gan",)), "some of 'cones', 'network'"),
    (lambda: wasserstein(iter(()), [1.0]), "got no batches"),
    (lambda: wasserstein(Frame(a=[1.0], b=["t"]), [[1.0, 2.0]]), "in the columns 'b'"),
    (
        lambda: wasserstein(Frame(a=[1.0]), Frame(b=[1.0])),
        r"only in x: \['a'\], only in y: \['b'\]",
    ),
]


@pytest.mark.parametrize(("call", "text"), MISTAKES)
def test_mistakes_are_answered_in_a_sentence(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()
