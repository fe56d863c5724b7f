"""What the library knows of each operation: one record per operation.

An operation is a type of module or a function of tensors (ATen's own overloads, as `torch.export`
names them, or a function of taut). Auditing, certifying, folding, saving and exporting all read
these records, so a new layer is described once and works everywhere.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from taut.errors import ArgumentError, NoRuleError
from taut.rules.file_schema import FileSchema
from taut.rules.lipschitz_constants import Constants, Value

Bounds = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Call:
    """One operation in a network, with its arguments by name.

    Attributes:
        target: the function, or the module.
        arguments: a `Value` for each tensor that depends on the network's input; constant tensors and
            numbers as they are. A module has one argument, `input`.
        shape: shape of one sample of the result, without the batch; None if it is unknown, or if
            there are several results.
        proofs: cache of bounds that were proven for stored tensors.
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
        """The arguments that depend on the input, in order."""
        return [leaf for leaf in tree_leaves(self.arguments) if isinstance(leaf, Value)]

    @property
    def x(self) -> Value:
        """The only argument that depends on the input.

        Raises:
            NoRuleError: others depend on it too, such as a weight that depends on the input.
        """
        values = self.values
        if len(values) != 1:
            raise NoRuleError(rule="only one argument may depend on the input here")
        return values[0]

    @property
    def first(self) -> Value:
        """The first argument, which must be the only one that depends on the input."""
        first = next(iter(self.arguments.values()))
        if not isinstance(first, Value) or len(self.values) != 1:
            raise NoRuleError(rule="only the first argument may depend on the input here")
        return first

    def with_values(self, values: list[Any]) -> "Call":
        """The same call with other objects in place of the arguments that depend on the input."""
        left = iter(values)
        return replace(self, arguments=tree_map_only(Value, lambda _: next(left), self.arguments))

    def run(self, *tensors: Tensor) -> Any:
        """The result for `tensors` in place of the arguments that depend on the input."""
        arguments = self.with_values(list(tensors)).arguments
        if isinstance(self.target, nn.Module):
            return self.target(*arguments.values())
        return self.target(**arguments)

    def absolute(self, offset: str | None = None, keep_offset: bool = True) -> "Call":
        """The call with the absolute values of stored numbers, and 0 for an offset that is not kept."""

        def magnitude(name: str, leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and leaf.dtype != torch.bool:
                return leaf.detach().abs() if keep_offset or name != offset else 0 * leaf
            factor = name in ("self", "other", "alpha", "divisor_override")
            return abs(leaf) if factor and isinstance(leaf, (int, float)) else leaf

        changed = {
            name: tree_map(lambda leaf, name=name: magnitude(name, leaf), argument)
            for name, argument in self.arguments.items()
        }
        return replace(self, arguments=changed)


@dataclass(frozen=True)
class Rounding:
    r"""Bound $\gamma_k m$ of the rounding error of one execution of an operation, entry by entry.

    Attributes:
        count: `k`, the number of roundings that any one term undergoes, in any order of summation.
        magnitude: `m`, the sum of the absolute values of all terms, from the call and tensors in place
            of the arguments that depend on the input.
        growth: Lipschitz constants of `m` as a function of those arguments, like `Record.constants`.
        assumes: assumption about the execution, in a few words.
        squares: whether the result is the root of a sum of squares: squares overflow sooner, and
            underflow costs the root of what it costs in a sum.
        inner: rounding of the first of two sums in a row, which must not overflow either.
        amplified: factor by which the second sum may enlarge the underflow of the first in L-inf.
    """

    count: Callable[[Call], int]
    magnitude: Callable[..., Tensor]
    growth: Callable[[Call], Constants]
    assumes: str = ""
    squares: bool = False
    inner: "Rounding | None" = None
    amplified: Callable[[Call], float] = lambda call: 1.0

    def lost(self, call: Call, dtype: torch.dtype) -> float:
        """Bound of the underflow in an entry: one for each product and each sum."""
        lost = 4 * (self.count(call) + 1) * torch.finfo(dtype).tiny
        return (math.sqrt(lost) if self.squares else lost) * self.amplified(call)

    def ceiling(self, dtype: torch.dtype) -> float:
        """The magnitude up to which nothing overflows."""
        largest = torch.finfo(dtype).max / 4
        return math.sqrt(largest) / 2 if self.squares else largest


@dataclass(frozen=True, kw_only=True)
class Record:
    """The rules for one operation. An analysis that needs a field which is None raises `NoRuleError`.

    Attributes:
        proof: name of the argument that proves the constant, for the table of layers.
        constants: function from a call, whose tensor arguments are `Value`s, to the Lipschitz
            constants of the result. Monotone and positively homogeneous in the constants of the
            arguments, as all methods of `Constants` are.
        exact: True if execution has no rounding error: each entry of the result is 0, a stored number
            or, up to sign, an entry of the input.
        rounding: bound of the rounding error of one execution, for operations that are not exact.
        image: interval image: "monotone" for functions that are nondecreasing in every entry, or a
            function from the call and lists of lower and upper ends to the ends of the result, before
            rounding. None for the box given by the L-inf constant.
        call: for a module, the function that it computes in evaluation mode, and the arguments of
            that function after the input.
        plain: for a module, the equivalent `torch.nn` module in evaluation mode.
        relu: for an activation, the same map in matrices and ReLU; see `taut.export.rewrite_relu`.
        structure: for a container, True if its forward only applies its submodules in sequence or
            adds their results, so that symbolic tracing is exact.
        refusal: reason why there is no constant, and an alternative.
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
    """Registers the rules for modules of exactly these types, or for these functions.

    The rules are trusted: whoever registers them is responsible for their proofs. Types
    are matched exactly: a subclass may have another forward, so its forward is captured and analysed
    instead; only `plain` also serves subclasses that keep the forward.

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
        rule = f"a record must be made of {', '.join(Record.__dataclass_fields__)}"
        raise ArgumentError("register", rule=rule, got=", ".join(sorted(unknown)))
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
                if kind.forward is parent.forward and _computes_alike(kind, parent):
                    return replace(record or Record(), plain=inherited.plain)
                break
    return record


# What a subclass of a layer may define without computing anything else than its parent: how the
# weight is made feasible, which the proof reads from the weight itself, and how it is built and shown.
_OVERRIDABLE = frozenset(
    "__init__ __repr__ __doc__ __module__ __annotations__ __abstractmethods__ _abc_impl __orig_bases__ "
    "__parameters__ __constants__ extra_repr reset_parameters constrain constrain_traceable "
    "constrain_in_training projects_in_place input_norm output_norm forward".split()
)


def _computes_alike(kind: type, parent: type) -> bool:
    """Whether a user's subclass overrides nothing that its parent's forward may depend on."""
    between = kind.__mro__[: kind.__mro__.index(parent)]
    return not any(
        any(hasattr(later, name) for later in kind.__mro__[index + 1 :])
        for index, base in enumerate(between)
        if base.__module__.partition(".")[0] not in ("taut", "torch")
        for name in vars(base).keys() - _OVERRIDABLE
    )


def find_schema(name: str) -> FileSchema | None:
    """How files name layers of that kind."""
    return _SCHEMAS.get(name)


def registered_modules() -> dict[type[nn.Module], Record]:
    """Every module type with a record."""
    return dict(_MODULES)


def registered_functions() -> dict[Any, Record]:
    """Every function with a record."""
    return dict(_FUNCTIONS)


def bind_arguments(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, in the order of the signature, defaults included."""
    names, defaults = signature_of(target)
    given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    return {name: given[name] for name in names if name in given}


@cache
def signature_of(target: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of a function's arguments, and the defaults of those that have one."""
    if isinstance(target, torch._ops.OpOverload):
        arguments = target._schema.arguments
        defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
        return tuple(a.name for a in arguments), defaults
    parameters = inspect.signature(target).parameters
    defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
    return tuple(parameters), defaults


register(nn.Sequential, structure=True)
