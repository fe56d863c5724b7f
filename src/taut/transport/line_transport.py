r"""Exact transport on a line, in the time of a sort.

With $F$ and $G$ the distribution functions of two laws on a line,

$$W_1 = \int |F(t) - G(t)| \, dt .$$

*Proof.* From below: the function $f$ with slope $\operatorname{sign}(G - F)$ is 1-Lipschitz, and
integration by parts gives $\mathbb{E}_P f - \mathbb{E}_Q f = \int f' (G - F) \, dt = \int |F - G|$.
From above: the coupling $(F^{-1}(U), G^{-1}(U))$ of a uniform $U$ costs
$\int_0^1 |F^{-1} - G^{-1}| \, du$, the same area between the same two graphs. $\square$
"""

import torch
from torch import Tensor

from taut.bounds import Bound, Interval
from taut.linalg import gamma, round_down, round_up
from taut.nn import ConeCritic
from taut.norms import L2
from taut.transport.arguments import check_sample

_MOST_PIECES = 256


def line_distance(x: Tensor, y: Tensor) -> Interval:
    r"""$W_1$ of two finite sets of numbers, `(n,)` and `(m,)`, between proven ends.

    The area between the distribution functions is a sum over the gaps of the $N = n + m$ sorted
    numbers. Its terms are not negative: each width is one rounding off, and each height, a whole
    number over $nm$, three. So the sum is off by at most $\gamma_{N + 4}$ of itself, plus underflow.

    Example:
        >>> line_distance(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 4.0, 5.0]))
        Interval([3.4999, 3.5001] proven)
    """
    x, y = check_sample("line_distance", "x", x), check_sample("line_distance", "y", y)
    _, width, height = _gaps(x, y)
    value, error, terms = 0.0, 0.0, len(width)
    # Between equal sets there is nothing to round.
    if bool(((width > 0) & (height != 0)).any()):
        value = float(width @ height.abs())
        error = round_up(2 * gamma(terms + 8) * value + terms * 2.0**-1022)
    method = "area between the distribution functions"
    return Interval(
        Bound(max(0.0, round_down(value - error)) if error else 0.0, L2, "lower", method),
        Bound(round_up(value + error) if error else 0.0, L2, "upper", method),
    )


def line_potential(x: Tensor, y: Tensor) -> ConeCritic:
    r"""The best critic of two samples on a line with at most 256 pieces of slope 1 or -1.

    The pieces end at quantiles of both samples together, all their numbers where these are few.
    The area of $G - F$ over a piece decides its slope, which maximises the dual value piece by
    piece; with a piece for every gap it is $W_1$.

    The function is the minimum of cones at its local minima: being 1-Lipschitz, it is nowhere above
    one of them, and from every point of the samples it falls at slope 1 to one. It is high on `x`
    `(n,)`, low on `y` `(m,)`, and in float64.
    """
    points, width, height = _gaps(x.double(), y.double())
    pieces = min(_MOST_PIECES, len(width))
    ends = torch.linspace(0, len(width), pieces + 1, dtype=torch.float64).round().long()
    zero = points.new_zeros(1)
    area = torch.cat([zero, (width * height).cumsum(0)])[ends].diff()
    rises, knots = area >= 0, points[ends]
    values = torch.cat([zero, torch.where(rises, knots.diff(), -knots.diff()).cumsum(0)])
    edge = torch.ones(1, dtype=torch.bool)
    lowest = torch.cat([edge, ~rises]) & torch.cat([rises, edge])
    return ConeCritic.from_points(knots[lowest, None], values[lowest])


@torch.no_grad()
def score_line(potential: ConeCritic, points: Tensor) -> tuple[Tensor, Tensor]:
    r"""Scores of `points`, `(n,)`, by a critic of `line_potential`, and bounds of their errors.

    Between neighbouring centres $c_j < c_{j+1}$ one of their two cones is the lowest, the second
    from $(c_j + c_{j+1} + b_{j+1} - b_j)/2$ on, so a binary search finds it.

    *Error.* With $k$ pieces, $C = \max |c_j|$ and $B = \max |b_j|$: an offset is a sum of at most
    $k$ terms of absolute sum at most $2C + B$, so two offsets differ by at most the distance of
    their centres plus $2\gamma_{k+1}(2C + B)$, by which another cone may be lower; a crossing is
    $8u(C + B)$ off, at slope 2; the height itself is three roundings off. Together that is below
    $\gamma_{8k}(|z| + C + B)$ for $k = 256$. $\square$
    """
    centres, offsets = potential.centres[:, 0].contiguous(), potential.offsets
    crossings = (centres[1:] + centres[:-1] + offsets.diff()) / 2
    if len(crossings):
        crossings = crossings.cummax(0).values
    lowest = torch.searchsorted(crossings, points)
    values = (points - centres[lowest]).abs() + offsets[lowest]
    reach = points.abs() + (centres.abs().max() + offsets.abs().max())
    return values, gamma(8 * _MOST_PIECES) * reach + 2.0**-1022


def _gaps(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All numbers in order, the width of each gap between them, and $G - F$ on it."""
    n, m = len(x), len(y)
    points, order = torch.cat([x, y]).sort()
    # In whole numbers, so that heights that cancel are 0.
    height = torch.where(order < n, -m, n).cumsum(0)[:-1]
    return points, points.diff(), height.double() / (n * m)
