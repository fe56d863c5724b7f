r"""What two samples prove about the difference of their populations' means."""

import math

import torch
from torch import Generator, Tensor

from taut.bounds import Bound
from taut.errors import check_choice
from taut.linalg import gamma, unit_roundoff
from taut.transport.confidence import (
    METHODS,
    Method,
    check_confidence,
    check_range,
    check_sample,
    less,
    log_inverse,
    lower_mean,
    shuffle,
)

__all__ = ["bound_difference"]

_U = unit_roundoff()
_MOST_GROUPS = 2**17


def bound_difference(
    x_scores: Tensor,
    y_scores: Tensor,
    low: float,
    high: float,
    confidence: float = 0.95,
    method: Method = "betting",
    generator: Generator | None = None,
) -> Bound:
    r"""A lower bound of $\mathbb{E}[x] - \mathbb{E}[y]$ from two independent bounded samples.

    For the scores of a critic of Lipschitz constant $L$, fixed before these points were seen,
    the value divided by $L$ is a lower bound of $W_1(P, Q)$.

    - `"hoeffding"`: $\hat\mu_x - \hat\mu_y - R \sqrt{\tfrac12 \ln(1/\delta)(1/n + 1/m)}$, both
      samples in one inequality.
    - `"bernstein"`: a lower bound of one mean less an upper bound of the other, at $\delta / 2$ each
      (union bound).
    - `"betting"`: the samples are cut into $k = \min(n, m, 2^{17})$ groups each, of sizes that differ by
      at most one. The $k$ differences of group means are independent, lie in $[-R, R]$ and have the
      mean sought; `bound_mean` bounds it at the whole of $\delta$. Near $\sqrt{2 \ln(1/\delta)
      (\sigma_x^2/n + \sigma_y^2/m)}$ below the observed difference, where a union bound of two such
      bounds loses up to twice that.

    The groups' means are unbiased one by one but not of one variance; the theorem of `bound_mean`
    asks for equal means only, so they may be.

    Args:
        x_scores: `(n,)`.
        y_scores: `(m,)`, independent of `x_scores`.
        low: no score can be below; clamp the critic to a range chosen on training data.
        high: no score can be above.
        confidence: inside (0, 1).
        method: "betting", "bernstein" or "hoeffding".
        generator: shuffles both samples first; see `bound_mean`.

    Returns:
        A lower `Bound`, at least `low - high`. Negative where the samples prove no difference.

    Example:
        >>> x, y = torch.ones(200), torch.zeros(200)
        >>> bound_difference(x, y, 0.0, 1.0)
        Bound(>= 0.96019, at 95 %)
    """
    subject = "bound_difference"
    check_choice(subject, "method", method, METHODS)
    delta = check_confidence(subject, confidence)
    low, high = check_range(subject, low, high)
    x = shuffle(check_sample(subject, "x_scores", x_scores, low, high), generator)
    y = shuffle(check_sample(subject, "y_scores", y_scores, low, high), generator)
    n, m = len(x), len(y)
    width = (high - low) * (1 + 2 * _U)
    if method == "hoeffding":
        slack = width * math.sqrt(log_inverse(delta) / 2 * (1 / n + 1 / m))
        value = less(math.fsum(x.tolist()) / n, math.fsum(y.tolist()) / m, slack)
    elif method == "bernstein":
        lower = lower_mean(x, low, high, delta / 2, method)
        upper = -lower_mean(-y, -high, -low, delta / 2, method)
        value = less(lower, upper)
    else:
        k = min(n, m, _MOST_GROUPS)
        # Each group mean is off by a rounding or so for every term of its sum.
        largest = max(abs(low), abs(high))
        rounding = gamma(-(-max(n, m) // k) + 4) * 2 * largest
        difference = (_group_means(x, k) - _group_means(y, k)).clamp(-width, width)
        value = less(lower_mean(difference, -width, width, delta, method), rounding)
    value = max(value, -width)
    return Bound(value, side="lower", method=f"{method} on {n} + {m} draws", confidence=confidence)


def _group_means(sample: Tensor, k: int) -> Tensor:
    """Means of `k` consecutive groups whose sizes differ by at most one."""
    n = len(sample)
    group = torch.arange(n) * k // n
    total = torch.zeros(k, dtype=torch.float64).index_add_(0, group, sample)
    return total / group.bincount(minlength=k)
