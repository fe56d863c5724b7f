"""Convolutions, plain and transposed, with every padding."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut import functional
from taut.errors import ArgumentError, NoRuleError, check_count
from taut.linalg import bound_convolution
from taut.linalg.convolution_axis import padding_sides
from taut.norms import Norm
from taut.rules.file_schema import Arguments, FileSchema, Shapes, Sizes, check_sizes, with_bias
from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Call, register
from taut.rules.shared_rules import (
    call_with_attributes,
    each_dimension,
    in_each_norm,
    register_linear,
)

aten = torch.ops.aten
DIRECT = "convolutions by direct sums or matrix products (no Winograd, no FFT), in full precision"


def _pad(x: Tensor, sides: Sequence[tuple[int, int]], mode: str = "constant") -> Tensor:
    return functional.pad(x, [amount for pair in reversed(sides) for amount in pair], mode)


def padded_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: str | list[int],
    padding_mode: str,
    dilation: list[int],
    groups: int,
) -> Tensor:
    """A convolution of an input that is padded by copies of itself, as torch's modules do it."""
    convolve = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
    sides = padding_sides("convolution", padding, weight.shape[2:], stride, dilation)
    padded = _pad(input, sides, padding_mode)
    return convolve(padded, weight, bias, stride, 0, dilation, groups)


_PLAIN = (
    aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding,
    aten.conv3d.default, aten.conv3d.padding,
)  # fmt: skip
_TRANSPOSED = (
    aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input,
)  # fmt: skip


def _geometry(call: Call) -> dict[str, Any]:
    """The arguments of a convolution behind its weight, one number for each dimension."""
    dims = call["weight"].dim() - 2

    def each(name: str, default: int) -> Any:
        given = default if call[name] is None else call[name]
        return given if isinstance(given, str) else each_dimension(given, dims)

    return {
        "stride": each("stride", 1),
        "padding": each("padding", 0),
        "padding_mode": call["padding_mode"] or "zeros",
        "dilation": each("dilation", 1),
        "groups": call["groups"] or 1,
        "transposed": call.target in _TRANSPOSED,
        "output_padding": each("output_padding", 0),
    }


def _constants(call: Call) -> Constants:
    x = call.first
    weight = call["weight"]
    if not isinstance(weight, Tensor):
        raise NoRuleError(rule="a kernel that depends on the input has no constant")
    if x.shape is not None and len(x.shape) != weight.dim() - 1:
        rule = "a convolution without a batch would mix samples"
        raise NoRuleError(rule=rule, remedy="Keep the batch.")
    geometry = _geometry(call)
    size = None if x.shape is None else x.shape[1:]

    def bound(norm: Norm) -> float:
        return bound_convolution(weight.detach(), norm, input_size=size, **geometry).value

    return in_each_norm(call, bound)


def _terms(call: Call) -> int:
    weight = call["weight"]
    transposed = call.target in _TRANSPOSED
    channels = weight.shape[0] // (call["groups"] or 1) if transposed else weight.shape[1]
    return channels * math.prod(weight.shape[2:]) + 3


register_linear(
    *_PLAIN,
    *_TRANSPOSED,
    padded_convolution,
    proof="convolution norm",
    constants=_constants,
    terms=_terms,
    offset="bias",
    assumes=DIRECT,
)


def _call_of(module: Any) -> tuple[Any, dict[str, Any]]:
    """What the forward of a torch convolution amounts to."""
    dims = len(module.kernel_size)
    if module.transposed:
        function: Any = _TRANSPOSED[dims - 1]
    elif module.padding_mode != "zeros":
        function = padded_convolution
    else:
        function = _PLAIN[2 * dims - (1 if isinstance(module.padding, str) else 2)]
    return call_with_attributes(function)(module)


