r"""An exact permutation test of whether two samples have one distribution."""

import torch
from torch import Generator, Tensor

from taut.errors import ArgumentError, check_count
from taut.transport.mean_bounds import shuffle
from taut.transport.resampling import average_blocks, permuted_sums

# Rows of a side, fewer where they are long, and blocks of rows that are permuted.
_MOST_ROWS = 2**13
_FEWEST_ROWS = 2**9
_MOST_CELLS = 2**21
_MOST_BLOCKS = 2**10
# More columns than this have too many pairs, or too large a covariance, for a test of milliseconds.
_MOST_PAIRED = 24
_MOST_WHITENED = 256
_FREQUENCIES = 128
# Weights of the statistics: a shift of one column is the most common change.
_WEIGHTS = {"location": 2.0}  # 1 for the others
# Statistics that differ by less than this share of the largest one are ties.
_TIE = 1e-9


def two_sample_p_value(
    x: Tensor, y: Tensor, num_permutations: int = 999, *, generator: Generator
) -> float:
    r"""A valid p-value for "both samples have one distribution", at every sample size.

    The columns of the pooled sample become normal scores $s$ (ranks through the inverse of the normal
    distribution function), so outliers and units do not matter, and these become features. Six
    statistics are made of the differences between the mean features of the samples, squared, with
    features of variance 1:

    - *location*: the largest of the columns, $s$;
    - *direction*: Hotelling's statistic, the sum over whitened columns;
    - *spread*: the largest of the columns, $s^2$;
    - *shape*: the largest sum of $s^3$ and $s^4$, after projecting out location and spread;
    - *kernel*: the sum over 128 random cosines and sines of all columns, whose expectation is the maximum
      mean discrepancy of a Gaussian kernel;
    - *pairs*: the largest of the products of two columns, of up to 24.

    **Theorem.** Let $S_k(b)$ be the $k$-th statistic after the rows were relabelled for the $b$-th time, at
    random, with $b = 0$ for the labels as they are. With
    $r_k(b) = \#\{c : S_k(c) \ge S_k(b)\}$, fixed weights $w_k$ and $T(b) = \min_k r_k(b) / w_k$,

    $$p = \frac{\#\{b : T(b) \le T(0)\}}{1 + B}$$

    satisfies $\Pr(p \le \alpha) \le \alpha$ under one distribution.

    *Proof.* Given the set of pooled rows, the labels are then uniform among all labels with as many
    rows of each sample, as those drawn at random are, and independent of them. Features depend on the
    set alone. So $T(0), \dots, T(B)$ are exchangeable, and the rank of one among them, ties counted
    against it, is at least uniform. $\square$

    The error probability is not divided among the statistics, so dependent ones cost little. Several
    relabellings have $T(b) = 1$; equal $T$ are ordered by the largest $S_k(b)$ in standard deviations over
    all $b$, which is exchangeable just as well.

    Args:
        x: `(n, dim)`, independent draws of P, in which NaN is a missing number.
        y: `(m, dim)`, independent draws of Q.
        num_permutations: `B`; the smallest p that can come out is `1 / (B + 1)`.
        generator: source of all random draws, on the CPU. At most 8,192 rows of each sample are used,
            fewer where they are long, and averaged in up to 1,024 blocks, which are permuted.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x, y = torch.randn(2, 100, 3, generator=seeded, dtype=torch.float64)
        >>> two_sample_p_value(x, y + 1, 99, generator=seeded)
        0.01
    """
    check_count("two_sample_p_value", "num_permutations", num_permutations)
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1] or 0 in (*x.shape, *y.shape):
        got = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ArgumentError("two_sample_p_value", "x", "and `y` must have shapes (n, dim)", got)
    most = min(_MOST_ROWS, max(_FEWEST_ROWS, _MOST_CELLS // x.shape[1]))
    x, y = (shuffle(side, generator)[:most].double() for side in (x, y))
    groups = _features(torch.cat([x, y]), generator)
    features = torch.cat([group.flatten(1) for group in groups.values()], 1)
    blocks = average_blocks(features[: len(x)], features[len(x) :], _MOST_BLOCKS, generator)
    sums = permuted_sums(torch.cat(blocks), len(blocks[0]), num_permutations, generator)
    order = torch.full((len(sums),), float("inf"), dtype=torch.float64)
    excess = torch.zeros_like(order)
    parts = sums.square().split([group[0].numel() for group in groups.values()], 1)
    for (name, group), part in zip(groups.items(), parts, strict=True):
        statistic = part.view(len(sums), *group.shape[1:]).sum(-1).amax(-1)
        least = statistic - _TIE * statistic.max()
        ranks = len(sums) - torch.searchsorted(statistic.sort().values, least)
        order = torch.minimum(order, ranks / _WEIGHTS.get(name, 1.0))
        spread = statistic.std(correction=0).clamp_min(1e-300)
        excess = torch.maximum(excess, (statistic - statistic.mean()) / spread)
    # Quotients of ranks and weights are half a unit apart or equal.
    order = order - 0.4 * excess / excess.max().clamp_min(1.0)
    return int((order <= order[0] + _TIE).sum()) / len(sums)


def _features(points: Tensor, generator: Generator) -> dict[str, Tensor]:
    """Features of each statistic, `(n, groups, members)`: it is the largest sum of squares of a group."""
    n, dim = points.shape
    score = _standardise(_normal_scores(points))
    spread = _standardise(score.square(), score)
    third = _standardise(score.pow(3), score, spread)
    fourth = _standardise(score.pow(4), score, spread, third)
    towards = torch.randn(dim, _FREQUENCIES, generator=generator, dtype=torch.float64)
    angles = score @ towards / dim**0.5
    whitened = score
    if dim <= _MOST_WHITENED:
        values, vectors = torch.linalg.eigh(score.T @ score / n)
        # A ridge of the size of the sampling error of the covariance.
        ridge = values.mean() * dim / n
        whitened = score @ vectors / (values + ridge).clamp_min(1e-12).sqrt()
    features = {
        "location": score.unsqueeze(-1),
        "direction": whitened.unsqueeze(1),
        "spread": spread.unsqueeze(-1),
        "shape": torch.stack([third, fourth], -1),
        "kernel": torch.cat([angles.cos(), angles.sin()], 1).unsqueeze(1),
    }
    if 1 < dim <= _MOST_PAIRED:
        i, j = torch.triu_indices(dim, dim, 1)
        features["pairs"] = _standardise(score[:, i] * score[:, j]).unsqueeze(-1)
    return features


def _normal_scores(points: Tensor) -> Tensor:
    """Quantiles of the normal distribution at the ranks of each column; 0 for missing numbers."""
    gaps = points.isnan()
    columns = points.masked_fill(gaps, float("inf")).T.contiguous()
    ascending = columns.sort(1).values
    # Equal numbers have equal ranks, in the middle of theirs.
    below, upto = (torch.searchsorted(ascending, columns, right=end) for end in (False, True))
    shares = (below + upto).T / (2.0 * (~gaps).sum(0).clamp_min(1))
    return torch.special.ndtri(shares.double().masked_fill(gaps, 0.5))


def _standardise(features: Tensor, *others: Tensor) -> Tensor:
    """Features of mean 0 and variance 1 without their components along `others`; 0 if nothing is left."""
    before = features = features - features.mean(0)
    for other in others:
        features = features - (features * other).mean(0) * other
    deviation = features.std(0, correction=0)
    rest = deviation > 1e-6 * before.std(0, correction=0)
    return torch.where(rest, features / deviation.clamp_min(1e-300), 0.0)
