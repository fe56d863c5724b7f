"""Activations that keep the length of gradients, as modules.

Those that group channels act over dimension `dim`. It may be left out for inputs `(batch, features)`
and must be given for all others: on images, the last dimension is the width.
"""

import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from taut import functional
from taut.errors import ArgumentError, check_count
from taut.rules import FileSchema, register, relu_forms


class ChannelActivation(nn.Module):
    """An activation over the channels along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def _channels(self, x: Tensor) -> int:
        """The dimension to act over; for `(batch, features)` it is plain which one that is."""
        if self.dim is None and x.ndim > 2:
            raise ArgumentError(
                subject=type(self).__name__,
                argument="dim",
                rule="must be given for inputs of more than two dimensions",
                got=f"an input of shape {tuple(x.shape)}",
                remedy="Use dim=1 for images, whose channels come second, or dim=-1 where they "
                "come last.",
            )
        return -1 if self.dim is None else self.dim

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return "" if self.dim is None else f"dim={self.dim}"


class _GroupActivation(ChannelActivation):
    def __init__(self, group_size: int, dim: int | None = None) -> None:
        super().__init__(dim)
        check_count(type(self).__name__, "group_size", group_size)
        self.group_size = group_size

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return ", ".join(filter(None, [f"group_size={self.group_size}", super().extra_repr()]))


@final
class MaxMin(ChannelActivation):
    """The larger of each pair of channels in the first half, the smaller in the second.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.max_min`.

    Args:
        dim: dimension of the channels; None for `(batch, features)`.

    Example:
        >>> MaxMin()(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.,  1., -4.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.max_min(x, self._channels(x))


@final
class GroupSort(_GroupActivation):
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

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.group_sort(x, self.group_size, self._channels(x))


@final
class FullSort(ChannelActivation):
    """All channels in ascending order: `GroupSort` with one group.

    Example:
        >>> FullSort()(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 2., 3.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.full_sort(x, self._channels(x))


@final
class Maxout(_GroupActivation):
    """The largest of each group of channels; the others are lost. The arguments are `GroupSort`'s.

    1-Lipschitz in every p-norm. A gradient keeps its norm on the way back, but units are lost.

    Example:
        >>> Maxout(2)(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `C` channels along `dim` to `C / group_size`."""
        return functional.maxout(x, self.group_size, self._channels(x))


@final
class PairLength(ChannelActivation):
    """The length of each pair of channels, the first half with the second: half as many channels.

    1-Lipschitz in L1 and L2; a gradient keeps its norm in L2. Behind `Residual(body, mode="concat")` it is
    the root of the mean of squares of the two ways. See `taut.functional.pair_lengths`.

    Args:
        dim: dimension of the channels; None for `(batch, features)`.

    Example:
        >>> PairLength()(torch.tensor([3.0, 0.0, -4.0, 1.0]))
        tensor([5., 1.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `C` channels along `dim` to `C / 2`."""
        return functional.pair_lengths(x, self._channels(x))


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
class Householder(ChannelActivation):
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
        check_count("Householder", "num_channels", num_channels, least=2)
        if num_channels % 2:
            raise ArgumentError(
                subject="Householder",
                argument="num_channels",
                rule="must be even",
                got=f"num_channels={num_channels}",
                remedy=f"Use {num_channels + 1}.",
            )
        self.num_channels = num_channels
        angles = torch.full((num_channels // 2,), angle)
        if learnable:
            self.angle = nn.Parameter(angles)
        else:
            self.register_buffer("angle", angles)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        dim = self._channels(x)
        if x.shape[dim] != self.num_channels:
            raise ArgumentError(
                subject="Householder",
                argument="x",
                rule="must have the channels it was made for",
                got=f"{x.shape[dim]}, num_channels={self.num_channels}",
            )
        return functional.householder(x, self.angle, dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"{self.num_channels}, learnable={isinstance(self.angle, nn.Parameter)}"
        return ", ".join(filter(None, [text, super().extra_repr()]))


def _call_of(function: Callable[..., Tensor], *names: str) -> Callable[[Any], tuple[Any, Any]]:
    """The function of a layer with its attributes; no `dim` is the last one."""

    def call(module: Any) -> tuple[Any, Any]:
        more = {name: getattr(module, name) for name in names}
        return function, more | {"dim": -1 if module.dim is None else module.dim}

    return call


_DIM = {"dim": int | None}
for _layer, _function, _relu_form, _names in (
    (MaxMin, functional.max_min, relu_forms.max_min, ()),
    (GroupSort, functional.group_sort, relu_forms.group_sort, ("group_size",)),
    (FullSort, functional.full_sort, relu_forms.group_sort, ()),
    (Maxout, functional.maxout, relu_forms.maxout, ("group_size",)),
):
    register(
        _layer,
        call=_call_of(_function, *_names),
        relu=_relu_form,
        file=FileSchema(_layer, dict.fromkeys(_names, int) | _DIM),
    )
register(
    PairLength, call=_call_of(functional.pair_lengths), file=FileSchema(PairLength, dict(_DIM))
)
register(
    Abs,
    call=lambda m: (torch.ops.aten.abs.default, {}),
    relu=relu_forms.absolute_value,
    file=FileSchema(Abs),
)
register(
    Householder,
    call=_call_of(functional.householder, "angle"),
    relu=relu_forms.householder,
    file=FileSchema(
        Householder,
        {"num_channels": int, "learnable": bool, **_DIM},
        {"num_channels": 2},
        lambda a: {"angle": (a["num_channels"] // 2,)},
        {"learnable": lambda m: isinstance(m.angle, nn.Parameter)},
    ),
)
