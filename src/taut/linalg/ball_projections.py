r"""Nearest points of balls, row by row or column by column.

Every projection is computed in float64, which holds narrower types exactly, and returned in the
dtype of its argument. Entries of rows that are already inside come back bit for bit, and what
comes back is inside: projecting twice is projecting once, to the last bit.
"""

import torch
from torch import Tensor

from taut.errors import NonFiniteError, check_positive
from taut.linalg.func_transforms import numbers_of
from taut.linalg.rounding import check_floating, gamma, unit_roundoff
from taut.linalg.threshold_projection import project_by_threshold


def project_l1_ball(w: Tensor, radius: float = 1.0, dim: int = -1) -> Tensor:
    r"""The nearest point of the l1 ball, row by row.

    $$\arg\min_v \|v - w\|_2 \quad\text{subject to}\quad \|v\|_1 \le r$$

    The solution is $v_i = \mathrm{sign}(w_i) \max(|w_i| - \tau, 0)$, where $\tau$ is the root of a
    convex, decreasing, piecewise linear function. Newton's method from the left finds it in
    finitely many passes, for all rows at once: each pass drops entries from the active set, and
    the method ends at the latest with the first pass that drops none.

    Used for $\|W\|_\infty \le r$, the largest l1 norm of a row, and with `dim=-2` for
    $\|W\|_1 \le r$, that of a column.

    Args:
        w: `(..., n)`, finite.
        radius: $r > 0$.
        dim: the dimension that holds the vectors: -1 for rows, -2 for columns.

    Returns:
        The shape and dtype of `w`. The l1 norm of what comes back, as a sum of real numbers, is at
        most `radius`; `bound_operator_norm` proves it. Rows already inside are unchanged. The
        derivative is exact almost everywhere, to every order:
        $dv_i = dw_i - \mathrm{sign}(w_i) \sum_j \mathrm{sign}(w_j)\,dw_j / k$ over the `k` active
        entries.

    Example:
        >>> project_l1_ball(torch.tensor([3.0, -1.0]))
        tensor([1., 0.])
    """
    _check("project_l1_ball", w, radius)
    return project_by_threshold(w.movedim(dim, -1), radius).movedim(-1, dim)


def project_l1_ball_by_sorting(w: Tensor, radius: float = 1.0, dim: int = -1) -> Tensor:
    r"""`project_l1_ball` by sorting, as the reference (Condat 2016, Algorithm 1).

    With magnitudes in descending order $a_1 \ge a_2 \ge \dots$, the active set is the longest
    prefix for which $(\sum_{i \le k} a_i - r)/k < a_k$, and $\tau$ is that ratio. Differentiable by
    plain autograd; feasible up to rounding only.

    Example:
        >>> project_l1_ball_by_sorting(torch.tensor([3.0, -1.0]))
        tensor([1., 0.])
    """
    _check("project_l1_ball_by_sorting", w, radius)
    if w.numel() == 0:
        return w.clone()
    rows = w.movedim(dim, -1)
    magnitude = rows.double().abs()
    descending = magnitude.sort(-1, descending=True).values
    counts = torch.arange(1, rows.shape[-1] + 1, dtype=torch.float64, device=w.device)
    thresholds = (descending.cumsum(-1) - radius) / counts
    last = (thresholds < descending).sum(-1, keepdim=True).clamp(min=1) - 1
    shrunk = (magnitude - thresholds.gather(-1, last)).clamp(min=0) * rows.sign() + 0.0
    inside = magnitude.sum(-1, keepdim=True) <= radius
    return torch.where(inside, rows, shrunk.to(w.dtype)).movedim(-1, dim)


def project_l2_ball(w: Tensor, radius: float = 1.0, dim: int = -1) -> Tensor:
    r"""The nearest point of the l2 ball, row by row: $v = w \min(1, r/\|w\|_2)$.

    Used for $\|W\|_{2,\infty} \le r$, the longest row; the arguments are those of
    `project_l1_ball`. Rows whose norm, computed in float64, is at most `radius` are unchanged; the
    others end at most `radius` long, less a few roundings.

    Example:
        >>> project_l2_ball(torch.tensor([[3.0, 4.0], [0.1, 0.0]]), radius=5.0)
        tensor([[3.0000, 4.0000],
                [0.1000, 0.0000]])
    """
    _check("project_l2_ball", w, radius)
    if w.numel() == 0:
        return w.clone()
    rows = w.double()
    # Dividing by the largest entry keeps squares in range; as a constant it has no derivative.
    largest = rows.detach().abs().amax(dim, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    relative = torch.linalg.vector_norm(rows / largest, dim=dim, keepdim=True)
    inside = relative.detach() <= radius / largest
    safety = 1 - 2 * unit_roundoff(w.dtype) - 2 * gamma(w.shape[dim] + 4)
    shrunk = rows / largest * (safety * radius / relative.masked_fill(inside, 1.0))
    return torch.where(inside, w, shrunk.to(w.dtype))


def project_linf_ball(w: Tensor, radius: float = 1.0, dim: int = -1) -> Tensor:
    r"""The nearest point of the cube: every entry clamped to $[-r, r]$.

    A radius that the dtype of `w` cannot hold is rounded down. The cube is the same along every
    dimension: `dim` is there for the signature of the other balls.

    Example:
        >>> project_linf_ball(torch.tensor([3.0, -0.5]))
        tensor([ 1.0000, -0.5000])
    """
    _check("project_linf_ball", w, radius)
    limit = torch.tensor(radius, dtype=torch.float64).to(w.dtype)
    if float(limit) > radius:
        limit = torch.nextafter(limit, torch.zeros_like(limit))
    return w.clamp(-float(limit), float(limit))


def _check(subject: str, w: Tensor, radius: float) -> None:
    check_positive(subject, "radius", radius)
    check_floating(subject, "w", w)
    if torch.compiler.is_compiling() or w.is_meta:  # there are no numbers to look at
        return
    if w.numel() and not all(bool(end.isfinite()) for end in torch.aminmax(numbers_of(w))):
        remedy = "Lower the learning rate, or look for the step that broke the weight."
        raise NonFiniteError(subject, "w", "must be finite", "NaN or infinity", remedy)
