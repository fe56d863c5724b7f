"""Convolutions, plain and transposed, with every padding."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, NoRuleError, check_count
from taut.linalg import bound_convolution
from taut.norms import Norm
from taut.rules.constants import Constants
from taut.rules.forms import in_each_norm, linear_image, linear_rounding
from taut.rules.record import Call, register
from taut.rules.schema import Arguments, FileSchema, Shapes

__all__ = ["convolution_schema", "direct_convolution", "padded_convolution"]

aten = torch.ops.aten
DIRECT = "convolutions by direct sums or matrix products (no Winograd, no FFT), in full precision"


def padded_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pad: list[int],
    mode: str,
    stride: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """A convolution of an input that is padded by copies of itself, as torch's modules do it."""
    convolve = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
    padded = F.pad(input, pad, mode=mode)
    return convolve(padded, weight, bias, stride, 0, dilation, groups)


_PLAIN = (
    aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding,
    aten.conv3d.default, aten.conv3d.padding,
)  # fmt: skip
_TRANSPOSED = (
    aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input,
)  # fmt: skip


def _geometry(call: Call) -> dict[str, Any]:
    dims = call["weight"].dim() - 2

    def each(name: str, default: int) -> Any:
        held = call[name]
        if held is None or isinstance(held, str):
            return default if held is None else held
        amounts = list(held) if isinstance(held, (list, tuple)) else [held]
        return tuple(amounts * dims if len(amounts) == 1 else amounts)

    known: dict[str, Any] = {
        "stride": each("stride", 1), "dilation": each("dilation", 1), "groups": call["groups"] or 1
    }  # fmt: skip
    if call.target is padded_convolution:
        pairs = [tuple(call["pad"][i : i + 2]) for i in range(0, 2 * dims, 2)][::-1]
        if all(a == b for a, b in pairs):
            return {**known, "padding": tuple(a for a, _ in pairs), "padding_mode": call["mode"]}
        totals = [
            d * (k - 1)
            for d, k in zip(_all(known["dilation"], dims), call["weight"].shape[2:], strict=True)
        ]
        if pairs == [(total // 2, total - total // 2) for total in totals]:
            return {**known, "padding": "same", "padding_mode": call["mode"]}
        raise NoRuleError("a convolution of an input padded unevenly is not followed.")
    return {**known, "padding": each("padding", 0)}


def _all(held: Any, dims: int) -> tuple[int, ...]:
    return held if isinstance(held, tuple) else (held,) * dims


def _constants(call: Call) -> Constants:
    x = call.first
    weight = call["weight"]
    if not isinstance(weight, Tensor):
        raise NoRuleError("a kernel that depends on the input has no constant.")
    if x.shape is not None and len(x.shape) != weight.dim() - 1:
        raise NoRuleError("a convolution without a batch would mix samples. Keep the batch.")
    transposed = call.target in _TRANSPOSED
    geometry = _geometry(call)
    if transposed:
        extra = call["output_padding"]
        geometry |= {"transposed": True, "output_padding": extra if extra is not None else 0}

    def bound(norm: Norm) -> float:
        size = None if x.shape is None else x.shape[1:]
        return bound_convolution(weight.detach(), norm, input_size=size, **geometry).value

    return in_each_norm(call, bound)


def _terms(call: Call) -> int:
    weight = call["weight"]
    channels = (
        weight.shape[0] // (call["groups"] or 1) if call.target in _TRANSPOSED else weight.shape[1]
    )
    return channels * math.prod(weight.shape[2:]) + 3


register(
    *_PLAIN, *_TRANSPOSED, padded_convolution,
    proof="convolution norm",
    constants=_constants,
    rounding=linear_rounding(_terms, _constants, "bias", DIRECT),
    image=linear_image(),
)  # fmt: skip


def _call_of(module: Any) -> tuple[Any, dict[str, Any]]:
    """What the forward of a torch convolution amounts to."""
    dims = len(module.kernel_size)
    known = {"weight": module.weight, "bias": module.bias, "stride": list(module.stride)}
    more = {"dilation": list(module.dilation), "groups": module.groups}
    padding = module.padding
    if module.transposed:
        extra = {"padding": list(padding), "output_padding": list(module.output_padding)}
        return _TRANSPOSED[dims - 1], {**known, **extra, **more}
    if module.padding_mode != "zeros":
        if padding == "valid":
            outward = [0] * (2 * dims)
        elif isinstance(padding, str):
            totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
            outward = [side for t in reversed(totals) for side in (t // 2, t - t // 2)]
        else:
            outward = [side for amount in reversed(padding) for side in (amount, amount)]
        return padded_convolution, {**known, "pad": outward, "mode": module.padding_mode, **more}
    if isinstance(padding, str):
        return _PLAIN[2 * dims - 1], {**known, "padding": padding, **more}
    return _PLAIN[2 * dims - 2], {**known, "padding": list(padding), **more}


_LISTS = ("kernel_size", "stride", "dilation")


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
        for name in _LISTS:
            check_numbers(module, name, a[name], dims, 1)
        for name in ("in_channels", "out_channels", "groups"):
            check_count(module.__name__, name, a[name])
        rows, columns = a["out_channels"], a["in_channels"]
        if transposed:
            rows, columns = columns, rows
        if rows % a["groups"] or columns % a["groups"]:
            raise ArgumentError(f"`groups` must divide the channels; got {a['groups']}.")
        kernel = (rows, columns // a["groups"], *a["kernel_size"])
        held = kernel if weight is None else weight({**a, "kernel": kernel})
        return {"weight": held} | ({"bias": (a["out_channels"],)} if a["bias"] else {})

    def make(**a: Any) -> nn.Module:
        a["padding"] = _padding_of(module, a["padding"], dims)
        for name in (*_LISTS, "output_padding") if transposed else _LISTS:
            a[name] = tuple(a[name])
        return module(**a)

    counts = {name: int for name in ("in_channels", "out_channels", "groups")}
    lists = {name: list for name in (*_LISTS, *(("output_padding",) if transposed else ()))}
    read: dict[str, Callable[[Any], Any]] = {
        name: lambda m, name=name: list(getattr(m, name)) for name in lists
    }
    read["bias"] = lambda m: m.bias is not None
    read["padding"] = lambda m: (
        m.padding if isinstance(m.padding, str) else " ".join(map(str, m.padding))
    )
    arguments = {**counts, **lists, "padding": str, "padding_mode": str, "bias": bool}
    return FileSchema(module, arguments, shapes=shapes, read=read, make=make)


def _padding_of(module: type[nn.Module], text: str, dims: int) -> str | tuple[int, ...]:
    if text in ("same", "valid"):
        return text
    try:
        amounts = [int(part) for part in text.split(" ")]
    except ValueError as error:
        raise ArgumentError(f"`padding` must be numbers; got {text[:80]!r}.") from error
    check_numbers(module, "padding", amounts, dims, 0)
    return tuple(amounts)


def check_numbers(
    module: type[nn.Module], name: str, values: list[Any], dims: int, least: int
) -> None:
    """Raises unless a file gives `dims` whole numbers of a usual size."""
    if len(values) != dims:
        raise ArgumentError(f"`{name}` must hold {dims} numbers; got {len(values)}.")
    for value in values:
        check_count(module.__name__, name, value, least)
        if value >= 2**31:
            raise ArgumentError(f"`{name}` must be a usual number; got {value}.")


for _kind in (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
):  # fmt: skip
    register(_kind, call=_call_of, file=convolution_schema(_kind))


def direct_convolution(call: Call, x: Tensor) -> Tensor:
    """The same convolution by one matrix product over unfolded windows: no fast transform.

    Transposed convolutions are plain ones of the input with zeros between its entries.
    """
    weight, bias, geometry = call["weight"].to(x), call["bias"], _geometry(call)
    dims, groups = weight.dim() - 2, geometry["groups"]
    stride, dilation = (_all(geometry[name], dims) for name in ("stride", "dilation"))
    taps = weight.shape[2:]
    if call.target in _TRANSPOSED:
        pads, extra = _all(geometry["padding"], dims), call["output_padding"] or [0] * dims
        spread = x.new_zeros(
            *x.shape[:2], *(s * (n - 1) + 1 for n, s in zip(x.shape[2:], stride, strict=True))
        )
        spread[(..., *(slice(None, None, s) for s in stride))] = x
        blocks = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        weight = blocks.flip(tuple(range(2, 2 + dims)))
        margins = [d * (k - 1) - p for d, k, p in zip(dilation, taps, pads, strict=True)]
        sides = [
            (m, m + e) for m, e in zip(margins, list(extra) * (dims // len(extra)), strict=True)
        ]
        x, stride = F.pad(spread, [side for pair in reversed(sides) for side in pair]), (1,) * dims
    elif call.target is padded_convolution:
        x = F.pad(x, call["pad"], mode=call["mode"])
    elif geometry["padding"] != "valid":
        pads = geometry["padding"]
        totals = [d * (k - 1) for d, k in zip(dilation, taps, strict=True)]
        sides = (
            [(t // 2, t - t // 2) for t in totals]
            if pads == "same"
            else [(p, p) for p in _all(pads, dims)]
        )
        x = F.pad(x, [side for pair in reversed(sides) for side in pair])
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
