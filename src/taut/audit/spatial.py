"""What is proven of convolutions, padding and pooling."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn

from taut import nn as taut_nn
from taut.audit.constants import Constants, Value
from taut.audit.rules import rule
from taut.errors import NoRuleError
from taut.linalg import (
    bound_adaptive_pooling,
    bound_convolution,
    bound_padding,
    bound_pooling,
)
from taut.norms import Norm

__all__: list[str] = []


def _in_each_norm(bound: Callable[[Norm], float], incoming: Value) -> Constants:
    """After a map whose constant is known from each norm to itself."""
    known = cache(bound)
    return incoming.constants.through(lambda p, q: known(p) if p == q else math.inf)


def _size(incoming: Value) -> tuple[int, ...] | None:
    """The spatial size, behind the channels."""
    return None if incoming.shape is None else incoming.shape[1:]


Convolution = (
    nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
)


@rule(
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    method="convolution norm",
)
def _convolution(module: Convolution, incoming: Value) -> Constants:
    return _convolution_constants(module, module.weight.detach(), incoming)


@rule(
    taut_nn.LinfConv1d,
    taut_nn.LinfConv2d,
    taut_nn.OrthonormalConv1d,
    taut_nn.OrthonormalConv2d,
    taut_nn.OrthonormalConvTranspose1d,
    taut_nn.OrthonormalConvTranspose2d,
    taut_nn.SpectralConv1d,
    taut_nn.SpectralConv2d,
    taut_nn.SpectralConv3d,
    taut_nn.SpectralConvTranspose1d,
    taut_nn.SpectralConvTranspose2d,
    taut_nn.SpectralConvTranspose3d,
    method="convolution norm",
)
def _constrained_convolution(module: taut_nn.ConstrainedConv, incoming: Value) -> Constants:
    return _convolution_constants(module, module.evaluation_weight(), incoming)


def _convolution_constants(
    module: Convolution | taut_nn.ConstrainedConv, kernel: Tensor, incoming: Value
) -> Constants:
    return _in_each_norm(
        lambda norm: (
            bound_convolution(
                kernel,
                norm,
                stride=module.stride,
                padding=module.padding,
                padding_mode=module.padding_mode,
                dilation=module.dilation,
                groups=module.groups,
                transposed=module.transposed,
                output_padding=module.output_padding,
                input_size=_size(incoming),
            ).value
        ),
        incoming,
    )


_PADDING = {
    "constant": (nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d),
    "zeros": (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
    "reflect": (nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d),
    "replicate": (nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d),
    "circular": (nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d),
}
_MODES = {kind: mode for mode, kinds in _PADDING.items() for kind in kinds}


@rule(*_MODES, method="how often entries are copied")
def _padding(module: nn.Module, incoming: Value) -> Constants:
    pad, mode = module.padding, _MODES[type(module)]
    return _in_each_norm(
        lambda norm: bound_padding(pad, mode, norm, _size(incoming)).value,  # type: ignore[arg-type]
        incoming,
    )


@rule(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, method="overlap of windows")
def _average_pooling(
    module: nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d, incoming: Value
) -> Constants:
    return _in_each_norm(
        lambda norm: (
            bound_pooling(
                "average",
                norm,
                module.kernel_size,
                module.stride,
                module.padding,
                dims=_dims(module),
                ceil_mode=module.ceil_mode,
                count_include_pad=module.count_include_pad,
                divisor_override=getattr(module, "divisor_override", None),
                input_size=_size(incoming),
            ).value
        ),
        incoming,
    )


@rule(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, method="overlap of windows")
def _max_pooling(module: nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d, incoming: Value) -> Constants:
    if module.return_indices:
        raise NoRuleError("max pooling that returns indices is not followed.")
    return _in_each_norm(
        lambda norm: (
            bound_pooling(
                "max",
                norm,
                module.kernel_size,
                module.stride,
                module.padding,
                dims=_dims(module),
                dilation=module.dilation,
                ceil_mode=module.ceil_mode,
                input_size=_size(incoming),
            ).value
        ),
        incoming,
    )


@rule(taut_nn.L2Pool2d, method="overlap of windows")
def _l2_pooling(module: taut_nn.L2Pool2d, incoming: Value) -> Constants:
    return _in_each_norm(
        lambda norm: (
            bound_pooling(
                "lp",
                norm,
                module.kernel_size,
                module.stride,
                ceil_mode=module.ceil_mode,
                input_size=_size(incoming),
            ).value
        ),
        incoming,
    )


@rule(taut_nn.InvertibleDownsampling2d, method="permutation")
def _downsampling(module: taut_nn.InvertibleDownsampling2d, incoming: Value) -> Constants:
    return incoming.constants


@rule(taut_nn.Centering, method="translation")
def _centering(module: taut_nn.Centering, incoming: Value) -> Constants:
    return incoming.constants


_ADAPTIVE = {
    nn.AdaptiveAvgPool1d: "average",
    nn.AdaptiveAvgPool2d: "average",
    nn.AdaptiveAvgPool3d: "average",
    nn.AdaptiveMaxPool1d: "max",
    nn.AdaptiveMaxPool2d: "max",
    nn.AdaptiveMaxPool3d: "max",
}


@rule(*_ADAPTIVE, method="overlap of windows")
def _adaptive_pooling(module: nn.Module, incoming: Value) -> Constants:
    size = _size(incoming)
    if size is None or getattr(module, "return_indices", False):
        raise NoRuleError("adaptive pooling needs a known size. Give `input_shape`.")
    wanted: Any = module.output_size
    if not isinstance(wanted, tuple):
        wanted = (wanted,) * len(size)
    output = tuple(n if m is None else m for m, n in zip(wanted, size, strict=True))
    kind = _ADAPTIVE[type(module)]
    return _in_each_norm(
        lambda norm: bound_adaptive_pooling(kind, norm, output, size).value, incoming
    )


def _dims(module: nn.Module) -> int:
    return int(type(module).__name__[-2])
