r"""`AOLConv`: convolutions of norm at most 1 by a factor for each channel, without iteration."""

import math
from typing import Any, final

import torch
from torch import Tensor

from taut.linalg.autocorrelation import TapPairs, rescale_channels
from taut.nn.conv import ConstrainedConv, TransposedConv
from taut.nn.conv_orthonormal import Factors
from taut.norms import L2
from taut.rules import register
from taut.rules.convolution import convolution_schema


class FreeKernelConv(ConstrainedConv):
    """A convolution in L2 whose parameter is a kernel, orthonormal at first."""

    input_norm = L2
    output_norm = L2

    def _draw_weight(self) -> None:
        factors = Factors.of(self.kernel_shape, self.groups, self.stride, self.dilation)
        # No factor shrinks an orthonormal kernel, so training starts with all of the norm in use.
        with torch.no_grad():
            self.weight.copy_(factors.random_kernel(self.weight))

    def _rounding(self, dtype: torch.dtype) -> float:
        """How much of the norm rounding may give back when a kernel is rescaled."""
        rows, columns, *taps = self.kernel_shape
        return torch.finfo(dtype).eps * math.sqrt(min(rows, columns) * math.prod(taps))


class AOLConv(FreeKernelConv):
    """What the convolutions here share: channels rescaled to norm at most 1."""

    def _create_parameters(self, *args: Any) -> None:
        rows, columns, *taps = self.kernel_shape
        channels = (rows // self.groups, columns)
        # Held here, for a compiler cannot follow how it is made.
        self._pairs = TapPairs.of(channels, tuple(taps), self.stride, self.dilation)
        super()._create_parameters(*args)

    def constrain(self, weight: Tensor) -> Tensor:
        """The kernel with its channels rescaled (`taut.linalg.rescale_channels`)."""
        pairs = self._pairs
        # In float64 the sums are exact for all that single precision can tell.
        blocks = weight.double().unflatten(0, (self.groups, -1)).flatten(3)
        # Enough for `bound_autocorrelation` to prove a norm of at most 1 of what is stored.
        margin = max(self._rounding(weight.dtype), pairs.margin(blocks))
        scaled = rescale_channels(blocks, pairs) * ((1 - margin) / self.padding_norm())
        return scaled.to(weight.dtype).view(self.kernel_shape)


@final
class AOLConv1d(AOLConv, dims=1):
    """`AOLConv2d` in one dimension."""


@final
class AOLConv2d(AOLConv, dims=2):
    r"""A convolution of norm at most 1 in every forward, for every shape it accepts.

    Each channel of the free parameter is multiplied by
    $d_i = (\sum_{j,l} |R_l|_{ij})^{-1/2}$, $R$ the autocorrelation of the kernel
    (`taut.linalg.rescale_channels`). That is a proof, not an iteration, it costs one product of
    small matrices, and it holds for zero and circular padding, any stride, dilation and groups. The
    factors are 1 for orthonormal kernels, with one of which training begins; kernels far from
    that have a norm below 1 (0.4 to 0.6 for 64 channels after some steps), which
    `taut.bound_lipschitz` computes. `SpectralConv2d` uses all of its norm, at a higher price.

    The arguments are those of `torch.nn.Conv2d`, with these limits:

    Args:
        stride: a divisor of the input size where the padding is circular.
        padding_mode: "zeros" or "circular"; for "reflect", "replicate" and "symmetric", which copy
            inputs, the kernel is divided by the enlargement (`taut.linalg.bound_padding`).

    Example:
        >>> layer = AOLConv2d(3, 8, 3, padding=1)
        >>> bool(taut.bound_lipschitz(layer, input_shape=(3, 6, 6)).value <= 1)
        True
    """


@final
class AOLConv3d(AOLConv, dims=3):
    """`AOLConv2d` in three dimensions."""


@final
class AOLConvTranspose1d(TransposedConv, AOLConv, dims=1):
    """The transposed `AOLConv1d`, with torch's arguments."""


@final
class AOLConvTranspose2d(TransposedConv, AOLConv, dims=2):
    """The transposed `AOLConv2d`, with torch's arguments."""


@final
class AOLConvTranspose3d(TransposedConv, AOLConv, dims=3):
    """The transposed `AOLConv3d`, with torch's arguments."""


for _layer in AOLConv.__subclasses__():
    register(_layer, file=convolution_schema(_layer))
