"""The architectures that can be trained, by name."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

import torch
from torch import nn

from taut.errors import check_choice
from taut.nn import (
    Centering,
    Clip,
    ConstrainedLinear,
    InvertibleDownsampling2d,
    LinfConv2d,
    LinfDistance,
    OrthonormalConv2d,
    Residual,
    Scale,
    SortDistance,
    SpectralConv2d,
    make_activation,
    mlp,
)
from taut.training.config import TrainConfig
from taut.training.config_fields import config_error

Architecture = Callable[[TrainConfig, Sequence[int], int], nn.Sequential]

# Circular padding: an orthonormal convolution loses nothing at the border.
_CONVOLUTIONS = {
    "orthonormal": partial(OrthonormalConv2d, padding_mode="circular"),
    # Björck's iteration on a flattened kernel proves nothing about the convolution.
    "bjorck": partial(OrthonormalConv2d, padding_mode="circular"),
    "spectral": partial(SpectralConv2d, padding_mode="circular"),
    "linf": LinfConv2d,
    "none": nn.Conv2d,
}
_WRN_STEM = 16


def build_network(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Builds the network of a resolved configuration, with random weights from `seed`.

    Args:
        config: resolved configuration.
        input_shape: shape of one input.
        outputs: number of classes.
    """
    assert config.arch is not None
    check_choice("TrainConfig", "arch", config.arch, tuple(ARCHITECTURES))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        net = ARCHITECTURES[config.arch](config, input_shape, outputs)
    return net.to(torch.float64 if config.dtype == "float64" else torch.float32)


def check_image(arch: str, input_shape: Sequence[int]) -> tuple[int, int, int]:
    """Returns the channels, height and width of an input; raises if it is not an image."""
    if len(input_shape) != 3:
        rule = "must be 'dense' for inputs that are not images"
        got = f"arch={arch!r} and inputs of shape {tuple(input_shape)}"
        raise config_error("arch", rule, f"{got}, where (channels, height, width) is needed")
    channels, height, width = input_shape
    return channels, height, width


def _refuse_small(network: str, side: int, input_shape: Sequence[int]) -> None:
    rule = f"must suit the images: {network} needs sides of at least {side} pixels"
    remedy = "Use arch='conv', or fewer `channels`."
    raise config_error("arch", rule, f"inputs of shape {tuple(input_shape)}", remedy)


