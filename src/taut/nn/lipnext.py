"""Blocks without convolutions: rotations of channels, shifts of pixels, absolute values of a half.

Each part keeps lengths, and so does the block: no kernel is bounded, nothing is lost, and any receptive
field comes from enough blocks.
"""

from typing import final

import torch
from torch import Tensor, nn

from taut.errors import check_count
from taut.nn.channel_activations import ChannelActivation
from taut.nn.conv_orthonormal import OrthonormalConv2d
from taut.nn.function_layer import FunctionLayer
from taut.rules import Call, Constants, register, relu_forms
from taut.rules.elementwise import image_of_magnitudes
from taut.rules.operation_registry import Bounds
from taut.rules.shared_rules import along_dim, batch_free_dims, register_selection


def half_abs(x: Tensor, dim: int = -1) -> Tensor:
    """The absolute values of the first half of the channels, and the others as they are."""
    half = x.shape[dim] // 2
    first, second = x.split((half, x.shape[dim] - half), dim)
    return torch.cat([first.abs(), second], dim)


def shift_channels(x: Tensor, shift: int) -> Tensor:
    """Five parts of the channels moved up, down, left and right, the last one not at all."""
    steps = ((-shift, -2), (shift, -2), (-shift, -1), (shift, -1), (0, -1))
    parts = x.tensor_split(len(steps), dim=-3)
    return torch.cat([p.roll(*step) for p, step in zip(parts, steps, strict=True)], -3)


@final
class HalfAbs(ChannelActivation, function=half_abs, relu=relu_forms.half_absolute_value):
    """The absolute value of each entry in the first half of the channels; the others stay.

    1-Lipschitz and gradient-norm-preserving in every p-norm. In L2 it is `MaxMin` between two fixed
    rotations, and cheaper.

    Args:
        dim: where the channels are; None for `(batch, features)`.

    Example:
        >>> HalfAbs()(torch.tensor([-1.0, 2.0, -3.0, 4.0]))
        tensor([ 1.,  2., -3.,  4.])
    """


@final
class ChannelShift2d(FunctionLayer, function=shift_channels, arguments={"shift": int}):
    """Moves a fifth of the channels each up, down, left and right, around the borders.

    The last fifth stays. A permutation of the entries: an isometry in every norm. Where the channels
    are not a multiple of five, the first parts are larger by one. Takes `(batch, channels, height, width)`.

    Args:
        shift: pixels to move by.

    Example:
        >>> x = torch.arange(5.0).view(5, 1, 1) + torch.tensor([0.0, 0.1, 0.2])
        >>> ChannelShift2d()(x[None])[0, 2:4, 0]
        tensor([[2.1000, 2.2000, 2.0000],
                [3.2000, 3.0000, 3.1000]])
    """

    def __init__(self, shift: int = 1) -> None:
        super().__init__()
        check_count("ChannelShift2d", "shift", shift)
        self.shift = int(shift)


def shift_rotate(channels: int, shift: int = 1) -> nn.Sequential:
    r"""The block of LipNeXt: $|\cdot|_{1/2}(Q\,S(R x) + b)$, an isometry up to the signs it drops.

    $R$ and $Q$ are orthonormal over the channels of each pixel, $S$ is `ChannelShift2d`, and half of
    the channels are folded by `HalfAbs`. The published $M R^\top S(R x)$ is the same family: a
    product of two orthonormal matrices is one. 1-Lipschitz in L2; so is a stack of them.

    Args:
        channels: channels of input and output.
        shift: pixels to move by.

    Example:
        >>> block = shift_rotate(10)
        >>> x = torch.randn(2, 10, 6, 6)
        >>> torch.allclose(block[:3](x - 0).sub(block[2].bias.view(-1, 1, 1)).norm(), x.norm(), rtol=1e-2)
        True
        >>> taut.bound_lipschitz(block, input_shape=(10, 6, 6)).value <= 1
        True
    """
    return nn.Sequential(
        OrthonormalConv2d(channels, channels, 1, bias=False),
        ChannelShift2d(shift),
        OrthonormalConv2d(channels, channels, 1),
        HalfAbs(dim=1),
    )


def _image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    low, high = lower[0], upper[0]
    half = low.shape[call["dim"]] // 2
    sizes = (half, low.shape[call["dim"]] - half)
    (first, kept), (top, kept_top) = (end.split(sizes, call["dim"]) for end in (low, high))
    least, most = image_of_magnitudes(call, [first], [top])
    return torch.cat([least, kept], call["dim"]), torch.cat([most, kept_top], call["dim"])


register(half_abs, proof="largest slope", constants=along_dim, exact=True, image=_image)


def _permuted(call: Call) -> Constants:
    batch_free_dims(call, [-3, -2, -1])
    return call.first.constants


register_selection(shift_channels, proof="permutation", constants=_permuted)
