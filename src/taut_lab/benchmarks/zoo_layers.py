"""Blocks of the zoo: a 1-Lipschitz convolution with its activation, of taut and of other libraries."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from taut.nn import (
    AOLConv2d,
    CPLResidual2d,
    InvertibleDownsampling2d,
    MaxMin,
    OrthonormalConv2d,
    OrthonormalLinear,
    PotentialStep2d,
    SLLResidual2d,
    SpectralConv2d,
    separable_conv2d,
    shift_rotate,
)
from taut_lab.benchmarks.peer_imports import CONVOLUTIONS, import_peer

Block = Callable[[int], nn.Module]

UNCONSTRAINED = "torch Conv2d"
_ORTHOGONIUM = "orthogonium.layers.conv"
# Distribution, module and name of a residual block, beside the convolutions of `peers`.
_PEER_RESIDUAL = ("orthogonium", f"{_ORTHOGONIUM}.SLL", "SDPBasedLipschitzResBlock")
# The exponential of a 3 x 3 kernel, cut off: an explicit kernel of 7 x 7.
_PEER_EXPONENTIAL = ("orthogonium", f"{_ORTHOGONIUM}.adaptiveSOC", "AdaptiveSOCConv2d")
_CIRCLE: dict[str, Any] = {"kernel_size": 3, "padding": "same", "padding_mode": "circular"}


def zoo_blocks(peers: bool = True) -> dict[str, Block]:
    """Name -> a function that makes a block with as many outputs as inputs, the baseline first.

    Convolutions have 3 x 3 kernels and circular padding, with which orthogonality is possible, and
    `taut.nn.MaxMin` behind them; residual blocks have their ReLU inside, and the padding of their
    library.
    """
    blocks: dict[str, Block] = {
        UNCONSTRAINED: partial(_with_max_min, nn.Conv2d),
        "taut OrthonormalConv2d": partial(_with_max_min, OrthonormalConv2d),
        "taut SpectralConv2d": partial(_with_max_min, SpectralConv2d),
        "taut AOLConv2d": partial(_with_max_min, AOLConv2d),
        "taut separable_conv2d": partial(_with_max_min, separable_conv2d),
        "taut CPLResidual2d": CPLResidual2d,
        "taut SLLResidual2d": SLLResidual2d,
        "taut shift_rotate (LipNeXt)": shift_rotate,
    }
    if not peers:
        return blocks
    for peer, module, name in (*CONVOLUTIONS, _PEER_RESIDUAL, _PEER_EXPONENTIAL):
        if (layer := getattr(import_peer(module), name, None)) is None:
            continue
        block = partial(_with_max_min, layer)
        if name == _PEER_EXPONENTIAL[-1]:
            block = partial(block, padding=3)
        elif name == _PEER_RESIDUAL[-1]:
            block = partial(layer, inner_dim_factor=1)
        blocks[f"{peer} {name}"] = block
    return blocks


def _with_max_min(
    layer: Callable[..., nn.Module], channels: int, **changes: object
) -> nn.Sequential:
    return nn.Sequential(layer(channels, channels, **{**_CIRCLE, **changes}), MaxMin(dim=1))


def zoo_network(
    block: Block, image: tuple[int, int, int], classes: int, *, channels: int = 16, depth: int = 3
) -> nn.Sequential:
    """The one shape that all blocks share.

    Blocks of 2 x 2 pixels become channels, channels of zeros are added up to `channels`, `depth`
    blocks follow; again 2 x 2 pixels become channels, which gives four times as many, and `depth`
    blocks follow; `taut.nn.OrthonormalLinear` on all of that gives the logits.

    The sizes of the image are divisible by 4, and `channels` at least four times its own.
    """
    colours, height, width = image
    missing = channels - 4 * colours
    return nn.Sequential(
        InvertibleDownsampling2d(2),
        *([nn.ZeroPad3d((0, 0, 0, 0, 0, missing))] if missing else []),
        *(block(channels) for _ in range(depth)),
        InvertibleDownsampling2d(2),
        *(block(4 * channels) for _ in range(depth)),
        nn.Flatten(),
        OrthonormalLinear(channels * height * width // 4, classes),
    )


@torch.no_grad()
def plain_network(network: nn.Sequential) -> nn.Sequential:
    """The network with the layers of other libraries as plain ones, which `taut` can bound.

    Their current weights become those of `torch.nn.Conv2d` and `taut.nn.PotentialStep2d`; layers of
    taut stay as they are, the same objects.
    """
    return nn.Sequential(*(_plain(layer) for layer in network))


def _plain(layer: nn.Module) -> nn.Module:
    if type(layer) is nn.Sequential:
        return plain_network(layer)
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer)
    kernel, bias = getattr(layer, "kernel", None), getattr(layer, "bias", None)
    if isinstance(kernel, Tensor) and isinstance(bias, Tensor):
        return _potential_step(kernel, bias)
    return layer


def _potential_step(kernel: Tensor, bias: Tensor) -> PotentialStep2d:
    r"""Theirs too is $x - 2 K^\top \mathrm{relu}(K x + b)$ with zeros beyond the image."""
    hidden, channels, size, _ = kernel.shape
    step = PotentialStep2d(channels, hidden, size)
    assert step.bias is not None
    step.weight.copy_(kernel)
    step.bias.copy_(bias.flatten())
    return step


def _convolution(layer: nn.Conv2d) -> nn.Conv2d:
    """The kernel that a parametrization gives may be larger than `kernel_size` says; it is odd."""
    out, inside, height, width = layer.weight.shape
    plain = nn.Conv2d(inside, out, (height, width), padding="same", padding_mode=layer.padding_mode)
    assert layer.bias is not None and plain.bias is not None
    plain.weight.copy_(layer.weight)
    plain.bias.copy_(layer.bias)
    return plain
