"""`WeightCache`: what was made of a weight, and whether the weight has changed since."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook


def compares_numbers(tensor: Tensor) -> bool:
    """Whether all values of a tensor can be read without waiting for a device."""
    return tensor.device.type == "cpu"


class _Entry(NamedTuple):
    """A copy of a weight, what was made of it, and the stamp that it had when it was last compared."""

    copy: Tensor
    value: Tensor
    stamp: tuple[Any, ...] | None


class WeightCache:
    """Holds what was made of a weight, for exactly as long as the weight has the same values.

    On the CPU it compares values: fused optimisers, writes through `.data`, casts and
    `load_state_dict(assign=True)` change weights without raising a version counter, and a stale
    answer would be a false promise. The comparison reads the weight once, a small part of the product
    it guards. On other devices values are compared only where the stamp (memory, version, steps of
    optimisers) differs or was forgotten.

    Copies and pickles of a cache are empty: what it holds can always be made again.

    Example:
        >>> cache, weight = WeightCache(), torch.ones(2)
        >>> cache.keep(weight, 2 * weight)
        >>> cache.recall(weight)
        tensor([2., 2.])
        >>> weight.data[0] = 5
        >>> cache.recall(weight) is None
        True
    """

    def __init__(self) -> None:
        # One attribute, so that a thread never sees a new source with an old value.
        self._entry: _Entry | None = None

    def keep(self, source: Tensor, value: Tensor) -> None:
        """Holds `value` as the result for the current values of `source`."""
        copy = source.detach().clone()
        # Where nothing had to be changed, one copy serves as both.
        self._entry = _Entry(copy, copy if value is source else value.detach(), _stamp(source))

    def recall(self, source: Tensor) -> Tensor | None:
        """What is held for `source`, or None if its values have changed."""
        entry = self._entry
        if entry is None:
            return None
        stamp = _stamp(source)
        if stamp is not None and stamp == entry.stamp:
            return entry.value
        copy = entry.copy
        same = copy.shape == source.shape and copy.dtype == source.dtype
        if not (same and copy.device == source.device and torch.equal(copy, source)):
            return None
        if stamp is not None:
            self._entry = entry._replace(stamp=stamp)
        return entry.value

    def recall_or_make(self, source: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """What is held for `source`, made now if its values have changed; a constant."""
        value = self.recall(source)
        if value is None:
            # What is kept must serve training too, wherever it was first needed.
            with torch.inference_mode(False), torch.no_grad():
                value = make(source)
                self.keep(source, value)
        return value.detach()

    def forget_stamp(self) -> None:
        """Has the next `recall` compare values, on every device."""
        if self._entry is not None:
            self._entry = self._entry._replace(stamp=None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


def _stamp(tensor: Tensor) -> tuple[Any, ...] | None:
    """What changes with a tensor and costs nothing to compare; None where values are compared."""
    if compares_numbers(tensor) or tensor.is_inference():
        return None
    return (
        tensor.untyped_storage(),  # equal only to itself; held, so that nothing takes its address
        tensor.data_ptr(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor._version,
        _optimizer_steps()[0],  # fused optimisers write without raising the version
    )


@lru_cache(1)
def _optimizer_steps() -> list[int]:
    """The number of steps that all optimisers have taken since the first call."""
    count = [0]

    def increase(*_: Any) -> None:
        count[0] += 1

    register_optimizer_step_post_hook(increase)
    return count
