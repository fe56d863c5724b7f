"""The exact test of all rows: its level, what it finds, and an independent count of the statistic."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from taut.errors import ArgumentError
from taut.transport import two_sample_p_value
from taut.transport.resampling import average_blocks, permuted_sums
from taut.transport.two_sample_test import _normal_scores


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def p_value(x: np.ndarray, y: np.ndarray, count: int = 99, seed: int = 0) -> float:
    return two_sample_p_value(torch.tensor(x), torch.tensor(y), count, generator=seeded(seed))


def null(law: str, rng: np.random.Generator, n: int) -> np.ndarray:
    match law:
        case "normal":
            return rng.normal(size=(n, 4))
        case "line":
            return rng.exponential(size=(n, 1))
        case "wide":
            return rng.normal(size=(n, 30)).cumsum(1)
        case "atoms":
            return rng.integers(0, 2, (n, 2)).astype(float)
    mixed = np.column_stack([rng.standard_t(1.5, n), rng.normal(size=n), rng.random(n) < 0.1])
    mixed[rng.random(n) < 0.2, 1] = np.nan
    return mixed


@pytest.mark.parametrize("law", ["normal", "line", "wide", "atoms", "mixed"])
def test_one_distribution_is_called_two_as_rarely_as_stated(law):
    rng = np.random.default_rng(1)
    found = [p_value(null(law, rng, 40), null(law, rng, 25), 39, seed) for seed in range(200)]
    for level in (0.05, 0.25):
        assert np.sum(np.array(found) <= level) <= stats.binom.isf(1e-4, 200, level)


CHANGES = {
    "one column": lambda z, rng: z + np.array([0.6, 0, 0, 0]),
    "all columns": lambda z, rng: z + 0.3,
    "spread": lambda z, rng: z * [1.8, 1, 1, 1],
    "two columns together": lambda z, rng: np.column_stack(
        [z[:, 0], z[:, 0] + 0.5 * z[:, 1], z[:, 2:]]
    ),
    "two heaps": lambda z, rng: np.column_stack([np.sign(z[:, 0]) + 0.2 * z[:, 1], z[:, 1:]]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_found_and_the_order_of_the_samples_does_not_matter(name):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(300, 4)), CHANGES[name](rng.normal(size=(200, 4)), rng)
    if name == "two columns together":
        y[:, 1] /= np.sqrt(1.25)
    if name == "two heaps":
        y[:, 0] /= y[:, 0].std()
    # A relabelling of the largest difference in location comes first: it has twice the weight.
    assert max(p_value(x, y), p_value(y, x)) <= 0.02


def test_scores_are_those_of_ranks():
    x = np.array([[3.0, 1.0], [1.0, np.nan], [2.0, 1.0], [3.0, 5.0]])
    scores = _normal_scores(torch.tensor(x)).numpy()
    expected = stats.norm.ppf((stats.rankdata(x[:, 0]) - 0.5) / 4)
    assert scores[:, 0] == pytest.approx(expected)
    assert scores[1, 1] == 0
    assert scores[[0, 2, 3], 1] == pytest.approx(stats.norm.ppf([1 / 3, 1 / 3, 5 / 6]))


def test_permuted_sums_are_those_of_subsets():
    features = torch.randn(6, 2, generator=seeded(), dtype=torch.float64)
    centred = features - features.mean(0)
    for first in (2, 4):
        sums = permuted_sums(features, first, 500, seeded(1))
        assert torch.allclose(sums[0], centred[:first].sum(0))
        subsets = [centred[list(s)].sum(0) for s in itertools.combinations(range(6), first)]
        apart = (sums[:, None] - torch.stack(subsets)).norm(dim=-1)
        assert apart.amin(1).max() < 1e-12
        # 15 subsets, each as likely as the others.
        assert stats.chisquare(apart.argmin(1)[1:].bincount(minlength=15)).pvalue > 1e-4


def test_long_samples_are_averaged_in_blocks_of_one_size():
    x, y = torch.arange(5000.0)[:, None], torch.arange(200.0)[:, None]
    blocks = average_blocks(x, y, 1000, seeded())
    assert [len(side) for side in blocks] == [1000, 66]
    assert average_blocks(x[:100], y, 1000, seeded())[0] is not None
    rng = np.random.default_rng(3)
    big = rng.normal(size=(20_000, 2))
    assert p_value(big, rng.normal([0.2, 0], 1, (9000, 2)), 19) == 0.05


def test_wrong_shapes_are_refused():
    with pytest.raises(ArgumentError, match="must have shapes"):
        p_value(np.zeros((3, 2)), np.zeros((3, 1)))
