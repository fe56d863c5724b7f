"""Whole networks in one line."""

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import torch
from torch import nn

from taut.errors import ArgumentError, check_choice, check_positive
from taut.nn.activations import Abs, FullSort, GroupSort, Householder, MaxMin, Maxout
from taut.nn.balls import L1Linear, LinfLinear
from taut.nn.orthonormal import OrthonormalLinear
from taut.nn.scale import Scale
from taut.nn.spectral import ParsevalLinear, SpectralLinear

__all__ = ["mlp"]

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
_ACTIVATIONS: dict[str, ActivationFactory] = {
    "maxmin": lambda width: MaxMin(dim=-1),
    "fullsort": lambda width: FullSort(dim=-1),
    "maxout": lambda width: Maxout(2, dim=-1),
    "abs": lambda width: Abs(),
    "relu": lambda width: nn.ReLU(),
    "householder": lambda width: Householder(width, dim=-1),
    "identity": lambda width: nn.Identity(),
}


def mlp(
    sizes: Sequence[int],
    activation: str | ActivationFactory = "maxmin",
    constraint: str | LayerFactory = "orthonormal",
    lipschitz: float = 1.0,
) -> nn.Sequential:
    r"""A fully connected network with Lipschitz constant at most `lipschitz`.

    Layers of norm at most 1 with 1-Lipschitz activations between them. A constant $K \ne 1$ is
    spread evenly: a `Scale` of $K^{1/L}$ follows each of the $L$ layers. All named activations are
    homogeneous, so that only the scale of the network changes.

    Args:
        sizes: `[in, hidden, ..., out]`, at least two.
        activation: `"maxmin"`, `"groupsort4"` (any group size), `"fullsort"`, `"maxout"`, `"abs"`,
            `"relu"`, `"householder"`, `"identity"`, or a function from the width to a module.
            Maxout halves the width that the next layer sees.
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
        raise ArgumentError(
            f"mlp: `sizes` must name the input and the output at least; got sizes={list(sizes)}. "
            "Use [in, hidden, ..., out]."
        )
    check_positive("mlp", "lipschitz", lipschitz)
    make_activation = _activation_factory(activation)
    if isinstance(constraint, str):
        check_choice("mlp", "constraint", constraint, tuple(_CONSTRAINTS))
        constraint = _CONSTRAINTS[constraint]
    share = _root_down(lipschitz, len(sizes) - 1)
    modules: list[nn.Module] = []
    width = sizes[0]
    for following in sizes[1:]:
        if modules:
            modules.append(make_activation(width))
            # A width that the activation cannot take is refused here, not in the first forward.
            modules[-1](torch.zeros(1, width))
            if isinstance(modules[-1], Maxout):
                width //= modules[-1].group_size
        modules.append(constraint(width, following))
        if lipschitz != 1:
            modules.append(Scale(share))
        width = following
    return nn.Sequential(*modules)


def _activation_factory(activation: str | ActivationFactory) -> ActivationFactory:
    if isinstance(activation, (type, nn.Module)):
        kind = activation if isinstance(activation, type) else type(activation)
        raise ArgumentError(
            "mlp: `activation` must be a name or a function from the width to a new module; got "
            f"{activation!r}. Use a name, or lambda width: {kind.__name__}()."
        )
    if not isinstance(activation, str):
        return activation
    if grouped := re.fullmatch(r"groupsort(\d+)", activation):
        return lambda width: GroupSort(int(grouped[1]), dim=-1)
    check_choice("mlp", "activation", activation, (*_ACTIVATIONS, "groupsort4"))
    return _ACTIVATIONS[activation]


def _root_down(x: float, degree: int) -> float:
    """The largest float near the root whose power does not exceed `x`."""
    root = x ** (1 / degree)
    while Fraction(root) ** degree > x:
        root = math.nextafter(root, 0)
    return root
