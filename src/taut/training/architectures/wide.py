"""`wrn`: wide residual networks of 28 layers, the paper's for CIFAR-10."""

from collections.abc import Sequence

from torch import nn

from taut.errors import ArgumentError
from taut.nn import Residual
from taut.nn.builders import ActivationFactory
from taut.training.architectures.spatial import channels_behind, check_image, over_channels
from taut.training.config import TrainConfig

__all__ = ["build_wrn"]

_STEM = 16
_BLOCKS = 4  # of two convolutions, in each of three groups: 28 layers in all


def build_wrn(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """A residual network: one group of four blocks for each number of `channels`.

    By default WRN-28-4: 64, 128 and 256 channels. A block is twice normalisation, activation over
    channels and a 3 x 3 convolution, beside a way around it; from the second group on the first
    block halves the sides. Inputs are standardised by the statistics of each colour. With
    `parseval_beta` the two ways are averaged instead of added, as Parseval networks ask for, with
    equal weights.

    Weights are plain ones: batch normalisation divides by deviations, so whatever the weights, the
    constant is only known afterwards, and large. It needs `constraint="none"`.
    """
    channels, height, width = check_image("wrn", input_shape)
    if config.constraint != "none":
        raise ArgumentError(
            subject="TrainConfig",
            argument="constraint",
            rule="must be 'none' with arch='wrn', whose normalisation would undo any other",
            got=f"constraint={config.constraint!r}",
            remedy="Use arch='conv' for proven radii, or `parseval_beta` or `jacobian_weight` "
            "to keep slopes small.",
        )
    shrinks = 2 ** (len(config.channels) - 1)
    if min(height, width) < shrinks:
        raise ArgumentError(
            subject="TrainConfig",
            argument="arch",
            rule=f"must suit the images: 'wrn' with {len(config.channels)} groups needs sides "
            f"of at least {shrinks} pixels",
            got=f"inputs of shape {tuple(input_shape)}",
        )
    make_activation = over_channels(config.activation)
    mode = "average" if config.parseval_beta else "add"
    layers: list[nn.Module] = [
        nn.BatchNorm2d(channels, affine=False),
        _convolution(channels, _STEM, 3, 1),
    ]
    before = _STEM
    for group, following in enumerate(config.channels):
        for block in range(_BLOCKS):
            stride = 2 if group and not block else 1
            body = _body(before, following, stride, make_activation, config.dropout)
            shortcut = None if before == following else _convolution(before, following, 1, stride)
            if shortcut is None and stride > 1:
                shortcut = nn.MaxPool2d(1, stride)
            layers.append(Residual(body, mode, shortcut=shortcut))
            before = following
    layers += [nn.BatchNorm2d(before), make_activation(before)]
    left = channels_behind(layers[-1], before)
    size = tuple(-(-side // shrinks) for side in (height, width))
    return nn.Sequential(*layers, nn.AvgPool2d(size), nn.Flatten(), nn.Linear(left, outputs))


def _body(
    before: int, following: int, stride: int, make_activation: ActivationFactory, dropout: float
) -> nn.Sequential:
    def half(channels: int, step: int) -> list[nn.Module]:
        activation = make_activation(channels)
        left = channels_behind(activation, channels)
        return [nn.BatchNorm2d(channels), activation, _convolution(left, following, 3, step)]

    between = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*half(before, stride), *between, *half(following, 1))


def _convolution(channels: int, following: int, kernel_size: int, stride: int) -> nn.Conv2d:
    made = nn.Conv2d(channels, following, kernel_size, stride, kernel_size // 2, bias=False)
    nn.init.kaiming_normal_(made.weight, mode="fan_out")
    return made
