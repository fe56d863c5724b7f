r"""Confidence bounds of population means, valid at every sample size.

Every bound here is for a confidence `1 - δ` chosen beforehand and needs no more than this: the
sample was drawn independently from one law, all of it inside `[low, high]`, and neither the range
nor the scoring function was chosen by looking at it. Nothing is asymptotic. Values in float64 are
rounded outward: the number returned is itself on the stated side, not merely close to one that is.
"""

import math
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from taut.bounds import Bound
from taut.errors import check_choice
from taut.linalg import gamma, unit_roundoff
from taut.transport.arguments import check_confidence, check_range, check_sample

Method = Literal["betting", "bernstein", "hoeffding"]
METHODS: tuple[Method, ...] = get_args(Method)
Side = Literal["lower", "upper"]

_U = unit_roundoff()
_LARGEST_STAKE = 0.75  # of the wealth, at one draw: log(1 - stake) stays finite
_CHUNK_ENTRIES = 2**22
_MOST_GROUPS = 2**17


def bound_mean(
    sample: Tensor,
    low: float,
    high: float,
    confidence: float = 0.95,
    side: Side = "lower",
    method: Method = "betting",
    generator: Generator | None = None,
) -> Bound:
    r"""A bound of the population mean on one side, from a sample of bounded independent draws.

    With $R$ = `high - low`, $\delta$ = `1 - confidence`, $n$ draws of mean $\hat\mu$ and unbiased
    variance $V$, the lower bound is

    - `"hoeffding"`: $\hat\mu - R \sqrt{\ln(1/\delta) / 2n}$;
    - `"bernstein"`: $\hat\mu - \sqrt{2 V \ln(2/\delta) / n} - 7 R \ln(2/\delta) / 3(n - 1)$
      (Maurer and Pontil 2009);
    - `"betting"`: the largest mean that is rejected by betting on larger draws (Waudby-Smith and
      Ramdas 2024). The tightest of the three, nearly always by far.

    **Theorem** (betting). Let $z_i \in [0, 1]$ be the draws moved to the unit interval, $\mu$ their
    mean, and $\lambda_i \ge 0$ any function of $z_1, \dots, z_{i-1}$. For a candidate mean $m$ let

    $$K_t(m) = \prod_{i \le t} \bigl(1 + \min(\lambda_i, c/m)\,(z_i - m)\bigr), \qquad c = 3/4.$$

    Then $\mu \ge \sup \{m : \max_{t \le n} K_t(m) \ge 1/\delta\}$ with probability at least
    $1 - \delta$.

    *Proof.* Each factor of $K_t(\mu)$ is at least $1 - c > 0$; its expectation given the past is 1,
    for the bet depends on the past alone. So $K_t(\mu)$ is a non-negative martingale that starts at
    1, and Ville's inequality gives $\Pr(\max_t K_t(\mu) \ge 1/\delta) \le \delta$. Outside of that
    event $\mu$ is not in the set. Each factor falls with $m$: its slope is $-\lambda_i$ where
    $\lambda_i \le c/m$, and beyond that it is $1 - c + c z_i / m$. So $\max_t K_t$ falls too, the set
    is an interval from 0, and $\mu$ lies above all of it. $\square$

    The bets are $\lambda_i = \sqrt{2 \ln(1/\delta) / (n \hat\sigma_{i-1}^2)}$, the best ones for a
    known variance, with the variance of the past in its place. They decide how tight the bound is,
    never whether it holds.

    Args:
        sample: `(n,)`, any floating-point dtype. Its order must not depend on its values: a sorted
            sample breaks the betting bound. `generator` shuffles it.
        low: lower end of the range of a draw.
        high: upper end of the range of a draw.
        confidence: confidence level, inside (0, 1).
        side: "lower" (mean >= value) or "upper" (mean <= value).
        method: "betting", "bernstein" or "hoeffding".
        generator: source of the shuffle; None takes the sample in the order given.

    Returns:
        A `Bound` inside `[low, high]`; the trivial one where the sample proves nothing.

    Example:
        >>> bound_mean(torch.full((100,), 0.5), 0.0, 1.0, method="hoeffding")
        Bound(>= 0.37761, at 95 %)
        >>> bound_mean(torch.full((100,), 0.5), 0.0, 1.0)
        Bound(>= 0.47994, at 95 %)
    """
    subject = "bound_mean"
    check_choice(subject, "side", side, ("lower", "upper"))
    check_choice(subject, "method", method, METHODS)
    delta = check_confidence(subject, confidence)
    low, high = check_range(subject, low, high)
    draws = shuffle(check_sample(subject, "sample", sample, low, high), generator)
    # Negation is exact, so one side is enough.
    if side == "lower":
        value = lower_mean(draws, low, high, delta, method)
    else:
        value = -lower_mean(-draws, -high, -low, delta, method)
    return Bound(value, side=side, method=f"{method} on {len(draws)} draws", confidence=confidence)


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
        low: lower end of the range, to which the critic is clamped; chosen on training data.
        high: upper end of the range.
        confidence: confidence level, inside (0, 1).
        method: "betting", "bernstein" or "hoeffding".
        generator: source of the shuffles of both samples; see `bound_mean`.

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
        value = _subtract_down(math.fsum(x.tolist()) / n, math.fsum(y.tolist()) / m, slack)
    elif method == "bernstein":
        lower = lower_mean(x, low, high, delta / 2, method)
        upper = -lower_mean(-y, -high, -low, delta / 2, method)
        value = _subtract_down(lower, upper)
    else:
        difference, rounding = group_differences(x, y, low, high)
        value = _subtract_down(lower_mean(difference, -width, width, delta, method), rounding)
    value = max(value, -width)
    return Bound(value, side="lower", method=f"{method} on {n} + {m} draws", confidence=confidence)


