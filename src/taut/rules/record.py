"""One record for each operation: everything that the library knows of it.

An operation is a type of module or a function of tensors (ATen's own overloads, as `torch.export`
names them, or a function of taut). Auditing, certifying, folding, saving and exporting all read
these records, so a new layer is described once and works everywhere.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from taut.errors import ArgumentError, NoRuleError
from taut.rules.constants import Constants, Value
from taut.rules.schema import FileSchema

__all__ = [
    "Call",
    "Record",
    "Rounding",
    "argument_names",
    "find_record",
    "find_schema",
    "register",
    "registered_functions",
    "registered_modules",
]

Bounds = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Call:
    """One operation in a network, with its arguments by name.

    Attributes:
        target: the function, or the module.
        arguments: a `Value` wherever a tensor follows the network's input; stored tensors, numbers
            and the like as they are. A module has one argument, `input`.
        shape: of one sample of the result, without the batch, where known; None for several results.
        proofs: what was proven before of the same stored tensors, to be proven once.
    """

    target: Any
    arguments: dict[str, Any]
    shape: tuple[int, ...] | None = None
    proofs: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def module(self) -> Any:
        """The module itself, where the operation is one."""
        return self.target

    @property
    def values(self) -> list[Value]:
        """The arguments that follow the input, in order."""
        return list(_values_in(self.arguments.values()))

    @property
    def x(self) -> Value:
        """The only argument that follows the input.

        Raises:
            NoRuleError: others follow it too, such as a weight that depends on the input.
        """
        values = self.values
        if len(values) != 1:
            raise NoRuleError("only one argument may follow the input here.")
        return values[0]

    @property
    def first(self) -> Value:
        """The first argument, which must be the only one that follows the input."""
        first = next(iter(self.arguments.values()))
        if not isinstance(first, Value) or len(self.values) != 1:
            raise NoRuleError("only the first argument may follow the input here.")
        return first

    def with_values(self, values: list[Any]) -> "Call":
        """The same call with other objects in place of the arguments that follow the input."""
        left = iter(values)
        return replace(self, arguments={n: _put(a, left) for n, a in self.arguments.items()})

    def run(self, *tensors: Tensor) -> Any:
        """What the operation gives for `tensors` in place of the arguments that follow the input."""
        arguments = self.with_values(list(tensors)).arguments
        if isinstance(self.target, torch._ops.OpOverload):
            names = argument_names(self.target)
            positional = [arguments[name] for name in names.positional if name in arguments]
            named = {name: arguments[name] for name in names.named if name in arguments}
            return self.target(*positional, **named)
        if isinstance(self.target, nn.Module):
            return self.target(*arguments.values())
        return self.target(**arguments)

    def absolute(self, offset: str | None = None, keep_offset: bool = True) -> "Call":
        """The call with magnitudes of stored numbers; without its offset if that is not kept."""

        def magnitude(name: str, held: Any) -> Any:
            if name == offset and not keep_offset:
                return None if held is None else 0 * held
            if isinstance(held, (list, tuple)):
                return type(held)(magnitude(name, part) for part in held)
            if isinstance(held, Tensor):
                return held if held.dtype == torch.bool else held.detach().abs()
            return abs(held) if name in ("other", "alpha") and not _follows(held) else held

        return replace(self, arguments={n: magnitude(n, a) for n, a in self.arguments.items()})


def _values_in(held: Any) -> Iterator[Value]:
    for part in held:
        if isinstance(part, Value):
            yield part
        elif isinstance(part, (list, tuple)):
            yield from _values_in(part)


def _follows(held: Any) -> bool:
    return isinstance(held, Value)


def _put(held: Any, left: Iterator[Any]) -> Any:
    if isinstance(held, Value):
        return next(left)
    if isinstance(held, (list, tuple)):
        return type(held)(_put(part, left) for part in held)
    return held


@dataclass(frozen=True)
class Rounding:
    r"""What one execution of an operation may be off by, entry by entry: $\gamma_k m$.

    Attributes:
        count: `k`, the roundings on the way of any one term, in any order of summation.
        magnitude: `m`, the sum of the magnitudes of all terms, for tensors in place of the
            arguments that follow the input.
        growth: the constants of `m` as a function of those arguments, like `Record.constants`.
        assumes: what it takes for granted of the execution, in a few words.
        squares: whether it takes the root of a sum of squares: these overflow sooner, and underflow
            loses the root of what it loses of a sum.
    """

    count: Callable[[Call], int]
    magnitude: Callable[..., Tensor]
    growth: Callable[[Call], Constants]
    assumes: str = ""
    squares: bool = False

    def ceiling(self, dtype: torch.dtype) -> float:
        """Up to which magnitude nothing overflows."""
        largest = torch.finfo(dtype).max / 4
        return math.sqrt(largest) / 2 if self.squares else largest


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is known of one operation. What is None is refused, with the operation's name.

    Attributes:
        proof: what proves the constant, in a few words, for the table of layers.
        constants: the constants of the result, from a call whose arguments hold `Value`s. It must
            be monotone and homogeneous in them, as all of `Constants`' methods are.
        exact: whether execution rounds nothing: each entry of the result is 0, a stored number or,
            up to sign, an entry of the input.
        rounding: what one execution rounds, where it is not exact.
        image: "monotone" for maps that grow with every entry of their input, "linear" for linear
            ones, or a function from the call and lists of lower and upper ends to the ends of the
            result, before rounding; None leaves it to the constant in L-inf.
        call: of a module: the function that its forward amounts to in evaluation, and that
            function's arguments behind the input.
        plain: of a module: the module of `torch.nn` that evaluation amounts to.
        relu: of an activation: the same map in matrices and ReLU, see `taut.export.rewrite_relu`.
        structure: of a module: its forward only passes its input through its parts, or adds them up,
            so that symbolic tracing follows it faithfully.
        refusal: why there is no proof, and what to use instead.
    """

    proof: str = ""
    constants: Callable[[Call], Constants] | None = None
    exact: bool = False
    rounding: Rounding | None = None
    image: str | Callable[[Call, list[Tensor], list[Tensor]], Bounds] | None = None
    call: Callable[[Any], tuple[Callable[..., Any], dict[str, Any]]] | None = None
    plain: Callable[[Any], nn.Module] | None = None
    relu: Callable[..., Any] | None = None
    structure: bool = False
    refusal: str = ""


