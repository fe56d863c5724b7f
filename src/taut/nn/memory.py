"""What was made of a weight, kept for exactly as long as the weight holds the same numbers."""

from typing import Any, Self

import torch
from torch import Tensor

__all__ = ["Memory"]


class Memory:
    """Remembers the last tensor it was shown and what was made of it.

    It compares numbers, not version counters: fused optimisers, writes through `.data`, casts and
    `load_state_dict(assign=True)` change weights without any sign, and a stale answer would be a
    false promise. The comparison reads the weight once, a small part of the product it guards.

    Copies and pickles of a memory are empty: what is remembered can always be made again.

    Example:
        >>> memory, weight = Memory(), torch.ones(2)
        >>> memory.keep(weight, 2 * weight)
        >>> memory.recall(weight)
        tensor([2., 2.])
        >>> weight.data[0] = 5
        >>> memory.recall(weight) is None
        True
    """

    def __init__(self) -> None:
        # One attribute, so that a thread never sees a new source with an old value.
        self._kept: tuple[Tensor, Tensor] | None = None

    def keep(self, source: Tensor, value: Tensor) -> None:
        """Remembers `value` as what `source`, as it is now, leads to."""
        copy = source.detach().clone()
        # Where nothing had to be changed, one copy serves as both.
        self._kept = copy, copy if value is source else value.detach()

    def recall(self, source: Tensor) -> Tensor | None:
        """What was kept for `source`, or None if its numbers have changed."""
        if self._kept is None:
            return None
        kept, value = self._kept
        known = (
            kept.shape == source.shape
            and kept.dtype == source.dtype
            and kept.device == source.device
            and torch.equal(kept, source)
        )
        return value if known else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()