def _build_dense(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """`taut.nn.mlp` on flattened inputs, with dropout after the activations."""
    assert config.lipschitz is not None
    flatten = [] if len(input_shape) == 1 else [nn.Flatten()]
    size = math.prod(input_shape)
    return nn.Sequential(*flatten, *_dense_layers(config, size, outputs, config.lipschitz))


def _dense_layers(
    config: TrainConfig, inputs: int, outputs: int, lipschitz: float
) -> list[nn.Module]:
    assert config.hidden is not None and config.constraint is not None
    sizes = [inputs, *config.hidden, outputs]
    layers: list[nn.Module] = []
    activation = partial(make_activation, config.activation)
    for layer in mlp(sizes, activation, config.constraint, lipschitz):
        layers.append(layer)
        is_activation = not isinstance(layer, nn.Linear | ConstrainedLinear | Scale)
        if config.dropout and is_activation:
            layers.append(nn.Dropout(config.dropout))
    return layers


def _build_conv(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    r"""Builds convolutional stages that trade pixels for channels, then the layers of `dense`.

    Each number $c$ of `channels` is a stage: blocks of 2 x 2 pixels become channels, then two
    3 x 3 convolutions to $c$ channels, each with the activation over channels. In L2 the
    convolutions are orthogonal on the circle, so with $c$ at least four times the channels before,
    a stage keeps every length and every gradient. Sides that the stages cannot halve are padded
    with zeros first, which is 1-Lipschitz in every norm. A constant other than 1 is spread evenly
    over all layers.
    """
    width, *size = check_image("conv", input_shape)
    block = 2 ** len(config.channels)
    excess = [-side % block for side in size]
    layers: list[nn.Module] = []
    if any(excess):
        layers.append(nn.ZeroPad2d((0, excess[1], 0, excess[0])))
    factor, rest = _split_constant(config, 2 * len(config.channels))
    for channels in config.channels:
        layers.append(InvertibleDownsampling2d(2))
        width *= 4
        for _ in range(2):
            layers += _convolution(config, width, channels, 3, factor, "same")
            width = _channels_after(layers[-1], channels)
    pixels = math.prod(side + more for side, more in zip(size, excess, strict=True)) // block**2
    dense = _dense_layers(config, width * pixels, outputs, rest)
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _build_lenet(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """For each number of `channels` a 5 x 5 convolution, the activation and max-pooling of 2 x 2.

    Then the layers of `dense`; by default 10 and 20 channels and 50 units, the small network that
    the paper trains on little data. Convolutions are not padded. Max-pooling is
    1-Lipschitz in L2 and in L-inf, but does not keep lengths.
    """
    width, *size = check_image("lenet", input_shape)
    factor, rest = _split_constant(config, len(config.channels))
    layers: list[nn.Module] = []
    smallest = 1
    for channels in config.channels:
        size = [(side - 4) // 2 for side in size]
        smallest = 2 * smallest + 4
        layers += _convolution(config, width, channels, 5, factor, "valid")
        width = _channels_after(layers[-1], channels)
        layers.append(nn.MaxPool2d(2))
    if min(size) < 1:
        _refuse_small(f"'lenet' with {len(config.channels)} convolutions", smallest, input_shape)
    dense = _dense_layers(config, width * math.prod(size), outputs, rest)
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _split_constant(config: TrainConfig, convolutions: int) -> tuple[float, float]:
    """Splits the Lipschitz constant into that of a convolution and that of all dense layers."""
    assert config.lipschitz is not None and config.hidden is not None
    factor = config.lipschitz ** (1 / (convolutions + len(config.hidden) + 1))
    rest = float(Fraction(config.lipschitz) / Fraction(factor) ** convolutions)
    while Fraction(rest) * Fraction(factor) ** convolutions > Fraction(config.lipschitz):
        rest = math.nextafter(rest, 0)
    return factor, rest


def _convolution(
    config: TrainConfig,
    channels: int,
    following: int,
    kernel_size: int,
    factor: float,
    padding: str,
) -> list[nn.Module]:
    """A convolution of norm at most 1 in the norm of its constraint, its factor, and the activation."""
    if config.constraint not in _CONVOLUTIONS:
        rule = f"must be one of {', '.join(map(repr, _CONVOLUTIONS))} with arch={config.arch!r}"
        got = f"constraint={config.constraint!r}, of which there is no convolution"
        raise config_error("constraint", rule, got, "Use arch='dense', or norm='l2' or 'linf'.")
    make = _CONVOLUTIONS[config.constraint]
    return [
        make(channels, following, kernel_size, padding=padding),
        *([] if config.lipschitz == 1 else [Scale(factor)]),
        make_activation(config.activation, following, dim=1),
    ]


def _channels_after(activation: nn.Module, channels: int) -> int:
    """Number of channels after an activation; raises for a number that it does not accept."""
    return activation(torch.zeros(1, channels, 1, 1)).shape[1]


def _build_wrn(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """A wide residual network: one group of `blocks` blocks for each number of `channels`.

    By default the paper's for CIFAR-10, WRN-28-4: four blocks, 64, 128 and 256 channels. A block is twice
    normalisation, activation over channels and a 3 x 3 convolution, beside a shortcut; from the
    second group on the first block halves the sides. Inputs are standardised by the statistics of
    each colour. With `parseval_beta` block and shortcut are averaged instead of added, with equal
    weights, as Parseval networks ask for.

    Weights are plain ones: batch normalisation divides by deviations, so whatever the weights, the
    constant is only known afterwards, and large. It needs `constraint="none"`.
    """
    channels, height, width = check_image("wrn", input_shape)
    if config.constraint != "none":
        rule = "must be 'none' with arch='wrn', whose normalisation would undo any other"
        remedy = "Use arch='conv' for proven radii, or `parseval_beta` or `jacobian_weight` "
        remedy += "to keep slopes small."
        raise config_error("constraint", rule, f"constraint={config.constraint!r}", remedy)
    shrinks = 2 ** (len(config.channels) - 1)
    if min(height, width) < shrinks:
        _refuse_small(f"'wrn' with {len(config.channels)} groups", shrinks, input_shape)

    def half(before: int, following: int, stride: int) -> list[nn.Module]:
        activation = make_activation(config.activation, before, dim=1)
        left = _channels_after(activation, before)
        return [nn.BatchNorm2d(before), activation, _plain_convolution(left, following, 3, stride)]

    mode = "average" if config.parseval_beta else "add"
    before = _WRN_STEM
    layers: list[nn.Module] = [
        nn.BatchNorm2d(channels, affine=False),
        _plain_convolution(channels, before, 3, 1),
    ]
    for group, following in enumerate(config.channels):
        for block in range(config.blocks):
            stride = 2 if group and not block else 1
            dropout = [nn.Dropout(config.dropout)] if config.dropout else []
            body = [*half(before, following, stride), *dropout, *half(following, following, 1)]
            shortcut: nn.Module | None = None
            if before != following:
                shortcut = _plain_convolution(before, following, 1, stride)
            elif stride > 1:
                shortcut = nn.MaxPool2d(1, stride)
            layers.append(Residual(nn.Sequential(*body), mode, shortcut=shortcut))
            before = following
    layers += [nn.BatchNorm2d(before), make_activation(config.activation, before, dim=1)]
    left = _channels_after(layers[-1], before)
    size = tuple(-(-side // shrinks) for side in (height, width))
    return nn.Sequential(*layers, nn.AvgPool2d(size), nn.Flatten(), nn.Linear(left, outputs))


def _plain_convolution(channels: int, following: int, kernel_size: int, stride: int) -> nn.Conv2d:
    convolution = nn.Conv2d(channels, following, kernel_size, stride, kernel_size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
    return convolution


def _build_distance(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Layers of L-inf distances with centred outputs; a logit is minus the last distance.

    Inputs are multiplied by the constant first, and all else is 1-Lipschitz in L-inf. With `keep` below 1
    all layers but the first are order statistics of distances.
    """
    assert config.lipschitz is not None and config.hidden is not None
    flatten = [] if len(input_shape) == 1 else [nn.Flatten()]
    later = LinfDistance if config.keep == 1 else partial(SortDistance, q=config.keep)
    layers: list[nn.Module] = [*flatten, Scale(config.lipschitz)]
    for index, (before, width) in enumerate(pairwise([math.prod(input_shape), *config.hidden])):
        # The mean of the last batch; `update_means` replaces it by that of many rows before evaluation.
        means = Centering(width, momentum=1.0, bias=False)
        layers += [(later if index else LinfDistance)(before, width), means]
    last = (math.prod(input_shape), *config.hidden)[-1]
    return nn.Sequential(*layers, later(last, outputs), Scale(-1.0))


def _build_ibp(config: TrainConfig, input_shape: Sequence[int], outputs: int) -> nn.Sequential:
    r"""Plain layers, batch normalisation and ReLU behind a clipped input.

    For each number of `channels` there is first a 4 x 4 convolution of stride 2. Weights start with the
    deviation $\sigma = \sqrt{2 \pi} / n$ for $n$ inputs, with which intervals keep their width on average:
    $n$ terms of $E|w| = \sqrt{2 / \pi}\,\sigma$, of which ReLU lets half through.
    """
    assert config.hidden is not None and config.clip is not None
    layers: list[nn.Module] = [Clip(config.clip, 1 - config.clip)] if config.clip else []
    size = math.prod(input_shape)
    if config.channels:
        width, *sides = check_image("ibp", input_shape)
        for channels in config.channels:
            convolution = nn.Conv2d(width, channels, 4, 2, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
            width, sides = channels, [side // 2 for side in sides]
        size = width * math.prod(sides)
    layers += [] if len(input_shape) == 1 else [nn.Flatten()]
    for before, following in pairwise([size, *config.hidden]):
        normalised = nn.BatchNorm1d(following)
        layers += [nn.Linear(before, following, bias=False), normalised, nn.ReLU()]
    layers.append(nn.Linear((size, *config.hidden)[-1], outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.normal_(layer.weight, std=math.sqrt(2 * math.pi) / layer.weight[0].numel())
    nn.init.zeros_(layers[-1].bias)  # type: ignore[arg-type]
    return nn.Sequential(*layers)


ARCHITECTURES: dict[str, Architecture] = {
    "dense": _build_dense,
    "conv": _build_conv,
    "lenet": _build_lenet,
    "wrn": _build_wrn,
    "distance": _build_distance,
    "ibp": _build_ibp,
}
