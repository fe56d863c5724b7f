"""Fewer or more pixels: lengths and means of windows, and invertible rearrangements."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional as F

from taut import functional
from taut.errors import ArgumentError, check_count
from taut.linalg import bound_adaptive_pooling
from taut.linalg.convolution_axis import per_dimension
from taut.linalg.rounding import float_up
from taut.nn.function_layer import FunctionLayer
from taut.nn.scale import Scale
from taut.norms import L2, Norm
from taut.rules import Call, Constants, FileSchema, register
from taut.rules.file_schema import Sizes
from taut.rules.shared_rules import in_each_norm, input_shape, register_linear


class _Rearrangement(nn.Module):
    """Blocks of `factor * factor` pixels for as many channels, or back."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        check_count(type(self).__name__, "factor", factor)
        self.factor = int(factor)

    def _to_pixels(self, subject: str, x: Tensor) -> Tensor:
        if x.dim() < 3 or x.shape[-3] % self.factor**2:
            raise ArgumentError(
                rule=f"{subject} must be (..., channels, height, width) with channels in "
                f"multiples of {self.factor**2}",
                got=f"shape {tuple(x.shape)}",
            )
        return F.pixel_shuffle(x, self.factor)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"factor={self.factor}"


@final
class InvertibleDownsampling2d(_Rearrangement):
    """Turns each block of `factor * factor` pixels into channels: a permutation of the entries.

    An isometry in every norm. `torch.nn.PixelUnshuffle` is the same map; this one explains sizes
    that it cannot take, and undoes itself.

    Args:
        factor: the side of a block.

    Example:
        >>> layer = InvertibleDownsampling2d(2)
        >>> x = torch.randn(1, 3, 4, 6)
        >>> layer(x).shape, torch.equal(layer.inverse(layer(x)), x)
        (torch.Size([1, 12, 2, 3]), True)
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., c, h, w)` to `(..., c * factor**2, h / factor, w / factor)`."""
        if x.dim() < 3:
            rule = "the input must be (..., channels, height, width)"
            got, remedy = f"shape {tuple(x.shape)}", "Use unflatten to make images of rows."
            raise ArgumentError("InvertibleDownsampling2d", rule=rule, got=got, remedy=remedy)
        if x.shape[-2] % self.factor or x.shape[-1] % self.factor:
            rule = "must divide height and width"
            got = f"factor={self.factor}, size {tuple(x.shape[-2:])}"
            remedy = "Pad the input with zeros first."
            raise ArgumentError("InvertibleDownsampling2d", "factor", rule, got, remedy)
        return F.pixel_unshuffle(x, self.factor)

    def inverse(self, y: Tensor) -> Tensor:
        """What `forward` has made `y` of."""
        return self._to_pixels("InvertibleDownsampling2d.inverse: `y`", y)


@final
class InvertibleUpsampling2d(_Rearrangement):
    """Turns each `factor * factor` channels into a block of pixels: undoes the downsampling.

    A permutation of the entries, so an isometry in every norm. The argument is that of
    `InvertibleDownsampling2d`.

    Example:
        >>> x = torch.randn(1, 3, 4, 6)
        >>> torch.equal(InvertibleUpsampling2d(2)(InvertibleDownsampling2d(2)(x)), x)
        True
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., c * factor**2, h, w)` to `(..., c, h * factor, w * factor)`."""
        return self._to_pixels("InvertibleUpsampling2d: the input", x)


@final
class L2Pool2d(
    FunctionLayer,
    function=functional.l2_pool2d,
    arguments={"kernel_size": Sizes(2), "stride": Sizes(2), "ceil_mode": bool},
):
    r"""$y_t = \|x_{\text{window } t}\|_2$, channel by channel.

    1-Lipschitz in L2 for windows that do not overlap, and it keeps the length of its input if they
    cover it; `taut.linalg.bound_pooling` has the constants of the others and of other norms. Its
    derivative is a unit vector in each window, 0 where the whole window is 0 (where that of
    `torch.nn.LPPool2d` is not a number). The arguments are those of `torch.nn.MaxPool2d`.

    Example:
        >>> L2Pool2d(2)(torch.tensor([[[[3.0, 0.0], [0.0, -4.0]]]]))
        tensor([[[[5.]]]])
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = per_dimension("L2Pool2d", "kernel_size", kernel_size, 2)
        steps = self.kernel_size if stride is None else stride
        self.stride = per_dimension("L2Pool2d", "stride", steps, 2)
        self.ceil_mode = bool(ceil_mode)


@final
class ScaledAvgPool2d(nn.Module):
    r"""The mean of each window of $n$ cells times $\sqrt n$; windows stand side by side.

    Each output is the product with a unit vector, and no two read the same cell: a projection up to
    rotation, of norm 1 in L2, where plain average pooling has $1 / \sqrt n$. In L1 the constant is
    $1 / \sqrt n$, in L-inf $\sqrt n$.

    Args:
        kernel_size: cells of a window.

    Example:
        >>> ScaledAvgPool2d(2)(torch.tensor([[[[1.0, 2.0], [2.0, 3.0]]]]))
        tensor([[[[4.]]]])
    """

    def __init__(self, kernel_size: int | Sequence[int]) -> None:
        super().__init__()
        self.kernel_size = per_dimension("ScaledAvgPool2d", "kernel_size", kernel_size, 2)
        # A hair below the root, so that rounding a proof upwards does not pass 1.
        self.factor = math.sqrt(math.prod(self.kernel_size)) * (1 - 2.0**-50)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., channels, height, width)` to as many channels and one cell a window."""
        return F.avg_pool2d(x, self.kernel_size) * self.factor

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"kernel_size={self.kernel_size}"


