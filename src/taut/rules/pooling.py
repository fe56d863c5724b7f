"""Pooling and resizing: how many windows read one entry, and with what weight."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut import functional
from taut.errors import ArgumentError, NoRuleError
from taut.linalg import bound_adaptive_pooling, bound_pooling
from taut.rules.constants import Constants
from taut.rules.convolution import check_numbers
from taut.rules.forms import in_each_norm, linear_image, linear_rounding
from taut.rules.record import Call, Rounding, register
from taut.rules.schema import Arguments, FileSchema, Shapes

__all__ = ["pooling_schema"]

aten = torch.ops.aten


def _spatial(call: Call, dims: int) -> tuple[int, ...] | None:
    """The spatial size, behind the channels."""
    shape = call.first.shape
    if shape is not None and len(shape) != dims + 1:
        raise NoRuleError("pooling without a batch or channels would mix samples. Keep both.")
    return None if shape is None else shape[1:]


def _window(call: Call, dims: int) -> dict[str, Any]:
    def each(held: Any) -> Any:
        return held if held is None or isinstance(held, int) or len(held) == dims else held[0]

    names = ("kernel_size", "stride", "padding", "dilation")
    found = {name: each(call[name]) for name in names if call[name] not in (None, [], ())}
    return found | {
        "dims": dims,
        "ceil_mode": bool(call["ceil_mode"]),
        "input_size": _spatial(call, dims),
    }


def _average(dims: int) -> Any:
    def constants(call: Call) -> Constants:
        more = {
            "count_include_pad": call["count_include_pad"] is not False,
            "divisor_override": call["divisor_override"],
        }
        window = _window(call, dims)
        return in_each_norm(call, lambda p: bound_pooling("average", p, **window, **more).value)

    return constants


def _largest(dims: int) -> Any:
    def constants(call: Call) -> Constants:
        window = _window(call, dims)
        return in_each_norm(call, lambda p: bound_pooling("max", p, **window).value)

    return constants


def _cells(dims: int) -> Any:
    """The entries of a window, and what else rounds."""

    def count(call: Call) -> int:
        size = call["kernel_size"]
        sizes = list(size) if isinstance(size, (list, tuple)) else [size]
        return math.prod(sizes * dims if len(sizes) == 1 else sizes) + 3

    return count


for _dims, _mean, _max in (
    (1, aten.avg_pool1d.default, aten.max_pool1d.default),
    (2, aten.avg_pool2d.default, aten.max_pool2d.default),
    (3, aten.avg_pool3d.default, aten.max_pool3d.default),
):
    register(
        _mean,
        proof="overlap of windows",
        constants=_average(_dims),
        rounding=linear_rounding(_cells(_dims), _average(_dims), None),
        image=linear_image(None),
    )
    register(
        _max, proof="overlap of windows", constants=_largest(_dims), exact=True, image="monotone"
    )


def _adaptive(kind: str, dims: int) -> Any:
    def constants(call: Call) -> Constants:
        size = _spatial(call, dims)
        if size is None:
            raise NoRuleError("adaptive pooling needs a known size. Give `input_shape`.")
        wanted = call["output_size"]
        wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
        wanted = wanted * dims if len(wanted) == 1 else wanted
        output = tuple(n if m is None else m for m, n in zip(wanted, size, strict=True))
        return in_each_norm(call, lambda p: bound_adaptive_pooling(kind, p, output, size).value)

    return constants


for _dims, _mean, _max in (
    (1, aten.adaptive_avg_pool1d.default, aten.adaptive_max_pool1d.default),
    (2, aten.adaptive_avg_pool2d.default, aten.adaptive_max_pool2d.default),
    (3, aten.adaptive_avg_pool3d.default, aten.adaptive_max_pool3d.default),
):
    _rule = _adaptive("average", _dims)
    register(
        _mean,
        proof="overlap of windows",
        constants=_rule,
        rounding=linear_rounding(lambda call: math.prod(call.first.shape or ()) + 3, _rule, None),
        image=linear_image(None),
    )
    register(
        _max,
        proof="overlap of windows",
        constants=_adaptive("max", _dims),
        exact=True,
        image="monotone",
    )


def adaptive_average(input: Tensor, output_size: list[int | None]) -> Tensor:
    """Adaptive average pooling; None keeps a size."""
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
    return pool[len(output_size) - 1](input, output_size)  # type: ignore[arg-type]


def adaptive_maximum(input: Tensor, output_size: list[int | None]) -> Tensor:
    """Adaptive max pooling; None keeps a size."""
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
    return pool[len(output_size) - 1](input, output_size)  # type: ignore[arg-type]


def _adaptive_average(call: Call) -> Constants:
    return _adaptive("average", len(call["output_size"]))(call)


register(
    adaptive_average,
    proof="overlap of windows",
    constants=_adaptive_average,
    rounding=linear_rounding(
        lambda call: math.prod(call.first.shape or ()) + 3, _adaptive_average, None
    ),
    image=linear_image(None),
)
register(
    adaptive_maximum,
    proof="overlap of windows",
    constants=lambda call: _adaptive("max", len(call["output_size"]))(call),
    exact=True,
    image="monotone",
)


def _length(call: Call) -> Constants:
    window = _window(call, 2)
    return in_each_norm(call, lambda p: bound_pooling("lp", p, **window).value)


register(
    functional.l2_pool2d,
    proof="overlap of windows",
    constants=_length,
    rounding=Rounding(_cells(2), lambda call, x: call.run(x), _length, squares=True),
)


def _plain_max(function: Any) -> Any:
    def call(module: Any) -> Any:
        if module.return_indices:
            raise NoRuleError("max pooling that returns indices is not followed.")
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return function, {name: _as_list(getattr(module, name)) for name in names}

    return call


def _as_list(held: Any) -> Any:
    return held if isinstance(held, bool) else list(held) if isinstance(held, tuple) else [held]


def _plain_average(function: Any, dims: int) -> Any:
    def call(module: Any) -> Any:
        names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
        found = {name: _as_list(getattr(module, name)) for name in names}
        if dims > 1:
            found["divisor_override"] = module.divisor_override
        return function, found

    return call


def _plain_adaptive(function: Any, dims: int) -> Any:
    def call(module: Any) -> Any:
        if getattr(module, "return_indices", False):
            raise NoRuleError("max pooling that returns indices is not followed.")
        size = module.output_size
        size = size if isinstance(size, tuple) else (size,) * dims
        return function, {"output_size": list(size)}

    return call


for _dims in (1, 2, 3):
    register(
        getattr(nn, f"MaxPool{_dims}d"), call=_plain_max(getattr(aten, f"max_pool{_dims}d").default)
    )
    register(
        getattr(nn, f"AvgPool{_dims}d"),
        call=_plain_average(getattr(aten, f"avg_pool{_dims}d").default, _dims),
    )
    for _name in ("avg", "max"):
        register(
            getattr(nn, f"Adaptive{_name.title()}Pool{_dims}d"),
            call=_plain_adaptive(adaptive_average if _name == "avg" else adaptive_maximum, _dims),
        )


def pooling_schema(module: type[nn.Module], **more: type) -> FileSchema:
    """How a file names pooling over windows of two dimensions."""
    lists = ("kernel_size", "stride", *(name for name, kind in more.items() if kind is list))

    def shapes(a: Arguments) -> Shapes:
        for name in lists:
            check_numbers(module, name, a[name], 2, 0 if name == "padding" else 1)
        return {}

    def pair(name: str) -> Any:
        def read(m: Any) -> list[int]:
            held = getattr(m, name)
            return [held, held] if isinstance(held, int) else list(held)

        return read

    return FileSchema(
        module,
        {"kernel_size": list, "stride": list, "ceil_mode": bool, **more},
        shapes=shapes,
        read={"ceil_mode": _usual_ceil_mode, **{name: pair(name) for name in lists}},
        make=lambda **a: module(**{n: tuple(v) if n in lists else v for n, v in a.items()}),
    )


def _usual_ceil_mode(module: Any) -> bool:
    for unusual in ("divisor_override", "return_indices"):
        held = getattr(module, unusual, None)
        if held:
            raise ArgumentError(
                f"save: `{unusual}` of {type(module).__name__} must be left out; got {held}. "
                "A file cannot say it."
            )
    return module.ceil_mode


register(nn.AvgPool2d, file=pooling_schema(nn.AvgPool2d, padding=list, count_include_pad=bool))
register(nn.MaxPool2d, file=pooling_schema(nn.MaxPool2d, padding=list, dilation=list))


def _adaptive_schema(kind: type[nn.Module]) -> FileSchema:
    def read(module: Any) -> list[int]:
        size = module.output_size
        return list(size) if isinstance(size, tuple) else [size] * 2

    def shapes(a: Arguments) -> Shapes:
        check_numbers(kind, "output_size", a["output_size"], 2, 1)
        return {}

    return FileSchema(
        kind,
        {"output_size": list},
        shapes=shapes,
        read={"output_size": read},
        make=lambda output_size: kind(tuple(output_size)),
    )


for _kind in (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d):
    register(_kind, file=_adaptive_schema(_kind))
