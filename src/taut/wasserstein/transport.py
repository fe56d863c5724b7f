r"""Exact and feasible transport between finite sets, and what it proves about populations.

A coupling bounds $W_1$ from above, a 1-Lipschitz function from below. Solvers return neither to the
last digit: plans whose marginals are off by a rounding, potentials whose slopes are. So nothing here
trusts a solver. Plans are charged for their repair, potentials are replaced by a function that is
1-Lipschitz by construction, and both ends are rounded outward.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Generator, Tensor

from taut.bounds import Bound, Interval
from taut.errors import (
    ArgumentError,
    DtypeError,
    MissingExtraError,
    NonFiniteError,
    NotConvergedError,
    check_choice,
    check_count,
    check_positive,
)
from taut.linalg.rounding import gamma, round_down, round_up, unit_roundoff
from taut.norms import L2

__all__ = ["Transport", "bound_population_upper", "coupling_upper_bound", "exact_transport"]

_U = unit_roundoff()
_UNDERFLOW = 2.0**-511  # the root of what a square may lose
_CHUNK_ENTRIES = 2**22


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
        return _critic(_check_points("Transport.critic", "points", points), self)


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
    meet but for rounding, about 1e-12 of the diameter.

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
    x, y = _check_pair(subject, x, y)
    a = _check_weights(subject, "x_weights", x_weights, len(x))
    b = _check_weights(subject, "y_weights", y_weights, len(y))
    _check_memory(subject, len(x), len(y), max_bytes)

    # A point without mass says nothing about the offsets, so the solver does not see it.
    here, there = a.nonzero().flatten(), b.nonzero().flatten()
    distance = _distances(x[here], y[there])
    rows, columns, mass, offsets, solved = _solve(distance, a[here], b[there])
    if not solved:
        raise NotConvergedError(
            f"{subject}: the network simplex must end at an optimum; it did not, for "
            f"{len(x)} x {len(y)} points. Look for weights or distances of wildly different size."
        )
    rows, columns = here[rows], there[columns]
    upper = _plan_cost(x, y, a, b, rows, columns, mass)

    anchors, v = y[there], offsets
    at_x = (distance - v).amin(-1)
    x_potential = at_x if len(here) == len(x) else _lower_envelope(x, anchors, v)
    y_potential = _lower_envelope(y, anchors, v)
    lower = _dual_value(x, y, a, b, x_potential, y_potential, v)
    interval = Interval(
        Bound(max(0.0, lower), L2, "lower", "a 1-Lipschitz potential"),
        Bound(upper, L2, "upper", "a repaired coupling"),
    )
    return Transport(interval, rows, columns, mass, x_potential, y_potential, anchors, v)


def coupling_upper_bound(
    x: Tensor,
    y: Tensor,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
    *,
    generator: Generator,
    method: Literal["blocks", "sinkhorn"] = "blocks",
    block_size: int = 256,
    num_sweeps: int = 4,
    max_bytes: int = 2**30,
) -> Bound:
    r"""An upper bound of $W_1$ between finite sets that are too large for exact transport.

    The cost of any coupling is one (see `exact_transport` for its repair). Two ways to a good one:

    - `"blocks"`: both sets are halved by mass across the widest direction, again and again, down to
      `block_size` points; halves are matched with halves, and blocks by exact transport. Then
      sweeps: the pairs of the plan are grouped anew across random directions and each group is
      solved exactly for its own marginals, which can only lower the cost. Memory `O(n + m)`, time
      linear in the number of points but for sorting. Needs POT.
    - `"sinkhorn"`: entropic transport with a falling temperature, rounded to a coupling. Holds the
      matrix of distances; for sets of a few thousand points.

    Both come within a few per cent of the truth in low dimension; only `exact_transport` reaches it.

    Args:
        x: `(n, ...)`.
        y: `(m, ...)`.
        x_weights: `(n,)`, non-negative; divided by their sum. None gives all points the same.
        y_weights: `(m,)`.
        generator: the source of the random directions, on the CPU; "sinkhorn" draws nothing.
        method: "blocks" or "sinkhorn".
        block_size: points of each set in one exact problem.
        num_sweeps: how many times the pairs are grouped anew.
        max_bytes: the largest matrix of distances allowed for "sinkhorn".

    Returns:
        A proven upper `Bound`.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x = torch.rand(1000, 2, generator=seeded)
        >>> coupling_upper_bound(x, x + 1.0, generator=seeded)
        Bound(<= 1.4143, l2, proven)
    """
    subject = "coupling_upper_bound"
    check_choice(subject, "method", method, ("blocks", "sinkhorn"))
    check_count(subject, "block_size", block_size, least=2)
    check_count(subject, "num_sweeps", num_sweeps, least=0)
    x, y = _check_pair(subject, x, y)
    a = _check_weights(subject, "x_weights", x_weights, len(x))
    b = _check_weights(subject, "y_weights", y_weights, len(y))
    if method == "sinkhorn":
        _check_memory(subject, len(x), len(y), max_bytes)
        return Bound(_sinkhorn_cost(x, y, a, b), L2, method="a rounded Sinkhorn coupling")
    plan = _block_plan(x, y, a, b, block_size)
    for _ in range(num_sweeps):
        plan = _sweep(x, y, *plan, block_size, generator)
    return Bound(_plan_cost(x, y, a, b, *plan), L2, method="a coupling of blocks")


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
            f"{subject}: `confidence` must lie inside (0, 1); got confidence={confidence}. "
            "No finite sample gives certainty: use 0.95 or 0.99."
        )
    check_count(subject, "batch_size", batch_size)
    x, y = _check_pair(subject, x, y)
    available = min(len(x), len(y)) // batch_size
    if num_batches is None:
        num_batches = max(1, available)
    check_count(subject, "num_batches", num_batches)
    if num_batches > available:
        raise ArgumentError(
            f"{subject}: `x` and `y` must hold num_batches * batch_size = "
            f"{num_batches * batch_size} points each; got {len(x)} and {len(y)}. "
            "Use smaller or fewer batches."
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
    method = f"exact transport of {num_batches} batches of {batch_size}, McDiarmid"
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
            f"{subject}: `diameter` must be at least every distance inside a sample; got "
            f"diameter={diameter}, and two points of `{name}` {seen:.6g} apart. "
            "Give the diameter of the support, or None to take it from the data."
        )
    return diameter


def _distances(x: Tensor, y: Tensor) -> Tensor:
    r"""Euclidean distances, each off by at most $\gamma_{d+4}$ of itself.

    Never by $\|x\|^2 + \|y\|^2 - 2 x \cdot y$, where near points cancel.
    """
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    if distance.numel() and not math.isfinite(float(distance.max())):
        raise NonFiniteError(
            "exact_transport: the distances must be finite; got infinity, from squares past the "
            "largest float64. Divide the points by a constant, and multiply the result by it."
        )
    return distance


def _lower_envelope(points: Tensor, anchors: Tensor, offsets: Tensor) -> Tensor:
    chunk = max(1, _CHUNK_ENTRIES // len(anchors))
    return torch.cat([(_distances(p, anchors) - offsets).amin(-1) for p in points.split(chunk)])


def _critic(points: Tensor, transport: Transport) -> Tensor:
    if points.shape[1] != transport.anchors.shape[1]:
        raise ArgumentError(
            "Transport.critic: `points` must have the dimension of the sets; got "
            f"{points.shape[1]} coordinates instead of {transport.anchors.shape[1]}."
        )
    return _lower_envelope(points, transport.anchors, transport.offsets)


def _reach(x: Tensor, y: Tensor) -> float:
    """No point of x is further than this from a point of y."""
    centre = x.mean(0)
    radii = (float(torch.linalg.vector_norm(z - centre, dim=-1).max()) for z in (x, y))
    return sum(radii) * (1 + 2 * gamma(x.shape[1] + 8)) + math.sqrt(x.shape[1]) * _UNDERFLOW


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


def _plan_cost(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, rows: Tensor, columns: Tensor, mass: Tensor
) -> float:
    """The cost of a coupling that these triplets are nearly, by the theorem of `exact_transport`."""
    step = max(1, _CHUNK_ENTRIES // x.shape[1])
    cost = 0.0
    for i, j, weight in zip(rows.split(step), columns.split(step), mass.split(step), strict=True):
        cost += float(weight @ torch.linalg.vector_norm(x[i] - y[j], dim=-1))
    r = torch.zeros_like(a).index_add_(0, rows, mass)
    c = torch.zeros_like(b).index_add_(0, columns, mass)
    return _repaired(cost, len(mass), r, c, a, b, _reach(x, y), x.shape[1])


def _repaired(
    cost: float, terms: int, r: Tensor, c: Tensor, a: Tensor, b: Tensor, reach: float, d: int
) -> float:
    # Marginals are sums of at most `terms` positive numbers; weights are three roundings off.
    rounding = gamma(terms + len(a) + len(b) + 16)
    missing = float((a - r).clamp(min=0).sum() + (c - b).clamp(min=0).sum())
    missing += rounding * (2 + float(r.sum() + c.sum()))
    summed = cost * (1 + 2 * gamma(terms + d + 16)) + math.sqrt(d) * _UNDERFLOW
    return round_up((summed + missing * reach) * (1 + 8 * _U))


Plan = tuple[Tensor, Tensor, Tensor]


def _solve(distance: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, bool]:
    """Triplets of an optimal plan of the total mass of `a`, potentials of the columns, success."""
    try:
        from ot.lp import emd
    except ImportError as error:
        raise MissingExtraError(
            "exact_transport: needs POT; install with pip install 'taut[ot]'."
        ) from error
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


def _block_plan(x: Tensor, y: Tensor, a: Tensor, b: Tensor, size: int) -> Plan:
    parts = []
    stack = [(torch.arange(len(x)), a, torch.arange(len(y)), b)]
    while stack:
        i, p, j, q = stack.pop()
        if max(len(i), len(j)) <= size:
            rows, columns, mass, *_ = _solve(_distances(x[i], y[j]), p, q)
            parts.append((i[rows], j[columns], mass))
            continue
        direction = _widest_direction(x[i], y[j])
        left_x, right_x = _halve(x[i] @ direction, i, p)
        left_y, right_y = _halve(y[j] @ direction, j, q)
        stack += [(*left_x, *left_y), (*right_x, *right_y)]
    return _concatenate(parts)


def _widest_direction(x: Tensor, y: Tensor) -> Tensor:
    """Nearly the first principal axis of both sets, each about its own mean."""
    spread = torch.cat([x - x.mean(0), y - y.mean(0)])
    direction = spread[torch.linalg.vector_norm(spread, dim=-1).argmax()]
    for _ in range(8):
        length = torch.linalg.vector_norm(direction)
        if length == 0:
            break
        direction = spread.T @ (spread @ (direction / length))
    return direction


def _halve(height: Tensor, index: Tensor, mass: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """The lower and the upper half of a mass; a point in the middle is shared."""
    order = height.argsort(stable=True)
    index, mass = index[order], mass[order]
    before = mass.cumsum(0) - mass
    low = (mass.sum() / 2 - before).clamp(min=0).minimum(mass)
    high = mass - low
    return (index[low > 0], low[low > 0]), (index[high > 0], high[high > 0])


def _sweep(
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    columns: Tensor,
    mass: Tensor,
    size: int,
    generator: Generator,
) -> Plan:
    """A plan of the same marginals and no larger cost, from exact transport inside new groups."""
    parts = []
    for group in _random_groups((x[rows] + y[columns]) / 2, size, generator):
        i, local_i = rows[group].unique(return_inverse=True)
        j, local_j = columns[group].unique(return_inverse=True)
        p = torch.zeros(len(i), dtype=torch.float64).index_add_(0, local_i, mass[group])
        q = torch.zeros(len(j), dtype=torch.float64).index_add_(0, local_j, mass[group])
        new_rows, new_columns, new_mass, *_ = _solve(_distances(x[i], y[j]), p, q)
        parts.append((i[new_rows], j[new_columns], new_mass))
    return _concatenate(parts)


def _random_groups(points: Tensor, size: int, generator: Generator) -> Iterator[Tensor]:
    stack = [torch.arange(len(points))]
    while stack:
        index = stack.pop()
        if len(index) <= size:
            yield index
            continue
        # The line through two random points leans the way the points spread; where to cut is
        # random too, so that no wall stands from one sweep to the next.
        first, second = torch.randint(len(index), (2,), generator=generator)
        height = points[index] @ (points[index[first]] - points[index[second]])
        cut = max(1, int((0.3 + 0.4 * float(torch.rand((), generator=generator))) * len(index)))
        order = index[height.argsort(stable=True)]
        stack += [order[:cut], order[cut:]]


def _concatenate(parts: list[Plan]) -> Plan:
    rows, columns, mass = (torch.cat(column) for column in zip(*parts, strict=True))
    return rows, columns, mass


def _sinkhorn_cost(x: Tensor, y: Tensor, a: Tensor, b: Tensor, num_steps: int = 20) -> float:
    distance = _distances(x, y)
    log_a, log_b = a.log(), b.log()
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    temperature = float(distance.max()) / 4 or 1.0
    final = float(a @ distance @ b) / 200 or 1.0
    while True:
        for _ in range(num_steps):
            f = -temperature * ((g - distance) / temperature + log_b).logsumexp(1)
            g = -temperature * ((f[:, None] - distance) / temperature + log_a[:, None]).logsumexp(0)
        if temperature <= final:
            break
        temperature = max(final, temperature / 2)
    plan = ((f[:, None] + g - distance) / temperature + log_a[:, None] + log_b).exp_()
    plan *= (a / plan.sum(1)).nan_to_num(0.0).clamp(max=1)[:, None]
    plan *= (b / plan.sum(0)).nan_to_num(0.0).clamp(max=1)
    left, right = (a - plan.sum(1)).clamp(min=0), (b - plan.sum(0)).clamp(min=0)
    if left.sum() > 0 and right.sum() > 0:
        plan += left[:, None] * (right / right.sum())
    cost = float((plan * distance).sum())
    return _repaired(cost, plan.numel(), plan.sum(1), plan.sum(0), a, b, _reach(x, y), x.shape[1])


def _check_points(subject: str, name: str, points: Tensor) -> Tensor:
    if not points.dtype.is_floating_point:
        raise DtypeError(
            f"{subject}: `{name}` must be a floating-point tensor; got dtype={points.dtype}. "
            "Convert it with .double()."
        )
    if points.dim() == 0 or points.numel() == 0:
        raise ArgumentError(
            f"{subject}: `{name}` must hold a point at least, shape (n, ...); "
            f"got shape {tuple(points.shape)}."
        )
    flat = points.detach().to("cpu", torch.float64).reshape(len(points), -1)
    if not bool(flat.isfinite().all()):
        raise NonFiniteError(
            f"{subject}: `{name}` must be finite; got NaN or infinity. Drop or repair those points."
        )
    return flat.contiguous()


def _check_pair(subject: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x, y = _check_points(subject, "x", x), _check_points(subject, "y", y)
    if x.shape[1] != y.shape[1]:
        raise ArgumentError(
            f"{subject}: `x` and `y` must have points of one dimension; "
            f"got {x.shape[1]} and {y.shape[1]} coordinates."
        )
    return x, y


def _check_weights(subject: str, name: str, weights: Tensor | None, n: int) -> Tensor:
    """Weights of sum 1, each at most three roundings off."""
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64)
    if weights.shape != (n,):
        raise ArgumentError(
            f"{subject}: `{name}` must have shape ({n},), one for each point; "
            f"got shape {tuple(weights.shape)}."
        )
    weights = weights.detach().to("cpu", torch.float64)
    total = math.fsum(weights.tolist())
    if not (bool((weights >= 0).all()) and math.isfinite(total) and total > 0):
        raise ArgumentError(
            f"{subject}: `{name}` must be finite, non-negative and not all zero; got values from "
            f"{float(weights.min())} to {float(weights.max())}. Drop the points with none."
        )
    return weights / total


def _check_memory(subject: str, n: int, m: int, max_bytes: int) -> None:
    if 8 * n * m > max_bytes:
        raise ArgumentError(
            f"{subject}: the {n} x {m} distances must fit into max_bytes={max_bytes}; they need "
            f"{8 * n * m}. Use coupling_upper_bound (an upper bound in O(n + m) memory), "
            "a subsample, or a larger max_bytes."
        )
