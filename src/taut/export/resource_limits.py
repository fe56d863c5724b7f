"""How much a file may ask of the machine that loads it: time and memory follow from its size.

A description is short, and what it asks for can be large: sizes of inputs, windows and paddings are
numbers that cost no bytes. So each has a limit, and all tensors that one input passes through may
have 2,097,152 entries together, and 256 more for each byte of the weights. They are counted on
tensors without storage before anything is computed.
"""

import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, TautError
from taut.nn import ConstrainedConv, ConstrainedLayer

_ENTRIES, _ENTRIES_PER_BYTE = 2**21, 256
_MOST_TAPS = 1024  # proofs look at all pairs of taps
_MOST_PARTIAL = 64  # proofs for windows that stick out look at all sizes up to some windows
_LARGEST = {
    "order": 64,
    "num_steps": 1000,
    "padding": 1024,
    "output_padding": 1024,
    "stride": 1024,
    "dilation": 2**16,
    "group_size": 2**20,
    "factor": 1024,
}


def check_arguments(subject: str, description: Any) -> None:
    """Raises where an argument of a layer asks for more than its weights can tell.

    Arguments of a wrong type are left to `taut.export.architecture.build`.
    """
    for kind, arguments in _layers(description):
        for name, largest in _LARGEST.items():
            if any(number > largest for number in _whole_numbers(arguments.get(name))):
                rule = f"`{name}` of {kind} must be at most {largest} in a file"
                raise ArgumentError(subject, rule=rule, got=str(arguments[name])[:80])
        taps = math.prod(_whole_numbers(arguments.get("kernel_size")))
        partial = arguments.get("ceil_mode") or arguments.get("count_include_pad") is False
        most = _MOST_PARTIAL**2 if partial else _MOST_TAPS**2 if "Pool" in kind else _MOST_TAPS
        side = math.isqrt(most) if "Pool" in kind else most
        if taps > most or any(k > side for k in _whole_numbers(arguments.get("kernel_size"))):
            rule = f"`kernel_size` of {kind} must have at most {most} cells in a file"
            raise ArgumentError(subject, rule=rule, got=str(arguments["kernel_size"])[:80])
        _check_phases(subject, kind, arguments)


def _check_phases(subject: str, kind: str, arguments: dict[str, Any]) -> None:
    """A stride and a dilation without common divisors spread a kernel over many phases."""
    names = ("kernel_size", "stride", "dilation")
    lists = [list(_whole_numbers(arguments.get(name))) for name in names]
    spread = 1
    for k, s, d in zip(*lists, strict=False):
        reads = [divmod(d * j, max(s, 1)) for j in range(k)]
        spread *= len({offset for offset, _ in reads}) * len({phase for _, phase in reads})
    if spread > 16 * _MOST_TAPS:
        rule = (
            f"stride and dilation of {kind} must not spread the kernel over more than "
            f"{16 * _MOST_TAPS} cells in a file"
        )
        raise ArgumentError(subject, rule=rule, got=str(spread))


def _layers(description: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    waiting = [description]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("arguments"), dict):
                yield str(part.get("kind"))[:80], part["arguments"]
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _whole_numbers(value: Any) -> Iterator[int]:
    """The numbers of an argument, however it is written: one, a list, or a text with spaces."""
    if isinstance(value, str):
        value = [int(part) for part in value.split(" ") if part.isdecimal() and len(part) < 20]
    for each in value if isinstance(value, list) else [value]:
        if type(each) is int:
            yield each


def check_intermediates(subject: str, model: nn.Module, shape: tuple[int, ...] | None) -> None:
    """Raises where one input of `shape` would pass through more entries than the weights allow."""
    if shape is None:
        return
    stored = {id(value): value for value in (*model.parameters(), *model.buffers())}
    allowed = _ENTRIES + _ENTRIES_PER_BYTE * sum(value.nbytes for value in stored.values())
    seen = 0

    def count(*tensors: Any) -> None:
        nonlocal seen
        seen += sum(value.numel() for value in tensors if isinstance(value, Tensor))
        if seen > allowed:
            rule = (
                f"must lead to at most {allowed} entries in all intermediate tensors of one "
                "input together"
            )
            raise ArgumentError(subject, "input_shape", rule, f"input_shape={shape}")

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(padding := getattr(module, "padding", None), tuple) and args[0].dim() > 2:
            outer = [n + 2 * max(padding) for n in args[0].shape[2:]]
            count(torch.empty(*args[0].shape[:2], *outer, device="meta"))

    twin = _without_storage(model, stored)
    for module in twin.modules():
        if isinstance(module, nn.Sequential):
            continue  # it returns the tensor of its last layer
        module.register_forward_pre_hook(before)
        module.register_forward_hook(lambda module, args, result: count(result))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing is computed here that one could warn of
            probe = next(twin.parameters(), torch.empty(0))
            source = torch.empty(1, *shape, device="meta", dtype=probe.dtype)
            count(source)
            twin(source)
    except (TautError, NotImplementedError) as error:
        if isinstance(error, TautError):
            raise
    except Exception as error:
        rule = "must be one that the model takes"
        got = f"input_shape={shape}: {str(error).rstrip('.')}"
        raise ArgumentError(subject, "input_shape", rule, got) from error


def _without_storage(model: nn.Module, tensors: dict[int, Tensor]) -> nn.Module:
    """A copy whose tensors have shapes and no numbers, with plain layers for constrained ones."""
    memo: dict[int, Any] = {}
    for key, value in tensors.items():
        empty = torch.empty_like(value, device="meta")
        memo[key] = nn.Parameter(empty, False) if isinstance(value, nn.Parameter) else empty
    twin = nn.Sequential(copy.deepcopy(model, memo)).eval()
    for parent in list(twin.modules()):
        for name, layer in parent._modules.items():
            if isinstance(layer, ConstrainedLayer):
                conv = isinstance(layer, ConstrainedConv)
                shape = layer.kernel_shape if conv else layer.weight.shape
                parent._modules[name] = layer.as_plain(layer.weight.new_empty(shape))
    return twin.eval()
