"""Activations of groups of channels that keep the length of gradients, as modules.

They act over dimension `dim`. It may be left out for inputs `(batch, features)`
and must be given for all others: on images, the last dimension is the width.
"""

import math
from typing import final

import torch
from torch import Tensor, nn

from taut import functional
from taut.errors import ArgumentError, check_count, check_even
from taut.nn.function_layer import FunctionLayer
from taut.rules import FileSchema, register, relu_forms


class ChannelActivation(FunctionLayer, arguments={"dim": int | None}):
    """An activation over the channels along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The activation of `x`, whose channels lie along `dim`, or last in `(batch, features)`."""
        if self.dim is None and x.ndim > 2:
            rule = "must be given for inputs of more than two dimensions"
            got = f"an input of shape {tuple(x.shape)}"
            remedy = (
                "Use dim=1 for images, whose channels come second, or dim=-1 where they come last."
            )
            raise ArgumentError(type(self).__name__, "dim", rule, got, remedy)
        return super().forward(x)


class _GroupActivation(ChannelActivation, arguments={"group_size": int, "dim": int | None}):
    def __init__(self, group_size: int, dim: int | None = None) -> None:
        super().__init__(dim)
        check_count(type(self).__name__, "group_size", group_size)
        self.group_size = group_size


@final
class MaxMin(ChannelActivation, function=functional.max_min, relu=relu_forms.max_min):
    """The larger of each pair of channels in the first half, the smaller in the second.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.max_min`.

    Args:
        dim: dimension of the channels; None for `(batch, features)`.

    Example:
        >>> MaxMin()(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.,  1., -4.])
    """


@final
class GroupSort(_GroupActivation, function=functional.group_sort, relu=relu_forms.group_sort):
    """Each group of channels in ascending order.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.group_sort` for which channels share a group.

    Args:
        group_size: number of channels in a group.
        dim: dimension of the channels; None for `(batch, features)`.

    Example:
        >>> GroupSort(2)(torch.tensor([4.0, 3.0, 2.0, 1.0]))
        tensor([2., 1., 4., 3.])
    """


@final
class FullSort(ChannelActivation, function=functional.full_sort, relu=relu_forms.group_sort):
    """All channels in ascending order: `GroupSort` with one group.

    Example:
        >>> FullSort()(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 2., 3.])
    """


@final
class Maxout(_GroupActivation, function=functional.maxout, relu=relu_forms.maxout):
    """The largest of each group of channels: `C / group_size` of `C`. The arguments are `GroupSort`'s.

    1-Lipschitz in every p-norm. Gradients keep their norm in the backward pass, but channels are lost.

    Example:
        >>> Maxout(2)(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.])
    """


@final
class PairLength(ChannelActivation, function=functional.pair_lengths):
    """The length of each pair of channels, the first half with the second: half as many channels.

    1-Lipschitz in L1 and L2; a gradient keeps its norm in L2. Behind `Residual(body, mode="concat")` it is
    the root of the mean of squares of the two ways. See `taut.functional.pair_lengths`.

    Args:
        dim: dimension of the channels; None for `(batch, features)`.

    Example:
        >>> PairLength()(torch.tensor([3.0, 0.0, -4.0, 1.0]))
        tensor([5., 1.])
    """


@final
class Householder(
    ChannelActivation,
    function=functional.householder,
    arguments={"angle": Tensor, "dim": int | None},
    relu=relu_forms.householder,
):
    r"""A reflection of each pair of channels that lies beyond a line, the line learned or fixed.

    1-Lipschitz and gradient-norm-preserving in L2 for any angle; MaxMin at $\pi / 2$. See
    `taut.functional.householder`.

    Args:
        num_channels: channels along `dim`, even.
        angle: initial angle of every pair.
        learnable: whether each pair learns its own angle.
        dim: dimension of the channels; None for `(batch, features)`.

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
        dim: int | None = None,
    ) -> None:
        super().__init__(dim)
        check_even("Householder", "num_channels", num_channels)
        self.num_channels = num_channels
        angles = torch.full((num_channels // 2,), angle)
        if learnable:
            self.angle = nn.Parameter(angles)
        else:
            self.register_buffer("angle", angles)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        channels = x.shape[-1 if self.dim is None else self.dim]
        if channels != self.num_channels:
            got = f"{channels}, num_channels={self.num_channels}"
            raise ArgumentError("Householder", "x", "must have the channels it was made for", got)
        return super().forward(x)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        dim = "" if self.dim is None else f", dim={self.dim}"
        return f"{self.num_channels}, learnable={isinstance(self.angle, nn.Parameter)}{dim}"


register(
    Householder,
    file=FileSchema(
        Householder,
        {"num_channels": int, "learnable": bool, "dim": int | None},
        {"num_channels": 2},
        lambda a: {"angle": (a["num_channels"] // 2,)},
        {"learnable": lambda m: isinstance(m.angle, nn.Parameter)},
    ),
)
