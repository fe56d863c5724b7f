"""Initial weights that use all of their slope, written in place, as `torch.nn.init` does."""

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError
from taut.linalg import bound_convolution, bound_spectral_norm
from taut.nn.conv_orthonormal import Factors

__all__ = ["orthonormal_", "spectral_"]


@torch.no_grad()
def orthonormal_(tensor: Tensor, *, stride: int = 1, groups: int = 1) -> Tensor:
    """Fills a matrix or a kernel with a random orthonormal one: all singular values 1, to rounding.

    Args:
        tensor: `(out, in)`, or the kernel of a convolution `(out, in / groups, *sizes)` (transposed:
            of the convolution whose adjoint it is).
        stride: stride of the convolution.
        groups: groups of the convolution.

    Example:
        >>> kernel = orthonormal_(torch.empty(4, 2, 3, 3))
        >>> round(taut.linalg.bound_convolution(kernel, "l2").value, 5)
        1.0
    """
    _check("orthonormal_", tensor)
    if tensor.dim() == 2:
        return nn.init.orthogonal_(tensor)
    factors = Factors.of(tuple(tensor.shape), groups, (stride,) * (tensor.dim() - 2))
    return tensor.copy_(factors.random_kernel(tensor))


@torch.no_grad()
def spectral_(tensor: Tensor, *, stride: int = 1, groups: int = 1) -> Tensor:
    """Fills a matrix or a kernel with normal numbers, divided by a proven bound of their norm.

    The arguments are those of `orthonormal_`.

    Example:
        >>> matrix = spectral_(torch.empty(4, 2))
        >>> round(taut.linalg.bound_spectral_norm(matrix).value, 5)
        1.0
    """
    _check("spectral_", tensor)
    nn.init.normal_(tensor)
    if tensor.dim() == 2:
        bound = bound_spectral_norm(tensor).value
    else:
        bound = bound_convolution(tensor, "l2", stride=stride, groups=groups).value
    margin = 8 * torch.finfo(tensor.dtype).eps * tensor.shape[0] ** 0.5
    return tensor.mul_((1 - margin) / bound)


def _check(subject: str, tensor: Tensor) -> None:
    if not 2 <= tensor.dim() <= 5 or tensor.numel() == 0:
        rule = "must be a matrix or a kernel of a convolution"
        raise ArgumentError(subject, "tensor", rule, f"shape {tuple(tensor.shape)}")
