r"""Permutation p-values, which are exact, and bootstrap intervals, which are estimates."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Generator, Tensor

from taut.errors import check_count
from taut.linalg import gamma
from taut.transport.arguments import check_sample
from taut.transport.mean_bounds import shuffle

_CHUNK_ENTRIES = 2**22
_MOST_BLOCKS = 2**12
_BOOTSTRAP_BLOCKS = 2**12
_BOOTSTRAPS = 999


def permutation_p_value(
    x_scores: Tensor, y_scores: Tensor, num_permutations: int = 999, *, generator: Generator
) -> float:
    r"""A valid p-value for "both samples are of one law" against a larger mean of `x_scores`.

    $$p = \frac{1 + \#\{b : T_b \ge T\}}{1 + B}$$

    with $T$ the difference of means and $T_b$ the same after the labels were shuffled. If the
    $n + m$ scores are exchangeable (so under one law, with a scoring function fixed beforehand),
    then $T, T_1, \dots, T_B$ are exchangeable too, the rank of $T$ among them is at least uniform,
    and $\Pr(p \le \alpha) \le \alpha$ for every $\alpha$, at any sample size. The 1 counts $T$
    itself; without it p could be 0, which no number of shuffles proves. A tie counts against the
    difference, and so does what rounding cannot tell from a tie.

    More than 4,096 scores on a side are shuffled and averaged in blocks of one size, and the means
    permuted: under one law these are exchangeable like the scores, so the p-value is as valid, with
    nearly the same power, in time that no longer grows with $B (n + m)$.

    Args:
        x_scores: `(n,)`.
        y_scores: `(m,)`.
        num_permutations: `B`; the smallest p that can come out is `1 / (B + 1)`.
        generator: source of the shuffles, on the CPU.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> permutation_p_value(torch.ones(20), torch.zeros(20), 99, generator=seeded)
        0.01
    """
    subject = "permutation_p_value"
    check_count(subject, "num_permutations", num_permutations)
    x = check_sample(subject, "x_scores", x_scores)
    y = check_sample(subject, "y_scores", y_scores)
    blocks = average_blocks(x.unsqueeze(1), y.unsqueeze(1), _MOST_BLOCKS, generator)
    scores = torch.cat(blocks)
    sums = permuted_sums(scores, len(blocks[0]), num_permutations, generator).flatten()
    tie = 4 * gamma(len(scores)) * float(scores.abs().sum())
    return int((sums >= sums[0] - tie).sum()) / len(sums)


def permuted_sums(features: Tensor, first: int, count: int, generator: Generator) -> Tensor:
    """Sums of centred features over the first rows, as they are and after `count` random relabellings.

    Given the sizes and the total, the sum over one sample determines the difference of means. Features
    `(n, k)` give sums `(1 + count, k)`.
    """
    features = features - features.mean(0)
    # The smaller group is cheaper to draw; the sums over the two are opposite.
    smaller = min(first, len(features) - first)
    own = features[:first] if smaller == first else features[first:]
    sums = [own.sum(0, keepdim=True)]
    chunk = max(1, _CHUNK_ENTRIES // len(features))
    for done in range(0, count, chunk):
        keys = torch.rand(
            min(chunk, count - done), len(features), generator=generator, dtype=torch.float64
        )
        indices = keys.topk(smaller, sorted=False).indices
        sums.append(keys.zero_().scatter_(1, indices, 1.0) @ features)
    return torch.cat(sums) if smaller == first else -torch.cat(sums)


def combine_p_values(p_values: Sequence[float], weights: Sequence[float]) -> float:
    r"""One p-value of stages, each valid given the ones before it (Stouffer et al. 1949).

    $$p = 1 - \Phi\Bigl(\sum_k \sqrt{w_k}\, \Phi^{-1}(1 - p_k) \Big/ \sqrt{\textstyle\sum_k w_k}\Bigr)$$

    *Proof.* Given the stages before, $\Pr(p_k \le \alpha) \le \alpha$, so $\Phi^{-1}(1 - p_k)$ is
    stochastically at most standard normal. By induction the sum is at most a sum of independent normals,
    and $p$ at least uniform. The scoring function of a stage may depend on all earlier stages: given
    these it is fixed, and the scores of the stage are exchangeable under the null hypothesis. $\square$

    The weights are positive and chosen beforehand, such as numbers of rows.
    """
    if len(p_values) == 1:
        return p_values[0]
    if max(p_values) == 1:
        return 1.0
    normal = NormalDist()
    total = sum(math.sqrt(w) * normal.inv_cdf(p) for w, p in zip(weights, p_values, strict=True))
    # Rounded up: the last digits of the normal distribution are not to be relied on.
    return min(1.0, normal.cdf(total / math.sqrt(sum(weights))) * (1 + 1e-9))


def bootstrap_interval(
    x_scores: Tensor, y_scores: Tensor, level: float = 0.95, *, generator: Generator
) -> tuple[float, float]:
    r"""The percentile bootstrap interval of a difference of means: an estimate, not a bound.

    Rows are resampled 999 times, in up to 4,096 blocks a side. In large samples the mean difference of
    the populations' scores lies inside with a probability near `level`; nothing is proven about it.
    """
    means = []
    for side in (x_scores, y_scores):
        size = -(-len(side) // _BOOTSTRAP_BLOCKS)
        blocks = _block_means(side.double(), size, _BOOTSTRAP_BLOCKS, generator)
        drawn = torch.randint(len(blocks), (_BOOTSTRAPS, len(blocks)), generator=generator)
        means.append(blocks[drawn].mean(1))
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(means[0] - means[1], ends).tolist()
    return low, high


def average_blocks(x: Tensor, y: Tensor, most: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Averages both samples in blocks of one size: at most `most` each, at least 64 if possible.

    Samples of at most `most` rows each are returned unchanged.
    """
    n, m = len(x), len(y)
    size = max(1, min(-(-max(n, m) // most), min(n, m) // 64))
    return _block_means(x, size, most, generator), _block_means(y, size, most, generator)


def _block_means(sample: Tensor, size: int, most: int, generator: Generator) -> Tensor:
    """Means of at most `most` blocks of `size` shuffled rows; the remaining rows are dropped."""
    if size == 1 and len(sample) <= most:
        return sample
    blocks = min(len(sample) // size, most)
    return shuffle(sample, generator)[: blocks * size].unflatten(0, (blocks, size)).mean(1)
