"""What networks on images are made of: convolutions by constraint, activations over channels."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from taut.errors import ArgumentError
from taut.nn import LinfConv2d, OrthonormalConv2d, SpectralConv2d
from taut.nn.builders import ActivationFactory, _activation_factory

__all__ = ["channels_behind", "check_image", "convolution", "over_channels"]

# On a circle an orthonormal convolution loses nothing at the border.
_CIRCLE = {"padding_mode": "circular"}
_KINDS = {
    "orthonormal": partial(OrthonormalConv2d, **_CIRCLE),
    "bjorck": partial(OrthonormalConv2d, **_CIRCLE),
    "spectral": partial(SpectralConv2d, **_CIRCLE),
    "linf": LinfConv2d,
    "none": nn.Conv2d,
}


def convolution(
    arch: str,
    constraint: str,
    channels: int,
    following: int,
    kernel_size: int,
    padding: str = "same",
) -> nn.Module:
    """A convolution of norm at most 1 in the norm of the constraint; none has no bound.

    The orthonormal one stands for `"bjorck"` too: Björck's iteration on a flattened kernel proves
    nothing of the convolution.
    """
    if constraint not in _KINDS:
        listed = ", ".join(repr(name) for name in _KINDS)
        raise ArgumentError(
            subject="TrainConfig",
            argument="constraint",
            rule=f"must be one of {listed} with arch={arch!r}",
            got=f"constraint={constraint!r}, of which there is no convolution",
            remedy="Use arch='dense', or norm='l2' or 'linf'.",
        )
    return _KINDS[constraint](channels, following, kernel_size, padding=padding)


def over_channels(activation: str) -> ActivationFactory:
    """The activation of that name (see `taut.nn.mlp`), acting over dimension 1."""
    make = _activation_factory(activation)

    def made(width: int) -> nn.Module:
        module = make(width)
        if hasattr(module, "dim"):
            module.dim = 1  # type: ignore[assignment]
        return module

    return made


def channels_behind(activation: nn.Module, channels: int) -> int:
    """How many channels an activation leaves; raises for a number that it cannot take."""
    return activation(torch.zeros(1, channels, 1, 1)).shape[1]


def check_image(arch: str, input_shape: Sequence[int]) -> tuple[int, int, int]:
    """The channels, height and width of an input; raises if it is no image."""
    if len(input_shape) != 3:
        raise ArgumentError(
            subject="TrainConfig",
            argument="arch",
            rule="must be 'dense' for inputs that are no images",
            got=f"arch={arch!r} and inputs of shape {tuple(input_shape)}, where (channels, "
            f"height, width) is needed",
        )
    channels, height, width = input_shape
    return channels, height, width
