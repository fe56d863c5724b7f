"""`dense`: fully connected layers on flattened inputs."""

from collections.abc import Sequence
from math import prod

from torch import nn

from taut.nn import ConstrainedLinear, Scale, mlp
from taut.training.config import TrainConfig

__all__ = ["build_dense", "head"]


def build_dense(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """`taut.nn.mlp` on flattened inputs, with dropout after the activations."""
    assert config.lipschitz is not None
    flatten = [] if len(input_shape) == 1 else [nn.Flatten()]
    return nn.Sequential(*flatten, *head(config, prod(input_shape), outputs, config.lipschitz))


def head(config: TrainConfig, inputs: int, outputs: int, lipschitz: float) -> list[nn.Module]:
    """The dense layers from `inputs` numbers to the outputs, with this share of the constant."""
    assert config.hidden is not None and config.constraint is not None
    sizes = [inputs, *config.hidden, outputs]
    layers: list[nn.Module] = []
    for layer in mlp(sizes, config.activation, config.constraint, lipschitz):
        layers.append(layer)
        activation = not isinstance(layer, nn.Linear | ConstrainedLinear | Scale)
        if config.dropout and activation:
            layers.append(nn.Dropout(config.dropout))
    return layers
