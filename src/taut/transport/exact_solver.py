r"""Exact transport between finite sets, with its proof.

A coupling bounds $W_1$ from above, a 1-Lipschitz function from below. Solvers return neither to the
last digit: plans whose marginals are off by a rounding, potentials whose slopes are. So nothing here
trusts a solver. Plans are charged for their repair, potentials are replaced by a function that is
1-Lipschitz by construction, and both ends are rounded outward.
"""

import math
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from taut.bounds import Bound, Interval
from taut.errors import ArgumentError, NonFiniteError, NotConvergedError, require
from taut.linalg import gamma, round_down, round_up, unit_roundoff
from taut.norms import L2
from taut.transport.arguments import check_point_pair, check_points, check_weights

_U = unit_roundoff()
_UNDERFLOW = 2.0**-511  # the root of what a square may lose
_CHUNK_ENTRIES = 2**22

# Rows, columns and masses of a coupling.
Plan = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Transport:
    r"""An optimal transport between two finite weighted sets, with its proof.

    Attributes:
        interval: proven, rounding included: $W_1$ of the two sets as they are lies inside.
        rows: `(k,)`, indices into x; with `columns` and `mass` the plan as triplets.
        columns: `(k,)`, indices into y.
        mass: `(k,)`, float64, positive, of sum 1 and marginals right up to rounding.
        x_potential: `(n,)`, the critic at x.
        y_potential: `(m,)`, the critic at y.
        anchors: `(a, d)`, the points of y with mass.
        offsets: `(a,)`.
    """

    interval: Interval
    rows: Tensor = field(repr=False)
    columns: Tensor = field(repr=False)
    mass: Tensor = field(repr=False)
    x_potential: Tensor = field(repr=False)
    y_potential: Tensor = field(repr=False)
    anchors: Tensor = field(repr=False)
    offsets: Tensor = field(repr=False)

    @property
    def cost(self) -> float:
        """The cost of the plan after repair: never below $W_1$."""
        return self.interval.upper.value

    def critic(self, points: Tensor) -> Tensor:
        r"""The optimal critic $f(z) = \min_j (\|z - y_j\| - v_j)$ at any points: `(k, d)` to `(k,)`.

        A minimum of 1-Lipschitz functions is 1-Lipschitz, whatever the offsets.
        """
        points = check_points("Transport.critic", "points", points)
        if points.shape[1] != self.anchors.shape[1]:
            rule = "must have the dimension of the sets"
            got = f"{points.shape[1]} coordinates instead of {self.anchors.shape[1]}"
            raise ArgumentError("Transport.critic", "points", rule, got)
        return _lower_envelope(points, self.anchors, self.offsets)


def exact_transport(
    x: Tensor,
    y: Tensor,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
    *,
    max_bytes: int = 2**30,
) -> Transport:
    r"""The Wasserstein-1 distance of two finite sets in the Euclidean norm, between proven ends.

    $$W_1 = \min_{\pi \ge 0} \sum_{ij} \pi_{ij} \|x_i - y_j\|
      \quad\text{subject to}\quad \pi 1 = a,\ \pi^\top 1 = b$$

    **Upper end.** Let $\pi \ge 0$ have marginals $r, c$, nearly $a, b$, and let all distances be at
    most $D$. Then $W_1 \le \langle \pi, C \rangle + D \sum_i (a_i - r_i)_+ + D \sum_j (c_j - b_j)_+$.
    *Proof.* Scale down each row whose $r_i > a_i$, then each column whose sum still exceeds $b_j$:
    the cost does not grow, and the mass removed is at most $\sum (r_i - a_i)_+ + \sum (c_j - b_j)_+$.
    What is missing to total mass 1 is then at most $1 - \sum r_i$ plus that, which is
    $\sum (a_i - r_i)_+ + \sum (c_j - b_j)_+$; any coupling of the leftovers carries it over at most
    $D$ per unit (the rounding of Altschuler, Weed and Rigollet 2017). $\square$

    **Lower end.** $f(z) = \min_j (\|z - y_j\| - v_j)$ is 1-Lipschitz for any $v$, so
    $\sum_i a_i f(x_i) - \sum_j b_j f(y_j) \le W_1$. With the solver's potentials as $v$ both ends
    meet but for rounding, whose bounds follow from the number of points and the diameter.

    Args:
        x: `(n, ...)` points, flattened to `(n, d)`; `(n,)` is n points on the line.
        y: `(m, ...)`.
        x_weights: `(n,)`, non-negative; divided by their sum. None gives all points the same.
        y_weights: `(m,)`.
        max_bytes: size limit of the matrix of distances, `8 n m` bytes. The solver (POT) needs a
            few times as much, and some 15 s for n = m = 4000.

    Returns:
        A `Transport`. Tensors are float64 on the CPU.

    Example:
        >>> exact_transport(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 4.0])).cost
        3.000000...
    """
    subject = "exact_transport"
    x, y = check_point_pair(subject, x, y)
    a = check_weights(subject, "x_weights", x_weights, len(x))
    b = check_weights(subject, "y_weights", y_weights, len(y))
    if 8 * len(x) * len(y) > max_bytes:
        rule = f"the {len(x)} x {len(y)} distances must fit into max_bytes={max_bytes}"
        remedy = (
            "Use coupling_upper_bound (an upper bound in O(n + m) memory), a subsample, or a "
            "larger max_bytes."
        )
        raise ArgumentError(subject, rule=rule, got=f"{8 * len(x) * len(y)} bytes", remedy=remedy)

    # A point without mass says nothing about the offsets, so the solver does not see it.
    here, there = a.nonzero().flatten(), b.nonzero().flatten()
    anchors = y[there]
    rows, columns, mass, offsets, solved = solve(distances(x[here], anchors), a[here], b[there])
    if not solved:
        raise NotConvergedError(
            subject,
            rule=f"the network simplex must end at an optimum; it did not, for {len(x)} x "
            f"{len(y)} points",
            remedy="Look for weights or distances of wildly different size.",
        )
    rows, columns = here[rows], there[columns]
    upper = plan_cost(x, y, a, b, (rows, columns, mass))
    x_potential, y_potential = (_lower_envelope(z, anchors, offsets) for z in (x, y))
    lower = _dual_value(x, y, a, b, x_potential, y_potential, offsets)
    interval = Interval(
        Bound(max(0.0, lower), L2, "lower", "a 1-Lipschitz potential"),
        Bound(upper, L2, "upper", "transport plan"),
    )
    return Transport(interval, rows, columns, mass, x_potential, y_potential, anchors, offsets)


