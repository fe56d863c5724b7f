"""How files name convolutions, pooling and what stands between them."""

from collections.abc import Callable
from typing import Any

from torch import nn

from taut import nn as taut_nn
from taut.errors import ArgumentError, check_count
from taut.export.architecture import Arguments, Kind, Shapes, register
from taut.nn.conv_orthonormal import Factors

__all__: list[str] = []

_ORTHONORMAL = (
    taut_nn.OrthonormalConv1d,
    taut_nn.OrthonormalConv2d,
    taut_nn.OrthonormalConvTranspose1d,
    taut_nn.OrthonormalConvTranspose2d,
)
_CONVOLUTIONS = (
    *_ORTHONORMAL,
    taut_nn.LinfConv1d,
    taut_nn.LinfConv2d,
    taut_nn.SpectralConv1d,
    taut_nn.SpectralConv2d,
    taut_nn.SpectralConv3d,
    taut_nn.SpectralConvTranspose1d,
    taut_nn.SpectralConvTranspose2d,
    taut_nn.SpectralConvTranspose3d,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_LISTS = ("kernel_size", "stride", "dilation")


def _convolution(module: type[nn.Module]) -> Kind:
    transposed = "Transpose" in module.__name__
    dims = int(module.__name__[-2])

    def shapes(a: Arguments) -> Shapes:
        for name in _LISTS:
            _check_numbers(module, name, a[name], dims, 1)
        for name in ("in_channels", "out_channels", "groups"):
            check_count(module.__name__, name, a[name])
        rows, columns = a["out_channels"], a["in_channels"]
        if transposed:
            rows, columns = columns, rows
        if rows % a["groups"] or columns % a["groups"]:
            raise ArgumentError(f"`groups` must divide the channels; got {a['groups']}.")
        kernel = (rows, columns // a["groups"], *a["kernel_size"])
        if module in _ORTHONORMAL:
            if any(k < s for k, s in zip(a["kernel_size"], a["stride"], strict=True)):
                raise ArgumentError("`kernel_size` must be at least the stride.")
            block = (a["groups"], rows // a["groups"], kernel[1])
            kernel = (Factors(*block, tuple(a["kernel_size"]), tuple(a["stride"])).numel,)
        return {"weight": kernel} | ({"bias": (a["out_channels"],)} if a["bias"] else {})

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
    return Kind(module, arguments, shapes=shapes, read=read, make=make)


def _padding_of(module: type[nn.Module], text: str, dims: int) -> str | tuple[int, ...]:
    if text in ("same", "valid"):
        return text
    try:
        amounts = [int(part) for part in text.split(" ")]
    except ValueError as error:
        raise ArgumentError(f"`padding` must be numbers; got {text[:80]!r}.") from error
    _check_numbers(module, "padding", amounts, dims, 0)
    return tuple(amounts)


def _check_numbers(
    module: type[nn.Module], name: str, values: list[Any], dims: int, least: int
) -> None:
    if len(values) != dims:
        raise ArgumentError(f"`{name}` must hold {dims} numbers; got {len(values)}.")
    for value in values:
        check_count(module.__name__, name, value, least)
        if value >= 2**31:
            raise ArgumentError(f"`{name}` must be a usual number; got {value}.")


def _pair(name: str) -> Callable[[Any], list[int]]:
    def read(module: Any) -> list[int]:
        held = getattr(module, name)
        return [held, held] if isinstance(held, int) else list(held)

    return read


def _usual_ceil_mode(module: Any) -> bool:
    for unusual in ("divisor_override", "return_indices"):
        held = getattr(module, unusual, None)
        if held:
            raise ArgumentError(
                f"save: `{unusual}` of {type(module).__name__} must be left out; got {held}. "
                "A file cannot say it."
            )
    return module.ceil_mode


def _pooling(module: type[nn.Module], **more: type) -> Kind:
    lists = ("kernel_size", "stride", *(name for name, kind in more.items() if kind is list))

    def shapes(a: Arguments) -> Shapes:
        for name in lists:
            _check_numbers(module, name, a[name], 2, 0 if name == "padding" else 1)
        return {}

    arguments = {"kernel_size": list, "stride": list, "ceil_mode": bool, **more}
    return Kind(
        module,
        arguments,
        shapes=shapes,
        read={"ceil_mode": _usual_ceil_mode, **{name: _pair(name) for name in lists}},
        make=lambda **a: module(**{n: tuple(v) if n in lists else v for n, v in a.items()}),
    )


def _centering_shapes(a: Arguments) -> Shapes:
    shapes: Shapes = {"running_mean": (a["num_features"],)}
    return shapes | ({"bias": (a["num_features"],)} if a["bias"] else {})


def _padding_shapes(a: Arguments) -> Shapes:
    _check_numbers(nn.ZeroPad2d, "padding", a["padding"], 4, 0)
    return {}


def _normalisation_shapes(a: Arguments) -> Shapes:
    names = ("running_mean", "running_var", *(("weight", "bias") if a["affine"] else ()))
    return {name: (a["num_features"],) for name in names}


def _usual_momentum(module: nn.BatchNorm2d) -> float:
    if module.momentum is None or not module.track_running_stats:
        raise ArgumentError(
            "save: BatchNorm2d must follow running statistics by a momentum; got "
            f"momentum={module.momentum}, track_running_stats={module.track_running_stats}. "
            "A file cannot say it."
        )
    return module.momentum


for _kind in (
    *map(_convolution, _CONVOLUTIONS),
    _pooling(taut_nn.L2Pool2d),
    _pooling(nn.AvgPool2d, padding=list, count_include_pad=bool),
    _pooling(nn.MaxPool2d, padding=list, dilation=list),
    Kind(taut_nn.InvertibleDownsampling2d, {"factor": int}),
    Kind(
        nn.ZeroPad2d,
        {"padding": list},
        shapes=_padding_shapes,
        read={"padding": lambda m: list(m.padding)},
        make=lambda padding: nn.ZeroPad2d(tuple(padding)),
    ),
    Kind(
        nn.BatchNorm2d,
        {"num_features": int, "eps": float, "momentum": float, "affine": bool},
        {"num_features": 1},
        _normalisation_shapes,
        {"momentum": _usual_momentum},
    ),
    Kind(
        taut_nn.Centering,
        {"num_features": int, "momentum": float, "bias": bool},
        {"num_features": 1},
        _centering_shapes,
        {"bias": lambda m: m.bias is not None},
    ),
):
    register(_kind)
