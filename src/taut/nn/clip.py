"""`Clip`: a range of the inputs stretched to [0, 1], and all beyond it cut off."""

import math
from fractions import Fraction
from typing import final

from torch import Tensor

from taut.errors import ArgumentError, check_finite
from taut.nn.function_layer import FunctionLayer
from taut.rules import Call, Constants, Rounding, register


def clip_range(x: Tensor, low: float, high: float) -> Tensor:
    """Maps `[low, high]` onto `[0, 1]`, and what lies beyond to the nearer end."""
    return ((x - low) / (high - low)).clamp(0, 1)


@final
class Clip(FunctionLayer, function=clip_range, arguments={"low": float, "high": float}):
    r"""$\min(\max((x - a) / (b - a), 0), 1)$, entry by entry: Lipschitz with $1 / (b - a)$ in every norm.

    In front of a network for nearly binary images: with $a = t$ and $b = 1 - t$, perturbations of up
    to $t$ in L-inf leave pixels that are black or white exactly as they are, so interval propagation
    has to follow the grey ones alone.

    Args:
        low: $a$, mapped to 0.
        high: $b > a$, mapped to 1.

    Example:
        >>> Clip(0.25, 0.75)(torch.tensor([0.125, 0.5, 0.875]))
        tensor([0.0000, 0.5000, 1.0000])
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        check_finite("Clip", "low", low)
        check_finite("Clip", "high", high)
        if not low < high:
            rule = "must be above `low`"
            raise ArgumentError("Clip", "high", rule, f"low={low!r}, high={high!r}")
        self.low, self.high = float(low), float(high)


def _steepness(call: Call) -> float:
    """`1 / (high - low)`, never below the truth."""
    exact = 1 / (Fraction(call["high"]) - Fraction(call["low"]))
    return math.nextafter(float(exact), math.inf)


def _constants(call: Call) -> Constants:
    return call.first.constants.scaled(_steepness(call))


register(
    clip_range,
    proof="largest slope",
    constants=_constants,
    # A difference and a quotient, and both numbers of the code are rounded themselves.
    rounding=Rounding(
        lambda call: 6,
        lambda call, x: (x.abs() + abs(call["low"])) * _steepness(call) + 1,
        _constants,
    ),
    image="monotone",
)
