r"""Sorting written with ReLU alone, for verifiers that know no other activation.

One comparator is exact: $\max(a, b) = b + \mathrm{relu}(a - b)$ and
$\min(a, b) = b - \mathrm{relu}(b - a)$. What passes a ReLU unchanged is carried by both its parts,
$x = \mathrm{relu}(x) - \mathrm{relu}(-x)$.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from taut import nn as taut_nn
from taut.errors import ArgumentError
from taut.export.fold import fold

__all__ = ["rewrite_relu"]

# Beyond this a group takes more layers than verifiers can follow.
_LARGEST_GROUP = 64

Pair = tuple[int, int]


def rewrite_relu(model: nn.Module) -> nn.Sequential:
    r"""The same function made of `torch.nn.Linear`, `ReLU` and `Flatten` alone.

    Every MaxMin becomes linear, ReLU, linear; GroupSort and FullSort become one such step for each
    stage of a sorting network, Maxout one for each member after the first; Abs, Householder and
    Scale have forms of their own. The new weights are 0 and ±1 (but for Householder and Scale), so
    in real arithmetic the function is the same, and in floating point it differs by the rounding
    of one subtraction and one addition per comparator.

    The proof of the constant does not survive: the norms of the new layers are above 1 (2.3 and
    2.2 in L2 for MaxMin), and their product says nothing of the function, which is as it was. Keep
    the certificate of the model itself.

    Args:
        model: a `torch.nn.Sequential`, nested or not, of dense layers, the activations of
            `taut.nn` over the last dimension, ReLU, Scale, Flatten, Identity and Dropout; not
            changed.

    Returns:
        A flat `torch.nn.Sequential` in evaluation mode.

    Raises:
        ArgumentError: a module has no such form; the text names it.

    Example:
        >>> rewrite_relu(torch.nn.Sequential(torch.nn.Linear(3, 4), taut.nn.MaxMin()))
        Sequential(
          (0): Linear(in_features=3, out_features=4, bias=True)
          (1): Linear(in_features=4, out_features=8, bias=False)
          (2): ReLU()
          (3): Linear(in_features=8, out_features=4, bias=False)
        )
    """
    rewriter = _Rewriter()
    layers = list(rewriter.rewrite("", fold(model)))
    return nn.Sequential(*layers).eval().requires_grad_(False)


class _Rewriter:
    """Walks through a folded model and remembers how wide the last layer was, and its dtype."""

    def __init__(self) -> None:
        self.width: int | None = None
        self.like = torch.empty(0)

    def rewrite(self, path: str, module: nn.Module) -> Iterator[nn.Module]:
        if type(module) is nn.Sequential:
            for name, child in module.named_children():
                yield from self.rewrite(f"{path}.{name}" if path else name, child)
        elif type(module) is nn.Linear:
            self.width, self.like = module.out_features, module.weight
            yield module
        elif type(module) is nn.ReLU:
            yield nn.ReLU()
        elif type(module) is nn.Flatten:
            self.width = None
            yield module
        elif type(module) not in (nn.Identity, nn.Dropout):
            yield from self._activation(path, module)

    def _activation(self, path: str, module: nn.Module) -> Iterator[nn.Module]:
        subject = f"rewrite_relu: `{path or 'model'}` ({type(module).__name__})"
        form = _FORMS.get(type(module))
        if form is None:
            raise ArgumentError(
                f"{subject} must be a layer with an exact form in ReLU. Use Linear, MaxMin, "
                "GroupSort, FullSort, Maxout, Abs, Householder, Scale or ReLU in a Sequential."
            )
        if self.width is None:
            raise ArgumentError(f"{subject} must come after a dense layer, which tells its width.")
        if getattr(module, "dim", -1) != -1:
            raise ArgumentError(
                f"{subject} must work over the last dimension; got dim={module.dim}. Use dim=-1."
            )
        for matrix in form(module, self.width, subject):
            if matrix is None:
                yield nn.ReLU()
                continue
            self.width = matrix.shape[0]
            layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, device="meta")
            layer.weight = nn.Parameter(matrix.to(self.like))
            yield layer


def _max_min(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    half = _group_width(subject, width, 2)
    yield from _comparators(width, [(half + i, i) for i in range(half)])


def _group_sort(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    size = width if isinstance(module, taut_nn.FullSort) else int(module.group_size)  # type: ignore
    lane = _group_width(subject, width, size)
    for stage in _stages(size):
        pairs = [(low * lane + i, high * lane + i) for low, high in stage for i in range(lane)]
        yield from _comparators(width, pairs)


def _maxout(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    size = int(module.group_size)  # type: ignore[arg-type]
    lane = _group_width(subject, width, size)
    for low in range(size - 1):
        start = low * lane
        yield from _comparators(width, [(start + i, start + lane + i) for i in range(lane)])
    yield torch.eye(width)[width - lane :]


def _abs(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    eye = torch.eye(width)
    yield from (torch.cat([eye, -eye]), None, torch.cat([eye, eye], 1))


def _scale(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    yield torch.eye(width, dtype=torch.float64) * float(module.factor)  # type: ignore[arg-type]


def _householder(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    # Beyond the line with normal n, where n.x < 0, the reflection is x - 2 n (n.x).
    half = _group_width(subject, width, 2)
    turn = module.angle.detach().cpu().double() / 2  # type: ignore[union-attr]
    normals = torch.cat([torch.diag(turn.sin()), torch.diag(-turn.cos())])
    eye = torch.eye(width, dtype=torch.float64)
    if normals.shape != (width, half):
        raise ArgumentError(f"{subject} must have one angle for each pair of {width} channels.")
    yield from (torch.cat([eye, -eye, -normals.T]), None, torch.cat([eye, -eye, 2 * normals], 1))


_FORMS: dict[type[nn.Module], Callable[[nn.Module, int, str], Iterable[Tensor | None]]] = {
    taut_nn.MaxMin: _max_min,
    taut_nn.GroupSort: _group_sort,
    taut_nn.FullSort: _group_sort,
    taut_nn.Maxout: _maxout,
    taut_nn.Abs: _abs,
    taut_nn.Scale: _scale,
    taut_nn.Householder: _householder,
}


def _comparators(width: int, pairs: list[Pair]) -> Iterator[Tensor | None]:
    """The matrices before and after a ReLU that put each pair `(low, high)` of channels in order."""
    eye = torch.eye(width)
    lows = {low: high for low, high in pairs}
    # Every channel but the low ones is carried by its two parts; a pair adds its two differences.
    carried = [i for i in range(width) if i not in lows]
    place = {channel: index for index, channel in enumerate(carried)}
    kept = eye[carried]
    differences = torch.stack([eye[low] - eye[high] for low, high in pairs])
    yield torch.cat([kept, -kept, differences, -differences])
    yield None
    n, m = len(carried), len(pairs)
    after = torch.zeros(width, 2 * n + 2 * m)
    for channel in range(width):
        column = place[lows.get(channel, channel)]
        after[channel, column], after[channel, n + column] = 1, -1
    for index, (low, high) in enumerate(pairs):
        after[high, 2 * n + index] = 1
        after[low, 2 * n + m + index] = -1
    yield after


def _stages(size: int) -> Iterator[list[Pair]]:
    """A sorting network for `size` lanes: lists of disjoint pairs `(low, high)`.

    Odd-even merges: sorted runs of `span` lanes, side by side, are merged in steps of halving gaps.
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


def _group_width(subject: str, width: int, size: int) -> int:
    if width % size:
        raise ArgumentError(f"{subject} must divide {width} channels into groups of {size}.")
    if size > _LARGEST_GROUP:
        raise ArgumentError(
            f"{subject} must have groups of at most {_LARGEST_GROUP} to be rewritten; got {size}. "
            "Use MaxMin or a smaller group."
        )
    return width // size
