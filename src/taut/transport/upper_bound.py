"""What transport between batches proves about the populations behind them."""

import math

import torch
from torch import Generator, Tensor

from taut.bounds import Bound
from taut.errors import ArgumentError, check_count, check_positive
from taut.linalg import gamma, round_up, unit_roundoff
from taut.norms import L2
from taut.transport.exact import exact_transport
from taut.transport.points import check_point_pair

__all__ = ["bound_population_upper"]

_U = unit_roundoff()


def bound_population_upper(
    x: Tensor,
    y: Tensor,
    confidence: float = 0.95,
    *,
    batch_size: int,
    generator: Generator,
    diameter: float | None = None,
    num_batches: int | None = None,
) -> Bound:
    r"""An upper bound of $W_1(P, Q)$ for the populations behind two independent samples.

    **Theorem.** Let $T$ be the average of $W_1(P_k, Q_k)$ over `num_batches` disjoint pairs of
    batches, which use $N$ points of P and $M$ of Q, and let the supports have diameters at most
    $D_P$ and $D_Q$. With probability at least $1 - \delta$

    $$W_1(P, Q) \le T + \sqrt{\tfrac12 \ln(1/\delta) \left(D_P^2/N + D_Q^2/M\right)}.$$

    *Proof.* $W_1(P, Q) = \sup_f (\mathbb{E}_P f - \mathbb{E}_Q f)$ over 1-Lipschitz $f$. For each
    $f$ the bracket is the expectation of the same bracket on batches, and a supremum of
    expectations is at most the expectation of the supremum (convexity): $W_1(P, Q) \le
    \mathbb{E}\,W_1(P_k, Q_k) = \mathbb{E}\,T$. Moving one point of P by at most $D_P$ moves its
    batch's distance by at most $D_P$ over the batch size, so $T$ by at most $D_P / N$; likewise for
    Q. McDiarmid's inequality bounds $\mathbb{E}\,T - T$. $\square$

    Loose in high dimension: $\mathbb{E}\,W_1(P_k, Q_k)$ is above the truth by the order of
    `batch_size ** (-1 / d)`, for $P = Q$ too. Larger batches help, at a cubic price; no upper bound
    from samples escapes this without assumptions.

    Args:
        x: `(n, ...)`, independent draws of P.
        y: `(m, ...)`, independent draws of Q.
        confidence: inside (0, 1).
        batch_size: points of each sample in one exact transport. Needs POT.
        generator: deals the points into batches, on the CPU.
        diameter: of each support, known beforehand. None takes twice the largest distance from the
            sample's mean: an assumption about what was not seen, and `method` says so.
        num_batches: None uses as many as the samples give.

    Returns:
        An upper `Bound` at that confidence.

    Raises:
        ArgumentError: too few points, or points further apart than `diameter`.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(2, 2000, 1, generator=seeded)
        >>> bound_population_upper(x, y + 1, batch_size=500, diameter=1.0, generator=seeded)
        Bound(<= 1.03..., l2, at 95 %)
    """
    subject = "bound_population_upper"
    if not 0 < confidence < 1:
        raise ArgumentError(
            subject=subject,
            argument="confidence",
            rule="must lie inside (0, 1)",
            got=f"confidence={confidence}",
            remedy="No finite sample gives certainty: use 0.95 or 0.99.",
        )
    check_count(subject, "batch_size", batch_size)
    x, y = check_point_pair(subject, x, y)
    available = min(len(x), len(y)) // batch_size
    if num_batches is None:
        num_batches = max(1, available)
    check_count(subject, "num_batches", num_batches)
    if num_batches > available:
        raise ArgumentError(
            subject=subject,
            argument="x",
            rule=f"and `y` must hold num_batches * batch_size = {num_batches * batch_size} "
            f"points each",
            got=f"{len(x)} and {len(y)}",
            remedy="Use smaller or fewer batches.",
        )
    widths = [_support_width(subject, name, z, diameter) for name, z in (("x", x), ("y", y))]

    used = num_batches * batch_size
    batches = [
        z[torch.randperm(len(z), generator=generator)[:used]].split(batch_size) for z in (x, y)
    ]
    costs = [exact_transport(*pair).cost for pair in zip(*batches, strict=True)]
    log = -math.log1p(-confidence)
    deviation = math.hypot(*widths) * math.sqrt(log / (2 * used))
    value = (math.fsum(costs) / num_batches + deviation) * (1 + 32 * _U)
    batches_used = "1 batch" if num_batches == 1 else f"{num_batches} batches"
    method = f"exact transport of {batches_used} of {batch_size}, McDiarmid"
    if diameter is None:
        method += "; assuming the support is no wider than the data"
    return Bound(round_up(value), L2, "upper", method, confidence)


def _support_width(subject: str, name: str, points: Tensor, diameter: float | None) -> float:
    radii = torch.linalg.vector_norm(points - points.mean(0), dim=-1)
    widest = 2 * float(radii.max()) * (1 + 2 * gamma(points.shape[1] + 8))
    if diameter is None:
        return widest
    check_positive(subject, "diameter", diameter)
    # From the farthest point on: a distance that occurs, so a width the support has.
    seen = float(torch.linalg.vector_norm(points - points[radii.argmax()], dim=-1).max())
    if seen > diameter * (1 + 2 * gamma(points.shape[1] + 8)):
        raise ArgumentError(
            subject=subject,
            argument="diameter",
            rule="must be at least every distance inside a sample",
            got=f"diameter={diameter}, and two points of `{name}` {seen:.6g} apart",
            remedy="Give the diameter of the support, or None to take it from the data.",
        )
    return diameter
