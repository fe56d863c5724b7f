"""`LinfDistance` and `SortDistance`: units that measure how far their input is from a stored point."""

import math
from fractions import Fraction
from typing import Any, final

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, check_count, check_within
from taut.linalg.linf_distances import linf_distance
from taut.linalg.rounding import exact_double
from taut.norms import LINF, Norm
from taut.rules import Call, Constants, FileSchema, Rounding, register
from taut.rules.dense import PRODUCTS

_CHUNK = 2**22  # differences that are sorted at once
_NUM_TERMS = 10  # of the order statistics of `SortDistance`


class StoredPoints(nn.Module):
    """The base of layers of distances: the points, and the exponent in training mode."""

    weight: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count(type(self).__name__, "in_features", in_features)
        check_count(type(self).__name__, "out_features", out_features)
        self.in_features, self.out_features = in_features, out_features
        self.exponent = math.inf
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the stored points from a standard normal distribution."""
        nn.init.normal_(self.weight)

    def _check(self, x: Tensor) -> None:
        if x.shape[-1:] != (self.in_features,):
            rule = f"must have last dimension {self.in_features}"
            raise ArgumentError(type(self).__name__, "x", rule, f"shape {tuple(x.shape)}")

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


@final
class LinfDistance(StoredPoints):
    r"""$y_o = \max_i |x_i - w_{oi}|$: 1-Lipschitz in L-inf, whatever the weight.

    **Theorem.** $|y_o(x) - y_o(x')| \le \|x - x'\|_\infty$: the triangle inequality. No projection is
    needed, and, unlike an affine map with rows in the l1 ball, a unit reacts to a change of any
    coordinate at full slope. Networks of such units approximate every 1-Lipschitz function in L-inf
    (Zhang et al. 2021).

    Training needs a smoother function: with `exponent` $p < \infty$ (raise it from 8 to about 1000 and
    then to infinity), a forward pass in training mode computes $\|x - w_o\|_8$ for $p = 8$, and for larger
    $p$ a smooth distance between it and the maximum, at the same cost (`taut.linalg.linf_distances`).
    Evaluation always uses the maximum, and so do all proofs. Distances are positive and grow from layer to
    layer: put `taut.nn.Centering` behind each but the last.

    Args:
        in_features: length of a point.
        out_features: number of stored points.
        device: device of the weight.
        dtype: dtype of the weight.

    Attributes:
        exponent: exponent of the distance in training mode, at least 8; infinity by default.

    Example:
        >>> layer = LinfDistance(2, 1)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -2.0]]))
        >>> layer(torch.zeros(1, 2))
        tensor([[2.]], grad_fn=<ViewBackward0>)
        >>> taut.bound_lipschitz(layer, "linf")
        Bound(<= 1.0, linf, proven)
    """

    def forward(self, x: Tensor) -> Tensor:
        """`(..., in_features) -> (..., out_features)`."""
        self._check(x)
        return linf_distance(x, self.weight, self.exponent if self.training else math.inf)


@final
class SortDistance(StoredPoints):
    r"""A weighted sum of the largest distances to a stored point: 1-Lipschitz in L-inf.

    $$y_o = \sum_{k < 10} c_k\, u_{(k)}, \qquad u_i = |x_i - w_{oi}|, \qquad c_k \propto q (1 - q)^k$$

    with $u_{(0)} \ge u_{(1)} \ge \dots$ sorted and the coefficients $c$ adding up to 1 (SortNet, Zhang
    et al. 2022). **Theorem.** Order statistics are 1-Lipschitz in L-inf, and so is a convex combination
    of functions that are.

    Training needs no sorting: if every coordinate is kept with probability $q$, the largest distance
    among the kept ones is $u_{(k)}$ with probability $q (1 - q)^k$. A forward pass in training mode
    draws one such set for the batch and computes the distance over it, with `exponent` as in
    `LinfDistance`.

    Args:
        in_features: length of a point.
        out_features: number of stored points.
        q: probability with which a coordinate is kept, in (0, 1].
        device: device of the weight.
        dtype: dtype of the weight.

    Attributes:
        exponent: exponent of the distance in training mode, at least 8; infinity by default.

    Example:
        >>> layer = SortDistance(3, 1, q=0.5).eval()
        >>> _ = layer.weight.data.copy_(torch.zeros(1, 3))
        >>> layer(torch.tensor([[7.0, 0.0, -14.0]])).item()
        10.0
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        q: float = 0.7,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_within("SortDistance", "q", q, "(0, 1]")
        super().__init__(in_features, out_features, device=device, dtype=dtype)
        self.q = float(q)

    @property
    def coefficients(self) -> list[float]:
        """Weights of the order statistics, the largest first: in exact arithmetic they sum to at most 1."""
        q, count = Fraction(self.q), min(_NUM_TERMS, self.in_features)
        weights = [q * (1 - q) ** k for k in range(count)]
        rounded = [float(weight / sum(weights)) for weight in weights]
        while sum(map(Fraction, rounded)) > 1:
            rounded[0] = math.nextafter(rounded[0], 0.0)
        return rounded

    def forward(self, x: Tensor) -> Tensor:
        """`(..., in_features) -> (..., out_features)`."""
        self._check(x)
        if not self.training:
            return sorted_distance(x, self.weight, self.coefficients)
        if self.q == 1:
            return linf_distance(x, self.weight, self.exponent)
        # A difference of zero is never the largest, so dropped coordinates are set to zero.
        kept = (torch.rand(self.in_features, device=x.device) < self.q).to(x.dtype)
        return linf_distance(x * kept, self.weight * kept, self.exponent)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, q={self.q}"