def scaled_adaptive_average(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Adaptive average pooling divided by its L2 constant."""
    rows, columns = output_size
    return F.adaptive_avg_pool2d(x, (rows, columns)) * _factor((rows, columns), tuple(x.shape[-2:]))


class _AdaptivePool2d(FunctionLayer, arguments={"output_size": Sizes(2)}):
    """Maps `(..., channels, height, width)` to as many channels of `output_size`."""

    def __init__(self, output_size: int | Sequence[int]) -> None:
        super().__init__()
        self.output_size = per_dimension(type(self).__name__, "output_size", output_size, 2)


@final
class ScaledAdaptiveAvgPool2d(_AdaptivePool2d, function=scaled_adaptive_average):
    r"""Adaptive average pooling divided by its L2 constant, for the size of the input: 1-Lipschitz.

    Where the windows stand side by side, of $n$ cells each, the mean times $\sqrt n$, as in
    `ScaledAvgPool2d`; where they overlap, `taut.linalg.bound_adaptive_pooling` has the constant.

    Args:
        output_size: rows and columns of the output.

    Example:
        >>> ScaledAdaptiveAvgPool2d(1)(torch.tensor([[[[1.0, 2.0], [2.0, 3.0]]]]))
        tensor([[[[4.]]]])
    """


@final
class AdaptiveL2Pool2d(_AdaptivePool2d, function=functional.adaptive_l2_pool2d):
    r"""$y_t = \|x_{\text{window } t}\|_2$, channel by channel, for an output of a given size.

    1-Lipschitz in L2 and of the length of its input where `output_size` divides the size of the input;
    windows that overlap have a larger constant, up to 2, which `taut.bound_lipschitz` proves. The
    argument is that of `ScaledAdaptiveAvgPool2d`.

    Example:
        >>> AdaptiveL2Pool2d(1)(torch.tensor([[[[3.0, 0.0], [0.0, -4.0]]]]))
        tensor([[[[5.]]]])
    """


def _factor(output_size: tuple[int, ...], size: tuple[int, ...]) -> float:
    return _cached_factor(output_size, size)


# What torch.compiler.assume_constant_result sets, without loading the compiler.
_factor._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(64)
def _cached_factor(output_size: tuple[int, ...], size: tuple[int, ...]) -> float:
    with unset_fake_temporarily():  # sizes are numbers, also where inputs are not
        bound = bound_adaptive_pooling("average", L2, output_size, size)
    # A hair below the inverse, so that rounding a proof upwards does not pass 1.
    return (1 - 2.0**-50) / bound.value


def _scaled_constants(call: Call) -> Constants:
    size, output = input_shape(call)[-2:], tuple(call["output_size"])
    factor = _factor(output, tuple(size))

    def bound(norm: Norm) -> float:
        plain = bound_adaptive_pooling("average", norm, output, size).value
        return float_up(Fraction(plain) * Fraction(factor))

    return in_each_norm(call, bound)


register_linear(
    scaled_adaptive_average,
    proof="overlap of windows",
    constants=_scaled_constants,
    terms=lambda call: math.prod(call.first.shape or ()) + 4,
)
register(
    InvertibleUpsampling2d,
    call=lambda m: (torch.ops.aten.pixel_shuffle.default, {"upscale_factor": m.factor}),
    file=FileSchema(InvertibleUpsampling2d, {"factor": int}),
)
register(
    InvertibleDownsampling2d,
    call=lambda m: (torch.ops.aten.pixel_unshuffle.default, {"downscale_factor": m.factor}),
    file=FileSchema(InvertibleDownsampling2d, {"factor": int}),
)
register(
    ScaledAvgPool2d,
    plain=lambda m: nn.Sequential(nn.AvgPool2d(m.kernel_size), Scale(m.factor)),
    file=FileSchema(ScaledAvgPool2d, {"kernel_size": Sizes(2)}),
)
