r"""Sorting written with matrices and ReLU alone, for verifiers that know no other activation.

One comparator is exact: $\max(a, b) = b + \mathrm{relu}(a - b)$ and
$\min(a, b) = b - \mathrm{relu}(b - a)$. What passes a ReLU unchanged is carried by both its parts,
$x = \mathrm{relu}(x) - \mathrm{relu}(-x)$. A form is a list of matrices, with None for a ReLU.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError
from taut.functional import sorting_stages

# Beyond this a group takes more layers than verifiers can follow.
_LARGEST_GROUP = 64
Pair = tuple[int, int]


def max_min(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """One comparator for each pair of channels."""
    half = _group_width(subject, width, 2)
    yield from _comparators(width, [(half + i, i) for i in range(half)])


def group_sort(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """One step for each stage of a sorting network."""
    size = width if not hasattr(module, "group_size") else int(module.group_size)  # type: ignore
    lane = _group_width(subject, width, size)
    for stage in sorting_stages(size):
        pairs = [(low * lane + i, high * lane + i) for low, high in stage for i in range(lane)]
        yield from _comparators(width, pairs)


def maxout(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """One comparator for each member of a group after the first."""
    size = int(module.group_size)  # type: ignore[arg-type]
    lane = _group_width(subject, width, size)
    for low in range(size - 1):
        start = low * lane
        yield from _comparators(width, [(start + i, start + lane + i) for i in range(lane)])
    yield torch.eye(width)[width - lane :]


def absolute_value(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """The sum of both parts."""
    eye = torch.eye(width)
    yield from (torch.cat([eye, -eye]), None, torch.cat([eye, eye], 1))


def half_absolute_value(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """The sum of both parts in the first half, their difference in the second."""
    eye = torch.eye(width)
    signs = torch.where(torch.arange(width) < width // 2, 1.0, -1.0)
    yield from (torch.cat([eye, -eye]), None, torch.cat([eye, signs * eye], 1))


def scale(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """A multiple of the identity."""
    yield torch.eye(width, dtype=torch.float64) * float(module.factor)  # type: ignore[arg-type]


def householder(module: nn.Module, width: int, subject: str) -> Iterator[Tensor | None]:
    """What lies beyond the line is moved by twice its distance."""
    # Beyond the line with normal n, where n.x < 0, the reflection is x - 2 n (n.x).
    half = _group_width(subject, width, 2)
    turn = module.angle.detach().cpu().double() / 2  # type: ignore[union-attr]
    normals = torch.cat([torch.diag(turn.sin()), torch.diag(-turn.cos())])
    eye = torch.eye(width, dtype=torch.float64)
    if normals.shape != (width, half):
        raise ArgumentError(rule=f"{subject} must have one angle for each pair of {width} channels")
    yield from (torch.cat([eye, -eye, -normals.T]), None, torch.cat([eye, -eye, 2 * normals], 1))


def _comparators(width: int, pairs: list[Pair]) -> Iterator[Tensor | None]:
    """The matrices before and after a ReLU that put each pair `(low, high)` of channels in order."""
    eye = torch.eye(width)
    lows = {low: high for low, high in pairs}
    # Every channel but the low ones is carried by its two parts; a pair adds its two differences.
    carried = [i for i in range(width) if i not in lows]
    position = {channel: index for index, channel in enumerate(carried)}
    kept = eye[carried]
    differences = torch.stack([eye[low] - eye[high] for low, high in pairs])
    yield torch.cat([kept, -kept, differences, -differences])
    yield None
    n, m = len(carried), len(pairs)
    after = torch.zeros(width, 2 * n + 2 * m)
    for channel in range(width):
        column = position[lows.get(channel, channel)]
        after[channel, column], after[channel, n + column] = 1, -1
    for index, (low, high) in enumerate(pairs):
        after[high, 2 * n + index] = 1
        after[low, 2 * n + m + index] = -1
    yield after


def _group_width(subject: str, width: int, size: int) -> int:
    if width % size:
        raise ArgumentError(rule=f"{subject} must divide {width} channels into groups of {size}")
    if size > _LARGEST_GROUP:
        rule = f"{subject} must have groups of at most {_LARGEST_GROUP} to be rewritten"
        raise ArgumentError(rule=rule, got=str(size), remedy="Use MaxMin or a smaller group.")
    return width // size
