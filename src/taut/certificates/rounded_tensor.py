r"""One tensor of a network as computed in float64, and where the truth may lie around it.

The model of arithmetic is that of `taut.linalg.rounding`. With $v$ the true value, $\hat v(x)$ the
computed one in float64, and $\tilde v(x')$ that of the execution under study at any $x'$ within
distance $r$ of $x$, each tensor of the network has

$$\|\hat v(x) - v(x)\| \le e, \quad \|v(x') - v(x)\| \le K r, \quad
  \|\tilde v(x') - v(x')\| \le f + s r.$$

All four travel through an operation by its constants. An operation that rounds adds
$\gamma_k$ times the sum $m$ of magnitudes of its terms, at $x$ in float64, and at $x'$ in the
arithmetic under study, where $m$ is larger by what may have moved on the way.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from taut.linalg.rounding import gamma
from taut.rules import Call, Constants, Rounding, Value

_FLOOR = 2.0**-1021


def up(x: Tensor) -> Tensor:
    """Above what a handful of roundings and underflows may have lost."""
    return x * (1 + 2.0**-48) + _FLOOR


def norms_up(x: Tensor) -> Tensor:
    """The norms of each sample, `(batch, ...)` to `(3, batch)`, never below the truth."""
    magnitude = x.abs().reshape(len(x), math.prod(x.shape[1:]))
    size = magnitude.shape[1]
    if size == 0:
        return x.new_zeros(3, len(x))
    slack = 1 + 2 * gamma(size + 4)
    largest = magnitude.amax(1)
    # Squares below the range are lost: 2^-1022 each, and as much in each addition.
    length = torch.linalg.vector_norm(magnitude, dim=1) * slack + math.sqrt(size) * 2.0**-510
    total = magnitude.sum(1) * slack
    return Constants(total, length, largest).within(size).values


@dataclass(frozen=True)
class ErrorBound:
    """How far the values of one tensor may lie from the computed ones, in all three norms."""

    error: Constants  # $e$, for each sample
    far: Constants  # $f$, for each sample
    reach: Constants  # $K$
    slope: Constants  # $s$

    @property
    def parts(self) -> tuple[Constants, Constants, Constants, Constants]:
        """All four, in order."""
        return self.error, self.far, self.reach, self.slope

    def __add__(self, other: "ErrorBound") -> "ErrorBound":
        pairs = zip(self.parts, other.parts, strict=True)
        return ErrorBound(*(Constants.added(pair) for pair in pairs))


@dataclass(frozen=True)
class LastLayer:
    """The last dense layer behind a tensor, when only factors came since."""

    features: ErrorBound  # where the layer's input may lie
    weight: Tensor  # `(classes, features)`
    factor: float  # what its output was multiplied by since, in magnitude, rounded up
    fresh: ErrorBound  # the part of the error bound that arose in the layer and since


@dataclass(frozen=True)
class RoundedTensor:
    """A tensor `(batch, ...)`, its error bound and, behind a last dense layer, that layer."""

    value: Tensor
    bound: ErrorBound
    last: LastLayer | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.value.shape[1:])


def _magnitudes(rounding: Rounding, call: Call, incoming: list[RoundedTensor]) -> Tensor:
    """The norms of the magnitudes, which are computed in float64 with as many roundings, from above."""
    terms = rounding.magnitude(call, *(r.value for r in incoming))
    norms = up(norms_up(terms) * (1 + 2 * gamma(rounding.count(call) + 2)))
    return norms + rounding.lost(call, torch.float64) * math.prod(terms.shape[1:])


def added_rounding(
    rounding: Rounding,
    call: Call,
    incoming: list[RoundedTensor],
    value: Tensor,
    dtype: torch.dtype | None,
) -> tuple[ErrorBound, Tensor]:
    """What one operation adds to the error bound of its exact result.

    Returns:
        The addition, and `(batch,)`: the distance from each sample within which nothing overflows.
    """
    count = rounding.count(call)
    size = math.prod(value.shape[1:])
    magnitude = _magnitudes(rounding, call, incoming)
    ones = value.new_tensor([[size], [math.nextafter(math.sqrt(size), math.inf)], [1.0]])
    here = up(gamma(count) * magnitude + rounding.lost(call, torch.float64) * ones)
    # Infinity could hide behind a maximum, and then no bound would hold.
    finite = value.reshape(len(value), size).isfinite().all(1)
    between = magnitude
    if rounding.inner is not None:
        between = _magnitudes(rounding.inner, call, incoming)
        finite &= between[2].isfinite()
    here = torch.where(finite, here, math.inf)
    limit = value.new_full((len(value),), math.inf)
    nothing = Constants(0.0, 0.0, 0.0)
    far, slope = torch.zeros_like(here), value.new_zeros(3)
    if dtype is not None:
        moved = [Constants.added([r.bound.error, r.bound.far]) for r in incoming]
        rates = [Constants.added([r.bound.reach, r.bound.slope]) for r in incoming]

        def grown(part: Rounding, parts: list[Constants]) -> Constants:
            seen = [Value(c, r.shape) for c, r in zip(parts, incoming, strict=True)]
            return part.growth(call.with_values(seen))

        start = up(magnitude + grown(rounding, moved).within(size).values)
        rate = grown(rounding, rates).within(size).values
        limit = (rounding.ceiling(dtype) - start[2]) / rate[2]
        if rounding.inner is not None:
            start_inside = up(between[2] + grown(rounding.inner, moved).values[2])
            rate_inside = grown(rounding.inner, rates).values[2]
            room = (rounding.inner.ceiling(dtype) - start_inside) / rate_inside
            limit = torch.minimum(limit, room)
        unit = gamma(count, dtype)
        far = up(unit * start + rounding.lost(call, dtype) * ones)
        slope = up(unit * rate)
    fresh = (Constants.of(here), Constants.of(far), nothing, Constants.of(slope.to(value)))
    return ErrorBound(*(part.within(size) for part in fresh)), limit