def _order_statistics(u: Tensor, coefficients: list[float]) -> Tensor:
    return u.topk(len(coefficients), dim=-1).values @ u.new_tensor(coefficients)


def sorted_distance(x: Tensor, weight: Tensor, coefficients: list[float]) -> Tensor:
    """The sum of order statistics of $|x - w_o|$, in chunks: `(..., in)` to `(..., out)`."""
    points = x.reshape(-1, x.shape[-1])
    if torch.compiler.is_compiling():
        y = _order_statistics((points.unsqueeze(1) - weight).abs(), coefficients)
    else:
        size = max(1, _CHUNK // weight.numel())
        parts = [(part.unsqueeze(1) - weight).abs() for part in points.split(size)]
        y = torch.cat([_order_statistics(part, coefficients) for part in parts])
    return y.reshape(*x.shape[:-1], len(weight))


def _each_unit(call: Call) -> Constants:
    """Every unit is 1-Lipschitz from L-inf, hence from every norm, in each point on its own."""
    out = exact_double(type(call.module).__name__, call.module.weight).shape[0]
    single = call.x.shape is not None and len(call.x.shape) == 1
    several = {"l1": float(out), "l2": math.nextafter(math.sqrt(out), math.inf), "linf": 1.0}

    def gain(p: Norm, q: Norm) -> float:
        return several[q.name] if single or q.p >= p.p or q == LINF else math.inf

    return call.x.constants.through(gain)


def largest_difference(call: Call, x: Tensor) -> Tensor:
    """What no difference exceeds, for each point and each stored one."""
    weight = call.module.weight.double().abs().amax(-1)
    return x.abs().amax(-1, keepdim=True) + weight


def corner_distances(call: Call, lower: list[Tensor], upper: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Over a box, `|x_i - w|` ranges from the gap between `w` and the interval to its farther end."""
    (low,), (high,), weight = lower, upper, call.module.weight.double()
    # A maximum may hide a NaN, and then no bound would hold.
    known = (low.isfinite() & high.isfinite()).all(-1, keepdim=True)
    low, high = low.where(known, 0.0), high.where(known, 0.0)
    if isinstance(call.module, SortDistance):
        near, far = _sorted_ends(low, high, weight, call.module.coefficients)
    else:
        near = torch.maximum(_largest_excess(low, weight), _largest_excess(-high, -weight))
        far = torch.maximum(linf_distance(low, weight), linf_distance(high, weight))
    return near.where(known & (near > 0), 0.0), far.where(known, math.inf)


def _largest_excess(x: Tensor, weight: Tensor) -> Tensor:
    r"""$\max_i (x_i - w_{oi})$, never above the truth: shifted until all differences are positive."""
    shift = 2 * (weight.abs().amax() + x.abs().amax(-1, keepdim=True))
    return (linf_distance(x + shift, weight) - shift) - 2.0**-48 * shift


def _sorted_ends(
    low: Tensor, high: Tensor, weight: Tensor, coefficients: list[float]
) -> tuple[Tensor, Tensor]:
    ends: list[Tensor] = []
    size = max(1, _CHUNK // weight.numel())
    for a, b in zip(low.unsqueeze(-2).split(size), high.unsqueeze(-2).split(size), strict=True):
        above, below = a - weight, weight - b
        nearest = torch.maximum(above, below).clamp(min=0)
        farthest = torch.maximum(b - weight, weight - a)
        ends.append(torch.stack([_order_statistics(u, coefficients) for u in (nearest, farthest)]))
    near, far = torch.cat(ends, 1)
    return near, far


def _file(layer: type[nn.Module], **more: Any) -> FileSchema:
    return FileSchema(
        layer,
        {"in_features": int, "out_features": int, **more},
        {"in_features": 1, "out_features": 1},
        lambda a: {"weight": (a["out_features"], a["in_features"])},
    )


register(
    LinfDistance,
    proof="distances",
    constants=_each_unit,
    # One subtraction; a maximum is exact.
    rounding=Rounding(lambda call: 1, largest_difference, _each_unit),
    image=corner_distances,
    file=_file(LinfDistance),
)
register(
    SortDistance,
    proof="order statistics of distances",
    constants=_each_unit,
    # A subtraction, a rounded coefficient, a product, and a sum.
    rounding=Rounding(lambda call: _NUM_TERMS + 3, largest_difference, _each_unit, PRODUCTS),
    image=corner_distances,
    file=_file(SortDistance, q=float),
)
