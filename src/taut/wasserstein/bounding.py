"""From the scores of a fixed critic to a lower bound of the distance."""

import torch
from torch import Generator, Tensor

from taut.bounds import Bound
from taut.linalg.rounding import round_down
from taut.norms import L2
from taut.wasserstein.confidence import Method
from taut.wasserstein.difference import bound_difference

__all__ = ["bound_distance_below", "rounding_of"]

# What float64 does to the score of a dense critic, as a part of the numbers it adds up.
_ROUNDING = 2e-10


def bound_distance_below(
    x_scores: Tensor,
    y_scores: Tensor,
    limits: tuple[float, float],
    lipschitz: float,
    *,
    confidence: float,
    method: Method,
    generator: Generator,
    rounding: float = 0.0,
    name: str = "critic",
) -> Bound:
    r"""A lower bound of $W_1(P, Q)$ from scores of points that the critic was not chosen by.

    $$W_1(P, Q) \ge \frac{\mathbb{E}_P \bar f - \mathbb{E}_Q \bar f}{L}, \qquad
      \bar f = \min(\max(f, a), b)$$

    Clamping is 1-Lipschitz, so $\bar f$ has the constant $L$ of $f$; `bound_difference` bounds the
    numerator.

    Args:
        x_scores: `(n,)`, independent draws of $f(X)$.
        y_scores: `(m,)`, likewise of $f(Y)$.
        limits: $a \le b$, chosen before these points were seen.
        lipschitz: $L$, proven.
        confidence: inside (0, 1).
        method: see `bound_difference`.
        generator: shuffles the scores.
        rounding: how far a computed score may be from the function's value.
        name: what the bound calls the critic.

    Returns:
        A lower `Bound`, never below 0.

    Example:
        >>> import torch
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(2, 1000, generator=seeded)
        >>> bound_distance_below(
        ...     x + 2, y, (0, 3), 1.0, confidence=0.95, method="betting", generator=seeded
        ... )
        Bound(>= 1.9..., l2, at 95 %)
    """
    low, high = limits
    value = 0.0
    if high > low and lipschitz > 0:
        found = bound_difference(
            x_scores.clamp(low, high),
            y_scores.clamp(low, high),
            low,
            high,
            confidence,
            method,
            generator,
        )
        # Division and one step each round to nearest: two steps down are below the quotient.
        value = max(0.0, round_down(round_down((found.value - 2 * rounding) / lipschitz)))
    return Bound(value, L2, "lower", f"{name}, {method}", confidence)


def rounding_of(limits: tuple[float, float], points: Tensor) -> float:
    """How far scores in float64 may be from the exact ones, for points of this length.

    A network of affine and sorting layers of 1000 units is off by less than 2e-10 of the numbers
    it adds up, by the a-priori bound of its dot products; distances to centres by much less.
    """
    longest = torch.linalg.vector_norm(points, dim=-1).amax().item()
    return _ROUNDING * (longest + max(map(abs, limits)))
