"""What is proven of the rounding of each module.

Steps that only choose among their inputs, as sorting does, round nothing, and their constants are
those of the audit. What has no rule here is refused by name.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut import nn as taut_nn
from taut.audit import Constants, Value
from taut.audit.rules import find_rule, slope_of
from taut.certificates.frozen import Affine
from taut.certificates.run import Head, Run, Study
from taut.certificates.spread import gains_of, norms_up, through, up
from taut.errors import NoRuleError
from taut.linalg.rounding import gamma

__all__ = ["chosen", "diagonal", "refuse_extreme", "scaled", "step_module"]

_IDENTITIES = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
)
_CHOOSING = (
    taut_nn.MaxMin,
    taut_nn.GroupSort,
    taut_nn.FullSort,
    taut_nn.Maxout,
    taut_nn.Abs,
    nn.ReLU,
    nn.ReLU6,
    nn.Flatten,
    nn.Unflatten,
    nn.PixelShuffle,
    nn.PixelUnshuffle,
    nn.ChannelShuffle,
    taut_nn.InvertibleDownsampling2d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.ZeroPad1d,
    nn.ZeroPad2d,
    nn.ZeroPad3d,
)
_SUMMING = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_NORMALISING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def step_module(study: Study, module: nn.Module, run: Run) -> Run:
    """The output of a module."""
    kind = type(module)
    if kind is Affine:
        return _affine(study, module, run)  # type: ignore[arg-type]
    if kind is taut_nn.Scale:
        return _factor(study, module(run.value), run, module.factor)  # type: ignore[arg-type]
    if kind is taut_nn.Centering:
        return _translated(study, module, run)  # type: ignore[arg-type]
    if kind in _IDENTITIES:
        return run
    if kind in _CHOOSING:
        x = run.value.clone() if getattr(module, "inplace", False) else run.value
        return chosen(study, module(x), run, module, _module_bound(module, run))
    if kind is nn.LeakyReLU:
        return _leaky(study, module, run)  # type: ignore[arg-type]
    if kind in _SUMMING and study.dtype is None:
        return _summed(study, module, run)
    if kind in _NORMALISING and study.dtype is None:
        return _normalised(study, module, run)
    if kind in (*_SUMMING, *_NORMALISING):
        raise NoRuleError(
            f"{kind.__name__} may be executed by algorithms of which no rounding error is proven. "
            "Use arithmetic='real'."
        )
    raise NoRuleError(
        f"the rounding of {kind.__name__} is not known. Dense layers, convolutions, sorting, "
        "absolute values and (leaky) rectifiers have rules."
    )


def _module_bound(module: nn.Module, run: Run) -> Callable[[Constants], Constants]:
    rule = find_rule(module)
    if rule is None:
        raise NoRuleError(f"{type(module).__name__} has no constant.")
    return lambda unit: rule.bound(module, Value(unit, run.shape))


def chosen(
    study: Study, value: Tensor, run: Run, key: object, bound: Callable[[Constants], Constants]
) -> Run:
    """A step that rounds nothing: each entry of the result is 0, or up to sign one of the input."""
    gains = study.table((id(key), run.shape), lambda: gains_of(bound), value)
    head = run.head if value.shape == run.value.shape and isinstance(key, nn.Flatten) else None
    return Run(value, run.spread.through(gains, math.prod(value.shape[1:])), head)


def _affine(study: Study, module: Affine, run: Run) -> Run:
    value = F.linear(run.value, module.weight, module.bias)
    size = math.prod(value.shape[1:])
    terms = module.in_features
    if study.dtype == torch.float32:
        # The a-priori bound of these sums is loose by a half: nothing in float64, much here.
        offset = None if module.bias is None else module.bias.abs()
        sums = F.linear(run.value.abs(), module.weight.abs(), offset)
        magnitude = up(norms_up(sums) * (1 + 2 * gamma(terms + 2)))
        magnitude = magnitude + 4 * (terms + 1) * size * torch.finfo(torch.float64).tiny
    else:
        copies = size // module.out_features
        offsets = module.offset_norms * module.weight.new_tensor([[copies], [copies], [1]])
        magnitude = up(through(module.magnitude_gains, norms_up(run.value)) + offsets)
    fresh = study.rounding(value, run.spread, magnitude, module.magnitude_gains, terms + 2)
    carried = run.spread.through(module.gains, size)
    head = Head(run.spread, module.weight, 1.0, fresh) if value.dim() == 2 else None
    return Run(value, carried + fresh, head)


def _factor(study: Study, value: Tensor, run: Run, factor: float) -> Run:
    """Multiplication by a number, which execution may round first."""
    refuse_extreme(study, factor)
    scale = math.nextafter(abs(factor), math.inf)
    return scaled(study, value, run, scale)


def scaled(study: Study, value: Tensor, run: Run, scale: float) -> Run:
    """A product with numbers of magnitude at most `scale`."""
    gains = diagonal(scale, value)
    size = math.prod(value.shape[1:])
    magnitude = up(norms_up(run.value) * scale)
    fresh = study.rounding(value, run.spread, magnitude, gains, 3)
    head = run.head and replace(
        run.head,
        factor=math.nextafter(run.head.factor * scale, math.inf),
        fresh=run.head.fresh.through(gains, size) + fresh,
    )
    return Run(value, run.spread.through(gains, size) + fresh, head)


def diagonal(scale: float, like: Tensor) -> Tensor:
    """The constants of a map that acts entry by entry with slopes up to `scale`."""
    table = like.new_full((3, 3), math.inf)
    table.fill_diagonal_(scale)
    return table


def refuse_extreme(study: Study, number: float) -> None:
    """Raises for numbers that float32 would change by more than a rounding."""
    if study.dtype == torch.float32 and number and not 2.0**-100 <= abs(number) <= 2.0**100:
        raise NoRuleError(f"the number {number} hardly fits float32. Use arithmetic='real'.")


def _leaky(study: Study, module: nn.LeakyReLU, run: Run) -> Run:
    refuse_extreme(study, module.negative_slope)
    value = F.leaky_relu(run.value, module.negative_slope)
    below = math.nextafter(abs(module.negative_slope), math.inf)
    magnitude = up(norms_up(run.value) * below)
    fresh = study.rounding(value, run.spread, magnitude, diagonal(below, value), 3)
    carried = run.spread.through(diagonal(slope_of(module), value), math.prod(run.shape))
    return Run(value, carried + fresh)


def _translated(study: Study, module: taut_nn.Centering, run: Run) -> Run:
    value = module(run.value)
    column = [1, -1] + [1] * (run.value.dim() - 2)
    sums = run.value.abs() + module.running_mean.abs().view(column)
    if module.bias is not None:
        sums = sums + module.bias.abs().view(column)
    magnitude = up(norms_up(sums) * (1 + 2 * gamma(4)))
    fresh = study.rounding(value, run.spread, magnitude, diagonal(1.0, value), 4)
    return Run(value, run.spread + fresh)


def _summed(study: Study, module: Any, run: Run) -> Run:
    """Convolutions and averages: sums over windows, done directly."""
    # On the CPU only float32 has fast transforms that break the bound of direct sums.
    with torch.backends.cudnn.flags(enabled=False):
        value = module(run.value)
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            bias = None if module.bias is None else module.bias.abs()
            sums = module._conv_forward(run.value.abs(), module.weight.abs(), bias)
            terms = module.weight[0].numel() + 2
        else:
            sums = module(run.value.abs())
            width = module.kernel_size
            terms = math.prod(width if isinstance(width, tuple) else (width,) * 3) + 2
    bound = _module_bound(module, run)
    gains = study.table((id(module), run.shape), lambda: gains_of(bound), value)
    magnitude = up(norms_up(sums) * (1 + 2 * gamma(terms)))
    magnitude = magnitude + 4 * terms * math.prod(sums.shape[1:]) * torch.finfo(torch.float64).tiny
    fresh = study.rounding(value, run.spread, magnitude, gains, terms)
    return Run(value, run.spread.through(gains, math.prod(value.shape[1:])) + fresh)


def _normalised(study: Study, module: Any, run: Run) -> Run:
    """BatchNorm in evaluation, by any arrangement of its formula of at most ten roundings a term."""
    value = module(run.value)
    column = [1, -1] + [1] * (run.value.dim() - 2)
    scale = (module.running_var + module.eps).rsqrt()
    offset = torch.zeros_like(scale)
    if module.weight is not None:
        scale, offset = scale * module.weight.abs(), module.bias.abs()
    centre = module.running_mean.abs()
    sums = (run.value.abs() + centre.view(column)) * scale.view(column) + offset.view(column)
    bound = _module_bound(module, run)
    gains = study.table((id(module), run.shape), lambda: gains_of(bound), value)
    magnitude = up(norms_up(sums) * (1 + 2 * gamma(10)))
    fresh = study.rounding(value, run.spread, magnitude, gains, 10)
    return Run(value, run.spread.through(gains, math.prod(run.shape)) + fresh)
