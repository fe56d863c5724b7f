"""Activations that work entry by entry: their largest slopes."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import NoRuleError
from taut.linalg.rounding import exact_double
from taut.rules.constants import Constants, Value
from taut.rules.forms import lipschitz_image, smooth_rounding
from taut.rules.record import Bounds, Call, Rounding, register
from taut.rules.schema import FileSchema

__all__ = ["SLOPES"]

aten = torch.ops.aten
Slope = Callable[[Call], float]

# Largest slopes without a closed form are rounded up in the sixth decimal, and so are those whose
# kernels use constants of single precision.
_GELU = (0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)) * (1 + 1e-15)


def _at_least_one(slope: float) -> float:
    return max(1.0, abs(slope)) if math.isfinite(slope) else math.inf


def _prelu(call: Call) -> float:
    return _at_least_one(float(exact_double("PReLU", call["weight"]).abs().amax()))


def _softplus(call: Call) -> float:
    # Above the threshold torch returns its argument, a jump of log(1 + exp(-threshold)) / beta,
    # which only from 40 on is below the rounding of float64.
    if call["beta"] > 0 and call["threshold"] >= 40:
        return 1.0
    raise NoRuleError(
        "softplus with a threshold below 40 jumps there, by up to log(1 + exp(-threshold)) / beta. "
        "Use threshold=40."
    )


def _elu(call: Call) -> float:
    alpha, scale, inner = (float(call[name]) for name in ("alpha", "scale", "input_scale"))
    # 1 in front of 0 and alpha times the inner scale behind it, all times the outer scale.
    steepest = max(1.0, abs(alpha * inner)) * abs(scale)
    return steepest * (1 + 1e-15) if math.isfinite(steepest) else math.inf


def _size(call: Call) -> float:
    """What an activation multiplies a bounded function by, at least 1."""
    if call.target is aten.softplus.default:
        if call["threshold"] > 80:
            raise NoRuleError(
                "softplus with a threshold above 80 overflows in float32. Use threshold=40."
            )
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


# Formulas that round, by function: largest slope, and whether the function never falls.
SLOPES: dict[Any, tuple[Slope, bool]] = {
    aten.elu.default: (_elu, True),
    aten.celu.default: (lambda call: 1.000001 if call["alpha"] > 0 else math.inf, True),
    aten.selu.default: (lambda call: 1.758100, True),
    aten.gelu.default: (
        lambda call: _GELU if call["approximate"] in (None, "none") else 1.129000,
        False,
    ),
    aten.silu.default: (lambda call: 1.099840, False),
    aten.mish.default: (lambda call: 1.088500, False),
    aten.tanh.default: (lambda call: 1.0, True),
    aten.sigmoid.default: (lambda call: 0.25, True),
    aten.softplus.default: (_softplus, True),
    aten.log_sigmoid.default: (lambda call: 1.0, True),
    aten.hardsigmoid.default: (lambda call: 0.166667, True),
    aten.hardswish.default: (lambda call: 1.500001, False),
    aten.softshrink.default: (lambda call: 1.0, True),
    softshrink: (lambda call: 1.0, True),
    aten.sin.default: (lambda call: 1.0, False),
    aten.cos.default: (lambda call: 1.0, False),
    aten.erf.default: (lambda call: 1.128380, True),
    aten.atan.default: (lambda call: 1.0, True),
    softsign: (lambda call: 1.0, True),
    tanhshrink: (lambda call: 1.0, True),
}


def _by_slope(slope: Slope) -> Callable[[Call], Constants]:
    def constants(call: Call) -> Constants:
        steepest = slope(call)
        if not math.isfinite(steepest):
            raise NoRuleError("it has no proven slope with these arguments.")
        return call.first.constants.scaled(steepest)

    return constants


def _elu_image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    if all(float(call[name]) >= 0 for name in ("alpha", "scale", "input_scale")):
        return call.run(lower[0]), call.run(upper[0])
    return lipschitz_image(_elu)(call, lower, upper)


for _function, (_slope, _grows) in SLOPES.items():
    register(
        _function,
        proof="largest slope",
        constants=_by_slope(_slope),
        rounding=smooth_rounding(_slope, _size),
        image="monotone" if _grows else lipschitz_image(_slope),
    )


# Rectifiers with a slope below zero: one product, nothing else.
register(aten.elu.default, image=_elu_image)


def _leaky_slope(call: Call) -> float:
    if "weight" in call.arguments:
        return _prelu(call)
    return _at_least_one(call["negative_slope"])


def _leaky_image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    below = call["weight"] if "weight" in call.arguments else torch.tensor(call["negative_slope"])
    if bool((below >= 0).all()):
        return call.run(lower[0]), call.run(upper[0])
    return lipschitz_image(_leaky_slope)(call, lower, upper)


register(
    aten.leaky_relu.default,
    aten.prelu.default,
    proof="largest slope",
    constants=_by_slope(_leaky_slope),
    rounding=Rounding(
        lambda call: 3,
        lambda call, x: x.abs() * _leaky_slope(call),
        lambda call: call.first.constants.scaled(_leaky_slope(call)),
    ),
    image=_leaky_image,
)


def _same(call: Call) -> Constants:
    return call.first.constants


def _clamp(call: Call) -> Constants:
    for name in ("min", "max"):
        if isinstance(call[name], Value):
            raise NoRuleError("limits that follow the input are not followed.")
        if isinstance(call[name], Tensor) and call.shape != call.first.shape:
            raise NoRuleError("limits that repeat the tensor are not followed.")
    return call.first.constants


register(
    aten.relu.default, aten.relu6.default, aten.hardtanh.default,
    proof="largest slope", constants=_same, exact=True, image="monotone",
)  # fmt: skip
register(
    aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_max.default,
    proof="largest slope", constants=_clamp, exact=True, image="monotone",
)  # fmt: skip


def _image_of_magnitudes(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    low, high = lower[0], upper[0]
    least = torch.maximum(low, -high).clamp(min=0)
    return least, torch.maximum(high, -low)


register(
    aten.abs.default,
    proof="largest slope", constants=_same, exact=True, image=_image_of_magnitudes,
)  # fmt: skip


def _module(
    kind: type[nn.Module], function: Any, file: tuple[str, ...] | None = None, **more: str
) -> None:
    """A torch module that is `function` with its attributes: `more` maps argument to attribute."""
    schema = None if file is None else FileSchema(kind, dict.fromkeys(file, float))
    register(
        kind,
        call=lambda m: (function, {a: getattr(m, name) for a, name in more.items()}),
        file=schema,
    )


_module(nn.ReLU, aten.relu.default, ())
_module(nn.ReLU6, aten.relu6.default, ())
_module(
    nn.Hardtanh, aten.hardtanh.default, ("min_val", "max_val"),
    min_val="min_val", max_val="max_val",
)  # fmt: skip
_module(nn.LeakyReLU, aten.leaky_relu.default, ("negative_slope",), negative_slope="negative_slope")
_module(nn.PReLU, aten.prelu.default, weight="weight")
register(
    nn.PReLU,
    file=FileSchema(
        nn.PReLU,
        {"num_parameters": int},
        {"num_parameters": 1},
        lambda a: {"weight": (a["num_parameters"],)},
    ),
)
_module(nn.ELU, aten.elu.default, ("alpha",), alpha="alpha")
_module(nn.CELU, aten.celu.default, ("alpha",), alpha="alpha")
_module(nn.SELU, aten.selu.default, ())
_module(nn.GELU, aten.gelu.default, approximate="approximate")
register(nn.GELU, file=FileSchema(nn.GELU, {"approximate": str}))
_module(nn.SiLU, aten.silu.default, ())
_module(nn.Mish, aten.mish.default, ())
_module(nn.Tanh, aten.tanh.default, ())
_module(nn.Sigmoid, aten.sigmoid.default, ())
_module(
    nn.Softplus, aten.softplus.default, ("beta", "threshold"), beta="beta", threshold="threshold"
)
_module(nn.LogSigmoid, aten.log_sigmoid.default, ())
_module(nn.Hardsigmoid, aten.hardsigmoid.default, ())
_module(nn.Hardswish, aten.hardswish.default, ())
_module(nn.Softshrink, softshrink, ("lambd",), lambd="lambd")
_module(nn.Softsign, softsign, ())
_module(nn.Tanhshrink, tanhshrink, ())
register(
    nn.RReLU,
    plain=lambda m: nn.LeakyReLU((m.lower + m.upper) / 2),
    file=FileSchema(nn.RReLU, {"lower": float, "upper": float}),
)
_module(nn.Softmax, aten.softmax.int, dim="dim")
_module(nn.LogSoftmax, aten.log_softmax.int, dim="dim")
for _kind in (nn.Softmax, nn.LogSoftmax):
    register(_kind, file=FileSchema(_kind, {"dim": int}))
