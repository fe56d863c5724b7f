r"""What all constrained convolutions share: torch's arguments, padding, and which shapes hold.

A convolution with zeros beyond the input is a block of the same convolution on the whole lattice,
so a norm proven there holds for every size, padding, stride and dilation. Circular padding closes
the input to a circle: the frequencies of the circle are among those of the lattice, as long as the
stride divides the circle and no output is computed twice. Reflect, replicate and symmetric padding
copy an input up to $\mu$ times and so enlarge L2 norms, by $\sqrt\mu$ for some kernels of norm 1, such
as a shift; L2 layers divide their kernels by that.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut import functional
from taut.errors import ArgumentError, check_choice, check_count
from taut.linalg import bound_padding
from taut.linalg.convolution_axis import padding_sides, per_dimension
from taut.linalg.padding_norm import PADDING_MODES
from taut.nn.constrained import ConstrainedLayer
from taut.nn.symmetric_padding import SYMMETRIC_PADS
from taut.norms import L2

_CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_PLAIN = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class ConstrainedConv(ConstrainedLayer):
    """A `ConstrainedLayer` that convolves over `dims` dimensions, which its class statement says.

    The parameter is the kernel, unless `_weight_shape` says otherwise.
    """

    _dims: int
    transposed = False

    def __init_subclass__(cls, dims: int | None = None) -> None:
        super().__init_subclass__()
        if dims is not None:
            cls._dims = dims

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        output_padding: int | Sequence[int] = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for argument, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            check_count(name, argument, count)
            check_count(name, "groups", groups)
            if count % groups:
                got = f"groups={groups}, {argument}={count}"
                remedy = f"Use {math.gcd(in_channels, out_channels)} or a divisor."
                raise ArgumentError(name, "groups", f"must divide `{argument}`", got, remedy)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_dimension(name, "kernel_size", kernel_size, self._dims)
        self.stride = per_dimension(name, "stride", stride, self._dims)
        self.dilation = per_dimension(name, "dilation", dilation, self._dims)
        self.padding: str | tuple[int, ...] = (
            padding
            if isinstance(padding, str)
            else per_dimension(name, "padding", padding, self._dims, minimum=0)
        )
        self.output_padding = per_dimension(
            name, "output_padding", output_padding, self._dims, minimum=0
        )
        self.groups = groups
        check_choice(name, "padding_mode", padding_mode, PADDING_MODES)
        self.padding_mode = padding_mode
        self._check_padding()
        self._check_shape()
        self._create_parameters(self._weight_shape(), bias, out_channels, device, dtype)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """The shape of the kernel of a plain layer."""
        first, second = self.in_channels, self.out_channels
        if not self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def _weight_shape(self) -> tuple[int, ...]:
        return self.kernel_shape

    def _check_shape(self) -> None:
        """Raises for shapes of which no kernel meets the constraint."""

    def _check_padding(self) -> None:
        name, sides = type(self).__name__, self._sides()
        if self.input_norm != L2:
            return
        if self.padding_mode == "circular" and any(
            front + behind > dilation * (k - 1)
            for (front, behind), dilation, k in zip(
                sides, self.dilation, self.kernel_size, strict=True
            )
        ):
            rule = "circular `padding` must be at most dilation * (kernel_size - 1) in all"
            got = (
                f"padding={self.padding} on both sides for kernel_size={self.kernel_size}: "
                "some outputs would be there twice"
            )
            raise ArgumentError(name, rule=rule, got=got, remedy="Use padding='same' or less.")

    def _sides(self) -> list[tuple[int, int]]:
        return padding_sides(
            type(self).__name__, self.padding, self.kernel_size, self.stride, self.dilation
        )

    def _outward(self) -> list[int]:
        """The padding as `torch.nn.functional.pad` takes it."""
        return [side for pair in reversed(self._sides()) for side in pair]

    def padding_norm(self, size: Sequence[int] | None = None) -> float:
        """The L2 norm of padding by copies: for this size, or for all whose two ends do not meet."""
        if self.input_norm != L2 or self.padding_mode in ("zeros", "circular"):
            return 1.0
        apart = [sum(pair) + 2 for pair in self._sides()]
        return bound_padding(self._outward(), self.padding_mode, L2, size or apart).value

    def _fan_in(self) -> int:
        return math.prod(self.kernel_shape[1:])

    def _affine(self, x: Tensor) -> Tensor:
        self._check_input(x)
        kernel = self._weight_in_use()
        if self.transposed and not isinstance(self.padding, str):
            return _TRANSPOSE[self._dims](
                x,
                kernel,
                self.bias,
                self.stride,
                self.padding,
                self.output_padding,
                self.groups,
                self.dilation,
            )
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = functional.pad(x, self._outward(), self.padding_mode), 0
        return _CONVOLVE[self._dims](
            x, kernel, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def as_plain(self, kernel: Tensor) -> nn.Module:
        """The layer of torch with the arguments and the bias of this one and the given kernel.

        torch has no symmetric padding: there it stands behind a layer that pads.
        """
        kinds = _TRANSPOSED if self.transposed else _PLAIN
        extra: Any = {"output_padding": self.output_padding} if self.transposed else {}
        apart = self.padding_mode == "symmetric"
        plain: nn.Module = kinds[self._dims](
            self.in_channels,
            self.out_channels,
            self.kernel_size,  # type: ignore[arg-type]
            stride=self.stride,  # type: ignore[arg-type]
            padding=0 if apart else self.padding,  # type: ignore[arg-type]
            dilation=self.dilation,  # type: ignore[arg-type]
            groups=self.groups,
            bias=False,
            padding_mode="zeros" if apart else self.padding_mode,
            device="meta",
            **extra,
        )
        plain.weight = nn.Parameter(kernel)
        plain.register_parameter("bias", self.bias)
        if apart:
            return nn.Sequential(SYMMETRIC_PADS[self._dims](self._outward()), plain)
        return plain

    def _check_input(self, x: Tensor) -> None:
        if self.padding_mode == "zeros" or self.input_norm != L2:
            return
        size = tuple(x.shape[-self._dims :])
        if self.padding_norm(size) > self.padding_norm():
            rule = "by copies must leave some entries of the input alone"
            got = f"padding={self.padding}, padding_mode={self.padding_mode!r}, size {size}"
            remedy = "Use a larger input, less padding, or padding_mode='zeros'"
            raise ArgumentError(type(self).__name__, "padding", rule, got, remedy)
        uneven = any(n % s for n, s in zip(size, self.stride, strict=True))
        if self.padding_mode == "circular" and uneven:
            rule = "must divide the size of the input with circular padding"
            got = f"stride={self.stride}, size {size}"
            remedy = "The phases of a circle would mix; use padding_mode='zeros', or pad the input."
            raise ArgumentError(type(self).__name__, "stride", rule, got, remedy)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        ones, zeros = (1,) * self._dims, (0,) * self._dims
        shown = {
            "padding": (self.padding, zeros),
            "output_padding": (self.output_padding, zeros),
            "dilation": (self.dilation, ones),
            "groups": (self.groups, 1),
            "bias": (self.bias is not None, True),
            "padding_mode": (self.padding_mode, "zeros"),
        }
        return text + "".join(
            f", {name}={value!r}" for name, (value, usual) in shown.items() if value != usual
        )


class TransposedConv(ConstrainedConv):
    """The adjoint of a convolution, with the order of arguments that torch gives it."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode != "zeros" or isinstance(padding, str):
            rule = "must be numbers and `padding_mode` 'zeros'"
            got = f"padding={padding!r}, padding_mode={padding_mode!r}"
            remedy = (
                "A transposed convolution crops its output by `padding`; torch has no other kind."
            )
            raise ArgumentError(name, "padding", rule, got, remedy)
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            output_padding=output_padding,
            device=device,
            dtype=dtype,
        )
        limits = zip(self.output_padding, self.stride, self.dilation, strict=True)
        if any(extra >= max(s, d) for extra, s, d in limits):
            rule = "must be below the stride or the dilation"
            got = f"output_padding={self.output_padding}, stride={self.stride}"
            raise ArgumentError(name, "output_padding", rule, got, "torch refuses it too.")
