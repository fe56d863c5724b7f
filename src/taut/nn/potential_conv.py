r"""`SLLResidual2d`: the residual layer of `taut.nn.potential` with a convolution in it.

The theorem is the same, with the convolution $K$ for $W$ and its adjoint, the transposed convolution
with the same kernel and padding, for $W^\top$: $x - 2 K^\top \mathrm{relu}(K x + b)$ is Lipschitz in
L2 with $\max(1, 2\|K\|_2^2 - 1)$.
"""

from fractions import Fraction
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, check_count
from taut.linalg import bound_convolution
from taut.linalg.rounding import float_up
from taut.nn.conv_spectral import SpectralConv
from taut.norms import L1, L2, LINF, Norm
from taut.rules import Call, Constants, FileSchema, Rounding, register
from taut.rules.convolution import DIRECT
from taut.rules.forms import in_each_norm
from taut.rules.schema import Arguments, Shapes

__all__ = ["PotentialStep2d", "SLLResidual2d"]


def _step(x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    padding = kernel.shape[-1] // 2
    lifted = F.conv2d(x, kernel, bias, padding=padding).relu()
    return x - 2 * F.conv_transpose2d(lifted, kernel, padding=padding)


def _check(subject: str, **counts: int) -> None:
    for name, count in counts.items():
        check_count(subject, name, count)
    if counts["kernel_size"] % 2 == 0:
        raise ArgumentError(
            f"{subject}: `kernel_size` must be odd, so that outputs are where inputs are; got "
            f"kernel_size={counts['kernel_size']}. Use 1, 3 or 5."
        )


@final
class PotentialStep2d(nn.Module):
    r"""$x - 2 K^\top \mathrm{relu}(K x + b)$ with a fixed kernel: what `SLLResidual2d` folds to.

    Lipschitz in L2 with $\max(1, 2\|K\|_2^2 - 1)$, for any kernel; it starts at zero, as the
    identity. Zeros are beyond the image.

    Args:
        channels: channels of input and output.
        hidden_channels: rows of the kernel.
        kernel_size: side of the windows, odd.
        bias: whether there is an offset before ReLU.
        device: where the parameters live.
        dtype: of the parameters.

    Example:
        >>> step = PotentialStep2d(1, 1, 1, bias=False)
        >>> step.weight.data.fill_(1.0)
        tensor([[[[1.]]]])
        >>> step(torch.tensor([[[[3.0, -1.0]]]])).detach()
        tensor([[[[-3., -1.]]]])
    """

    bias: nn.Parameter | None

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
        _check(
            "PotentialStep2d",
            channels=channels,
            hidden_channels=hidden_channels,
            kernel_size=kernel_size,
        )
        self.channels, self.hidden_channels = channels, hidden_channels
        self.kernel_size = kernel_size
        shape = (hidden_channels, channels, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.zeros(shape, device=device, dtype=dtype))
        offset = nn.Parameter(self.weight.new_zeros(hidden_channels)) if bias else None
        self.register_parameter("bias", offset)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(batch, channels, height, width)` to the same shape."""
        return _step(x, self.weight, self.bias)

    def run_direct(self, x: Tensor) -> Tensor:
        """The same by matrix products over unfolded windows: no fast transform."""
        k, kernel = self.kernel_size, self.weight.to(x).flatten(1)
        lifted = kernel @ F.unfold(x, k, padding=k // 2)
        if self.bias is not None:
            lifted = lifted + self.bias.to(x)[:, None]
        pulled = kernel.mT @ lifted.relu()
        return x - 2 * F.fold(pulled, x.shape[-2:], k, padding=k // 2)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(self, self.kernel_size)


@final
class SLLResidual2d(SpectralConv):
    r"""`SLLResidual` with a convolution: $x - 2 K^\top \mathrm{relu}(K x + b)$, 1-Lipschitz in L2.

    The kernel is that of `SpectralConv2d`, rescaled on its shorter side, so that $\|K\|_2 \le 1$ for
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

    _dims = 2

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
        _check("SLLResidual2d", channels=channels, hidden_channels=hidden, kernel_size=kernel_size)
        self.channels, self.hidden_channels = channels, hidden
        more: Any = {"device": device, "dtype": dtype}
        super().__init__(channels, hidden, kernel_size, padding=kernel_size // 2, bias=bias, **more)

    def _affine(self, x: Tensor) -> Tensor:
        return _step(x, self._weight_in_use(), self.bias)

    def as_plain(self, kernel: Tensor) -> PotentialStep2d:
        """The step with this kernel and the bias of the layer."""
        sizes = self.channels, self.hidden_channels, self.kernel_size[0]
        plain = PotentialStep2d(*sizes, bias=False, device="meta")
        plain.weight = nn.Parameter(kernel)
        plain.register_parameter("bias", self.bias)
        return plain

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(self, self.kernel_size[0])


def _shown(layer: PotentialStep2d | SLLResidual2d, size: int) -> str:
    sizes = f"{layer.channels}, {layer.hidden_channels}, kernel_size={size}"
    return f"{sizes}, bias={layer.bias is not None}"


def _norm(call: Call, norm: Norm) -> Fraction:
    module, shape = call.module, call.x.shape
    size = None if shape is None else shape[1:]
    half = module.kernel_size // 2
    bound = bound_convolution(module.weight.detach(), norm, padding=half, input_size=size)
    return Fraction(bound.value)


def _both_ways(call: Call) -> float:
    r"""$1 + 2 \|K\|_1 \|K\|_\infty$: bounds $I + 2|K|^\top|K|$ in L1 and L-inf, hence in L2."""
    return float_up(1 + 2 * _norm(call, L1) * _norm(call, LINF))


def _constants(call: Call) -> Constants:
    def bound(norm: Norm) -> float:
        if norm != L2:
            return _both_ways(call)
        return max(1.0, float_up(2 * _norm(call, L2) ** 2 - 1))

    return in_each_norm(call, bound)


def _magnitude(call: Call, x: Tensor) -> Tensor:
    module = call.module
    kernel = module.weight.to(x).abs()
    bias = None if module.bias is None else module.bias.to(x).abs()
    half = module.kernel_size // 2
    lifted = F.conv2d(x.abs(), kernel, bias, padding=half)
    return x.abs() + 2 * F.conv_transpose2d(lifted, kernel, padding=half)


register(
    PotentialStep2d,
    proof="step of a convex potential",
    constants=_constants,
    # Two convolutions in a row, whose numbers of roundings add up, and a difference.
    rounding=Rounding(
        lambda call: sum(call.module.weight.shape[:2]) * call.module.kernel_size**2 + 8,
        _magnitude,
        lambda call: call.x.constants.scaled(_both_ways(call)),
        DIRECT,
    ),
)


def _shapes(a: Arguments) -> Shapes:
    hidden, k = a["hidden_channels"], a["kernel_size"]
    kernel = {"weight": (hidden, a["channels"], k, k)}
    return {**kernel, "bias": (hidden,)} if a["bias"] else kernel


for _kind in (PotentialStep2d, SLLResidual2d):
    register(
        _kind,
        file=FileSchema(
            _kind,
            {"channels": int, "hidden_channels": int, "kernel_size": int, "bias": bool},
            shapes=_shapes,
            read={
                "bias": lambda m: m.bias is not None,
                "kernel_size": lambda m: m.weight.shape[-1],
            },
        ),
    )
