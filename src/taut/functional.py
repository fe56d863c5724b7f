r"""Sorting, maxima and reflections of channels, with fast derivatives: exact but for one rounding.

A group is spread out: channel $i$ of $C$ shares its group of size $k$ with $i + C/k$, $i + 2C/k$, ...
so that the members of all groups lie in $k$ contiguous slices and one vector instruction compares
many groups. Networks are the same up to a permutation of channels, which the next layer absorbs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.errors import ArgumentError, check_count

__all__ = [
    "adaptive_l2_pool2d",
    "full_sort",
    "group_sort",
    "householder",
    "l2_pool2d",
    "max_min",
    "maxout",
    "pad",
    "pair_lengths",
]

_LARGEST_NETWORK = 16
_T = TypeVar("_T", bound=Callable[..., Tensor])
# Set while the audit captures a forward: sorting then stays one operation of its graph.
_whole: Callable[..., Tensor | None] | None = None


def keep_whole(hook: Callable[..., Tensor | None] | None) -> None:
    """Lets `hook(function, x, arguments)` answer for the functions here; not for users."""
    global _whole
    _whole = hook


def _one_operation(function: _T) -> _T:
    @wraps(function)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _whole is not None:
            names = list(signature(function).parameters)[1:]
            answer = _whole(call, x, dict(zip(names, args, strict=False)) | kwargs)
            if answer is not None:
                return answer
        return function(x, *args, **kwargs)

    return call  # type: ignore[return-value]


@_one_operation
def max_min(x: Tensor, dim: int = -1) -> Tensor:
    r"""The larger of each pair in the first half, the smaller in the second.

    $$y_i = \max(x_i, x_{i + C/2}), \qquad y_{i + C/2} = \min(x_i, x_{i + C/2})$$

    for an even number `C` of channels along `dim`. The Jacobian is a permutation: every $p$-norm of
    every gradient is kept.

    Example:
        >>> max_min(torch.tensor([1.0, -2.0, 3.0, -4.0]))
        tensor([ 3., -2.,  1., -4.])
    """
    _check_groups("MaxMin", x, 2, dim)
    if torch.compiler.is_dynamo_compiling():
        low, high = _compare_swap(*x.chunk(2, dim))
        return torch.cat([high, low], dim)
    return _MaxMin.apply(x, dim)  # type: ignore[return-value]


@_one_operation
def group_sort(x: Tensor, group_size: int, dim: int = -1) -> Tensor:
    r"""Sorts each group of channels in ascending order.

    Slice $j$ of the $k$ slices of the output holds the $j$-th smallest member of every group. The
    Jacobian is a permutation. Up to 16 members go through a network of compare-and-swap steps,
    larger groups through `torch.sort`.

    Args:
        x: any shape.
        group_size: a divisor `k` of the number of channels.
        dim: dimension of the channels.

    Example:
        >>> group_sort(torch.tensor([4.0, 3.0, 2.0, 1.0]), 2)
        tensor([2., 1., 4., 3.])
    """
    _check_groups("GroupSort", x, group_size, dim)
    if group_size == 1:
        return x
    if group_size > _LARGEST_NETWORK:
        size = x.shape[dim] // group_size
        groups = x.unflatten(dim, (group_size, size))
        at = dim if dim >= 0 else dim - 1
        return groups.sort(at).values.flatten(at, at + 1)
    lanes = list(x.chunk(group_size, dim))
    for low, high in _NETWORKS[group_size]:
        lanes[low], lanes[high] = _compare_swap(lanes[low], lanes[high])
    return torch.cat(lanes, dim)


@_one_operation
def full_sort(x: Tensor, dim: int = -1) -> Tensor:
    r"""Sorts all channels in ascending order: one group.

    Example:
        >>> full_sort(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 2., 3.])
    """
    return x.sort(dim).values


@_one_operation
def maxout(x: Tensor, group_size: int, dim: int = -1) -> Tensor:
    r"""The largest member of each group; `C` channels become `C / group_size`.

    1-Lipschitz in every $p$-norm. Its Jacobian is some rows of a permutation, so a gradient keeps its
    norm on the way back; the other members are lost.

    Example:
        >>> maxout(torch.tensor([1.0, -2.0, 3.0, -4.0]), 2)
        tensor([ 3., -2.])
    """
    _check_groups("Maxout", x, group_size, dim)
    largest, *others = x.chunk(group_size, dim)
    for other in others:
        _, largest = _compare_swap(largest, other)
    return largest


@_one_operation
def householder(x: Tensor, angle: Tensor, dim: int = -1) -> Tensor:
    r"""Reflects each pair $(a, b)$ that lies on the far side of a line through the origin.

    With $t = \theta / 2$: unchanged where $a \sin t - b \cos t > 0$, else multiplied by the reflection
    $\begin{pmatrix}\cos\theta & \sin\theta\\ \sin\theta & -\cos\theta\end{pmatrix}$. The Jacobian is
    orthogonal, so Euclidean norms of gradients are kept; other $p$-norms are not. At
    $\theta = \pi/2$ this is `max_min`.

    Args:
        x: any shape, an even number `C` of channels along `dim`.
        angle: scalar, or `(C / 2,)`, one angle a pair.
        dim: dimension of the channels.

    Example:
        >>> householder(torch.tensor([1.0, 3.0]), torch.tensor(torch.pi / 2)).round(decimals=4)
        tensor([3., 1.])
    """
    _check_groups("Householder", x, 2, dim)
    if angle.ndim == 1:
        angle = angle.view([-1] + [1] * (x.ndim - 1 - dim % x.ndim))
    a, b = x.chunk(2, dim)
    near = a * torch.sin(angle / 2) - b * torch.cos(angle / 2) > 0
    cos, sin = torch.cos(angle), torch.sin(angle)
    first = torch.where(near, a, cos * a + sin * b)
    second = torch.where(near, b, sin * a - cos * b)
    return torch.cat([first, second], dim)


@_one_operation
def l2_pool2d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    r"""The length $\|x_{\text{window } t}\|_2$ of each window, channel by channel.

    Its derivative is a unit vector in each window, 0 where the whole window is 0.

    Example:
        >>> l2_pool2d(torch.tensor([[[[3.0, 0.0], [0.0, -4.0]]]]), (2, 2))
        tensor([[[[5.]]]])
    """
    steps = kernel_size if stride is None else stride
    pool = partial(F.avg_pool2d, x.square(), list(kernel_size), list(steps))
    if ceil_mode:  # windows that stick out have fewer cells, and so another divisor
        squares = pool(ceil_mode=True, divisor_override=1)
    else:
        squares = pool() * math.prod(kernel_size)
    return _root(squares)


@_one_operation
def adaptive_l2_pool2d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    r"""The length $\|x_{\text{window } t}\|_2$ of each window of adaptive pooling, channel by channel.

    Window `i` of `m` reads the entries from $\lfloor in/m \rfloor$ to $\lceil (i + 1)n/m \rceil - 1$.

    Example:
        >>> adaptive_l2_pool2d(torch.tensor([[[[3.0, 0.0], [0.0, -4.0]]]]), (1, 1))
        tensor([[[[5.]]]])
    """
    rows, columns = (window_matrix(m, n, x) for m, n in zip(output_size, x.shape[-2:], strict=True))
    return _root(rows @ x.square() @ columns.mT)


@_one_operation
def pair_lengths(x: Tensor, dim: int = -1) -> Tensor:
    r"""The length $\sqrt{x_i^2 + x_{i + C/2}^2}$ of each pair of channels; `C` channels become `C / 2`.

    Its derivative is a unit vector for each pair, 0 where the whole pair is 0.

    Example:
        >>> pair_lengths(torch.tensor([3.0, 0.0, -4.0, 1.0]))
        tensor([5., 1.])
    """
    _check_groups("PairLength", x, 2, dim)
    a, b = x.chunk(2, dim)
    return _root(a.square() + b.square())


def window_matrix(m: int, n: int, like: Tensor) -> Tensor:
    """`(m, n)`: 1 where window `i` of adaptive pooling from `n` to `m` reads entry `j`, else 0."""
    window = torch.arange(m, device=like.device)[:, None]
    cells = torch.arange(n, device=like.device)
    return ((window * n // m <= cells) & (cells < -(-(window + 1) * n // m))).to(like.dtype)


def _root(squares: Tensor) -> Tensor:
    """The root, with derivative 0 at 0: it is taken of 1 there, and the result replaced."""
    empty = squares == 0
    return squares.masked_fill(empty, 1.0).sqrt().masked_fill(empty, 0.0)


def pad(x: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    """`torch.nn.functional.pad` with one mode more: "symmetric" mirrors the border entries, too.

    Args:
        x: `(batch, channels, *sizes)`.
        pad: pairs (front, behind), last dimension first.
        mode: "constant", "reflect", "replicate", "circular" or "symmetric".

    Example:
        >>> pad(torch.tensor([[[1.0, 2.0, 3.0]]]), (2, 1), "symmetric")
        tensor([[[2., 1., 1., 2., 3., 3.]]])
    """
    if mode != "symmetric":
        return F.pad(x, list(pad), mode=mode)
    for dim, (front, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim, size = -1 - dim, x.shape[-1 - dim]
        if not 0 <= min(front, behind) <= max(front, behind) <= size:
            rule = "must be at most the size of the input in mode 'symmetric'"
            raise ArgumentError("pad", "pad", rule, f"({front}, {behind}) for size {size}")
        ends = x.narrow(dim, 0, front), x.narrow(dim, size - behind, behind)
        x = torch.cat([ends[0].flip(dim), x, ends[1].flip(dim)], dim)
    return x


def _check_groups(subject: str, x: Tensor, group_size: int, dim: int) -> None:
    check_count(subject, "group_size", group_size)
    if x.ndim == 0:
        raise ArgumentError(subject, "x", "must have channels", "a tensor without dimensions")
    channels = x.shape[dim]
    if channels % group_size:
        divisors = [k for k in range(2, min(channels, 64) + 1) if channels % k == 0][:4]
        remedy = f"Use {_either(divisors)}." if divisors else "Use another number of channels."
        if subject in ("MaxMin", "Householder", "PairLength"):
            remedy = "Use an even number of channels."
        got = f"group_size={group_size}, channels={channels}"
        raise ArgumentError(subject, "group_size", "must divide the channel count", got, remedy)


def _either(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _compare_swap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The smaller and the larger; where they are equal the derivative is that of no exchange."""
    if torch.compiler.is_dynamo_compiling():  # operations that a compiler fuses
        exchange = a > b
        return torch.where(exchange, b, a), torch.where(exchange, a, b)
    return _CompareSwap.apply(a, b)  # type: ignore[return-value]


