"""`conv`: orthonormal convolutions that trade pixels for channels, and dense layers behind them."""

import math
from collections.abc import Sequence
from fractions import Fraction

from torch import nn

from taut.nn import InvertibleDownsampling2d, Scale
from taut.training.architectures.dense import head
from taut.training.architectures.spatial import (
    channels_behind,
    check_image,
    convolution,
    over_channels,
)
from taut.training.config import TrainConfig

__all__ = ["build_conv", "split_constant"]

_KERNEL_SIZE = 3
_PER_STAGE = 2


def build_conv(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    r"""Stages of convolutions, then the layers of `dense`; nothing is lost on the way.

    Each number $c$ of `channels` is a stage: blocks of 2 x 2 pixels become channels, then two
    3 x 3 convolutions to $c$ channels, each with the activation over channels. In L2 the
    convolutions are orthogonal on the circle, so with $c$ at least four times the channels before,
    a stage keeps every length and every gradient. Sides that the stages cannot halve are padded
    with zeros first, which is 1-Lipschitz in every norm. A constant other than 1 is spread evenly
    over all layers.
    """
    assert config.hidden is not None
    assert config.constraint is not None and config.lipschitz is not None
    width, *size = check_image("conv", input_shape)
    block = 2 ** len(config.channels)
    excess = [-side % block for side in size]
    layers: list[nn.Module] = []
    if any(excess):
        layers.append(nn.ZeroPad2d((0, excess[1], 0, excess[0])))
    convolutions = _PER_STAGE * len(config.channels)
    share, rest = split_constant(config.lipschitz, convolutions, len(config.hidden) + 1)
    make_activation = over_channels(config.activation)
    for channels in config.channels:
        layers.append(InvertibleDownsampling2d(2))
        width *= 4
        for _ in range(_PER_STAGE):
            layers.append(convolution("conv", config.constraint, width, channels, _KERNEL_SIZE))
            if config.lipschitz != 1:
                layers.append(Scale(share))
            layers.append(make_activation(channels))
            width = channels_behind(layers[-1], channels)
    pixels = math.prod(side + more for side, more in zip(size, excess, strict=True)) // block**2
    return nn.Sequential(*layers, nn.Flatten(), *head(config, width * pixels, outputs, rest))


def split_constant(lipschitz: float, convolutions: int, dense: int) -> tuple[float, float]:
    """The share of one convolution, and of all dense layers; their product is no more than all."""
    share = lipschitz ** (1 / (convolutions + dense))
    rest = float(Fraction(lipschitz) / Fraction(share) ** convolutions)
    while Fraction(rest) * Fraction(share) ** convolutions > Fraction(lipschitz):
        rest = math.nextafter(rest, 0)
    return share, rest
