r"""Two samples, one column at a time: distances on the line, tests, gaps, means and spreads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from taut.data import ColumnEncoding, Table
from taut.transport.line_transport import line_distance

_LEAST_EXPECTED = 5.0
_TERMS = 100


@dataclass(frozen=True)
class FeatureComparison:
    """One column of two samples.

    Attributes:
        name: name of the column.
        kind: kind of its values.
        distance: Wasserstein distance between the values of the two samples, in the column's own unit;
            for categories, the share that differs times their distance. Missing values are left out.
        test: "Kolmogorov-Smirnov", or "chi-square" for categories.
        statistic: its statistic.
        p_value: its asymptotic p-value, missing values left out.
        corrected_p_value: the same, corrected for the number of columns by Holm's method.
        missing: share of missing values in each sample.
        means: means of each sample; None for categories.
        spreads: standard deviations of each sample; None for categories.
        categories: share of each category in both samples, largest first; empty for numbers.
    """

    name: str
    kind: str
    distance: float
    test: str
    statistic: float
    p_value: float
    corrected_p_value: float
    missing: tuple[float, float]
    means: tuple[float, float] | None = None
    spreads: tuple[float, float] | None = None
    categories: tuple[tuple[str, float, float], ...] = ()


def compare_features(x: Table, y: Table) -> list[FeatureComparison]:
    """Compares two tables with the same columns, column by column.

    Each test compares the distributions of one column alone. With the corrected
    p-values, the probability of calling any of the columns different at the level 0.05, where none is, is
    at most 0.05 (asymptotically, for i.i.d. rows).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = (Table(rng.normal(size=(200, 2)), ("a", "b"), None, "t") for _ in range(2))
        >>> y.values[:, 1] += 1
        >>> [round(c.distance, 1) for c in compare_features(x, y)]
        [0.1, 1.0]
    """
    comparisons = []
    if x.encoding is None:
        names = x.columns or y.columns or [f"column {j}" for j in range(x.dim)]
        for j, name in enumerate(names):
            comparisons.append(_compare_numbers(name, "number", x.values[:, j], y.values[:, j]))
    else:
        for column, group in zip(x.encoding.used, x.encoding.groups, strict=True):
            sides = x.values[:, group], y.values[:, group]
            if column.kind == "category":
                comparisons.append(_compare_categories(column, *sides))
            else:
                comparisons.append(
                    _compare_numbers(column.name, column.kind, *(s[:, 0] for s in sides))
                )
    corrected = correct_p_values([one.p_value for one in comparisons])
    return [
        replace(one, corrected_p_value=p) for one, p in zip(comparisons, corrected, strict=True)
    ]


def _compare_numbers(name: str, kind: str, x: np.ndarray, y: np.ndarray) -> FeatureComparison:
    gaps = (float(np.isnan(x).mean()), float(np.isnan(y).mean()))
    x, y = (np.asarray(side[~np.isnan(side)], np.float64) for side in (x, y))
    distance, statistic, p_value = 0.0, 0.0, 1.0
    if len(x) and len(y):
        distance = line_distance(torch.from_numpy(x), torch.from_numpy(y)).lower.value
        statistic, p_value = ks_test(x, y)
    (mean_x, std_x), (mean_y, std_y) = (
        (float(side.mean()), float(side.std())) if len(side) else (math.nan, math.nan)
        for side in (x, y)
    )
    test = ("Kolmogorov-Smirnov", statistic, p_value, p_value)
    return FeatureComparison(name, kind, distance, *test, gaps, (mean_x, mean_y), (std_x, std_y))


def _compare_categories(column: ColumnEncoding, x: np.ndarray, y: np.ndarray) -> FeatureComparison:
    cells = [np.array(column.decode(side), object) for side in (x, y)]
    gaps = [float((side == "missing").mean()) if column.missing else 0.0 for side in cells]
    if column.missing:
        cells = [side[side != "missing"] for side in cells]
    names = sorted({*cells[0], *cells[1]})
    counts = np.array([[(side == name).sum() for name in names] for side in cells], np.float64)
    sizes = counts.sum(1, keepdims=True)
    distance, statistic, p_value, shares = 0.0, 0.0, 1.0, counts
    if sizes.min() > 0:
        shares = counts / sizes
        distance = column.distance * float(np.abs(shares[0] - shares[1]).sum()) / 2
        statistic, p_value = chi_square_test(counts)
    ranked = sorted(zip(names, *shares.tolist(), strict=True), key=lambda row: -row[1] - row[2])
    test = ("chi-square", statistic, p_value, p_value, (gaps[0], gaps[1]))
    return FeatureComparison(column.name, column.kind, distance, *test, categories=tuple(ranked))


def ks_test(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    r"""The Kolmogorov-Smirnov statistic $D = \sup |F - G|$ and its asymptotic p-value.

    $$p = 2 \sum_{k \ge 1} (-1)^{k-1} e^{-2 k^2 \lambda^2}, \qquad
      \lambda = \Bigl(\sqrt{N} + 0.12 + \frac{0.11}{\sqrt N}\Bigr) D, \quad N = \frac{nm}{n + m},$$

    with Stephens' correction for small samples. Ties make it larger than it need be.
    """
    n, m = len(x), len(y)
    points = np.sort(np.concatenate([x, y]))
    shares = [np.searchsorted(np.sort(side), points, "right") / len(side) for side in (x, y)]
    statistic = float(np.abs(shares[0] - shares[1]).max())
    root = math.sqrt(n * m / (n + m))
    scaled = (root + 0.12 + 0.11 / root) * statistic
    if scaled < 0.2:  # where the p-value is 1 to twelve digits, and the series converges slowly
        return statistic, 1.0
    k = np.arange(1, _TERMS + 1)
    total = float((2 * (-1.0) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2)).sum())
    return statistic, min(1.0, max(0.0, total))


def chi_square_test(counts: np.ndarray) -> tuple[float, float]:
    """The chi-square statistic of a table of counts, `(2, categories)`, and its p-value.

    Categories that are expected fewer than 5 times in a sample are pooled, for the p-value is asymptotic.
    """
    sizes = counts.sum(1, keepdims=True)
    expected = sizes * counts.sum(0) / counts.sum()
    rare = expected.min(0) < _LEAST_EXPECTED
    if rare.any():
        counts, expected = (
            np.concatenate([side[:, ~rare], side[:, rare].sum(1, keepdims=True)], 1)
            for side in (counts, expected)
        )
        some = expected.min(0) > 0
        counts, expected = counts[:, some], expected[:, some]
    freedom = counts.shape[1] - 1
    if freedom < 1:
        return 0.0, 1.0
    statistic = float(((counts - expected) ** 2 / expected).sum())
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return statistic, float(torch.special.gammaincc(half[0], half[1]))


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: holds for any dependence between the tests (Holm 1979).

    The k-th smallest of n is multiplied by n + 1 - k; none is below one with a smaller p-value.
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, np.float64)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, scaled))
    return corrected.tolist()
