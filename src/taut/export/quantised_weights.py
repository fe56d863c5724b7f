r"""Weights in fewer bits: a file stores int8 or bfloat16, and the network computes in float32.

A weight of int8 is $w_{ij} = s_i q_{ij}$ with $|q_{ij}| \le 127$ and one scale for each row. Scales
have 16 significant bits, so every product has at most 23 and *is* a float32 number: what is loaded is
to the bit what is stored. The constant is proven for these numbers, whatever rounding made of those
before.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, DamagedFileError, check_choice

StoredWeights = Literal["float32", "bfloat16", "int8"]
# No tensor of a layer has such a name, for a colon is no part of an attribute.
SCALE = ":row-scale"
_LARGEST = 127
_SCALE_BITS = 16


@torch.no_grad()
def round_weights(model: nn.Module, kind: StoredWeights) -> dict[str, Tensor]:
    """Rounds matrices and kernels of a plain network in place; returns them as a file stores them.

    Args:
        model: of plain layers, float32; biases are left alone.
        kind: "float32", "bfloat16" or "int8".

    Example:
        >>> net = nn.Linear(2, 1)
        >>> _ = net.weight.data.copy_(torch.tensor([[1.0, 0.5]]))
        >>> stored = round_weights(net, "int8")
        >>> stored["weight"].tolist(), stored["weight:row-scale"].dtype
        ([[127, 63]], torch.float32)
    """
    check_choice("save", "weights", kind, get_args(StoredWeights))
    if kind == "float32":
        return {}
    if any(value.dtype != torch.float32 for value in model.parameters()):
        got = f"weights={kind!r} and {', '.join({str(v.dtype) for v in model.parameters()})}"
        raise ArgumentError("save", "weights", "is for networks in float32", got)
    stored: dict[str, Tensor] = {}
    for name, value in model.named_parameters():
        if value.dim() < 2:
            continue
        if kind == "bfloat16":
            stored[name] = value.detach().to(torch.bfloat16)
            value.copy_(stored[name])
        else:
            whole, scale = _to_int8(value.detach())
            stored |= {name: whole, f"{name}{SCALE}": scale}
            value.copy_(_product(name, whole, scale))
    return stored


def _to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers and the scale of each row."""
    shape = (-1, *[1] * (weight.dim() - 1))
    largest = weight.double().flatten(1).abs().amax(1)
    mantissa, exponent = torch.frexp(largest / _LARGEST)
    # Rounded up, so that no row exceeds 127.
    mantissa = (mantissa * 2**_SCALE_BITS).ceil() / 2**_SCALE_BITS
    scale = torch.where(largest > 0, torch.ldexp(mantissa, exponent), 1.0).view(shape)
    return (weight.double() / scale).round().to(torch.int8), scale.float()


def _product(name: str, whole: Tensor, scale: Tensor) -> Tensor:
    exact = whole.double() * scale.double()
    if not torch.equal(exact.float().double(), exact):
        rule = f"tensor `{name}`: the products with its scales must be float32"
        raise DamagedFileError(rule=rule)
    return exact.float()


def restore_weights(tensors: dict[str, Tensor], kind: StoredWeights) -> dict[str, Tensor]:
    """The tensors of a file in float32, to the bit what was stored.

    Raises:
        DamagedFileError: a scale does not fit its tensor.
    """
    # Scales belong to a tensor; an extra tensor may be called a scale as well.
    scales = {name: tensors[f"{name}{SCALE}"] for name in tensors if f"{name}{SCALE}" in tensors}
    wholes = {name for name, value in tensors.items() if value.dtype == torch.int8}
    if wholes != set(scales) or (wholes and kind != "int8"):
        odd = min(wholes ^ set(scales) or wholes)
        rule = f"tensor `{odd}` must be whole numbers with a scale for each row"
        raise DamagedFileError(rule=rule)
    restored: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in scales:
            continue
        if name in scales:
            wanted = (len(value), *[1] * (value.dim() - 1)) if value.dim() else ()
            scale = scales[name]
            if scale.shape != wanted or scale.dtype != torch.float32 or math.prod(wanted) == 0:
                raise DamagedFileError(rule=f"tensor `{name}` must have one scale for each row")
            value = _product(name, value, scale)
        elif kind == "bfloat16" and value.dtype == torch.bfloat16:
            value = value.float()
        restored[name] = value
    return restored
