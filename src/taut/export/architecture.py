"""Networks as data: which layers a file may name, with which arguments and tensors of which shapes.

A description is made of dictionaries, lists, strings and numbers alone. Building from one runs no
code but the constructors listed here, and allocates nothing larger than the tensors that came with
it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from taut import nn as taut_nn
from taut.errors import ArgumentError, NonFiniteError
from taut.rules import find_schema
from taut.rules.file_schema import Arguments, shorten

_DEEPEST = 32
_MOST_LAYERS = 1000
_MARK = "same as"


def describe(model: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A description of `model` and its tensors by name, ready for `build`.

    Raises:
        ArgumentError: a module is none of the known kinds; the text names it.
        NonFiniteError: a tensor holds NaN or infinity.
    """
    _refuse_tied(model)
    description = _describe(model, "", {}, 0)
    # A layer in several places is stored once, under its first name.
    stored = (*model.named_parameters(), *model.named_buffers())
    # A learned weight of a residual block is a number of its description.
    learned = {id(m.weight) for m in model.modules() if isinstance(m, taut_nn.Residual)}
    stored = [(name, value) for name, value in stored if id(value) not in learned]
    # Whole numbers are counters, as batch normalisation keeps one, of no weight in evaluation.
    tensors = {
        name: value.detach().cpu().contiguous()
        for name, value in stored
        if value.is_floating_point()
    }
    for name, value in tensors.items():
        if not value.isfinite().all():
            rule = f"every number must be finite; `{name}` holds NaN or infinity"
            remedy = "Restore a checkpoint from before it was lost."
            raise NonFiniteError("save", rule=rule, remedy=remedy)
    return description, tensors


def _describe(
    module: nn.Module, path: str, seen: dict[nn.Module, str], depth: int
) -> dict[str, Any]:
    if module in seen:
        return {"kind": _MARK, "path": seen[module]}
    seen[module] = path
    subject = f"save: `{path or 'model'}` ({type(module).__name__})"
    if module._forward_hooks or module._forward_pre_hooks:
        rule = f"{subject} has forward hooks, which are code and no part of a file"
        raise ArgumentError(rule=rule, remedy="Remove them, or save model.state_dict().")
    if type(module) in (nn.Sequential, taut_nn.Residual):
        if depth == _DEEPEST:
            rule = f"{subject} is nested deeper than {_DEEPEST}"
            raise ArgumentError(rule=rule, remedy="Flatten the model.")
        children = {
            name: _describe(child, _join(path, name), seen, depth + 1)
            for name, child in module._modules.items()
            if child is not None
        }
        if isinstance(module, taut_nn.Residual):
            return {"kind": "Residual", "mode": module.mode, "scale": module.scale, **children}
        return {"kind": "Sequential", "children": [list(item) for item in children.items()]}
    kind = find_schema(type(module).__name__)
    if kind is None or type(module) is not kind.module:
        raise ArgumentError(
            rule=f"{subject} must be a Sequential or a layer that a file can name",
            remedy="Register how a file names it with taut.rules.register(..., file=...), save "
            "model.state_dict() beside your code, write the whole program with "
            "taut.export.export_pt2, or, for parametrised layers, use fold=True.",
        )
    arguments = kind.arguments_of(module)
    try:
        kind.check(arguments)
        shapes = {
            name: tuple(value.shape)
            for name, value in module.state_dict().items()
            if value.is_floating_point()
        }
        if shapes != kind.shapes(arguments):
            raise ArgumentError(rule=f"it holds {shapes} instead of {kind.shapes(arguments)}")
    except ArgumentError as error:
        rule = f"{subject} cannot be described: {str(error).rstrip('.')}"
        raise ArgumentError(rule=rule) from error
    return {"kind": kind.module.__name__, "arguments": arguments}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _refuse_tied(model: nn.Module) -> None:
    """Raises where two layers share one tensor: loading would part them without a word."""
    owners: dict[int, tuple[nn.Module, str]] = {}
    for path, module in model.named_modules():
        for name, value in module.named_parameters(path, recurse=False):
            other = owners.setdefault(id(value), (module, name))
            if other[0] is not module:
                raise ArgumentError(
                    "save",
                    rule=f"`{other[1]}` and `{name}` are one tensor in two layers, which a file "
                    "cannot say",
                    remedy="Use the same layer in both places, or save model.state_dict().",
                )


