"""Resizing: copies of entries, or a matrix of interpolation for each dimension."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.errors import NoRuleError
from taut.linalg import bound_operator_norm
from taut.norms import Norm
from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Call, Rounding, register
from taut.rules.shared_rules import (
    in_each_norm,
    input_shape,
    output_shape,
    register_selection,
)

aten = torch.ops.aten


def _sizes(call: Call) -> list[tuple[int, int]]:
    """The size of each spatial dimension before and after."""
    before, after = input_shape(call), output_shape(call)
    factors = call["scale_factors"] or [s for s in (call["scales_h"], call["scales_w"]) if s]
    sizes = list(zip(before[1:], after[1:], strict=True))
    if any(n * factor != m for (n, m), factor in zip(sizes, factors, strict=False)):
        rule = "resizing by a factor that does not give whole sizes is not supported"
        raise NoRuleError(rule=rule)
    return sizes


def _nearest(call: Call) -> Constants:
    sizes = _sizes(call)
    for n, m in sizes:
        if m % n:
            rule = "nearest resizing by a factor that is not whole is not supported"
            raise NoRuleError(rule=rule)
        # The kernels round n / m, so that some factors, such as 41, copy entries unevenly.
        line = torch.arange(n, dtype=torch.float32).view(1, 1, n)
        if not torch.equal(F.interpolate(line, m), line.repeat_interleave(m // n, 2)):
            rule = f"nearest resizing from {n} to {m} copies entries unevenly in float32"
            raise NoRuleError(rule=rule)
    return call.first.constants.repeated(math.prod(m // n for n, m in sizes))


register_selection(
    aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec,
    aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default,
    proof="how often entries are copied", constants=_nearest,
)  # fmt: skip


def _interpolation(n: int, m: int, align_corners: bool) -> Tensor:
    """The weights of linear interpolation from `n` to `m` places, `(m, n)`."""
    places = torch.arange(m, dtype=torch.float64)
    if align_corners:
        source = places * ((n - 1) / (m - 1)) if m > 1 else places * 0
    else:
        source = ((places + 0.5) * (n / m) - 0.5).clamp(min=0)
    low = source.floor().long().clamp(max=n - 1)
    high = (low + 1).clamp(max=n - 1)
    share = source - low
    matrix = torch.zeros(m, n, dtype=torch.float64)
    rows = torch.arange(m)
    matrix.index_put_((rows, low), 1 - share, accumulate=True)
    matrix.index_put_((rows, high), share, accumulate=True)
    return matrix


def _linear_resizing(call: Call) -> Constants:
    sizes, corners = _sizes(call), bool(call["align_corners"])

    def bound(norm: Norm) -> float:
        value = 1.0
        for n, m in sizes:
            # Shares are rounded by a few units of the number of places.
            slack = 1 + 2.0**-40 * (n + m)
            value *= bound_operator_norm(_interpolation(n, m, corners), norm).value * slack
        return math.nextafter(value, math.inf)

    return in_each_norm(call, bound)


def _largest_of_channel(call: Call, x: Tensor) -> Tensor:
    shape = call.shape or ()
    largest = x.abs().flatten(2).amax(2)
    return largest.view(*largest.shape, *(1,) * (len(shape) - 1)).expand(len(x), *shape)


def _largest_in_all_places(call: Call) -> Constants:
    return call.first.constants.repeated(math.prod((call.shape or (1,))[1:]))


register(
    aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec,
    aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default,
    proof="interpolation matrices",
    constants=_linear_resizing,
    # Execution rounds the places themselves, by up to their number, and then the shares.
    rounding=Rounding(
        lambda call: 8 * max(*(call.shape or (1,)), *(call.first.shape or (1,))) + 64,
        _largest_of_channel,
        _largest_in_all_places,
    ),
    image="monotone",
)  # fmt: skip