_MODULES: dict[type[nn.Module], Record] = {}
# Layers of other libraries, by their full name, so that those need not be imported.
_NAMED: dict[str, Record] = {}
_FUNCTIONS: dict[Any, Record] = {}
_SCHEMAS: dict[str, FileSchema] = {}


def register(*operations: Any, file: FileSchema | None = None, **knowledge: Any) -> None:
    """Registers what is known of modules of exactly these types, or of these functions.

    Whoever registers a record answers for its proofs. Types are matched exactly: a subclass may do
    anything in its own forward, so it is followed inside instead of trusted; only `plain` also
    serves subclasses that keep the forward.

    Args:
        operations: module types, their full names where importing them costs too much, or functions
            of tensors.
        file: how a file names modules of this type; without it they cannot be saved.
        knowledge: the fields of `Record`; more calls add to what is known.

    Raises:
        ArgumentError: a field that `Record` does not have.

    Example:
        >>> class Halve(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.special.expit(x) * 2
        >>> register(Halve, proof="slope 1/2", constants=lambda call: call.x.constants.scaled(0.5))
        >>> taut.bound_lipschitz(torch.nn.Sequential(torch.nn.Linear(1, 1), Halve())).layers[-1].method
        'slope 1/2'
    """
    unknown = knowledge.keys() - Record.__dataclass_fields__.keys()
    if unknown:
        raise ArgumentError(
            f"register: a record must be made of {', '.join(Record.__dataclass_fields__)}; "
            f"got {', '.join(sorted(unknown))}."
        )
    for operation in operations:
        is_module = inspect.isclass(operation) and issubclass(operation, nn.Module)
        named = isinstance(operation, str)
        table: dict[Any, Record] = _NAMED if named else _MODULES if is_module else _FUNCTIONS
        table[operation] = replace(table.get(operation, Record()), **knowledge)
    if file is not None:
        _SCHEMAS[file.module.__name__] = file


def find_record(operation: Any) -> Record | None:
    """What is known of a module or a function; parametrised modules count as what they were."""
    if not isinstance(operation, nn.Module):
        return _FUNCTIONS.get(operation)
    kind = parametrize.type_before_parametrizations(operation)
    record = _MODULES.get(kind) or _NAMED.get(f"{kind.__module__}.{kind.__qualname__}")
    record = record if type(operation).forward is kind.forward else None
    if record is None or record.plain is None:
        for parent in kind.__mro__[1:]:
            inherited = _MODULES.get(parent)
            if inherited is not None and inherited.plain is not None:
                if kind.forward is parent.forward:
                    return replace(record or Record(), plain=inherited.plain)
                break
    return record


def find_schema(name: str) -> FileSchema | None:
    """How files name layers of that kind."""
    return _SCHEMAS.get(name)


def registered_modules() -> dict[type[nn.Module], Record]:
    """Every module type with a record."""
    return dict(_MODULES)


def registered_functions() -> dict[Any, Record]:
    """Every function with a record."""
    return dict(_FUNCTIONS)


@dataclass(frozen=True)
class _Names:
    positional: tuple[str, ...]
    named: tuple[str, ...]
    defaults: dict[str, Any]


@cache
def argument_names(target: Any) -> _Names:
    """The arguments of a function by name, with the defaults of those that have one."""
    if isinstance(target, torch._ops.OpOverload):
        arguments = target._schema.arguments
        return _Names(
            tuple(a.name for a in arguments if not a.kwarg_only),
            tuple(a.name for a in arguments if a.kwarg_only),
            {a.name: a.default_value for a in arguments if a.has_default_value()},
        )
    parameters = inspect.signature(target).parameters.values()
    return _Names(
        tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY),
        tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        {p.name: p.default for p in parameters if p.default is not p.empty},
    )


register(nn.Sequential, structure=True)
