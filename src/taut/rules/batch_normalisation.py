"""Batch normalisation in evaluation, and the subtraction of stored means."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, NoRuleError
from taut.linalg.rounding import exact_double
from taut.rules.file_schema import Arguments, FileSchema, Shapes
from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Bounds, Call, Rounding, register
from taut.rules.shared_rules import call_with_attributes, same_constants

aten = torch.ops.aten


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    eps: float,
) -> Tensor:
    """Batch normalisation by its running statistics."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training=False, eps=eps)


def _scale(call: Call) -> Tensor:
    """The factor of each channel in magnitude, up to three roundings."""
    variance = exact_double("BatchNorm", call["running_var"])
    if bool((variance < 0).any()):
        raise NoRuleError(rule="a running variance below 0 is none, and loses digits against eps")
    factor = (variance + call["eps"]).rsqrt()
    if call["weight"] is not None:
        factor = factor * exact_double("BatchNorm", call["weight"]).abs()
    if not torch.isfinite(factor).all():
        raise NoRuleError(rule="a running variance of 0 has no inverse root without eps")
    return factor


def _constants(call: Call) -> Constants:
    # Three operations in float64, each off by less than one part in 2^52.
    return call.first.constants.scaled(float(_scale(call).amax()) * (1 + 2**-48))


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *(1,) * (x.dim() - 2)).to(x)


def _magnitude(call: Call, x: Tensor) -> Tensor:
    total = x.abs() + _per_channel(call["running_mean"].abs(), x)
    total = total * _per_channel(_scale(call), x) * (1 + 2**-48)
    return total if call["bias"] is None else total + _per_channel(call["bias"].abs(), x)


def _image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    low, high = call.run(lower[0]), call.run(upper[0])
    return torch.minimum(low, high), torch.maximum(low, high)


register(
    batch_norm,
    proof="largest channel factor",
    constants=_constants,
    # Any arrangement of the formula has at most ten roundings a term.
    rounding=Rounding(lambda call: 12, _magnitude, _constants),
    image=_image,
)


def subtract_mean(input: Tensor, mean: Tensor, bias: Tensor | None) -> Tensor:
    """The input without a fixed mean of each channel, plus an offset: a translation."""
    column = (1, -1, *(1,) * (input.dim() - 2))
    y = input - mean.view(column)
    return y if bias is None else y + bias.view(column)


def _shift_magnitude(call: Call, x: Tensor) -> Tensor:
    total = x.abs() + _per_channel(call["mean"].abs(), x)
    return total if call["bias"] is None else total + _per_channel(call["bias"].abs(), x)


register(
    subtract_mean,
    proof="translation",
    constants=same_constants,
    rounding=Rounding(lambda call: 4, _shift_magnitude, same_constants),
    image="monotone",
)


def _call_of(module: Any) -> tuple[Any, dict[str, Any]]:
    if module.running_var is None:
        rule = "BatchNorm without running statistics depends on the batch"
        raise NoRuleError(rule=rule, remedy="Use track_running_stats=True.")
    return call_with_attributes(batch_norm)(module)


def _shapes(a: Arguments) -> Shapes:
    names = ("running_mean", "running_var", *(("weight", "bias") if a["affine"] else ()))
    return {name: (a["num_features"],) for name in names}


def _usual_momentum(module: Any) -> float:
    if module.momentum is None or not module.track_running_stats:
        rule = "batch normalisation must follow running statistics by a momentum"
        got = f"momentum={module.momentum}, track_running_stats={module.track_running_stats}"
        remedy = "Files have no field for another way."
        raise ArgumentError("save", rule=rule, got=got, remedy=remedy)
    return module.momentum


for _kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
    register(
        _kind,
        call=_call_of,
        file=FileSchema(
            _kind,
            {"num_features": int, "eps": float, "momentum": float, "affine": bool},
            {"num_features": 1},
            _shapes,
            {"momentum": _usual_momentum},
        ),
    )
