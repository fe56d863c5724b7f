"""Chance as a function of the place in a run, so that a resumed run needs no memory of it."""

import numpy as np
import torch
from torch import Tensor

__all__ = ["batches", "generator_at", "number_at"]


def number_at(seed: int, *place: int) -> int:
    """A seed for one place (epoch, step, process ...) of the run with this seed.

    Example:
        >>> number_at(0, 1, 2) == number_at(0, 1, 2) != number_at(0, 2, 1)
        True
    """
    words = np.random.SeedSequence([seed, len(place), *place]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def generator_at(seed: int, *place: int) -> torch.Generator:
    """A generator on the CPU for one place of the run with this seed."""
    return torch.Generator().manual_seed(number_at(seed, *place))


def batches(rows: int, batch_size: int, seed: int, epoch: int) -> tuple[Tensor, ...]:
    """The rows of each step of an epoch: all of them once, in batches that differ by one at most.

    Example:
        >>> [len(batch) for batch in batches(10, 4, seed=0, epoch=0)]
        [4, 3, 3]
    """
    generator = torch.Generator().manual_seed(number_at(seed, epoch))
    order = torch.randperm(rows, generator=generator)
    return order.tensor_split(-(-rows // batch_size))
