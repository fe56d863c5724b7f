"""Couplings of finite sets: distances, a solver, and the price of what it leaves undone."""

import math
import warnings

import torch
from torch import Tensor

from taut.errors import NonFiniteError, require
from taut.linalg import gamma, round_up, unit_roundoff

__all__ = [
    "UNDERFLOW",
    "Plan",
    "distances",
    "lower_envelope",
    "plan_cost",
    "reach_of",
    "repaired_cost",
    "solve",
]

_U = unit_roundoff()
UNDERFLOW = 2.0**-511  # the root of what a square may lose
_CHUNK_ENTRIES = 2**22

# Rows, columns and masses of a coupling.
Plan = tuple[Tensor, Tensor, Tensor]


def distances(x: Tensor, y: Tensor) -> Tensor:
    r"""Euclidean distances, each off by at most $\gamma_{d+4}$ of itself.

    Never by $\|x\|^2 + \|y\|^2 - 2 x \cdot y$, where near points cancel.
    """
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    if distance.numel() and not math.isfinite(float(distance.max())):
        raise NonFiniteError(
            subject="exact_transport",
            rule="the distances must be finite",
            got="infinity, from squares past the largest float64",
            remedy="Divide the points by a constant, and multiply the result by it.",
        )
    return distance


def lower_envelope(points: Tensor, anchors: Tensor, offsets: Tensor) -> Tensor:
    r"""$\min_j (\|z - y_j\| - v_j)$ at each point, in memory that does not grow with their number."""
    chunk = max(1, _CHUNK_ENTRIES // len(anchors))
    return torch.cat([(distances(p, anchors) - offsets).amin(-1) for p in points.split(chunk)])


def reach_of(x: Tensor, y: Tensor) -> float:
    """No point of x is further than this from a point of y."""
    centre = x.mean(0)
    radii = (float(torch.linalg.vector_norm(z - centre, dim=-1).max()) for z in (x, y))
    return sum(radii) * (1 + 2 * gamma(x.shape[1] + 8)) + math.sqrt(x.shape[1]) * UNDERFLOW


def plan_cost(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, rows: Tensor, columns: Tensor, mass: Tensor
) -> float:
    """The cost of a coupling that these triplets are nearly, by the theorem of `exact_transport`."""
    step = max(1, _CHUNK_ENTRIES // x.shape[1])
    cost = 0.0
    for i, j, weight in zip(rows.split(step), columns.split(step), mass.split(step), strict=True):
        cost += float(weight @ torch.linalg.vector_norm(x[i] - y[j], dim=-1))
    r = torch.zeros_like(a).index_add_(0, rows, mass)
    c = torch.zeros_like(b).index_add_(0, columns, mass)
    return repaired_cost(cost, len(mass), r, c, a, b, reach_of(x, y), x.shape[1])


def repaired_cost(
    cost: float, terms: int, r: Tensor, c: Tensor, a: Tensor, b: Tensor, reach: float, d: int
) -> float:
    """The cost of a plan with marginals `r`, `c` after its repair to `a`, `b`, rounded up."""
    # Marginals are sums of at most `terms` positive numbers; weights are three roundings off.
    rounding = gamma(terms + len(a) + len(b) + 16)
    missing = float((a - r).clamp(min=0).sum() + (c - b).clamp(min=0).sum())
    missing += rounding * (2 + float(r.sum() + c.sum()))
    summed = cost * (1 + 2 * gamma(terms + d + 16)) + math.sqrt(d) * UNDERFLOW
    return round_up((summed + missing * reach) * (1 + 8 * _U))


def solve(distance: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, bool]:
    """Triplets of an optimal plan of the total mass of `a`, potentials of the columns, success."""
    emd = require("ot.lp", "ot", "exact_transport").emd
    # The solver's tolerances are made for masses and distances of size 1.
    scale, total = float(distance.max()) or 1.0, float(a.sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the code returned says the same
        plan, log = emd(
            (a / total).numpy(),
            (b / float(b.sum())).numpy(),
            (distance / scale).numpy(),
            numItermax=100_000_000,
            log=True,
            check_marginals=False,
        )
    plan = torch.from_numpy(plan)
    rows, columns = plan.nonzero(as_tuple=True)
    mass = plan[rows, columns].clamp(min=0) * total
    return rows, columns, mass, torch.from_numpy(log["v"]) * scale, log["result_code"] == 1
