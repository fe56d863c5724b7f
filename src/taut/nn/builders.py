"""Whole networks in one line."""

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import torch
from torch import nn

from taut.errors import ArgumentError, check_choice, check_positive
from taut.names import ActivationName, ConstraintName
from taut.nn.ball_layers import L1Linear, LinfLinear
from taut.nn.channel_activations import FullSort, GroupSort, Householder, MaxMin, Maxout
from taut.nn.conv_orthonormal import OrthonormalConv2d
from taut.nn.conv_spectral import SpectralConv2d
from taut.nn.elementwise_activations import Abs
from taut.nn.orthonormal import OrthonormalLinear
from taut.nn.scale import Scale
from taut.nn.spectral import ParsevalLinear, SpectralLinear

LayerFactory = Callable[[int, int], nn.Module]
ActivationFactory = Callable[[int], nn.Module]

_CONSTRAINTS: dict[str, LayerFactory] = {
    "orthonormal": OrthonormalLinear,
    "bjorck": partial(OrthonormalLinear, method="bjorck"),
    "spectral": SpectralLinear,
    "parseval": ParsevalLinear,
    "linf": LinfLinear,
    "l1": L1Linear,
    "none": nn.Linear,
}
_ACTIVATIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "maxmin": lambda width, dim: MaxMin(dim=dim),
    "fullsort": lambda width, dim: FullSort(dim=dim),
    "maxout": lambda width, dim: Maxout(2, dim=dim),
    "abs": lambda width, dim: Abs(),
    "relu": lambda width, dim: nn.ReLU(),
    "householder": lambda width, dim: Householder(width, dim=dim),
    # Of second order: a fold of a fold, with up to four linear pieces a pair.
    "householder2": lambda width, dim: nn.Sequential(
        Householder(width, dim=dim), Householder(width, 0.0, dim=dim)
    ),
    "identity": lambda width, dim: nn.Identity(),
}


def make_activation(name: ActivationName | str, width: int, dim: int = -1) -> nn.Module:
    """The activation of that name for `width` channels along `dim`.

    Args:
        name: as in `mlp`.
        width: number of channels.
        dim: dimension of the channels.

    Example:
        >>> make_activation("groupsort4", 8, dim=1)
        GroupSort(group_size=4, dim=1)
    """
    if grouped := re.fullmatch(r"groupsort(\d+)", name):
        return GroupSort(int(grouped[1]), dim=dim)
    check_choice("mlp", "activation", name, (*_ACTIVATIONS, "groupsort4"))
    return _ACTIVATIONS[name](width, dim)


def mlp(
    sizes: Sequence[int],
    activation: ActivationName | ActivationFactory = "maxmin",
    constraint: ConstraintName | LayerFactory = "orthonormal",
    lipschitz: float = 1.0,
) -> nn.Sequential:
    r"""A fully connected network with Lipschitz constant at most `lipschitz`.

    Layers of norm at most 1 with 1-Lipschitz activations between them. A constant $K \ne 1$ is
    distributed evenly: a `Scale` of $K^{1/L}$ follows each of the $L$ layers. All named activations
    are homogeneous, so this changes only the scale of the network.

    Args:
        sizes: `[in, hidden, ..., out]`, at least two.
        activation: `"maxmin"`, `"groupsort4"` (any group size), `"fullsort"`, `"maxout"`, `"abs"`,
            `"relu"`, `"householder"`, `"householder2"` (two in a row), `"identity"`, or a function from
            the width to a module. Maxout halves the width that the next layer sees.
        constraint: `"orthonormal"`, `"bjorck"`, `"spectral"`, `"parseval"` (constant in L2),
            `"linf"` (in L-inf), `"l1"` (in L1), `"none"` (no constant at all), or a function
            `(in, out) -> module`.
        lipschitz: the constant `K`, in the norm of the constraint.

    Example:
        >>> mlp([2, 64, 1], lipschitz=4.0)
        Sequential(
          (0): OrthonormalLinear(in_features=2, out_features=64, bias=True, method='retract')
          (1): Scale(factor=2.0)
          (2): MaxMin(dim=-1)
          (3): OrthonormalLinear(in_features=64, out_features=1, bias=True, method='retract')
          (4): Scale(factor=2.0)
        )
    """
    if len(sizes) < 2:
        rule, got = "must name the input and the output at least", f"sizes={list(sizes)}"
        raise ArgumentError("mlp", "sizes", rule, got, "Use [in, hidden, ..., out].")
    check_positive("mlp", "lipschitz", lipschitz)
    _check_activation(activation)
    if isinstance(activation, str):
        make_activation(activation, 2)  # raises for a name that nobody knows
        activation = partial(make_activation, activation)
    if isinstance(constraint, str):
        check_choice("mlp", "constraint", constraint, tuple(_CONSTRAINTS))
        constraint = _CONSTRAINTS[constraint]
    share = _root_down(lipschitz, len(sizes) - 1)
    modules: list[nn.Module] = []
    width = sizes[0]
    for following in sizes[1:]:
        if modules:
            modules.append(activation(width))
            # A width that the activation cannot take is refused here, not in the first forward.
            modules[-1](torch.zeros(1, width))
            if isinstance(modules[-1], Maxout):
                width //= modules[-1].group_size
        modules.append(constraint(width, following))
        if lipschitz != 1:
            modules.append(Scale(share))
        width = following
    return nn.Sequential(*modules)


def separable_conv2d(
    in_channels: int,
    out_channels: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    *,
    multiplier: int = 1,
    bias: bool = True,
    padding_mode: str = "zeros",
) -> nn.Sequential:
    """A convolution of each channel on its own, then a dense layer over the channels of each pixel.

    1-Lipschitz in L2: a `SpectralConv2d` with as many groups as channels, and an `OrthonormalConv2d` of
    kernel size 1. (The only orthonormal convolutions from one channel to one channel are shifts.)

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the windows.
        stride: step of the windows.
        padding: as in `torch.nn.Conv2d`.
        multiplier: channels between the two layers for each channel of the input.
        bias: whether to learn an offset.
        padding_mode: as in `taut.nn.SpectralConv2d`.

    Example:
        >>> block = separable_conv2d(4, 6, 3, padding=1)
        >>> taut.bound_lipschitz(block, input_shape=(4, 5, 5)).value <= 1
        True
    """
    inner = in_channels * multiplier
    return nn.Sequential(
        SpectralConv2d(
            in_channels,
            inner,
            kernel_size,
            stride,
            padding,
            groups=in_channels,
            bias=False,
            padding_mode=padding_mode,
        ),
        OrthonormalConv2d(inner, out_channels, 1, bias=bias),
    )


def _check_activation(activation: object) -> None:
    if isinstance(activation, (type, nn.Module)) or not (
        callable(activation) or isinstance(activation, str)
    ):
        kind = activation if isinstance(activation, type) else type(activation)
        rule = "must be a name or a function from the width to a new module"
        remedy = f"Use a name, or lambda width: {kind.__name__}()."
        raise ArgumentError("mlp", "activation", rule, repr(activation), remedy)


def _root_down(x: float, degree: int) -> float:
    """The largest float near the root whose power does not exceed `x`."""
    root = x ** (1 / degree)
    while Fraction(root) ** degree > x:
        root = math.nextafter(root, 0)
    return root