def _swap(first: Tensor, second: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The two tensors, exchanged where a > b: the derivative of (min, max), and its own adjoint."""
    # One mask by threshold_backward is several times faster than torch.where, at the price of a
    # rounding of the size of the larger gradient of the pair.
    moved = torch.ops.aten.threshold_backward(second - first, a - b, 0)
    return first + moved, second - moved


class _MaxMin(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, dim: int) -> Tensor:
        a, b = x.chunk(2, dim)
        if torch.compiler.is_compiling():  # plain operations, for any compiler and runtime
            return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], dim)
        y = torch.empty_like(x)
        high, low = y.chunk(2, dim)
        torch.maximum(a, b, out=high)
        torch.minimum(a, b, out=low)
        return y

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, dim: int) -> tuple[Tensor, int]:
        x = x.movedim(in_dims[0], 0)
        return _MaxMin.apply(x, dim if dim < 0 else dim + 1), 0  # type: ignore[return-value]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        x, ctx.dim = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        a, b = x.chunk(2, ctx.dim)
        g_high, g_low = grad.chunk(2, ctx.dim)
        return torch.cat(_swap(g_low, g_high, a, b), ctx.dim), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        low, high = _swap(*tangent.chunk(2, ctx.dim), *x.chunk(2, ctx.dim))
        return torch.cat([high, low], ctx.dim)


class _CompareSwap(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(a, b), torch.maximum(a, b)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g_low: Tensor, g_high: Tensor) -> tuple[Tensor, Tensor]:
        return _swap(g_low, g_high, *ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Any, t_a: Tensor, t_b: Tensor) -> tuple[Tensor, Tensor]:
        return _swap(t_a, t_b, *ctx.saved_tensors)


def sorting_stages(size: int) -> Iterator[list[tuple[int, int]]]:
    """A sorting network for `size` lanes, Batcher's odd-even merges: lists of disjoint pairs (low, high).

    Sorted runs of `span` lanes, side by side, are merged in steps of halving gaps.
    """
    span = 1
    while span < size:
        gap = span
        while gap:
            stage = [
                (lane, lane + gap)
                for start in range(gap % span, size - gap, 2 * gap)
                for lane in range(start, min(start + gap, size - gap))
                if lane // (2 * span) == (lane + gap) // (2 * span)
            ]
            if stage:
                yield stage
            gap //= 2
        span *= 2


_NETWORKS = {
    size: [pair for stage in sorting_stages(size) for pair in stage]
    for size in range(2, _LARGEST_NETWORK + 1)
}
