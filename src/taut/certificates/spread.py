r"""How far computed tensors may lie from true ones, in all three norms, as upward-rounded numbers.

Each quantity is a triple $(v_1, v_2, v_\infty)$ along the first dimension of a float64 tensor: a
bound of one vector in three norms, or of a batch of them. The steps here multiply by
$1 + 2^{-48}$ and add $2^{-1021}$, more than the roundings and underflows of their few operations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from taut.audit import Constants
from taut.linalg.rounding import gamma

__all__ = ["Spread", "gains_of", "norms_up", "through", "tighten", "up"]

_FLOOR = 2.0**-1021


def up(x: Tensor) -> Tensor:
    """Above what a handful of roundings and underflows may have lost."""
    return x * (1 + 2.0**-48) + _FLOOR


def norms_up(x: Tensor) -> Tensor:
    """The norms of each sample, `(batch, ...)` to `(3, batch)`, never below the truth."""
    magnitude = x.abs().flatten(1)
    size = magnitude.shape[1]
    if size == 0:
        return x.new_zeros(3, len(x))
    slack = 1 + 2 * gamma(size + 4)
    largest = magnitude.amax(1)
    # Squares below the range are lost: 2^-1022 each, and as much in each addition.
    length = torch.linalg.vector_norm(magnitude, dim=1) * slack + math.sqrt(size) * 2.0**-510
    return tighten(torch.stack([magnitude.sum(1) * slack, length, largest]), size)


def tighten(v: Tensor, size: int) -> Tensor:
    r"""What the triple implies by $\|v\|_\infty \le \|v\|_2 \le \|v\|_1$ and their converses."""
    root = math.nextafter(math.sqrt(size), math.inf)
    l2 = torch.minimum(torch.minimum(v[1], v[0]), up(v[2] * root))
    linf = torch.minimum(v[2], l2)
    l1 = torch.minimum(v[0], torch.minimum(up(l2 * root), up(linf * size)))
    return torch.stack([l1, l2, linf])


def through(gains: Tensor, v: Tensor) -> Tensor:
    r"""After a map with constants `gains[q, p]` from norm p to norm q: $\min_p g_{qp} v_p$."""
    routes = gains.view(3, 3, *[1] * (v.dim() - 1)) * v
    # An unknown constant times zero is unknown, and so is what came from NaN.
    return up(routes.nan_to_num(nan=math.inf, posinf=math.inf).amin(1))


def gains_of(bound: Callable[[Constants], Constants]) -> Tensor:
    """The table `gains[q, p]` of a map, from what its rule makes of each unit ball."""
    inf = math.inf
    units = (Constants(1.0, 1.0, 1.0), Constants(inf, 1.0, 1.0), Constants(inf, inf, 1.0))
    columns = [[made.l1, made.l2, made.linf] for made in map(bound, units)]
    return torch.tensor(columns, dtype=torch.float64).T


@dataclass(frozen=True)
class Spread:
    r"""Where the values of one step may lie, around those that were computed at `x`.

    With $v$ the true value, $\hat v(x)$ the computed one in float64, and $\tilde v(x')$ that of the
    execution under study at any $x'$ within distance $r$:

    $$\|\hat v(x) - v(x)\| \le error, \quad \|v(x') - v(x)\| \le reach \cdot r, \quad
      \|\tilde v(x') - v(x')\| \le far + slope \cdot r.$$

    Attributes:
        error: `(3, batch)`.
        far: `(3, batch)`.
        reach: `(3,)`.
        slope: `(3,)`.
    """

    error: Tensor
    far: Tensor
    reach: Tensor
    slope: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Spread":
        """The same change to all four."""
        return Spread(*map(change, (self.error, self.far, self.reach, self.slope)))

    def through(self, gains: Tensor, size: int) -> "Spread":
        """After a map with these constants, to `size` entries a sample."""
        return self.map(lambda v: tighten(through(gains, v), size))

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(
            up(self.error + other.error),
            up(self.far + other.far),
            up(self.reach + other.reach),
            up(self.slope + other.slope),
        )
