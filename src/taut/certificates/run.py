r"""One tensor of a network as computed in float64, and where the truth may lie around it.

The model of arithmetic is that of `taut.linalg.rounding`. A sum of products and an offset,
$y = Wx + b$, with at most $k$ roundings on the way of any term is off by at most
$\gamma_k (|W||\hat x| + |b|)$ entry by entry, so with $\hat x$ itself off by $e$ in norm,

$$e' \le \|W\| e + \gamma_k \bigl\| |W||\hat x| + |b| \bigr\| + \text{underflow}.$$

The same recursion bounds an execution of the network, in float64 or float32, at every point $x'$
within distance $r$ of $x$: what enters a layer there lies within $error + far + (reach + slope) r$
of what was computed at $x$ (see `Spread`).
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from taut.certificates.spread import Spread, through, tighten, up
from taut.linalg.rounding import gamma

__all__ = ["Head", "Run", "Study"]


@dataclass(frozen=True)
class Head:
    """The last dense layer behind a tensor, when only factors came since.

    Attributes:
        features: where the layer's input may lie.
        weight: `(classes, features)`.
        factor: what its output was multiplied by since, in magnitude, rounded up.
        fresh: the part of the spread that arose in the layer and since.
    """

    features: Spread
    weight: Tensor
    factor: float
    fresh: Spread


@dataclass(frozen=True)
class Run:
    """A tensor `(batch, ...)`, its spread and, behind a last dense layer, that layer."""

    value: Tensor
    spread: Spread
    head: Head | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.value.shape[1:])


class Study:
    """What the steps of one network share.

    Attributes:
        dtype: the arithmetic of the execution under study; None for real numbers, which leaves
            `far` and `slope` at zero.
        limit: `(batch,)`, the distance from each sample within which nothing can overflow.
        tables: constants of steps, proven once for all batches.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype = dtype
        self.limit = torch.zeros(0)
        self.tables: dict[Hashable, Tensor] = {}

    def start(self, x: Tensor, reach: Tensor) -> Run:
        """The input: known exactly, `reach` `(3,)` being what a move by 1 is in each norm."""
        none = x.new_zeros(3, len(x))
        self.limit = x.new_full((len(x),), math.inf)
        return Run(x, Spread(none, none, reach, torch.zeros_like(reach)))

    def table(self, key: Hashable, make: Callable[[], Tensor], like: Tensor) -> Tensor:
        """The constants of a step, made when first asked for."""
        if key not in self.tables:
            self.tables[key] = make().to(like.device)
        return self.tables[key]

    def rounding(
        self, value: Tensor, incoming: Spread, magnitude: Tensor, growth: Tensor, count: int
    ) -> Spread:
        r"""What a step that rounds adds to the spread of its exact result.

        Args:
            value: `(batch, ...)`, what the step computed.
            incoming: the spread before the step.
            magnitude: `(3, batch)`, norms of the sums of magnitudes at `x`.
            growth: `(3, 3)`, constants of those sums as functions of the step's input.
            count: roundings on the way of any one term.
        """
        size = math.prod(value.shape[1:])
        ones = value.new_tensor([[size], [math.nextafter(math.sqrt(size), math.inf)], [1.0]])
        here = up(gamma(count) * magnitude + _underflow(count, torch.float64) * ones)
        # Infinity could hide behind a maximum, and then no bound would hold.
        here = torch.where(value.flatten(1).isfinite().all(1), here, math.inf)
        zero = torch.zeros_like(incoming.reach)
        far, slope = torch.zeros_like(here), zero
        if self.dtype is not None:
            start = up(magnitude + through(growth, up(incoming.error + incoming.far)))
            rate = through(growth, up(incoming.reach + incoming.slope))
            ceiling = torch.finfo(self.dtype).max / 4
            self.limit = torch.minimum(self.limit, (ceiling - start[2]) / rate[2])
            unit = gamma(count, self.dtype)
            far = up(unit * start + _underflow(count, self.dtype) * ones)
            slope = up(unit * rate)
        return Spread(here, far, zero, slope).map(lambda v: tighten(v, size))


def _underflow(count: int, dtype: torch.dtype) -> float:
    """Products and sums that fall below the normal range, `count` of each at most."""
    return 4 * (count + 1) * torch.finfo(dtype).tiny
