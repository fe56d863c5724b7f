"""The kinds of networks that can be trained, by name."""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import nn

from taut.errors import check_choice
from taut.nn import ConstrainedLinear, Scale, mlp
from taut.training.config import TrainConfig

__all__ = ["ARCHITECTURES", "build_network"]

Architecture = Callable[[TrainConfig, Sequence[int], int], nn.Sequential]


def dense(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """`taut.nn.mlp` on flattened inputs, with dropout behind the activations if asked for."""
    assert config.hidden is not None and config.constraint is not None
    assert config.lipschitz is not None
    sizes = [prod(input_shape), *config.hidden, outputs]
    net = mlp(sizes, config.activation, config.constraint, config.lipschitz)
    layers: list[nn.Module] = [] if len(input_shape) == 1 else [nn.Flatten()]
    for layer in net:
        layers.append(layer)
        activation = not isinstance(layer, nn.Linear | ConstrainedLinear | Scale)
        if config.dropout and activation:
            layers.append(nn.Dropout(config.dropout))
    return nn.Sequential(*layers)


ARCHITECTURES: dict[str, Architecture] = {"dense": dense}


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