def convolution_schema(
    module: type[nn.Module], weight: Callable[[Arguments], tuple[int, ...]] | None = None
) -> FileSchema:
    """How a file names a convolution with torch's arguments.

    Args:
        module: the type.
        weight: the shape of its parameter from its arguments, where that is not the kernel.
    """
    transposed = "Transpose" in module.__name__
    dims = int(module.__name__[-2])

    def shapes(a: Arguments) -> Shapes:
        for name in ("in_channels", "out_channels", "groups"):
            check_count(module.__name__, name, a[name])
        rows, columns = a["out_channels"], a["in_channels"]
        if transposed:
            rows, columns = columns, rows
        if rows % a["groups"] or columns % a["groups"]:
            rule = "must divide the channels"
            raise ArgumentError(argument="groups", rule=rule, got=str(a["groups"]))
        kernel = (rows, columns // a["groups"], *a["kernel_size"])
        stored = kernel if weight is None else weight({**a, "kernel": kernel})
        return with_bias(a, stored, a["out_channels"])

    def read_padding(m: Any) -> str:
        return m.padding if isinstance(m.padding, str) else " ".join(map(str, m.padding))

    def make(**a: Any) -> nn.Module:
        return module(**{**a, "padding": _padding_of(module, a["padding"], dims)})

    arguments: Arguments = dict.fromkeys(("in_channels", "out_channels", "groups"), int)
    arguments |= dict.fromkeys(("kernel_size", "stride", "dilation"), Sizes(dims))
    arguments |= {"output_padding": Sizes(dims, 0)} if transposed else {}
    return FileSchema(
        module,
        {**arguments, "padding": str, "padding_mode": str, "bias": bool},
        shapes=shapes,
        read={"padding": read_padding},
        make=make,
    )


def _padding_of(module: type[nn.Module], text: str, dims: int) -> str | tuple[int, ...]:
    if text in ("same", "valid"):
        return text
    try:
        amounts = [int(part) for part in text.split(" ")]
    except ValueError as error:
        rule = "must be numbers"
        raise ArgumentError(argument="padding", rule=rule, got=repr(text[:80])) from error
    check_sizes(module.__name__, "padding", amounts, Sizes(dims, 0))
    return tuple(amounts)


for _kind in (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
):  # fmt: skip
    register(_kind, call=_call_of, file=convolution_schema(_kind))


def direct_convolution(call: Call, x: Tensor) -> Tensor:
    """The same convolution by one matrix product over unfolded windows: no fast transform.

    Transposed convolutions are plain ones of the input with zeros between its entries.
    """
    weight, bias, geometry = call["weight"].to(x), call["bias"], _geometry(call)
    dims, groups, taps = weight.dim() - 2, geometry["groups"], weight.shape[2:]
    stride, dilation = geometry["stride"], geometry["dilation"]
    sides = padding_sides("convolution", geometry["padding"], taps, stride, dilation)
    if geometry["transposed"]:
        spread = x.new_zeros(
            *x.shape[:2], *(s * (n - 1) + 1 for n, s in zip(x.shape[2:], stride, strict=True))
        )
        spread[(..., *(slice(None, None, s) for s in stride))] = x
        blocks = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        weight = blocks.flip(tuple(range(2, 2 + dims)))
        lists = dilation, taps, sides, geometry["output_padding"]
        margins = [(d * (k - 1) - p, e) for d, k, (p, _), e in zip(*lists, strict=True)]
        x, stride = _pad(spread, [(m, m + extra) for m, extra in margins]), (1,) * dims
    else:
        mode = geometry["padding_mode"]
        x = _pad(x, sides, "constant" if mode == "zeros" else mode)
    windows = x
    for dim, (k, s, d) in enumerate(zip(taps, stride, dilation, strict=True)):
        windows = windows.unfold(2 + dim, d * (k - 1) + 1, s)[..., ::d]
    places = windows.shape[2 : 2 + dims]
    order = (0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims))
    rows = windows.permute(order).flatten(0, dims).unflatten(1, (groups, -1)).flatten(2)
    matrices = weight.flatten(1).unflatten(0, (groups, -1))
    product = torch.einsum("ngk,gok->ngo", rows, matrices).flatten(1)
    result = product.unflatten(0, (len(x), *places)).movedim(-1, 1).contiguous()
    return result if bias is None else result + bias.to(x).view(-1, *(1,) * dims)
