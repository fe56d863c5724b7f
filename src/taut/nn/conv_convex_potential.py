r"""`SLLResidual2d`, `CPLResidual2d`: the layers of `taut.nn.convex_potential` with a convolution in it.

The theorem is the same, with the convolution $K$ for $W$ and its adjoint, the transposed convolution
with the same kernel and padding, for $W^\top$: $x - 2 K^\top \mathrm{relu}(K x + b)$ is Lipschitz in
L2 with $\max(1, 2\|K\|_2^2 - 1)$.
"""

from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.errors import ArgumentError
from taut.linalg import bound_convolution
from taut.nn.conv_aol import AOLConv, FreeKernelConv
from taut.nn.conv_spectral import SpectralConv
from taut.nn.convex_potential import register_potential
from taut.nn.relu_pairs import ConstrainedReluPair, FixedReluPair, ReluPair, register_pairs
from taut.norms import Norm
from taut.rules import Call
from taut.rules.convolution import DIRECT
from taut.rules.file_schema import with_bias


class _Potential2d(ReluPair):
    size_names = ("channels", "hidden_channels", "kernel_size")
    residual = True

    @staticmethod
    def lift(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """$K x + b$."""
        return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)

    @staticmethod
    def pull(hidden: Tensor, weight: Tensor) -> Tensor:
        r"""$K^\top h$."""
        return F.conv_transpose2d(hidden, weight, padding=weight.shape[-1] // 2)

    def _check_odd(self, kernel_size: int) -> None:
        if kernel_size % 2 == 0:
            rule, remedy = "must be odd, so that outputs are where inputs are", "Use 1, 3 or 5."
            raise ArgumentError(type(self).__name__, "kernel_size", rule, kernel_size, remedy)


@final
class PotentialStep2d(_Potential2d, FixedReluPair):
    r"""$x - 2 K^\top \mathrm{relu}(K x + b)$ with a fixed kernel: what the layers here fold to.

    Lipschitz in L2 with $\max(1, 2\|K\|_2^2 - 1)$, for any kernel; it starts at zero, as the
    identity. Zeros are beyond the image.

    The arguments are those of `SLLResidual2d`.

    Example:
        >>> step = PotentialStep2d(1, 1, 1, bias=False)
        >>> step.weight.data.fill_(1.0)
        tensor([[[[1.]]]])
        >>> step(torch.tensor([[[[3.0, -1.0]]]])).detach()
        tensor([[[[-3., -1.]]]])
    """

    kernel_size: int

    def __init__(
        self,
        channels: int,
        hidden_channels: int,
        kernel_size: int = 3,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_sizes(channels=channels, hidden_channels=hidden_channels, kernel_size=kernel_size)
        self._check_odd(kernel_size)
        shape = (hidden_channels, channels, kernel_size, kernel_size)
        self._create_parameters(shape, bias, hidden_channels, device, dtype)

    def run_direct(self, x: Tensor) -> Tensor:
        """The same by matrix products over unfolded windows: no fast transform."""
        k, kernel = self.kernel_size, self.weight.to(x).flatten(1)
        lifted = kernel @ F.unfold(x, k, padding=k // 2)
        if self.bias is not None:
            lifted = lifted + self.bias.to(x)[:, None]
        pulled = kernel.mT @ lifted.relu()
        return x - 2 * F.fold(pulled, x.shape[-2:], k, padding=k // 2)


class _PotentialResidual2d(_Potential2d, ConstrainedReluPair, FreeKernelConv, dims=2):
    """A potential step whose kernel is kept at norm 1 or less."""

    plain_type = PotentialStep2d

    def __init__(
        self,
        channels: int,
        hidden_channels: int | None = None,
        kernel_size: int = 3,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        hidden = channels if hidden_channels is None else hidden_channels
        self._set_sizes(channels=channels, hidden_channels=hidden, kernel_size=kernel_size)
        self._check_odd(kernel_size)
        more: Any = {"device": device, "dtype": dtype}
        super().__init__(channels, hidden, kernel_size, padding=kernel_size // 2, bias=bias, **more)

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "kernel_size": self.kernel_size[0]}


@final
class SLLResidual2d(_PotentialResidual2d, AOLConv):
    r"""`SLLResidual` with a convolution: $x - 2 K^\top \mathrm{relu}(K x + b)$, 1-Lipschitz in L2.

    The kernel is that of `AOLConv2d`, rescaled on its shorter side, so that $\|K\|_2 \le 1$ for
    images of every size. Zeros are beyond the image.

    Args:
        channels: channels of input and output.
        hidden_channels: rows of the kernel; by default as many.
        kernel_size: side of the windows, odd.
        bias: whether to learn an offset before ReLU.
        device: where the parameters live.
        dtype: float32 or float64.

    Example:
        >>> layer = SLLResidual2d(3, 8)
        >>> taut.bound_lipschitz(layer, input_shape=(3, 6, 6)).value
        1.0
    """


@final
class CPLResidual2d(_PotentialResidual2d, SpectralConv):
    r"""`CPLResidual` with a convolution: $x - 2 K^\top \mathrm{relu}(K x + b)$, 1-Lipschitz in L2.

    The kernel is that of `SpectralConv2d`, divided by a proven bound of its norm. The arguments are those
    of `SLLResidual2d`.

    Example:
        >>> layer = CPLResidual2d(3, 8)
        >>> taut.bound_lipschitz(layer, input_shape=(3, 6, 6)).value
        1.0
    """


def _norm(call: Call, norm: Norm) -> float:
    module, shape = call.module, call.x.shape
    size = None if shape is None else shape[1:]
    half = module.kernel_size // 2
    return bound_convolution(module.weight.detach(), norm, padding=half, input_size=size).value


register_potential(
    PotentialStep2d,
    _norm,
    lambda call: sum(call.module.weight.shape[:2]) * call.module.kernel_size**2,
    DIRECT,
)
register_pairs(
    PotentialStep2d,
    SLLResidual2d,
    CPLResidual2d,
    shapes=lambda a: with_bias(
        a,
        (a["hidden_channels"], a["channels"], a["kernel_size"], a["kernel_size"]),
        a["hidden_channels"],
    ),
    read={"kernel_size": lambda m: m.weight.shape[-1]},
)
