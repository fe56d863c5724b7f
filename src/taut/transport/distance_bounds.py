"""Bounds of the distance from scores and from samples."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from taut.bounds import Bound
from taut.errors import ArgumentError, check_positive
from taut.linalg import gamma, round_down, round_up, unit_roundoff
from taut.norms import L2
from taut.transport.arguments import check_confidence, check_point_pair
from taut.transport.coupling_bound import coupling_upper_bound
from taut.transport.exact_solver import exact_transport
from taut.transport.line_transport import line_distance
from taut.transport.mean_bounds import (
    Method,
    bound_difference,
    group_differences,
    log_inverse,
    lower_by_betting,
    lower_mean,
    predictable_bets,
    shuffle,
)

_U = unit_roundoff()
# Exact transport of up to this many pairs takes a second or two.
_MOST_PAIRS = 2**22
# With fewer points, the bound of the variance is worse than that of the diameter.
_FEWEST_FOR_VARIANCE = 50


class Scores(NamedTuple):
    """Scores of a critic as computed, `(n,)` in float64, and proven bounds of their errors."""

    values: Tensor
    errors: Tensor


class Stage(NamedTuple):
    """Scores of independent draws of P and of Q that their critic had not seen."""

    x: Scores
    y: Scores
    limits: tuple[float, float]  # to which scores are clamped, fixed before these rows were seen
    lipschitz: float  # proven constant of the critic
    # Expected deviations of the scores of x and of y, also fixed beforehand; None if unknown.
    deviations: tuple[float, float] | None = None

    def clamped(self) -> tuple[Tensor, Tensor]:
        r"""Below the clamped scores of x, and above those of y, whatever was rounded."""
        inf = torch.tensor(math.inf, dtype=torch.float64)
        under = torch.nextafter(self.x.values - self.x.errors, -inf).clamp(*self.limits)
        over = torch.nextafter(self.y.values + self.y.errors, inf).clamp(*self.limits)
        return under, over


def bound_population_lower(
    stages: Sequence[Stage],
    confidence: float,
    method: Method,
    generator: Generator,
    name: str = "critic",
) -> Bound:
    r"""A lower bound of $W_1(P, Q)$ from scores of rows that no critic was selected on.

    $$W_1(P, Q) \ge \frac{\mathbb{E}_P \bar f - \mathbb{E}_Q \bar f}{L}, \qquad
      \bar f = \min(\max(f, a), b)$$

    Clamping is 1-Lipschitz, so $\bar f$ has the constant $L$ of $f$. Computed scores $\hat f$ are off by
    at most $e$, row by row, so $\min(\max(\hat f - e, a), b) \le \bar f$ everywhere, and likewise
    from above.

    **Theorem** (stages). Let the rows come in stages; critic, limits and bets of a stage may depend on
    all rows of earlier stages. Let $d_1, \dots, d_k$ be, stage after stage, the differences of group
    means of `bound_difference`, divided by $L$: the draws of a stage lie in $[-r, r]$, $r = (b - a)/L$.
    For a candidate distance $w \ge 0$ and predictable bets $\lambda_i \ge 0$ let

    $$K_t(w) = \prod_{i \le t} \bigl(1 + \min(\lambda_i, c/(w + r_i))\,(d_i - w)\bigr), \qquad c = 3/4.$$

    Then $W_1(P, Q) \ge \sup\{w : \max_t K_t(w) \ge 1/\delta\}$ with probability at least $1 - \delta$.

    *Proof.* Given the earlier stages and draws, $d_i$ has an expectation of at most $W_1(P, Q)$, by the
    first display. At $w = W_1$ each factor is therefore at least $1 - c$ and 1 or less in expectation:
    $K_t$ is a non-negative supermartingale that starts at 1, and Ville's inequality applies. Each
    factor falls with $w$, as in `bound_mean`, so what is rejected is an interval from 0. $\square$

    So rows that trained a later critic first help to judge an earlier one, and no error probability is
    split. Methods other than "betting" use the last stage alone. The bound is never below 0; `name`
    is what its `method` calls the critic.

    Example:
        >>> import torch
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(2, 1000, generator=seeded)
        >>> stage = Stage(Scores(x + 2, 0 * x), Scores(y, 0 * y), (0, 3), 1.0)
        >>> bound_population_lower([stage], 0.95, "betting", seeded)
        Bound(>= 1.9..., l2, at 95 %)
    """
    # A constant function proves nothing.
    useful = [
        stage for stage in stages if stage.limits[0] < stage.limits[1] and stage.lipschitz > 0
    ]
    value = 0.0
    if useful and method == "betting":
        delta = check_confidence("bound_population_lower", confidence)
        # Bets may depend on how many rows there are to come, but not on whether they will be useful.
        rounds = sum(min(len(stage.x.values), len(stage.y.values)) for stage in stages)
        value = _bet_on(useful, rounds, delta, generator)
    elif useful and useful[-1] is stages[-1]:
        low, high = useful[-1].limits
        sides = useful[-1].clamped()
        difference = bound_difference(*sides, low, high, confidence, method, generator)
        value = _divide_down(difference.value, useful[-1].lipschitz)
    return Bound(value, L2, "lower", f"{name}, {method}", confidence)


def _bet_on(stages: Sequence[Stage], rounds: int, delta: float, generator: Generator) -> float:
    """Evaluates the bound of the theorem on stages."""
    sides = [[shuffle(side, generator) for side in stage.clamped()] for stage in stages]
    parts = []
    for stage, (x, y) in zip(stages, sides, strict=True):
        difference, rounding = group_differences(x, y, *stage.limits)
        # Below the exact quotients, and their range beyond what that may have added to it.
        draws = (difference - rounding) / stage.lipschitz
        draws = draws - 4 * _U * draws.abs()
        reach = (stage.limits[1] - stage.limits[0] + 2 * rounding) / stage.lipschitz * (1 + 16 * _U)
        expected = 0.25
        if stage.deviations is not None:
            # In parts of the range, so that no square overflows.
            parts_of = (s / (2 * stage.lipschitz * reach) for s in stage.deviations)
            variances = (s**2 / len(z) for s, z in zip(parts_of, (x, y), strict=True))
            expected = len(draws) * sum(variances)
        bets = predictable_bets(
            (draws / reach + 1) / 2, log_inverse(delta), rounds, 0.5, min(0.25, max(1e-6, expected))
        )
        parts.append((draws, bets / (2 * reach), torch.full_like(draws, -reach)))
    draws, bets, floor = (torch.cat(part) for part in zip(*parts, strict=True))
    # A power of two, so that the common unit costs no rounding.
    unit = 2.0 ** math.frexp(float(floor.abs().max()))[1]
    return unit * float(lower_by_betting(draws / unit, delta, bets * unit, floor / unit))


def bound_finite_lower(x: Scores, y: Scores, lipschitz: float, *, name: str) -> Bound:
    """A proven lower bound of $W_1$ between two finite sets, from the scores of all their points."""
    difference = bound_mean_score(x)[0] - bound_mean_score(y)[1]
    return Bound(_divide_down(difference, lipschitz), L2, "lower", name)


def bound_mean_score(scores: Scores) -> tuple[float, float]:
    """Proven lower and upper bound of the mean of the exact scores."""
    values, errors = scores
    # Three roundings: of each end, of the sum, and of its division.
    slack = 4 * _U * float((values.abs() + errors).amax())
    low, high = (
        math.fsum(end.tolist()) / len(values) for end in (values - errors, values + errors)
    )
    return low - slack, high + slack


def _divide_down(difference: float, lipschitz: float) -> float:
    if lipschitz <= 0:  # a constant function proves nothing
        return 0.0
    # The difference, the division and two steps each round to nearest: three steps are below.
    return max(0.0, round_down(round_down(round_down(difference / lipschitz))))


def bound_population_upper(
    x: Tensor,
    y: Tensor,
    confidence: float = 0.95,
    *,
    generator: Generator,
    diameter: float | None = None,
) -> Bound:
    r"""An upper bound of $W_1(P, Q)$ for the populations behind two independent samples.

    **Theorem.** Let $T \ge W_1(P_n, Q_m)$ be the cost of any coupling of the samples, $D_P, D_Q$ the
    diameters of the supports, $\sigma_P^2 = \tfrac12 \mathbb{E}\|X - X'\|^2$ the total variance of P,
    likewise $\sigma_Q^2$, and $\ell = \ln(1/\delta)$. With probability at least $1 - \delta$ each,
    $W_1(P, Q) \le T + t$ with

    - (McDiarmid) $t = \sqrt{\tfrac12 \ell \left(D_P^2/n + D_Q^2/m\right)}$;
    - (Bernstein) $t = c + \sqrt{c^2 + 2 v \ell}$, where $v = \sigma_P^2/n + \sigma_Q^2/m$ and
      $c = \tfrac13 \ell \max(D_P/n, D_Q/m)$.

    *Proof.* $W_1(P, Q) = \sup_f (\mathbb{E}_P f - \mathbb{E}_Q f)$ over 1-Lipschitz $f$. For each
    $f$ the bracket is the expectation of the same bracket on the samples, and a supremum of
    expectations is at most the expectation of the supremum (convexity): $W_1(P, Q) \le \mathbb{E} Z$
    with $Z = W_1(P_n, Q_m)$. Moving one point of P by $r$ moves $Z$ by at most $r/n$; McDiarmid's
    inequality is for such functions. Now reveal the points one by one. Given the past, the
    expectation of $Z$ is a $1/n$-Lipschitz function $g$ of the next point $X$ of P, and changes by
    $g(X) - \mathbb{E} g(X)$: at most $D_P/n$, of variance $\tfrac12 \mathbb{E}(g(X) - g(X'))^2 \le
    \sigma_P^2/n^2$; likewise for Q. So the variances add up to at most $v$, whatever the past, and
    Freedman's inequality gives $\Pr(\mathbb{E} Z - Z \ge t) \le \exp(-t^2 / (2v + 2 c t / \ell))$,
    which is $\delta$. In both cases $Z \le T$. $\square$

    Samples of at least 50 points use Bernstein's bound at four fifths of $\delta$; a tenth each
    bounds the two variances from above, which `bound_mean` does with $\tfrac12 \|X - X'\|^2$ over
    disjoint random pairs, draws in $[0, D^2/2]$: by betting where the diameter is known, else by its
    empirical Bernstein bound. Smaller samples use McDiarmid's.

    A diameter $\hat D$ that is taken from the data is random, so no theorem for a range fixed beforehand
    may be given it, and bets in units of it would not be predictable. But McDiarmid's and both
    Bernstein bounds grow with the diameter and hold with the true one; so where
    $\hat D \ge D$, which is what is assumed, they hold with $\hat D$.

    Both inequalities are about $W_1(P_n, Q_m)$, so the coupling may be chosen by looking at the
    points, and all of them count. On a line, and for samples of up to 4 million pairs, the coupling
    is optimal; else it is that of `coupling_upper_bound`.

    Loose in high dimension: $\mathbb{E}\,W_1(P_n, Q_m)$ is above the truth by the order of
    $n^{-1/d}$, for $P = Q$ too; no upper bound from samples escapes this without assumptions.

    Args:
        x: `(n, ...)`, independent draws of P.
        y: `(m, ...)`, independent draws of Q.
        confidence: confidence level, inside (0, 1).
        generator: source of the random pairs and of the directions of the coupling, on the CPU.
        diameter: diameter of each support, known beforehand. None takes twice the largest distance
            from the sample's mean: an assumption about what was not seen, and `method` says so.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(2, 2000, 1, generator=seeded)
        >>> bound_population_upper(x, y + 1, diameter=1.0, generator=seeded)
        Bound(<= 1.0..., l2, at 95 %)
    """
    subject = "bound_population_upper"
    delta = check_confidence(subject, confidence)
    x, y = check_point_pair(subject, x, y)
    widths = [
        _support_width(subject, name, z, diameter) for name, z in (("first", x), ("second", y))
    ]
    sides = list(zip(widths, (x, y), strict=True))
    if min(len(x), len(y)) < _FEWEST_FOR_VARIANCE:
        name, log = "McDiarmid", log_inverse(delta)
        deviation = math.hypot(*(width / math.sqrt(len(z)) for width, z in sides))
        deviation *= math.sqrt(log / 2)
    else:
        name, log = "Bernstein", log_inverse(0.8 * delta)
        # Of the root of v; products of squares of widths could overflow.
        root = math.hypot(
            *(
                _bound_deviation(z, width, delta / 10, generator, diameter is not None)
                for width, z in sides
            )
        )
        c = log / 3 * max(width / len(z) for width, z in sides)
        deviation = c + math.hypot(c, root * math.sqrt(2 * log))
    if x.shape[1] == 1:
        cost = line_distance(x[:, 0], y[:, 0]).upper
    elif len(x) * len(y) <= _MOST_PAIRS:
        cost = exact_transport(x, y).interval.upper
    else:
        cost = coupling_upper_bound(x, y, generator=generator, block_size=512, num_sweeps=2)
    method = f"{cost.method} of {len(x)} x {len(y)} points, {name}"
    if diameter is None:
        method += "; assuming that neither population is wider than the data"
    value = round_up((cost.value + deviation) * (1 + 64 * _U))
    return Bound(value, L2, "upper", method, confidence)


def _bound_deviation(
    points: Tensor, width: float, delta: float, generator: Generator, width_is_known: bool
) -> float:
    r"""An upper bound of $\sigma / \sqrt{n}$ at the error probability `delta`."""
    if width == 0:
        return 0.0
    first, second = shuffle(points, generator)[: len(points) // 2 * 2].chunk(2)
    # In parts of the width, so that squares neither overflow nor vanish.
    apart = torch.linalg.vector_norm((first - second) / width, dim=-1)
    draws = (apart.square() / 2 * (1 + 2 * gamma(points.shape[1] + 8))).clamp(max=0.5)
    variance = -lower_mean(-draws, -0.5, 0.0, delta, "betting" if width_is_known else "bernstein")
    return width * math.sqrt(variance / len(points))


def _support_width(subject: str, name: str, points: Tensor, diameter: float | None) -> float:
    radii = torch.linalg.vector_norm(points - points.mean(0), dim=-1)
    widest = 2 * float(radii.max()) * (1 + 2 * gamma(points.shape[1] + 8))
    if diameter is None:
        return widest
    check_positive(subject, "diameter", diameter)
    # A distance that occurs in the sample, so the support is at least as wide.
    farthest = float(torch.linalg.vector_norm(points - points[radii.argmax()], dim=-1).max())
    if farthest > diameter * (1 + 2 * gamma(points.shape[1] + 8)):
        rule = "must be at least every distance inside a sample"
        got = f"diameter={diameter}, and two points of the {name} sample {farthest:.6g} apart"
        remedy = "Give the diameter of the support, or leave it out."
        raise ArgumentError(subject, "diameter", rule, got, remedy)
    return diameter
