"""What is proven of the rounding of functions and methods in a forward."""

import math
import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from taut import functional as taut_functional
from taut.audit import Constants, Value
from taut.audit.functions import FUNCTIONS, METHODS, Step
from taut.certificates.run import Run, Study
from taut.certificates.spread import norms_up, up
from taut.certificates.steps import chosen, diagonal, refuse_extreme, scaled
from taut.errors import NoRuleError

__all__ = ["step_function"]

_CHOOSING_FUNCTIONS = {
    operator.neg,
    torch.neg,
    torch.abs,
    torch.relu,
    F.relu,
    F.relu6,
    torch.flatten,
    torch.reshape,
    torch.permute,
    torch.transpose,
    torch.squeeze,
    torch.unsqueeze,
    torch.amax,
    torch.amin,
    taut_functional.max_min,
    taut_functional.group_sort,
    taut_functional.full_sort,
    taut_functional.maxout,
    *("neg", "abs", "relu", "flatten", "unflatten", "view", "reshape", "permute", "transpose"),
    *("contiguous", "clone", "squeeze", "unsqueeze", "amax", "amin"),
}
_SUMS = {operator.add, torch.add, "add", operator.sub, torch.sub, "sub"}
_PRODUCTS = {operator.mul, torch.mul, "mul"}
_QUOTIENTS = {operator.truediv, torch.div, "div"}


def step_function(study: Study, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The result of a function or method: another `Run`, or what does not follow the input."""
    target = node.target
    runs = list(_runs_in((args, kwargs)))
    value = _execute(target, *_plain((args, kwargs)))
    if not runs or target in (getattr, "size", "dim"):
        return value
    if target is operator.getitem:
        return Run(value, runs[0].spread)
    if target in _SUMS and not kwargs:
        return _sum(study, value, *args)
    if (target in _PRODUCTS or target in _QUOTIENTS) and not kwargs and len(runs) == 1:
        return _multiple(study, value, args, divides=target in _QUOTIENTS)
    if target in _CHOOSING_FUNCTIONS and len(runs) == 1 and args and args[0] is runs[0]:
        known: dict[Any, Any] = METHODS if isinstance(target, str) else FUNCTIONS
        shape = tuple(value.shape[1:])

        def bound(unit: Constants) -> Constants:
            return known[target](Step((Value(unit, runs[0].shape), *args[1:]), kwargs, shape))

        return chosen(study, value, runs[0], node, bound)
    raise NoRuleError(
        "the rounding of this step is not known. Sums, products with constants, sorting, "
        "absolute values, rectifiers and new shapes have rules."
    )


def _sum(study: Study, value: Tensor, a: Any, b: Any) -> Run:
    runs = [part for part in (a, b) if isinstance(part, Run)]
    if any(run.value.shape != value.shape for run in runs):
        raise NoRuleError("a sum that repeats a tensor is not followed. Give it one shape.")
    spread = runs[0].spread if len(runs) == 1 else runs[0].spread + runs[1].spread
    magnitude = sum((norms_up(run.value) for run in runs), value.new_zeros(3, len(value)))
    if len(runs) == 1:
        other = b if runs[0] is a else a
        if not isinstance(other, Tensor):
            refuse_extreme(study, other)
        constant = torch.as_tensor(other, dtype=value.dtype, device=value.device)
        magnitude = magnitude + norms_up(constant.expand_as(value))
    return Run(
        value,
        spread + study.rounding(value, spread, up(magnitude), diagonal(1.0, value), 3),
    )


def _multiple(study: Study, value: Tensor, args: Any, divides: bool) -> Run:
    run, other = (args[0], args[1]) if isinstance(args[0], Run) else (args[1], args[0])
    if run.value.shape != value.shape:
        raise NoRuleError("a product that repeats a tensor is not followed. Give it one shape.")
    if not isinstance(other, Tensor):
        refuse_extreme(study, other)
    magnitudes = torch.as_tensor(other, dtype=torch.float64).abs()
    scale = float((1 / magnitudes if divides else magnitudes).max())
    made = scaled(study, value, run, math.nextafter(scale, math.inf))
    return made if magnitudes.numel() == 1 else replace(made, head=None)


def _runs_in(held: Any) -> Iterator[Run]:
    if isinstance(held, Run):
        yield held
    elif isinstance(held, dict):
        yield from _runs_in(list(held.values()))
    elif isinstance(held, (tuple, list)):
        for part in held:
            yield from _runs_in(part)


def _plain(held: Any) -> Any:
    if isinstance(held, Run):
        return held.value
    if isinstance(held, dict):
        return {name: _plain(part) for name, part in held.items()}
    if isinstance(held, (tuple, list)):
        return type(held)(_plain(part) for part in held)
    return held


def _execute(target: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)
