"""Activations that work entry by entry: their largest slopes."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import NoRuleError
from taut.linalg.rounding import exact_double
from taut.rules.file_schema import FileSchema
from taut.rules.lipschitz_constants import Constants, Value
from taut.rules.operation_registry import Bounds, Call, Rounding, register
from taut.rules.shared_rules import (
    Image,
    call_with_attributes,
    lipschitz_image,
    register_selection,
    same_constants,
    smooth_rounding,
)

aten = torch.ops.aten
Slope = Callable[[Call], float]

# Largest slopes without a closed form are rounded up in the sixth decimal, and so are those whose
# kernels use constants of single precision.
_GELU = (0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)) * (1 + 1e-15)


def _at_least_one(slope: float) -> float:
    return max(1.0, abs(slope)) if math.isfinite(slope) else math.inf


def _softplus(call: Call) -> float:
    # Above the threshold torch returns its argument, a jump of log(1 + exp(-threshold)) / beta,
    # which only from 40 on is below the rounding of float64.
    if call["beta"] > 0 and call["threshold"] >= 40:
        return 1.0
    rule = (
        "softplus with a threshold below 40 jumps there, by up to log(1 + exp(-threshold)) / beta"
    )
    raise NoRuleError(rule=rule, remedy="Use threshold=40.")


def _elu(call: Call) -> float:
    alpha, scale, inner = (float(call[name]) for name in ("alpha", "scale", "input_scale"))
    # 1 in front of 0 and alpha times the inner scale behind it, all times the outer scale; with an
    # inner scale below 0 it grows like an exponential there.
    steepest = max(1.0, abs(alpha * inner)) * abs(scale) if inner >= 0 else math.inf
    return steepest * (1 + 1e-15) if math.isfinite(steepest) else math.inf


def _size(call: Call) -> float:
    """What an activation multiplies a bounded function by, at least 1."""
    if call.target is aten.softplus.default:
        if call["threshold"] > 80:
            rule = "softplus with a threshold above 80 overflows in float32"
            raise NoRuleError(rule=rule, remedy="Use threshold=40.")
        return 1.0 + 1.0 / call["beta"]
    if call.target in (aten.elu.default, aten.celu.default):
        return 1.0 + abs(float(call["alpha"]) * float(call["scale"] or 1.0))
    return 1.0


def softsign(input: Tensor) -> Tensor:
    """Maps `x` to `x / (1 + |x|)`."""
    return F.softsign(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Moves `x` towards 0 by `lambd`; export would take it apart into jumps."""
    return F.softshrink(input, lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """Maps `x` to `x - tanh(x)`."""
    return F.tanhshrink(input)


# Functions whose formula rounds: largest slope, and whether the function never falls.
SLOPES: dict[Any, tuple[float | Slope, bool]] = {
    aten.elu.default: (_elu, True),
    aten.celu.default: (lambda call: 1.000001 if call["alpha"] > 0 else math.inf, True),
    aten.selu.default: (1.758100, True),
    aten.gelu.default: (
        lambda call: _GELU if call["approximate"] in (None, "none") else 1.129000,
        False,
    ),
    aten.silu.default: (1.099840, False),
    aten.mish.default: (1.088500, False),
    aten.tanh.default: (1.0, True),
    aten.sigmoid.default: (0.25, True),
    aten.softplus.default: (_softplus, True),
    aten.log_sigmoid.default: (1.0, True),
    aten.hardsigmoid.default: (0.166667, True),
    aten.hardswish.default: (1.500001, False),
    aten.softshrink.default: (1.0, True),
    softshrink: (1.0, True),
    aten.sin.default: (1.0, False),
    aten.cos.default: (1.0, False),
    aten.erf.default: (1.128380, True),
    aten.atan.default: (1.0, True),
    softsign: (1.0, True),
    tanhshrink: (1.0, True),
}


def _by_slope(slope: Slope) -> Callable[[Call], Constants]:
    def constants(call: Call) -> Constants:
        steepest = slope(call)
        if not math.isfinite(steepest):
            raise NoRuleError(rule="it has no proven slope with these arguments")
        return call.first.constants.scaled(steepest)

    return constants


def _growing_if(grows: Callable[[Call], bool], slope: Slope) -> Image:
    """The image of a box under a function that never falls for some of its arguments."""

    def image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
        if grows(call):
            return call.run(lower[0]), call.run(upper[0])
        return lipschitz_image(slope)(call, lower, upper)

    return image


for _function, (_steepest, _grows) in SLOPES.items():
    _slope = _steepest if callable(_steepest) else lambda call, slope=_steepest: slope
    register(
        _function,
        proof="largest slope",
        constants=_by_slope(_slope),
        rounding=smooth_rounding(_slope, _size),
        image="monotone" if _grows else lipschitz_image(_slope),
    )


def _elu_grows(call: Call) -> bool:
    return all(float(call[name]) >= 0 for name in ("alpha", "scale", "input_scale"))


register(aten.elu.default, image=_growing_if(_elu_grows, _elu))


def _slopes_below_zero(call: Call) -> Tensor:
    if call["weight"] is None:
        return torch.tensor(call["negative_slope"], dtype=torch.float64)
    return exact_double("PReLU", call["weight"])


def _leaky(call: Call) -> float:
    return _at_least_one(float(_slopes_below_zero(call).abs().amax()))


# One product below zero, nothing else.
register(
    aten.leaky_relu.default,
    aten.prelu.default,
    proof="largest slope",
    constants=_by_slope(_leaky),
    rounding=Rounding(
        lambda call: 3,
        lambda call, x: x.abs() * _leaky(call),
        lambda call: call.first.constants.scaled(_leaky(call)),
    ),
    image=_growing_if(lambda call: bool((_slopes_below_zero(call) >= 0).all()), _leaky),
)


def _clamp(call: Call) -> Constants:
    for name in ("min", "max"):
        if isinstance(call[name], Value):
            raise NoRuleError(rule="limits that depend on the input are not supported")
        if isinstance(call[name], Tensor) and call.shape != call.first.shape:
            raise NoRuleError(rule="limits that repeat the tensor are not supported")
    return call.first.constants


for _rule, _functions in {
    same_constants: (aten.relu.default, aten.relu6.default, aten.hardtanh.default),
    _clamp: (
        aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_max.default,
    ),
}.items():  # fmt: skip
    register_selection(*_functions, proof="largest slope", constants=_rule)


def image_of_magnitudes(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    """The magnitudes of a box."""
    low, high = lower[0], upper[0]
    return torch.maximum(low, -high).clamp(min=0), torch.maximum(high, -low)


register(
    aten.abs.default,
    proof="largest slope",
    constants=same_constants,
    exact=True,
    image=image_of_magnitudes,
)

# Modules of torch that are one of these functions, with the arguments that a file gives them.
for _kind, _function, _arguments in (
    (nn.ReLU, aten.relu.default, {}),
    (nn.ReLU6, aten.relu6.default, {}),
    (nn.Hardtanh, aten.hardtanh.default, {"min_val": float, "max_val": float}),
    (nn.LeakyReLU, aten.leaky_relu.default, {"negative_slope": float}),
    (nn.ELU, aten.elu.default, {"alpha": float}),
    (nn.CELU, aten.celu.default, {"alpha": float}),
    (nn.SELU, aten.selu.default, {}),
    (nn.GELU, aten.gelu.default, {"approximate": str}),
    (nn.SiLU, aten.silu.default, {}),
    (nn.Mish, aten.mish.default, {}),
    (nn.Tanh, aten.tanh.default, {}),
    (nn.Sigmoid, aten.sigmoid.default, {}),
    (nn.Softplus, aten.softplus.default, {"beta": float, "threshold": float}),
    (nn.LogSigmoid, aten.log_sigmoid.default, {}),
    (nn.Hardsigmoid, aten.hardsigmoid.default, {}),
    (nn.Hardswish, aten.hardswish.default, {}),
    (nn.Softshrink, softshrink, {"lambd": float}),
    (nn.Softsign, softsign, {}),
    (nn.Tanhshrink, tanhshrink, {}),
    (nn.Softmax, aten.softmax.int, {"dim": int}),
    (nn.LogSoftmax, aten.log_softmax.int, {"dim": int}),
):
    register(_kind, call=call_with_attributes(_function), file=FileSchema(_kind, _arguments))
register(
    nn.PReLU,
    call=call_with_attributes(aten.prelu.default),
    file=FileSchema(
        nn.PReLU,
        {"num_parameters": int},
        {"num_parameters": 1},
        lambda a: {"weight": (a["num_parameters"],)},
    ),
)
register(
    nn.RReLU,
    plain=lambda m: nn.LeakyReLU((m.lower + m.upper) / 2),
    file=FileSchema(nn.RReLU, {"lower": float, "upper": float}),
)
