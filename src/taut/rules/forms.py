r"""What linear and elementwise operations have in common: their rounding, and where boxes go.

A sum of products with at most `k` roundings on the way of any term is off by at most
$\gamma_k \sum |w||x|$ (Higham, section 3.1), whatever the order of summation, with or without fused
multiply-add. So the rounding of a linear map is bounded by the same map of magnitudes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from taut.errors import NoRuleError
from taut.norms import L1, L2, LINF, Norm
from taut.rules.constants import Constants, Value
from taut.rules.record import Bounds, Call, Rounding
from taut.rules.upward import multiply_up, sqrt_up

__all__ = [
    "ELEMENTARY",
    "batch_free_dims",
    "in_each_norm",
    "linear_image",
    "linear_rounding",
    "lipschitz_image",
    "refuse_batch_dim",
    "smooth_rounding",
]

ELEMENTARY = "elementary functions (exp, log, tanh, erf, ...) within 4 units in the last place"
# Roundings of an activation's formula, with elementary functions that are off by four units each.
_FORMULA = 32


def in_each_norm(call: Call, bound: Callable[[Norm], float]) -> Constants:
    """After a map whose constant is known from each norm to itself; proven once for a call."""

    def gain(p: Norm, q: Norm) -> float:
        if p != q:
            return math.inf
        key = (id(call.target), *_identities(call), call.x.shape, p)
        if key not in call.proofs:
            call.proofs[key] = bound(p)
        return call.proofs[key]

    return call.x.constants.through(gain)


def _identities(call: Call) -> list[object]:
    """What tells calls apart whose bounds may differ; stored tensors live as long as the proofs."""

    def identity(held: object) -> object:
        if isinstance(held, (list, tuple)):
            return tuple(identity(part) for part in held)
        return (
            None
            if isinstance(held, Value)
            else id(held)
            if isinstance(held, Tensor)
            else repr(held)
        )

    return [(name, identity(held)) for name, held in call.arguments.items()]


def linear_rounding(
    count: Callable[[Call], int],
    constants: Callable[[Call], Constants],
    offset: str | None = "bias",
    assumes: str = "",
) -> Rounding:
    r"""The rounding of a linear map and an offset, computed by sums in any order.

    The map of magnitudes has the norms of the map itself in L1 and L-inf, and in L2 at most
    $\sqrt{\|\cdot\|_1 \|\cdot\|_\infty}$ (Riesz and Thorin).
    """

    def growth(call: Call) -> Constants:
        shape = call.x.shape
        inf = math.inf

        def norm_of(*unit: float) -> Constants:
            return constants(call.with_values([Value(Constants(*unit), shape)]))

        l1, linf = norm_of(1.0, 1.0, 1.0).values[0], norm_of(inf, inf, 1.0).values[2]
        gains = {L1: l1, L2: sqrt_up(multiply_up(l1, linf)), LINF: linf}
        return call.x.constants.through(lambda p, q: float(gains[p]) if p == q else inf)

    def magnitude(call: Call, *tensors: Tensor) -> Tensor:
        return call.absolute(offset).run(*(tensor.abs() for tensor in tensors))

    return Rounding(count, magnitude, growth, assumes)


def linear_image(
    offset: str | None = "bias",
) -> Callable[[Call, list[Tensor], list[Tensor]], Bounds]:
    r"""The image of a box under a linear map and an offset: $Wc + b \mp |W| r$."""

    def image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
        centres = [(a + b) / 2 for a, b in zip(lower, upper, strict=True)]
        radii = [
            torch.maximum(b - c, c - a) * (1 + 2.0**-50)
            for a, b, c in zip(lower, upper, centres, strict=True)
        ]
        middle = call.run(*centres)
        spread = call.absolute(offset, keep_offset=False).run(*radii)
        return middle - spread, middle + spread

    return image


def lipschitz_image(
    slope: Callable[[Call], float],
) -> Callable[[Call, list[Tensor], list[Tensor]], Bounds]:
    """The image of a box under a map of single entries, by its largest slope."""

    def image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
        centre = (lower[0] + upper[0]) / 2
        radius = torch.maximum(upper[0] - centre, centre - lower[0]) * (1 + 2.0**-50)
        reach = radius * (slope(call) * (1 + 2.0**-50))
        middle = call.run(centre)
        return middle - reach, middle + reach

    return image


def smooth_rounding(slope: Callable[[Call], float], size: Callable[[Call], float]) -> Rounding:
    """The rounding of an activation's formula: some units of its slope times `|x|` and its size."""

    def steepest(call: Call) -> float:
        return max(1.0, slope(call))

    return Rounding(
        lambda call: _FORMULA,
        lambda call, x: x.abs() * steepest(call) + size(call),
        lambda call: call.x.constants.scaled(steepest(call)),
        ELEMENTARY,
    )


def refuse_batch_dim(dim: int, incoming: Value) -> None:
    """Raises where an operation along `dim` would mix the samples of a batch."""
    dims = None if incoming.shape is None else len(incoming.shape) + 1
    if dim == 0 or (dim < -1 and dims is None) or (dims is not None and dim == -dims):
        raise NoRuleError(
            f"an operation along dim={dim} mixes the samples of a batch, or may: samples must pass "
            "through a network on their own. Give `input_shape`, or use another dim."
        )


def batch_free_dims(call: Call, dims: object, x: Value | None = None) -> list[int]:
    """The dimensions as places in one sample, none of them the batch."""
    x = call.x if x is None else x
    if dims is None or dims == []:
        raise NoRuleError("an operation over all dimensions mixes the batch. Give `dim`.")
    places = []
    for dim in dims if isinstance(dims, (tuple, list)) else [dims]:
        if not isinstance(dim, int):
            raise NoRuleError("named dimensions are not followed. Use numbers.")
        refuse_batch_dim(dim, x)
        count = None if x.shape is None else len(x.shape)
        places.append(dim - 1 if dim > 0 else -1 if count is None else dim + count)
    return places
