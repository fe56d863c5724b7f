"""Activations that keep the length of gradients, as modules."""

import math
from typing import final

import torch
from torch import Tensor, nn

from taut import functional
from taut.errors import ArgumentError, check_count

__all__ = ["Abs", "FullSort", "GroupSort", "Householder", "MaxMin", "Maxout"]


@final
class MaxMin(nn.Module):
    """The larger of each pair of channels in the first half, the smaller in the second.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.max_min`.

    Example:
        >>> MaxMin()(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.,  1., -4.])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.max_min(x, self.dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"dim={self.dim}"


@final
class GroupSort(nn.Module):
    """Each group of channels in ascending order.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.group_sort` for which channels share a group.

    Example:
        >>> GroupSort(2)(torch.tensor([4.0, 3.0, 2.0, 1.0]))
        tensor([2., 1., 4., 3.])
    """

    def __init__(self, group_size: int, dim: int = -1) -> None:
        super().__init__()
        check_count("GroupSort", "group_size", group_size)
        self.group_size = group_size
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.group_sort(x, self.group_size, self.dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"group_size={self.group_size}, dim={self.dim}"


@final
class FullSort(nn.Module):
    """All channels in ascending order.

    Example:
        >>> FullSort()(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 2., 3.])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.full_sort(x, self.dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"dim={self.dim}"


@final
class Maxout(nn.Module):
    """The largest of each group of channels; the others are lost.

    1-Lipschitz in every p-norm. A gradient keeps its norm on the way back, but units are lost.

    Example:
        >>> Maxout(2)(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.])
    """

    def __init__(self, group_size: int, dim: int = -1) -> None:
        super().__init__()
        check_count("Maxout", "group_size", group_size)
        self.group_size = group_size
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `C` channels along `dim` to `C / group_size`."""
        return functional.maxout(x, self.group_size, self.dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"group_size={self.group_size}, dim={self.dim}"


@final
class Abs(nn.Module):
    """The absolute value of each entry: a fold along every axis.

    1-Lipschitz and gradient-norm-preserving in every p-norm.

    Example:
        >>> Abs()(torch.tensor([-1.0, 2.0]))
        tensor([1., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return x.abs()


@final
class Householder(nn.Module):
    r"""A reflection of each pair of channels that lies beyond a line, the line learned or fixed.

    1-Lipschitz and gradient-norm-preserving in L2 for any angle; MaxMin at $\pi / 2$. See
    `taut.functional.householder`.

    Args:
        num_channels: channels along `dim`, even.
        angle: the starting angle of every pair.
        learnable: whether each pair learns its own angle.
        dim: where the channels are.

    Example:
        >>> Householder(2)(torch.tensor([1.0, 3.0])).detach().round(decimals=4)
        tensor([3., 1.])
    """

    angle: Tensor

    def __init__(
        self,
        num_channels: int,
        angle: float = math.pi / 2,
        learnable: bool = True,
        dim: int = -1,
    ) -> None:
        super().__init__()
        check_count("Householder", "num_channels", num_channels, least=2)
        if num_channels % 2:
            raise ArgumentError(
                f"Householder: `num_channels` must be even; got num_channels={num_channels}. "
                f"Use {num_channels + 1}."
            )
        self.num_channels = num_channels
        self.dim = dim
        angles = torch.full((num_channels // 2,), angle)
        if learnable:
            self.angle = nn.Parameter(angles)
        else:
            self.register_buffer("angle", angles)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        if x.shape[self.dim] != self.num_channels:
            raise ArgumentError(
                "Householder: `x` must have the channels it was made for; got "
                f"{x.shape[self.dim]}, num_channels={self.num_channels}."
            )
        return functional.householder(x, self.angle, self.dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        learnable = isinstance(self.angle, nn.Parameter)
        return f"{self.num_channels}, learnable={learnable}, dim={self.dim}"
