"""The learning rate as a function of the position in a run, so that a checkpoint need not hold it."""

import math

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
