"""From a module to a proven constant: trace its forward, then carry constants along the graph."""

import copy
import inspect
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from taut import functional
from taut.audit.constants import Constants, Value
from taut.audit.functions import FUNCTIONS, METHODS, Step
from taut.audit.rules import find_rule
from taut.bounds import Bound, LayerBound, LayerTable
from taut.errors import ArgumentError, NonFiniteError, NoRuleError, TautError
from taut.nn import ConstrainedLinear
from taut.norms import Norm, NormLike, as_norm

__all__ = ["Audit", "Tracer", "audit", "bound_lipschitz", "trace"]

_SUBJECT = "bound_lipschitz"
# What depends on the number of samples shows when it is counted twice.
_BATCHES = (11, 13)


def bound_lipschitz(
    model: nn.Module,
    norm: NormLike = "l2",
    input_shape: Sequence[int] | None = None,
    output_norm: NormLike | None = None,
) -> Bound:
    r"""A proven Lipschitz constant of any network, layer by layer, or a refusal that names the layer.

    $$\|f(x) - f(x')\|_q \le K \|x - x'\|_p \quad\text{for all } x, x'$$

    for the network as evaluation runs it on its stored weights, in real arithmetic (see
    `taut.certify` for what floating-point execution adds). The forward is traced, so residual
    additions, concatenations, splits, reshapes and scalar factors in a user's own forward are
    followed; constants are kept in all three norms and composed only where they match. What has no
    rule is refused: `taut.audit.rule` adds one.

    Args:
        model: maps a batch of inputs to a batch of outputs, one tensor each.
        norm: the norm `p` of the input: "l1", "l2" or "linf".
        input_shape: the shape of one input, without the batch. When the first layer is dense, one
            vector of its size is assumed; otherwise needed where shapes decide (convolutions over
            known sizes are tighter, sums of tensors must not broadcast unseen) and for forwards
            of your own, which are run to see that the traced graph does the same.
        output_norm: the norm `q` of the output, by default `p`. For one output all are the same.

    Returns:
        The bound; `print(bound.layers)` shows where it comes from.

    Raises:
        NoRuleError: something in the network has no proven constant; the text says what and where.

    Example:
        >>> import taut
        >>> bound_lipschitz(taut.nn.mlp([2, 8, 1], lipschitz=3.0))
        Bound(<= 3.0, l2, proven)
    """
    p = as_norm(norm, _SUBJECT)
    q = p if output_norm is None else as_norm(output_norm, _SUBJECT)
    found = audit(model, p, input_shape)
    value = found.output.constants[q]
    if value == float("inf"):
        raise NoRuleError(
            f"{_SUBJECT}: no constant from {p} to {q} is known, though every layer has a rule. "
            "Give `input_shape`, or ask for another pair of norms."
        )
    method = "composition of proven layers"
    return Bound(value, p, method=method, layers=found.table(p), output_norm=q)


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


def audit(model: nn.Module, norm: Norm, input_shape: Sequence[int] | None = None) -> Audit:
    """Traces an evaluation copy of `model` and carries the constants of its input through it."""
    _check_modules(model)
    model, graph = trace(copy.deepcopy(model).eval())
    shape = _first_shape(graph, model) if input_shape is None else tuple(input_shape)
    if shape is None:
        _refuse_unseen_forwards(model)
    known: dict[Any, Any] = {}
    walks = [_Walk(model, graph, norm, shape, batch, known).run() for batch in _BATCHES]
    if len({walk.signature() for walk in walks}) > 1:
        raise NoRuleError(
            f"{_SUBJECT}: what the model computes changes with the size of the batch, or from call "
            "to call. Samples must pass through a network on their own, and without chance."
        )
    if shape is not None:
        _compare(model, graph, shape)
    return walks[0]


def _check_modules(model: nn.Module) -> None:
    """Raises where a module is not what its type says."""
    hooks = torch.nn.modules.module
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        raise NoRuleError(
            f"{_SUBJECT}: global forward hooks may change what every module computes. Remove them."
        )
    for name, module in model.named_modules():
        place = f"`{name or 'model'}` ({type(module).__name__})"
        if module._forward_hooks or module._forward_pre_hooks:
            raise NoRuleError(
                f"{_SUBJECT}: {place} has forward hooks, which may change what it computes. "
                "Remove them first."
            )
        if "forward" in vars(module):
            raise NoRuleError(
                f"{_SUBJECT}: the forward of {place} was replaced on the instance, so its type "
                "says nothing. Write a class for it."
            )
        for held, tensor in (
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        ):
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise NonFiniteError(
                    f"{_SUBJECT}: `{held}` of {place} must be finite; got NaN or infinity."
                )


def _refuse_unseen_forwards(model: nn.Module) -> None:
    for name, module in model.named_modules():
        container = type(module) in _CONTAINERS
        if not container and not Tracer().is_leaf_module(module, name):
            raise NoRuleError(
                f"{_SUBJECT}: `{name or 'model'}` ({type(module).__name__}) has a forward of its "
                "own, and the graph traced from it must be compared with it. Give `input_shape`."
            )


