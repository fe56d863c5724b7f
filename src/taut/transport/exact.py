r"""Exact transport between finite sets, with its proof.

A coupling bounds $W_1$ from above, a 1-Lipschitz function from below. Solvers return neither to the
last digit: plans whose marginals are off by a rounding, potentials whose slopes are. So nothing here
trusts a solver. Plans are charged for their repair, potentials are replaced by a function that is
1-Lipschitz by construction, and both ends are rounded outward.
"""

import math
from dataclasses import dataclass, field

from torch import Tensor

from taut.bounds import Bound, Interval
from taut.errors import ArgumentError, NotConvergedError
from taut.linalg import gamma, round_down
from taut.norms import L2
from taut.transport.plans import (
    UNDERFLOW,
    distances,
    lower_envelope,
    plan_cost,
    reach_of,
    solve,
)
from taut.transport.points import check_memory, check_point_pair, check_points, check_weights

__all__ = ["Transport", "exact_transport"]


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
        return _critic(check_points("Transport.critic", "points", points), self)


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
        max_bytes: the largest matrix of distances allowed, `8 n m` bytes. The solver needs a few
            times as much, and some 15 s for n = m = 4000.

    Returns:
        A `Transport`. Tensors are float64 on the CPU.

    Raises:
        MissingExtraError: POT is not installed.
        ArgumentError: the sets do not fit each other, or not into memory.

    Example:
        >>> exact_transport(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 4.0])).cost
        3.000000...
    """
    subject = "exact_transport"
    x, y = check_point_pair(subject, x, y)
    a = check_weights(subject, "x_weights", x_weights, len(x))
    b = check_weights(subject, "y_weights", y_weights, len(y))
    check_memory(subject, len(x), len(y), max_bytes)

    # A point without mass says nothing about the offsets, so the solver does not see it.
    here, there = a.nonzero().flatten(), b.nonzero().flatten()
    distance = distances(x[here], y[there])
    rows, columns, mass, offsets, solved = solve(distance, a[here], b[there])
    if not solved:
        raise NotConvergedError(
            f"{subject}: the network simplex must end at an optimum; it did not, for "
            f"{len(x)} x {len(y)} points. Look for weights or distances of wildly different size."
        )
    rows, columns = here[rows], there[columns]
    upper = plan_cost(x, y, a, b, rows, columns, mass)

    anchors, v = y[there], offsets
    at_x = (distance - v).amin(-1)
    x_potential = at_x if len(here) == len(x) else lower_envelope(x, anchors, v)
    y_potential = lower_envelope(y, anchors, v)
    lower = _dual_value(x, y, a, b, x_potential, y_potential, v)
    interval = Interval(
        Bound(max(0.0, lower), L2, "lower", "a 1-Lipschitz potential"),
        Bound(upper, L2, "upper", "a repaired coupling"),
    )
    return Transport(interval, rows, columns, mass, x_potential, y_potential, anchors, v)


def _critic(points: Tensor, transport: Transport) -> Tensor:
    if points.shape[1] != transport.anchors.shape[1]:
        raise ArgumentError(
            subject="Transport.critic",
            argument="points",
            rule="must have the dimension of the sets",
            got=f"{points.shape[1]} coordinates instead of {transport.anchors.shape[1]}",
        )
    return lower_envelope(points, transport.anchors, transport.offsets)


def _dual_value(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, at_x: Tensor, at_y: Tensor, v: Tensor
) -> float:
    """The dual objective, below that of the exact critic with these offsets."""
    d = x.shape[1]
    spread = 2 * reach_of(x, y) + float(v.abs().max())
    each = gamma(d + 8) * spread + math.sqrt(d) * UNDERFLOW
    size = float(a @ at_x.abs() + b @ at_y.abs())
    error = 2 * each + 2 * gamma(len(x) + len(y) + 16) * size
    return round_down(float(a @ at_x - b @ at_y) - error)
