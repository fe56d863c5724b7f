"""One pass over a traced graph: the constants of every step, and its shape where known."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from taut.audit.constants import Constants, Value
from taut.audit.functions import FUNCTIONS, METHODS, Step
from taut.audit.rules import find_rule
from taut.audit.trace import SUBJECT, tensor_like
from taut.bounds import LayerBound, LayerTable
from taut.errors import ArgumentError, NoRuleError
from taut.nn import ConstrainedLayer, ConstrainedLinear
from taut.norms import Norm

__all__ = ["Audit", "Visit", "Walk"]


@dataclass(frozen=True)
class Visit:
    """One step of the graph that the walk went through."""

    name: str
    kind: str
    method: str
    module: nn.Module | None
    incoming: tuple[Value, ...]
    outgoing: Value


@dataclass(frozen=True)
class Audit:
    """A traced network with constants at every step, from the input to the output."""

    norm: Norm
    input: Value
    output: Value
    visits: tuple[Visit, ...]

    def signature(self) -> tuple[Any, ...]:
        """What must not depend on the batch."""
        return self.output, tuple((visit.name, visit.outgoing) for visit in self.visits)

    def table(self, norm: Norm) -> LayerTable:
        """What each step multiplies the constant by, in `norm`."""
        rows = []
        for visit in self.visits:
            before = sum(value.constants[norm] for value in visit.incoming)
            after = visit.outgoing.constants[norm]
            gain = after / before if 0 < before < float("inf") else after
            rows.append(LayerBound(visit.name, visit.kind, gain, visit.method, norm, norm))
        return LayerTable(rows)


# Modules whose result is a tensor of its own, which an in-place module behind them may change.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_MAKERS = (ConstrainedLayer, nn.Linear, *_CONVOLUTIONS, *_BATCH_NORMS)


class Walk:
    """One pass over the graph, with real tensors alongside where the input shape is known."""

    def __init__(
        self,
        model: nn.Module,
        graph: fx.Graph,
        norm: Norm,
        shape: tuple[int, ...] | None,
        batch: int,
        known: dict[Any, Any],
    ) -> None:
        self.model = model
        self.graph = graph
        self.norm = norm
        self.shape = shape
        self.batch = batch
        self.known = known
        self.values: dict[fx.Node, Any] = {}
        self.examples: dict[fx.Node, Any] = {}
        self.visits: list[Visit] = []

    @torch.no_grad()
    def run(self) -> Audit:
        """Goes through the graph from the input to the output."""
        source: Value | None = None
        for node in self.graph.nodes:
            if node.op == "placeholder":
                if source is None:
                    source = self._start(node)
                elif node.args:
                    self.values[node] = self.examples[node] = node.args[0]
                else:
                    raise NoRuleError(
                        f"{SUBJECT}: the forward must take one tensor; `{node.target}` is another "
                        "input. Wrap the model so that only one varies."
                    )
            elif node.op == "get_attr":
                held: Any = self.model
                for part in str(node.target).split("."):
                    held = getattr(held, part)
                self.values[node] = self.examples[node] = held
            elif node.op == "output":
                result = self._read(self.values, node.args[0])
                if isinstance(result, Value) and source is not None:
                    return Audit(self.norm, source, result, tuple(self.visits))
                raise NoRuleError(
                    f"{SUBJECT}: the forward must return one tensor that follows its input; "
                    f"got {type(result).__name__}."
                )
            else:
                self._step(node)
        raise NoRuleError(f"{SUBJECT}: the forward returns nothing.")

    def _start(self, node: fx.Node) -> Value:
        size = None if self.shape is None else torch.Size(self.shape).numel()
        value = Value(Constants.of_input(self.norm, size), self.shape)
        self.values[node] = value
        if self.shape is not None:
            self.examples[node] = tensor_like(self.model).new_zeros(self.batch, *self.shape)
        return value

    def _step(self, node: fx.Node) -> None:
        args = self._read(self.values, node.args)
        kwargs = self._read(self.values, node.kwargs)
        incoming = tuple(_values_in((args, kwargs)))
        if not incoming:
            self.values[node] = self.examples[node] = self._execute(node, args, kwargs)
            return
        example = self._example(node)
        if node.target in (getattr, operator.getitem) or node.target in ("size", "dim"):
            self.values[node] = self._look(node, args, example)
            return
        self._refuse_in_place(node)
        shape = self._sample_shape(node, example)
        constants, method, module = self._bound(node, args, kwargs, shape)
        if isinstance(example, (tuple, list)):
            self.values[node] = tuple(
                Value(constants.within(_size(part)), self._sample_shape(node, part))
                for part in example
            )
            outgoing = Value(constants)
        else:
            size = None if shape is None else torch.Size(shape).numel()
            outgoing = Value(constants.within(size), shape)
            self.values[node] = outgoing
        kind = type(module).__name__ if module is not None else _name(node.target)
        name = str(node.target) if module is not None else node.name
        self.visits.append(Visit(name, kind, method, module, incoming, outgoing))

    def _bound(
        self, node: fx.Node, args: Any, kwargs: Any, shape: tuple[int, ...] | None
    ) -> tuple[Constants, str, nn.Module | None]:
        try:
            if node.op == "call_module":
                module = self.model.get_submodule(str(node.target))
                known = find_rule(module)
                if known is None or len(args) != 1 or kwargs:
                    raise NoRuleError(f"{type(module).__name__} has no rule.")
                # Both walks ask the same, and proofs take time.
                question = (node, args[0])
                if question not in self.known:
                    self.known[question] = known.bound(module, args[0])
                return self.known[question], known.method, module
            table: dict[Any, Any] = METHODS if node.op == "call_method" else FUNCTIONS
            if node.target not in table:
                raise NoRuleError(f"`{_name(node.target)}` has no rule.")
            if kwargs.get("out") is not None:
                raise NoRuleError("`out=` writes where it is not followed.")
            return table[node.target](Step(args, kwargs, shape)), "function rule", None
        except NoRuleError as error:
            raise NoRuleError(
                f"{SUBJECT}: no constant is proven at {_place(node)}: {error} What has no rule is "
                "never assumed to be 1; change the layer, or register one with taut.audit.rule."
            ) from error

    def _look(self, node: fx.Node, args: Any, example: Any) -> Any:
        """Attributes, sizes and parts: what they give, a number or a piece of a tensor."""
        if node.target is operator.getitem:
            held, index = args
            if isinstance(held, tuple):
                return held[index]
            parts = index if isinstance(index, tuple) else (index,)
            basic = all(isinstance(i, (int, slice, type(None), type(Ellipsis))) for i in parts)
            if not basic or parts[0] not in (slice(None), Ellipsis):
                raise NoRuleError(
                    f"{SUBJECT}: at {_place(node)} only slices that keep the batch are followed: "
                    "use x[:, ...]."
                )
            return Value(held.constants, self._sample_shape(node, example))
        if isinstance(example, Tensor) or example is None:
            raise NoRuleError(
                f"{SUBJECT}: `{node.args[1] if len(node.args) > 1 else node.target}` at "
                f"{_place(node)} is not followed. Give `input_shape` if it is a size."
            )
        return example

    def _refuse_in_place(self, node: fx.Node) -> None:
        name = _name(node.target)
        module = self.model.get_submodule(str(node.target)) if node.op == "call_module" else None
        works_in_place = (
            getattr(module, "inplace", False)
            or (node.op != "call_module" and name.endswith("_") and not name.endswith("__"))
            or name in ("iadd", "isub", "imul", "itruediv", "imatmul")
        )
        if not works_in_place:
            return
        changed = node.args[0]
        maker = (
            self.model.get_submodule(str(changed.target))
            if isinstance(changed, fx.Node) and changed.op == "call_module"
            else None
        )
        fresh = isinstance(maker, _MAKERS) and len(changed.users) == 1  # type: ignore[union-attr]
        if module is None or not fresh:
            raise NoRuleError(
                f"{SUBJECT}: `{name}` at {_place(node)} works in place, which may change a tensor "
                "that is used elsewhere. Use the version that returns a new one."
            )

    def _example(self, node: fx.Node) -> Any:
        """What the step gives on zeros, for its shape; None where the input shape is not known."""
        if self.shape is None:
            return None
        args = self._read(self.examples, node.args)
        kwargs = self._read(self.examples, node.kwargs)
        if node.op == "call_module":
            module = self.model.get_submodule(str(node.target))
            if isinstance(module, ConstrainedLinear):  # its weight is looked at by the rule alone
                if args[0].shape[-1] != module.in_features:
                    raise ArgumentError(
                        f"{SUBJECT}: `input_shape` must be one that the model takes; got "
                        f"input_shape={self.shape}, and {_place(node)} wants "
                        f"{module.in_features} features instead of {args[0].shape[-1]}."
                    )
                return self._keep(node, args[0].new_zeros(*args[0].shape[:-1], module.out_features))
            if getattr(module, "inplace", False):
                args = (args[0].clone(), *args[1:])
        return self._keep(node, self._execute(node, args, kwargs))

    def _keep(self, node: fx.Node, example: Any) -> Any:
        self.examples[node] = example
        return example

    def _execute(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        try:
            if node.op == "call_module":
                return self.model.get_submodule(str(node.target))(*args, **kwargs)
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            return node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception as error:
            raise ArgumentError(
                f"{SUBJECT}: `input_shape` must be one that the model takes; got "
                f"input_shape={self.shape}, and {_place(node)} failed: {error}"
            ) from error

    def _sample_shape(self, node: fx.Node, example: Any) -> tuple[int, ...] | None:
        if not isinstance(example, Tensor):
            return None
        if not example.is_floating_point():
            raise NoRuleError(
                f"{SUBJECT}: {_place(node)} gives {example.dtype}; only real floating-point "
                "tensors are followed, and rounding to whole numbers jumps."
            )
        if example.dim() == 0 or example.shape[0] != self.batch:
            raise NoRuleError(
                f"{SUBJECT}: {_place(node)} mixes the samples of a batch: its result for "
                f"{self.batch} inputs has shape {tuple(example.shape)}. Samples must pass through "
                "a network on their own."
            )
        return tuple(example.shape[1:])

    def _read(self, table: dict[fx.Node, Any], held: Any) -> Any:
        return map_arg(held, lambda node: table[node])


def _values_in(held: Any) -> list[Value]:
    if isinstance(held, Value):
        return [held]
    if isinstance(held, dict):
        held = list(held.values())
    return [v for part in held for v in _values_in(part)] if isinstance(held, (tuple, list)) else []


def _size(example: Tensor) -> int:
    return example[0].numel()


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _place(node: fx.Node) -> str:
    """Where in the model a step stands, for people."""
    if node.op == "call_module":
        return f"`{node.target}`"
    stack = node.meta.get("nn_module_stack") or {}
    for path, kind in reversed(list(stack.values())):
        inside = kind.__name__ if isinstance(kind, type) else str(kind)
        return f"`{_name(node.target)}` in `{path or inside}` ({inside})"
    return f"`{_name(node.target)}` (step `{node.name}`)"
