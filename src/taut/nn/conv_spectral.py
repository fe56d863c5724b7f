r"""`SpectralConv`: convolutions divided by a proven bound of their norm, close above it."""

from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from taut.linalg import bound_kernel_norm, norm_on_grid
from taut.linalg.func_transforms import call_on_numbers
from taut.nn.conv import TransposedConv
from taut.nn.conv_aol import FreeKernelConv
from taut.rules import register
from taut.rules.convolution import convolution_schema


class SpectralConv(FreeKernelConv):
    """What the convolutions here share: one divisor for the whole kernel."""

    def constrain(self, weight: Tensor) -> Tensor:
        """The kernel divided by a proven bound of its norm; zeros stay."""

        def bound_norm(weight: Tensor) -> Tensor:
            bound, gradient = bound_kernel_norm(weight, **self._geometry())
            return torch.cat([gradient.new_tensor([bound]), gradient.flatten()]).to(weight.device)

        known = call_on_numbers(partial(self._derived.recall_or_make, make=bound_norm), weight)
        bound, gradient = known.split([1, weight.numel()])
        double = weight.double()
        size = (gradient.view(weight.shape) * double).sum()
        # The value is that of the proven bound, the derivative that of the norm.
        return self._divide(double, bound + (size - size.detach())).to(weight.dtype)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same with the norm that torch computes, up to a percent lower, which looks at no values."""
        double = weight.double()
        return self._divide(double, norm_on_grid(double, **self._geometry())).to(weight.dtype)

    def _divide(self, weight: Tensor, norm: Tensor) -> Tensor:
        factor = (1 - self._rounding(self.weight.dtype)) / self.padding_norm()
        return weight * (factor / torch.where(norm > 0, norm, 1.0))

    def _geometry(self) -> dict[str, Any]:
        return {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}


@final
class SpectralConv1d(SpectralConv, dims=1):
    """`SpectralConv2d` in one dimension."""


@final
class SpectralConv2d(SpectralConv, dims=2):
    r"""A convolution divided by a proven bound of its norm: between 0.9 and 1 in every forward.

    The free parameter is divided by the largest norm of its transfer matrices on a grid of frequencies,
    times a factor that covers all others (`taut.linalg.bound_kernel_norm`). That is a proof, rounding
    included, for zero and circular padding, any stride, dilation and groups, and every size of
    input. The divisor is at most a tenth above the norm for kernels in one or two dimensions, a sixth in
    three; power iteration only points its gradient.

    `AOLConv2d` costs less, and has a norm that may be far below 1; `OrthonormalConv2d` keeps
    all singular values at 1, not only the largest.

    The arguments are those of `AOLConv2d`.

    Example:
        >>> layer = SpectralConv2d(3, 8, 3, padding=1)
        >>> bool(taut.bound_lipschitz(layer, input_shape=(3, 6, 6)).value <= 1)
        True
    """


@final
class SpectralConv3d(SpectralConv, dims=3):
    """`SpectralConv2d` in three dimensions."""


@final
class SpectralConvTranspose1d(TransposedConv, SpectralConv, dims=1):
    """The transposed `SpectralConv1d`, with torch's arguments."""


@final
class SpectralConvTranspose2d(TransposedConv, SpectralConv, dims=2):
    """The transposed `SpectralConv2d`, with torch's arguments."""


@final
class SpectralConvTranspose3d(TransposedConv, SpectralConv, dims=3):
    """The transposed `SpectralConv3d`, with torch's arguments."""


for _layer in SpectralConv.__subclasses__():
    register(_layer, file=convolution_schema(_layer))
