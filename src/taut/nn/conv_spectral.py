r"""`SpectralConv`: convolutions of norm at most 1 by a factor for each channel, at little cost."""

import math
from typing import final

import torch
from torch import Tensor

from taut.linalg.autocorrelation import TapPairs, rescale_channels
from taut.nn.conv import ConstrainedConv, TransposedConv
from taut.nn.conv_orthonormal import Factors
from taut.norms import L2
from taut.rules import register
from taut.rules.convolution import convolution_schema

__all__ = [
    "SpectralConv1d",
    "SpectralConv2d",
    "SpectralConv3d",
    "SpectralConvTranspose1d",
    "SpectralConvTranspose2d",
    "SpectralConvTranspose3d",
]


class SpectralConv(ConstrainedConv):
    """What the convolutions here share: channels rescaled to norm at most 1."""

    input_norm = L2
    output_norm = L2

    def _draw_weight(self) -> None:
        factors = Factors.of(self.kernel_shape, self.groups, self.stride, self.dilation)
        # No factor shrinks an orthonormal kernel, so training starts with all of the norm in use.
        flat = self.weight.new_empty(factors.numel)
        factors.draw(flat)
        with torch.no_grad():
            self.weight.copy_(factors.kernel(*factors.split(flat)))

    def constrain(self, weight: Tensor) -> Tensor:
        """The kernel with its channels rescaled (`taut.linalg.rescale_channels`)."""
        rows, columns, *taps = self.kernel_shape
        channels = (rows // self.groups, columns)
        pairs = TapPairs.of(channels, tuple(taps), self.stride, self.dilation)
        # In float64 the sums are exact for all that single precision can tell.
        blocks = weight.double().unflatten(0, (self.groups, -1)).flatten(3)
        terms = min(rows, columns) * math.prod(taps)
        # Enough for `bound_autocorrelation` to prove a norm of at most 1 of what is stored.
        margin = max(torch.finfo(weight.dtype).eps * math.sqrt(terms), pairs.margin(blocks))
        scaled = rescale_channels(blocks, pairs) * ((1 - margin) / self.padding_norm())
        return scaled.to(weight.dtype).view(self.kernel_shape)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same map, which looks at no values."""
        return self.constrain(weight)


@final
class SpectralConv1d(SpectralConv):
    """`SpectralConv2d` in one dimension."""

    _dims = 1


@final
class SpectralConv2d(SpectralConv):
    r"""A convolution of norm at most 1 in every forward, for every shape it accepts.

    Each channel of the free parameter is multiplied by
    $d_i = (\sum_{j,l} |R_l|_{ij})^{-1/2}$, $R$ the autocorrelation of the kernel
    (`taut.linalg.rescale_channels`). That is a proof, not an iteration, it costs one product of
    small matrices, and it holds for zero and circular padding, any stride, dilation and groups. The
    factors are 1 for orthonormal kernels, with one of which training begins; kernels far from
    that have a norm below 1, which `taut.bound_lipschitz` computes.

    The arguments are those of `torch.nn.Conv2d`, with these limits:

    Args:
        stride: a divisor of the input size where the padding is circular.
        padding_mode: "zeros" or "circular"; for "reflect", "replicate" and "symmetric", which copy
            inputs, the kernel is divided by the enlargement (`taut.linalg.bound_padding`).

    Example:
        >>> layer = SpectralConv2d(3, 8, 3, padding=1)
        >>> bool(taut.bound_lipschitz(layer, input_shape=(3, 6, 6)).value <= 1)
        True
    """

    _dims = 2


@final
class SpectralConv3d(SpectralConv):
    """`SpectralConv2d` in three dimensions."""

    _dims = 3


@final
class SpectralConvTranspose1d(TransposedConv, SpectralConv):
    """The transposed `SpectralConv1d`, with torch's arguments."""

    _dims = 1


@final
class SpectralConvTranspose2d(TransposedConv, SpectralConv):
    """The transposed `SpectralConv2d`, with torch's arguments."""

    _dims = 2


@final
class SpectralConvTranspose3d(TransposedConv, SpectralConv):
    """The transposed `SpectralConv3d`, with torch's arguments."""

    _dims = 3


for _layer in SpectralConv.__subclasses__():
    register(_layer, file=convolution_schema(_layer))
