"""From the scores of a fixed critic to a lower bound of the distance."""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from taut.bounds import Bound
from taut.linalg import round_down, unit_roundoff
from taut.norms import L2
from taut.transport.confidence import Method
from taut.transport.mean_difference import bound_difference

__all__ = ["Scores", "bound_finite_lower", "bound_mean_score", "bound_population_lower"]

_U = unit_roundoff()


class Scores(NamedTuple):
    """Scores of a critic as computed, and what each may be off by.

    Attributes:
        values: `(n,)`, float64.
        errors: `(n,)`, proven bounds of the differences to the exact scores.
    """

    values: Tensor
    errors: Tensor


def bound_population_lower(
    x: Scores,
    y: Scores,
    limits: tuple[float, float],
    lipschitz: float,
    *,
    confidence: float,
    method: Method,
    generator: Generator,
    name: str = "critic",
) -> Bound:
    r"""A lower bound of $W_1(P, Q)$ from scores of points that the critic was not selected on.

    $$W_1(P, Q) \ge \frac{\mathbb{E}_P \bar f - \mathbb{E}_Q \bar f}{L}, \qquad
      \bar f = \min(\max(f, a), b)$$

    Clamping is 1-Lipschitz, so $\bar f$ has the constant $L$ of $f$. Computed scores $\hat f$ are off by
    at most $e$, row by row, so $\min(\max(\hat f - e, a), b) \le \bar f$ everywhere, and likewise
    from above: `bound_difference` bounds the numerator by draws of the lower function at x and of
    the upper one at y.

    Args:
        x: independent draws of $f(X)$.
        y: likewise of $f(Y)$.
        limits: $a \le b$, fixed before these points were seen.
        lipschitz: $L$, proven.
        confidence: confidence level, inside (0, 1).
        method: see `bound_difference`.
        generator: shuffles the scores.
        name: name of the critic in the bound's `method`.

    Returns:
        A lower `Bound`, never below 0.

    Example:
        >>> import torch
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(2, 1000, generator=seeded)
        >>> x, y = Scores(x + 2, 0 * x), Scores(y, 0 * y)
        >>> bound_population_lower(
        ...     x, y, (0, 3), 1.0, confidence=0.95, method="betting", generator=seeded
        ... )
        Bound(>= 1.9..., l2, at 95 %)
    """
    low, high = limits
    value = 0.0
    if high > low and lipschitz > 0:
        inf = torch.tensor(math.inf, dtype=torch.float64)
        under = torch.nextafter(x.values - x.errors, -inf).clamp(low, high)
        over = torch.nextafter(y.values + y.errors, inf).clamp(low, high)
        found = bound_difference(under, over, low, high, confidence, method, generator)
        value = _divide_down(found.value, lipschitz)
    return Bound(value, L2, "lower", f"{name}, {method}", confidence)


def bound_finite_lower(x: Scores, y: Scores, lipschitz: float, *, name: str) -> Bound:
    """A proven lower bound of $W_1$ between two finite sets, from the scores of all their points."""
    difference = bound_mean_score(x)[0] - bound_mean_score(y)[1]
    return Bound(_divide_down(difference, lipschitz), L2, "lower", name)


def bound_mean_score(scores: Scores) -> tuple[float, float]:
    """The ends between which the mean of the exact scores lies."""
    values, errors = scores
    # Three roundings: of each end, of the sum, and of its division.
    slack = 4 * _U * float((values.abs() + errors).amax())
    low, high = (
        math.fsum(end.tolist()) / len(values) for end in (values - errors, values + errors)
    )
    return low - slack, high + slack


def _divide_down(difference: float, lipschitz: float) -> float:
    # The difference, the division and two steps each round to nearest: three steps are below.
    return max(0.0, round_down(round_down(round_down(difference / lipschitz))))