def lower_mean(draws: Tensor, low: float, high: float, delta: float, method: str) -> float:
    """The lower bound of `bound_mean` at the error probability `delta`."""
    n, width = len(draws), (high - low) * (1 + 2 * _U)
    if method == "betting":
        # Rounding to nearest is monotone, so the quotients stay in [0, 1]; each is off by 3u.
        unit = (draws - low) / (high - low)
        fraction = max(0.0, float(lower_by_betting(unit, delta)) - 4 * _U)
        return max(low, _subtract_down(low + fraction * (high - low), 4 * _U * width))
    mean = math.fsum(draws.tolist()) / n
    if method == "hoeffding":
        return max(low, _subtract_down(mean, width * math.sqrt(log_inverse(delta) / (2 * n))))
    if n == 1:
        return low
    # About any centre but the mean the sum of squares is larger: rounding the mean errs upward.
    squares = float((draws - mean).square().sum()) * (1 + 2 * gamma(n + 8)) + n * 2.0**-1000
    log = log_inverse(delta / 2)
    spread = math.sqrt(2 * squares / (n - 1) * log / n)
    return max(low, _subtract_down(mean, spread, 7 * width * log / (3 * (n - 1))))


def lower_by_betting(
    unit: Tensor, delta: float, bets: Tensor | None = None, floor: Tensor | None = None
) -> Tensor:
    """The bound of `bound_mean` for draws in the unit interval: `(..., n)` to `(...)`.

    With `floor`, `(n,)` and at most 0, each draw has its own range `[floor, 1]`.
    """
    n = unit.shape[-1]
    goal = log_inverse(delta)
    bets = predictable_bets(unit, goal, n) if bets is None else bets
    floor = torch.zeros(1, dtype=torch.float64) if floor is None else floor
    # Bisection into many parts: small samples are bound by the number of calls, not by their size.
    parts = min(64, max(2, _CHUNK_ENTRIES // 16 // unit.numel()))
    step = torch.arange(1, parts, dtype=torch.float64)
    unit, bets = unit.unsqueeze(-2), bets.unsqueeze(-2)
    rejected = torch.zeros(unit.shape[:-2], dtype=torch.float64)
    width = 1.0
    while width > 2.0**-44:
        width /= parts
        mean = (rejected.unsqueeze(-1) + width * step).unsqueeze(-1)
        logs = torch.log1p(torch.minimum(bets, _LARGEST_STAKE / (mean - floor)) * (unit - mean))
        # Five roundings inside log1p, whose slope times its argument is at most c / (1 - c) = 3;
        # then those of log1p itself and of the sum.
        error = 16 * n * _U + gamma(n + 8) * logs.abs().sum(-1)
        richest = logs.cumsum_(-1).amax(-1)
        # Only a candidate that was itself rejected becomes the bound, so it is never too large.
        rejected = torch.where(richest >= goal + error, mean.squeeze(-1), rejected[..., None]).amax(
            -1
        )
    return rejected


def predictable_bets(
    unit: Tensor, goal: float, rounds: int, mean: float = 0.5, variance: float = 0.25
) -> Tensor:
    """Bets `(..., n)` on draws in the unit interval; each is computed from the draws before it.

    `goal` is the logarithm of the wealth to reach, `rounds` the number of draws that there will be in
    all, `mean` and `variance` are those of one imagined draw that comes first, by default the widest.
    """
    n = unit.shape[-1]
    count = torch.arange(2, n + 2, dtype=torch.float64)
    means = (mean + unit.cumsum(-1)) / count
    variances = (variance + (unit - means).square_().cumsum_(-1)) / count
    before = torch.cat([torch.full_like(variances[..., :1], variance), variances[..., :-1]], -1)
    return (2 * goal / rounds / before).sqrt_()


def _subtract_down(first: float, *others: float) -> float:
    """`first` minus the others, below the exact result even if each is off by 16 roundings."""
    total = abs(first) + sum(map(abs, others))
    return math.nextafter(first - sum(others) - 32 * _U * total, -math.inf)


def log_inverse(delta: float) -> float:
    """`log(1 / delta)`, rounded up."""
    return -math.log(delta) + 4 * _U * abs(math.log(delta))


def shuffle(sample: Tensor, generator: Generator | None) -> Tensor:
    """Shuffles the draws; without a generator, returns them in the given order."""
    return sample if generator is None else sample[torch.randperm(len(sample), generator=generator)]


def group_differences(x: Tensor, y: Tensor, low: float, high: float) -> tuple[Tensor, float]:
    """Differences of the means of `min(n, m)` groups of each, and a bound of their rounding errors."""
    k = min(len(x), len(y), _MOST_GROUPS)
    # Each group mean is off by a rounding or so for every term of its sum.
    rounding = gamma(-(-max(len(x), len(y)) // k) + 4) * 2 * max(abs(low), abs(high))
    width = (high - low) * (1 + 2 * _U)
    return (_group_means(x, k) - _group_means(y, k)).clamp(-width, width), rounding


def _group_means(sample: Tensor, k: int) -> Tensor:
    """Means of `k` consecutive groups whose sizes differ by at most one."""
    n = len(sample)
    group = torch.arange(n) * k // n
    total = torch.zeros(k, dtype=torch.float64).index_add_(0, group, sample.double())
    return total / group.bincount(minlength=k)
