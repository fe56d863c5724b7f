"""Activations that keep the length of gradients, as modules.

Those that group channels act over dimension `dim`. It may be left out for inputs `(batch, features)`
and must be given for all others: on images, the last dimension is the width.
"""

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from taut import functional
from taut.errors import ArgumentError, check_count
from taut.rules import FileSchema, register, relu_forms

__all__ = ["Abs", "FullSort", "GroupSort", "Householder", "MaxMin", "Maxout", "channel_dim"]


@final
class MaxMin(nn.Module):
    """The larger of each pair of channels in the first half, the smaller in the second.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.max_min`.

    Args:
        dim: where the channels are; None for `(batch, features)`.

    Example:
        >>> MaxMin()(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.,  1., -4.])
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.max_min(x, channel_dim("MaxMin", x, self.dim))

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(dim=self.dim)


@final
class GroupSort(nn.Module):
    """Each group of channels in ascending order.

    A permutation of its input at every point: 1-Lipschitz and gradient-norm-preserving in every
    p-norm. See `taut.functional.group_sort` for which channels share a group.

    Args:
        group_size: channels in a group.
        dim: where the channels are; None for `(batch, features)`.

    Example:
        >>> GroupSort(2)(torch.tensor([4.0, 3.0, 2.0, 1.0]))
        tensor([2., 1., 4., 3.])
    """

    def __init__(self, group_size: int, dim: int | None = None) -> None:
        super().__init__()
        check_count("GroupSort", "group_size", group_size)
        self.group_size = group_size
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.group_sort(x, self.group_size, channel_dim("GroupSort", x, self.dim))

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(group_size=self.group_size, dim=self.dim)


@final
class FullSort(nn.Module):
    """All channels in ascending order.

    Args:
        dim: where the channels are; None for `(batch, features)`.

    Example:
        >>> FullSort()(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 2., 3.])
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return functional.full_sort(x, channel_dim("FullSort", x, self.dim))

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(dim=self.dim)


@final
class Maxout(nn.Module):
    """The largest of each group of channels; the others are lost.

    1-Lipschitz in every p-norm. A gradient keeps its norm on the way back, but units are lost.

    Args:
        group_size: channels in a group.
        dim: where the channels are; None for `(batch, features)`.

    Example:
        >>> Maxout(2)(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.])
    """

    def __init__(self, group_size: int, dim: int | None = None) -> None:
        super().__init__()
        check_count("Maxout", "group_size", group_size)
        self.group_size = group_size
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maps `C` channels along `dim` to `C / group_size`."""
        return functional.maxout(x, self.group_size, channel_dim("Maxout", x, self.dim))

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(group_size=self.group_size, dim=self.dim)


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
        dim: where the channels are; None for `(batch, features)`.

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
        dim = channel_dim("Householder", x, self.dim)
        if x.shape[dim] != self.num_channels:
            raise ArgumentError(
                "Householder: `x` must have the channels it was made for; got "
                f"{x.shape[dim]}, num_channels={self.num_channels}."
            )
        return functional.householder(x, self.angle, dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        learnable = isinstance(self.angle, nn.Parameter)
        return f"{self.num_channels}, {_shown(learnable=learnable, dim=self.dim)}"


def channel_dim(subject: str, x: Tensor, dim: int | None) -> int:
    """The dimension to act over; for `(batch, features)` it is plain which one that is."""
    if dim is None and x.ndim > 2:
        raise ArgumentError(
            f"{subject}: `dim` must be given for inputs of more than two dimensions; got an input of "
            f"shape {tuple(x.shape)}. Use dim=1 for images, whose channels come second, or dim=-1 "
            "where they come last."
        )
    return -1 if dim is None else dim


def _shown(**arguments: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items() if value is not None)


def _call_of(function: Any, *names: str) -> Any:
    """The function of a layer with its attributes; no `dim` is the last one."""

    def call(module: Any) -> Any:
        more = {name: getattr(module, name) for name in names}
        return function, more | {"dim": -1 if module.dim is None else module.dim}

    return call


_DIM = {"dim": int | None}
register(
    MaxMin,
    call=_call_of(functional.max_min),
    relu=relu_forms.max_min,
    file=FileSchema(MaxMin, _DIM),
)
register(
    GroupSort,
    call=_call_of(functional.group_sort, "group_size"),
    relu=relu_forms.group_sort,
    file=FileSchema(GroupSort, {"group_size": int, **_DIM}),
)
register(
    FullSort,
    call=_call_of(functional.full_sort),
    relu=relu_forms.group_sort,
    file=FileSchema(FullSort, _DIM),
)
register(
    Maxout,
    call=_call_of(functional.maxout, "group_size"),
    relu=relu_forms.maxout,
    file=FileSchema(Maxout, {"group_size": int, **_DIM}),
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
