r"""`trace_rays`: sphere tracing that provably never steps through a surface.

If $f$ is $K$-Lipschitz in L2 and $f(p) > 0$, no point within $f(p)/K$ of $p$ has $f \le 0$. So from $p$
a ray may advance by

$$\frac{\hat f(p) - e(p) - \varepsilon}{K} - \delta,$$

where $e$ bounds the rounding error of the evaluation $\hat f$, $\delta$ how far rounding has moved $p$
from the ray, and $\varepsilon \ge |f - d|$ is the error against another field $d$: then $d > 0$ all the
way, too. Every point of the ray up to where it ends is thus proven to be outside.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.certificates.output_bounds import BoundedEvaluation
from taut.errors import ArgumentError, check_count, check_nonnegative, check_positive

_SUBJECT = "trace_rays"
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class RayTrace:
    """Where rays end.

    Attributes:
        distance: `(n,)`, float64: the ray has $f > 0$, or $d > 0$, at every distance up to here.
        hit: `(n,)`, whether the ray ended because nothing is proven beyond `tol` any more; else it went
            `max_distance` far, or ran out of steps.
        steps: number of steps of the slowest ray.
        lipschitz: proven constant of the network.
    """

    distance: Tensor
    hit: Tensor
    steps: int
    lipschitz: float


@torch.no_grad()
def trace_rays(
    model: nn.Module,
    origins: Tensor,
    directions: Tensor,
    *,
    max_distance: float,
    tol: float = 1e-3,
    error: float = 0.0,
    max_steps: int = 1000,
) -> RayTrace:
    r"""Follows rays up to the surface $f = 0$ of a network, from outside, where $f > 0$.

    Args:
        model: $f$, maps `(n, dim)` to `(n, 1)`; any that `taut.bound_lipschitz` follows in L2.
        origins: `(n, dim)`.
        directions: `(n, dim)`, of any length but 0.
        max_distance: where rays end that hit nothing.
        tol: smallest step; a ray that cannot make it has hit the surface.
        error: $\varepsilon$, a proven bound of $|f - d|$ for a field $d$ whose surface must not be
            passed; 0 speaks of $f$ alone.
        max_steps: largest number of steps.

    Returns:
        Distances from the origins, in real arithmetic never past the first point with $f \le 0$ (or
        $d \le 0$), every rounding included. A ray that starts where nothing is proven ends at 0.

    Example:
        >>> plane = torch.nn.Linear(2, 1)  # f = x - 1
        >>> _ = plane.weight.data.copy_(torch.tensor([[1.0, 0.0]])), plane.bias.data.fill_(-1)
        >>> start, to = torch.tensor([[5.0, 0.0]]), torch.tensor([[-2.0, 0.0]])
        >>> found = trace_rays(plane, start, to, max_distance=10.0)
        >>> found.hit.item(), 3.998 < found.distance.item() <= 4.0
        (True, True)
    """
    check_positive(_SUBJECT, "max_distance", max_distance)
    check_positive(_SUBJECT, "tol", tol)
    check_nonnegative(_SUBJECT, "error", error)
    check_count(_SUBJECT, "max_steps", max_steps)
    start, way = origins.double(), directions.double()
    usual = start.shape == way.shape and start.dim() == 2 and start.isfinite().all()
    if not usual or not way.isfinite().all() or not way.any(1).all():
        rule = "must be finite, one for each origin, and none of length 0"
        got = f"shapes {tuple(origins.shape)} and {tuple(directions.shape)}"
        raise ArgumentError(_SUBJECT, "directions", rule, got)
    dim = start.shape[1]
    constant = bound_lipschitz(model, "l2", (dim,)).value
    evaluate = BoundedEvaluation(model, dim)
    # By the largest entry first: the squares of very long and very short directions are no floats.
    way = way / way.abs().amax(1, keepdim=True)
    unit = way / way.norm(dim=1, keepdim=True)
    distance = start.new_zeros(len(start))
    active = torch.ones(len(start), dtype=torch.bool, device=start.device)
    hit = torch.zeros_like(active)
    steps = 0
    while steps < max_steps and bool(active.any()):
        steps += 1
        rows = active.nonzero().flatten()
        along, begin = distance[rows], start[rows]
        values, errors = evaluate(begin + along[:, None] * unit[rows])
        # The direction is off by (dim + 5) u of its length, the point by as much of its own size.
        moved = (dim + 8) * _UNIT * (begin.norm(dim=1) + along + 1)
        clear = (values - errors - error) * (1 - 2.0**-48) / constant - 2 * moved
        near = ~(clear > tol)
        hit[rows] = near
        # Rounded down: the next point is within the ball around this one.
        advanced = along + clear.clamp(min=0) * (1 - 2.0**-48)
        going = torch.where(near, along, torch.clamp(advanced, max=max_distance))
        distance[rows] = going
        active[rows] = ~near & (going < max_distance)
    return RayTrace(distance, hit, steps, constant)
