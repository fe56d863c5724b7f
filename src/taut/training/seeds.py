"""Random seeds and the order of the rows, as functions of the position in a run.

They have no state of their own, so a checkpoint holds none and a resumed run restores none.
"""

import numpy as np
import torch
from torch import Tensor


def seed_at(seed: int, *position: int) -> int:
    """The seed of one position (epoch, step, process ...) of a run.

    Example:
        >>> seed_at(0, 1, 2) == seed_at(0, 1, 2) != seed_at(0, 2, 1)
        True
    """
    words = np.random.SeedSequence([seed, len(position), *position]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def generator_at(seed: int, *position: int) -> torch.Generator:
    """The generator of one position of a run, on the CPU."""
    return torch.Generator().manual_seed(seed_at(seed, *position))


def batches(rows: int, batch_size: int, seed: int, epoch: int) -> tuple[Tensor, ...]:
    """The rows of each step of an epoch: all of them once, in batches whose sizes differ by at most one.

    Example:
        >>> [len(batch) for batch in batches(10, 4, seed=0, epoch=0)]
        [4, 3, 3]
    """
    order = torch.randperm(rows, generator=generator_at(seed, epoch))
    return order.tensor_split(-(-rows // batch_size))
