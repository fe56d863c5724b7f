"""Programs read through the records: constants here, rounding and boxes in `taut.certificates`."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map_only

from taut.audit.program import Program
from taut.bounds import LayerBound, LayerTable
from taut.errors import NoRuleError, TautError
from taut.norms import Norm
from taut.rules import Call, Constants, Record, Value, find_record
from taut.rules.record import bind_arguments
from taut.rules.shape import EXACT_ON_STORED


class RuleInterpreter(fx.Interpreter):
    """Runs a program with other objects in place of the tensors that depend on its input.

    A subclass says what those objects are (`tracked`), how the rules see one (`value_of`), and what
    an operation makes of them (`apply`).
    """

    tracked: type

    def __init__(self, program: Program, subject: str) -> None:
        super().__init__(program.module)
        self.extra_traceback = False  # errors name the place in the model instead
        self.program = program
        self.subject = subject

    def value_of(self, held: Any) -> Value:
        """What the rules see of a tracked object."""
        raise NotImplementedError

    def apply(self, record: Record, call: Call, tracked: list[Any], node: fx.Node) -> Any:
        """What an operation makes of its tracked arguments."""
        raise NotImplementedError

    def size_of(self, held: Any) -> Any:
        """The size of the batch that a tracked object stands for; any will do for constants."""
        return 1

    @torch.no_grad()
    def run_node(self, n: fx.Node) -> Any:
        """One step of the program; a refusal names its place in the model."""
        if n.op not in ("call_function", "call_module"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        try:
            return self._step(n, args, kwargs)
        except NoRuleError as error:
            place, kind = n.meta.get("place", n.name), n.meta.get("kind", "")
            named = f"`{place}`" if kind in ("", place) or kind in place else f"`{place}` ({kind})"
            raise NoRuleError(
                subject=self.subject,
                rule=f"nothing is proven at {named}: {str(error).rstrip('.')}",
                remedy="What has no record is never assumed to be 1; change the layer, or register "
                "a record with taut.rules.register.",
            ) from error

    def _step(self, n: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = n.target
        leaves = tree_leaves((args, kwargs))
        tracked = [leaf for leaf in leaves if isinstance(leaf, self.tracked)]
        if target is torch.ops.aten.sym_size.int:
            return self.size_of(args[0]) if tracked else target(*args)
        if target is operator.getitem:
            return args[0][args[1]]
        if not tracked:
            if target in EXACT_ON_STORED:
                return self._stored(n, args, kwargs)
            if all(isinstance(part, int) for part in args):
                return target(*args)
            raise NoRuleError(rule="a constant computed in the forward is not supported")
        if n.op == "call_module":
            target = self.program.module.get_submodule(str(n.target))
            arguments = {"input": args[0]}
        else:
            arguments = bind_arguments(target, args, kwargs)
        if "refusal" in n.meta:
            raise NoRuleError(rule=n.meta["refusal"].rstrip("."))
        record = find_record(target) or Record()
        if record.constants is None:
            name = n.meta.get("kind") or getattr(target, "__name__", str(target))
            raise NoRuleError(rule=record.refusal.rstrip(".") or f"{name} has no record")
        shape = n.meta.get("shape")
        call = Call(
            target,
            tree_map_only(self.tracked, self.value_of, arguments),
            shape if isinstance(shape, tuple) else None,
            self.program.proofs,
        )
        return self.apply(record, call, tracked, n)

    def _stored(self, n: fx.Node, args: Any, kwargs: Any) -> Any:
        """A stored tensor on its way to an operation, in float64, made once.

        What is proven of a tensor is found by its identity, so it must live as long as the proofs.
        """
        key = (n, repr(tree_map_only(Tensor, id, (args, kwargs))))
        if key not in self.program.proofs:
            made = n.target(*args, **kwargs)  # type: ignore[operator]
            self.program.proofs[key] = tree_map_only(Tensor, _widened, made)
        return self.program.proofs[key]


def _widened(stored: Tensor) -> Tensor:
    return stored.double() if stored.is_floating_point() else stored


@dataclass(frozen=True)
class LayerTrace:
    """One operation of a program with the constants that enter and leave it."""

    name: str
    kind: str
    method: str
    incoming: tuple[Value, ...]
    outgoing: Value


@dataclass(frozen=True)
class Audit:
    """A program with constants at every operation, from the input to the output."""

    norm: Norm
    input: Value
    output: Value
    layers: tuple[LayerTrace, ...]
    program: Program

    def table(self, norm: Norm) -> LayerTable:
        """What each operation multiplies the constant by, in `norm`."""
        rows = []
        for layer in self.layers:
            before = sum(value.constants[norm] for value in layer.incoming)
            after = layer.outgoing.constants[norm]
            gain = after / before if 0 < before < float("inf") else after
            rows.append(LayerBound(layer.name, layer.kind, gain, layer.method, norm, norm))
        return LayerTable(rows)


class ConstantsInterpreter(RuleInterpreter):
    """Carries the constants of the input through a program."""

    tracked = Value

    def audit(self, norm: Norm) -> Audit:
        """From the input, measured in `norm`, to the output."""
        self.layers: list[LayerTrace] = []
        shape = self.program.input_shape
        size = None if shape is None else torch.Size(shape).numel()
        source = Value(Constants.of_input(norm, size), shape)
        output = self.run(source)
        if not isinstance(output, Value):
            raise NoRuleError(subject=self.subject, rule="the forward must return one tensor")
        return Audit(norm, source, output, tuple(self.layers), self.program)

    def value_of(self, held: Value) -> Value:
        """Itself."""
        return held

    def apply(self, record: Record, call: Call, tracked: list[Any], node: fx.Node) -> Any:
        """The constants of the result."""
        assert record.constants is not None
        try:
            constants = record.constants(call)
        except TautError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise NoRuleError(
                rule=f"its arguments are not supported: {str(error).rstrip('.')}"
            ) from error
        shapes = node.meta.get("shape")
        if isinstance(shapes, list):
            result: Any = tuple(_sized(constants, shape) for shape in shapes)
            outgoing = Value(constants)
        else:
            result = outgoing = _sized(constants, shapes)
        name = str(node.meta.get("place", node.name))
        kind = str(node.meta.get("kind", node.name))
        self.layers.append(LayerTrace(name, kind, record.proof, tuple(tracked), outgoing))
        return result


def _sized(constants: Constants, shape: Any) -> Value:
    size = None if shape is None else torch.Size(shape).numel()
    return Value(constants.within(size), shape)
