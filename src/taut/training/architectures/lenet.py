"""`lenet`: the small network of two convolutions that the paper trains on little data."""

import math
from collections.abc import Sequence

from torch import nn

from taut.errors import ArgumentError
from taut.nn import Scale
from taut.training.architectures.conv import split_constant
from taut.training.architectures.dense import head
from taut.training.architectures.spatial import (
    channels_behind,
    check_image,
    convolution,
    over_channels,
)
from taut.training.config import TrainConfig

__all__ = ["build_lenet"]

_KERNEL_SIZE = 5


def build_lenet(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """For each number of `channels` a 5 x 5 convolution, the activation and max-pooling of 2 x 2.

    Then the layers of `dense`; by default 10 and 20 channels and 50 units. Convolutions keep
    inside of the image. Max-pooling is 1-Lipschitz in L2 and in L-inf, but does not keep lengths.
    """
    assert config.hidden is not None
    assert config.constraint is not None and config.lipschitz is not None
    width, *size = check_image("lenet", input_shape)
    share, rest = split_constant(config.lipschitz, len(config.channels), len(config.hidden) + 1)
    make_activation = over_channels(config.activation)
    layers: list[nn.Module] = []
    for channels in config.channels:
        size = [(side - _KERNEL_SIZE + 1) // 2 for side in size]
        layers.append(
            convolution("lenet", config.constraint, width, channels, _KERNEL_SIZE, padding="valid")
        )
        if config.lipschitz != 1:
            layers.append(Scale(share))
        layers.append(make_activation(channels))
        width = channels_behind(layers[-1], channels)
        layers.append(nn.MaxPool2d(2))
    if min(size) < 1:
        least = 1
        for _ in config.channels:
            least = 2 * least + _KERNEL_SIZE - 1
        raise ArgumentError(
            subject="TrainConfig",
            argument="arch",
            rule=f"must suit the images: 'lenet' with {len(config.channels)} convolutions "
            f"needs sides of at least {least} pixels",
            got=f"inputs of shape {tuple(input_shape)}",
            remedy="Use arch='conv', or fewer `channels`.",
        )
    dense = head(config, width * math.prod(size), outputs, rest)
    return nn.Sequential(*layers, nn.Flatten(), *dense)
