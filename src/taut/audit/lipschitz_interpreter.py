"""`ConstantsInterpreter`: the Lipschitz constants of a program, operation by operation."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from taut.audit.program import Program
from taut.audit.rule_interpreter import RuleInterpreter
from taut.bounds import LayerBound, LayerTable
from taut.errors import NoRuleError, TautError
from taut.norms import Norm
from taut.rules import Call, Constants, Record, Value


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
            raise NoRuleError(self.subject, rule="the forward must return one tensor")
        return Audit(norm, output, tuple(self.layers), self.program)

    def value_of(self, tracked: Value) -> Value:
        """Itself."""
        return tracked

    def apply(self, record: Record, call: Call, tracked: list[Any], node: fx.Node) -> Any:
        """The constants of the result."""
        assert record.constants is not None
        try:
            constants = record.constants(call)
        except TautError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            rule = f"its arguments are not supported: {str(error).rstrip('.')}"
            raise NoRuleError(rule=rule) from error
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
