"""Learning rate, random seeds and order of the rows, as functions of the position in a run.

They have no state of their own, so a checkpoint holds none and a resumed run restores none.
"""

import math

import numpy as np
import torch
from torch import Tensor

from taut.training.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int) -> float:
    r"""The learning rate of one step, counted from 0 over the whole run.

    With $t$ the middle of the step as a share of the run, "cosine" is
    $\eta (1 + \cos \pi t)/2$; "step" is $\eta$ times `decay` for each milestone passed. During
    the warm-up the rate is multiplied by the share of it that is over.

    Example:
        >>> config = TrainConfig(lr=0.1, epochs=10)
        >>> round(learning_rate(config, 49, 10), 4)
        0.0508
    """
    assert config.lr is not None and config.epochs is not None
    epoch = (step + 0.5) / steps_per_epoch
    rate = config.lr
    if config.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * epoch / config.epochs)) / 2
    elif config.schedule == "step":
        rate *= config.decay ** sum(epoch > milestone for milestone in config.milestones)
    if epoch < config.warmup:
        rate *= epoch / config.warmup
    return rate


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