def _dual_value(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, at_x: Tensor, at_y: Tensor, v: Tensor
) -> float:
    """The dual objective, below that of the exact critic with these offsets."""
    d = x.shape[1]
    spread = 2 * _reach(x, y) + float(v.abs().max())
    each = gamma(d + 8) * spread + math.sqrt(d) * _UNDERFLOW
    size = float(a @ at_x.abs() + b @ at_y.abs())
    error = 2 * each + 2 * gamma(len(x) + len(y) + 16) * size
    return round_down(float(a @ at_x - b @ at_y) - error)


def distances(x: Tensor, y: Tensor) -> Tensor:
    r"""Euclidean distances, each off by at most $\gamma_{d+4}$ of itself.

    Never by $\|x\|^2 + \|y\|^2 - 2 x \cdot y$, where near points cancel.
    """
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    if distance.numel() and not math.isfinite(float(distance.max())):
        rule = "the distances must be finite"
        got = "infinity, from squares past the largest float64"
        remedy = "Divide the points by a constant, and multiply the result by it."
        raise NonFiniteError("exact_transport", rule=rule, got=got, remedy=remedy)
    return distance


def _lower_envelope(points: Tensor, anchors: Tensor, offsets: Tensor) -> Tensor:
    r"""$\min_j (\|z - y_j\| - v_j)$ at each point, in memory that does not grow with their number."""
    chunk = max(1, _CHUNK_ENTRIES // len(anchors))
    return torch.cat([(distances(p, anchors) - offsets).amin(-1) for p in points.split(chunk)])


def _reach(x: Tensor, y: Tensor) -> float:
    """No point of x is further than this from a point of y."""
    centre = x.mean(0)
    radii = (float(torch.linalg.vector_norm(z - centre, dim=-1).max()) for z in (x, y))
    return sum(radii) * (1 + 2 * gamma(x.shape[1] + 8)) + math.sqrt(x.shape[1]) * _UNDERFLOW


def plan_cost(x: Tensor, y: Tensor, a: Tensor, b: Tensor, plan: Plan) -> float:
    """The cost of a plan after its repair to marginals `a` and `b`, by `exact_transport`'s theorem."""
    rows, columns, mass = plan
    terms, d = len(mass), x.shape[1]
    step = max(1, _CHUNK_ENTRIES // d)
    cost = 0.0
    for i, j, weight in zip(rows.split(step), columns.split(step), mass.split(step), strict=True):
        cost += float(weight @ torch.linalg.vector_norm(x[i] - y[j], dim=-1))
    r = torch.zeros_like(a).index_add_(0, rows, mass)
    c = torch.zeros_like(b).index_add_(0, columns, mass)
    # Marginals are sums of at most `terms` positive numbers; weights are three roundings off.
    rounding = gamma(terms + len(a) + len(b) + 16)
    missing = float((a - r).clamp(min=0).sum() + (c - b).clamp(min=0).sum())
    missing += rounding * (2 + float(r.sum() + c.sum()))
    summed = cost * (1 + 2 * gamma(terms + d + 16)) + math.sqrt(d) * _UNDERFLOW
    return round_up((summed + missing * _reach(x, y)) * (1 + 8 * _U))


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
