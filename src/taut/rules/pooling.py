"""Pooling: how many windows read one entry, and with what weight."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut import functional
from taut.errors import ArgumentError, NoRuleError
from taut.linalg import bound_adaptive_pooling, bound_pooling
from taut.rules.file_schema import FileSchema, Sizes
from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Call, Rounding, register
from taut.rules.shared_rules import (
    along_dim,
    call_with_attributes,
    each_dimension,
    in_each_norm,
    input_shape,
    register_linear,
    register_selection,
)

aten = torch.ops.aten
_PROOF = "overlap of windows"


def _dims(call: Call) -> int:
    """The number of spatial dimensions, behind batch and channels."""
    output = call["output_size"]
    name = getattr(call.target, "_opname", call.target.__name__)
    dims = int(name[-2]) if name.endswith("d") else len(output)
    if call.first.shape is not None and len(call.first.shape) != dims + 1:
        rule = "pooling without a batch or channels would mix samples"
        raise NoRuleError(rule=rule, remedy="Keep both.")
    return dims


def _windows(kind: str) -> Callable[[Call], Constants]:
    def constants(call: Call) -> Constants:
        dims = _dims(call)
        names = ("kernel_size", "stride", "padding", "dilation")
        window: dict[str, Any] = {
            name: each_dimension(call[name], dims)
            for name in names
            if call[name] not in (None, [], ())
        }
        if kind == "average":
            window["count_include_pad"] = call["count_include_pad"] is not False
            window["divisor_override"] = call["divisor_override"]
        window |= {"dims": dims, "ceil_mode": bool(call["ceil_mode"])}
        size = None if call.first.shape is None else call.first.shape[1:]
        return in_each_norm(call, lambda p: bound_pooling(kind, p, input_size=size, **window).value)

    return constants


def _cells(call: Call) -> int:
    """The entries of a window, and what else rounds."""
    return math.prod(each_dimension(call["kernel_size"], _dims(call))) + 3


def _adaptive(kind: str) -> Callable[[Call], Constants]:
    def constants(call: Call) -> Constants:
        dims, size = _dims(call), input_shape(call)[1:]
        wanted = zip(each_dimension(call["output_size"], dims), size, strict=True)
        output = tuple(n if m is None else m for m, n in wanted)
        return in_each_norm(call, lambda p: bound_adaptive_pooling(kind, p, output, size).value)

    return constants


def adaptive_average(input: Tensor, output_size: list[int | None]) -> Tensor:
    """Adaptive average pooling; None keeps a size."""
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
    return pool[len(output_size) - 1](input, output_size)  # type: ignore[arg-type]


def adaptive_maximum(input: Tensor, output_size: list[int | None]) -> Tensor:
    """Adaptive max pooling; None keeps a size."""
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
    return pool[len(output_size) - 1](input, output_size)  # type: ignore[arg-type]


register_linear(
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    proof=_PROOF,
    constants=_windows("average"),
    terms=_cells,
)
register_selection(
    aten.max_pool1d.default,
    aten.max_pool2d.default,
    aten.max_pool3d.default,
    proof=_PROOF,
    constants=_windows("max"),
)
register_linear(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    adaptive_average,
    proof=_PROOF,
    constants=_adaptive("average"),
    terms=lambda call: math.prod(call.first.shape or ()) + 3,
)
register_selection(
    aten.adaptive_max_pool1d.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
    adaptive_maximum,
    proof=_PROOF,
    constants=_adaptive("max"),
)
register(
    functional.l2_pool2d,
    proof=_PROOF,
    constants=_windows("lp"),
    rounding=Rounding(_cells, lambda call, x: call.run(x), _windows("lp"), squares=True),
)
register(
    functional.adaptive_l2_pool2d,
    proof=_PROOF,
    constants=_adaptive("lp"),
    rounding=Rounding(
        # Each window sums products with 0 and 1 along both sides.
        lambda call: sum((call.first.shape or (1,))[-2:]) + 8,
        lambda call, x: call.run(x),
        _adaptive("lp"),
        squares=True,
    ),
)


def _pairs(call: Call) -> Constants:
    along_dim(call)
    steep = math.nextafter(math.sqrt(2), math.inf)
    return call.first.constants.in_each_norm(1.0, 1.0, steep)


register(
    functional.pair_lengths,
    proof="lengths of pairs",
    constants=_pairs,
    rounding=Rounding(lambda call: 8, lambda call, x: call.run(x), _pairs, squares=True),
)


def _call_of(module: nn.Module) -> tuple[Any, dict[str, Any]]:
    if getattr(module, "return_indices", False):
        raise NoRuleError(rule="max pooling that returns indices is not supported")
    name = type(module).__name__  # such as AvgPool2d
    dims = int(name[-2])
    if name.startswith("Adaptive"):
        function = adaptive_average if "Avg" in name else adaptive_maximum
        return function, {"output_size": list(each_dimension(module.output_size, dims))}
    pools = aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d
    if "Max" in name:
        pools = aten.max_pool1d, aten.max_pool2d, aten.max_pool3d
    return call_with_attributes(pools[dims - 1].default)(module)


def pooling_schema(module: type[nn.Module], **more: Any) -> FileSchema:
    """How a file names pooling over windows of two dimensions."""
    arguments = {"kernel_size": Sizes(2), "stride": Sizes(2), "ceil_mode": bool, **more}
    return FileSchema(module, arguments, read={"ceil_mode": _usual_ceil_mode})


def _usual_ceil_mode(module: Any) -> bool:
    for unusual in ("divisor_override", "return_indices"):
        given = getattr(module, unusual, None)
        if given:
            rule, got = f"`{unusual}` of {type(module).__name__} must be left out", str(given)
            raise ArgumentError("save", rule=rule, got=got, remedy="Files have no field for it.")
    return module.ceil_mode


register(
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    call=_call_of,
)  # fmt: skip
for _schema in (
    pooling_schema(nn.AvgPool2d, padding=Sizes(2, 0), count_include_pad=bool),
    pooling_schema(nn.MaxPool2d, padding=Sizes(2, 0), dilation=Sizes(2)),
    FileSchema(nn.AdaptiveAvgPool2d, {"output_size": Sizes(2)}),
    FileSchema(nn.AdaptiveMaxPool2d, {"output_size": Sizes(2)}),
):
    register(_schema.module, file=_schema)