def _compare(model: nn.Module, graph: fx.Graph, shape: tuple[int, ...]) -> None:
    """Raises unless the traced graph and the model give the same for a few inputs."""
    traced = fx.GraphModule(model, graph)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for batch in (1, 3):
            drawn = torch.randn(batch, *shape, generator=generator, dtype=torch.float64)
            x = drawn.to(_like(model))
            real, followed = model(x.clone()), traced(x.clone())
            scale = real.abs().amax().clamp_min(torch.finfo(real.dtype).tiny) if real.numel() else 1
            if real.shape != followed.shape or bool(((real - followed).abs() > 1e-4 * scale).any()):
                raise NoRuleError(
                    f"{_SUBJECT}: the graph traced from the forward does not do what the model "
                    "does: it branches on what tracing cannot see, or draws at random."
                )


def _like(model: nn.Module) -> Tensor:
    """A tensor with the dtype and device that the model wants."""
    held = (*model.parameters(), *model.buffers())
    return next((tensor for tensor in held if tensor.is_floating_point()), torch.zeros(()))


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Tracer(fx.Tracer):
    """Stops at modules that have a rule and at torch's own, so that refusals can name them."""

    def __init__(self) -> None:
        ours = tuple(getattr(functional, name) for name in functional.__all__)
        super().__init__((math, functional), ours)  # type: ignore[arg-type]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether to stop at `m` instead of looking into its forward."""
        if find_rule(m) is not None:
            return True
        return type(m).__module__.startswith("torch.nn") and type(m) not in _CONTAINERS


def trace(model: nn.Module) -> tuple[nn.Module, fx.Graph]:
    """The graph of a model's forward, and the model it speaks of: a bare layer is put in a row."""
    if Tracer().is_leaf_module(model, ""):
        model = nn.Sequential(model)
    # Arguments that have a default keep it, so that `mask=None` takes its own branch.
    parameters = list(inspect.signature(model.forward).parameters.values())
    defaults = {p.name: p.default for p in parameters[1:] if p.default is not p.empty}
    try:
        return model, Tracer().trace(model, concrete_args=defaults)
    except TautError:
        raise
    except Exception as error:
        raise NoRuleError(
            f"{_SUBJECT}: the forward of {type(model).__name__} cannot be followed: {error} "
            "Forwards that branch on values have no single graph; split the model, or register a "
            "rule with taut.audit.rule."
        ) from error


def _first_shape(graph: fx.Graph, model: nn.Module) -> tuple[int, ...] | None:
    """The shape of one input, when the first layer tells."""
    source = next(node for node in graph.nodes if node.op == "placeholder")
    for user in source.users:
        if user.op == "call_module":
            module = model.get_submodule(str(user.target))
            if isinstance(module, (nn.Linear, ConstrainedLinear)):
                return (int(module.in_features),)
    return None


# Modules whose result is a tensor of its own, which an in-place module behind them may change.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_MAKERS = (ConstrainedLinear, nn.Linear, *_CONVOLUTIONS, *_BATCH_NORMS)


class _Walk:
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
        source: Value | None = None
        for node in self.graph.nodes:
            if node.op == "placeholder":
                if source is None:
                    source = self._start(node)
                elif node.args:
                    self.values[node] = self.examples[node] = node.args[0]
                else:
                    raise NoRuleError(
                        f"{_SUBJECT}: the forward must take one tensor; `{node.target}` is another "
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
                    f"{_SUBJECT}: the forward must return one tensor that follows its input; "
                    f"got {type(result).__name__}."
                )
            else:
                self._step(node)
        raise NoRuleError(f"{_SUBJECT}: the forward returns nothing.")

    def _start(self, node: fx.Node) -> Value:
        size = None if self.shape is None else torch.Size(self.shape).numel()
        value = Value(Constants.of_input(self.norm, size), self.shape)
        self.values[node] = value
        if self.shape is not None:
            self.examples[node] = _like(self.model).new_zeros(self.batch, *self.shape)
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
                f"{_SUBJECT}: no constant is proven at {_place(node)}: {error} What has no rule is "
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
                    f"{_SUBJECT}: at {_place(node)} only slices that keep the batch are followed: "
                    "use x[:, ...]."
                )
            return Value(held.constants, self._sample_shape(node, example))
        if isinstance(example, Tensor) or example is None:
            raise NoRuleError(
                f"{_SUBJECT}: `{node.args[1] if len(node.args) > 1 else node.target}` at "
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
                f"{_SUBJECT}: `{name}` at {_place(node)} works in place, which may change a tensor "
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
                        f"{_SUBJECT}: `input_shape` must be one that the model takes; got "
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
                f"{_SUBJECT}: `input_shape` must be one that the model takes; got "
                f"input_shape={self.shape}, and {_place(node)} failed: {error}"
            ) from error

    def _sample_shape(self, node: fx.Node, example: Any) -> tuple[int, ...] | None:
        if not isinstance(example, Tensor):
            return None
        if not example.is_floating_point():
            raise NoRuleError(
                f"{_SUBJECT}: {_place(node)} gives {example.dtype}; only real floating-point "
                "tensors are followed, and rounding to whole numbers jumps."
            )
        if example.dim() == 0 or example.shape[0] != self.batch:
            raise NoRuleError(
                f"{_SUBJECT}: {_place(node)} mixes the samples of a batch: its result for "
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
