"""The kinds of networks that can be trained, by name."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from taut.errors import check_choice
from taut.training.architectures.conv import build_conv
from taut.training.architectures.dense import build_dense
from taut.training.architectures.lenet import build_lenet
from taut.training.architectures.wide import build_wrn
from taut.training.config import TrainConfig

__all__ = ["ARCHITECTURES", "build_network"]

Architecture = Callable[[TrainConfig, Sequence[int], int], nn.Sequential]

ARCHITECTURES: dict[str, Architecture] = {
    "dense": build_dense,
    "conv": build_conv,
    "lenet": build_lenet,
    "wrn": build_wrn,
}


def build_network(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """A new network as a resolved configuration describes it; its weights are drawn from `seed`.

    Args:
        config: resolved.
        input_shape: of one input.
        outputs: how many classes.

    Returns:
        The network on the CPU, in training mode, float32 or float64.
    """
    check_choice("TrainConfig", "arch", config.arch, tuple(ARCHITECTURES))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        net = ARCHITECTURES[config.arch](config, input_shape, outputs)
    return net.to(torch.float64 if config.dtype == "float64" else torch.float32)