def build(description: Any, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The network of a description, holding `tensors`, which must be exactly those it needs.

    Raises:
        ArgumentError: the description names anything unknown or does not fit the tensors.
    """
    builder = _Builder(tensors)
    with torch.random.fork_rng(devices=[]):  # layers draw weights when they are made
        model = builder.build(description, "", 0)
    if left := sorted(tensors.keys() - builder.used):
        raise ArgumentError(rule=f"tensor `{left[0]}` belongs to no layer")
    return model


class _Builder:
    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.used: set[str] = set()
        # Each module with the number of steps that running it takes: repeated repetitions could
        # make a short description run for ever.
        self.made: dict[str, tuple[nn.Module, int]] = {}
        self.steps = 0

    def build(self, description: Any, path: str, depth: int) -> nn.Module:
        before = self.steps
        self._advance(1, depth)
        match description:
            case {"kind": "Sequential", "children": list(children), **rest} if not rest:
                module = self._sequential(children, path, depth)
            case {
                "kind": "Residual",
                "mode": str(mode),
                "scale": float(scale),
                "body": body,
                **rest,
            } if rest.keys() <= {"shortcut"}:
                ways = {"body": body, **rest}
                built = [self.build(ways[n], _join(path, n), depth + 1) for n in ways]
                module = taut_nn.Residual(built[0], mode, scale, *built[1:])
            case {"kind": str(mark), "path": str(other), **rest} if mark == _MARK and not rest:
                if other not in self.made:
                    rule = f"repeats `{other[:80]}`, which is not there"
                    raise ArgumentError(argument=path, rule=rule)
                module, steps = self.made[other]
                self._advance(steps, depth)
            case {"kind": str(name), "arguments": dict(arguments), **rest} if not rest:
                module = self._layer(name, arguments, path)
            case _:
                rule = f"is described by {shorten(description)}"
                raise ArgumentError(argument=path or "model", rule=rule)
        self.made[path] = module, self.steps - before
        return module

    def _advance(self, steps: int, depth: int) -> None:
        self.steps += steps
        if depth > _DEEPEST or self.steps > _MOST_LAYERS:
            raise ArgumentError(
                rule=f"the model must have at most {_MOST_LAYERS} layers, nested at most "
                f"{_DEEPEST} deep"
            )

    def _sequential(self, children: list[Any], path: str, depth: int) -> nn.Module:
        model = nn.Sequential()
        for child in children:
            match child:
                case [str(name), described] if (
                    name and "." not in name and not hasattr(model, name)
                ):
                    model.add_module(name, self.build(described, _join(path, name), depth + 1))
                case _:
                    rule = f"has a child {shorten(child)}"
                    raise ArgumentError(argument=path or "model", rule=rule)
        return model

    def _layer(self, name: str, arguments: Arguments, path: str) -> nn.Module:
        kind = find_schema(name)
        if kind is None:
            rule = f"is of the unknown kind {name[:80]!r}"
            raise ArgumentError(argument=path or "model", rule=rule)
        try:
            kind.check(arguments)
        except ArgumentError as error:
            rule = f"({name}): {str(error).rstrip('.')}"
            raise ArgumentError(argument=path or "model", rule=rule) from error
        stored = {}
        for tensor, shape in kind.shapes(arguments).items():
            full = _join(path, tensor)
            value = self.tensors.get(full)
            if value is None or tuple(value.shape) != shape:
                problem = "is missing" if value is None else f"has shape {tuple(value.shape)}"
                rule = f"tensor `{full}` {problem}; the layer needs shape {shape}"
                raise ArgumentError(rule=rule)
            stored[tensor] = value
            self.used.add(full)
        if len({value.dtype for value in stored.values()}) > 1:
            raise ArgumentError(rule=f"the tensors of `{path or 'model'}` differ in dtype")
        # The least layer of its kind is given the sizes and the numbers of the stored one: nothing
        # large is drawn at random only to be replaced.
        try:
            module = kind.build(arguments)
        except AssertionError as error:  # as torch has it for arguments that do not fit together
            raise ArgumentError(argument=path or "model", rule=f"({name}): {error}") from error
        for size in kind.sizes:
            setattr(module, size, arguments[size])
        for tensor, value in stored.items():
            if isinstance(getattr(module, tensor), nn.Parameter):
                value = nn.Parameter(value)
            setattr(module, tensor, value)
        return module
