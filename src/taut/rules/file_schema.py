"""How a file names a layer: its constructor's arguments, and the shapes of its tensors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from torch import nn

from taut.errors import ArgumentError, check_count

Arguments = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
_LARGEST = 2**31


@dataclass(frozen=True)
class Sizes:
    """The type of an argument that is a tuple of whole numbers; files hold it as a list.

    Attributes:
        count: how many there are, or None for any number. A module may hold one for all of them.
        least: the least value of each.
    """

    count: int | None
    least: int = 1


@dataclass(frozen=True)
class FileSchema:
    """One type of layer that a file may name.

    Attributes:
        module: the exact type.
        arguments: what its constructor is given: name -> type, or `Sizes`.
        sizes: those arguments that tensors must agree with, each with the least value it can have.
        shapes: the tensors it must hold, from its arguments.
        read: how to find an argument that is not an attribute of the same name; a flag may be that of a
            tensor, which is there or None.
        make: builds the module from its arguments, where the type itself does not.
        limits: the largest value of an argument on which the time of building or running depends.
    """

    module: type[nn.Module]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Callable[[Arguments], Shapes] = lambda arguments: {}
    read: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    make: Callable[..., nn.Module] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def dense(
        cls, module: type[nn.Module], limits: Mapping[str, int] | None = None, **more: Any
    ) -> "FileSchema":
        """Of a dense layer: a weight `(out_features, in_features)`, and a bias or none."""
        return cls(
            module,
            {"in_features": int, "out_features": int, "bias": bool, **more},
            {"in_features": 1, "out_features": 1},
            lambda a: with_bias(a, (a["out_features"], a["in_features"]), a["out_features"]),
            {"p": lambda m: str(m.input_norm)},
            limits=limits or {},
        )

    def arguments_of(self, module: nn.Module) -> Arguments:
        """The arguments that make a layer like `module`, as a file holds them; not yet checked."""
        arguments: Arguments = {}
        for name, kind in self.arguments.items():
            value: Any = self.read[name](module) if name in self.read else getattr(module, name)
            if isinstance(kind, Sizes):
                arguments[name] = [value] * (kind.count or 1) if type(value) is int else list(value)
            else:
                absent_or_tensor = kind is bool and not isinstance(value, bool)
                flag = value is not None if absent_or_tensor else value
                arguments[name] = float(value) if kind is float else flag
        return arguments

    def build(self, arguments: Arguments) -> nn.Module:
        """The smallest layer with these arguments; its sizes are set apart from them."""
        given = {
            name: tuple(value) if isinstance(self.arguments[name], Sizes) else value
            for name, value in arguments.items()
        }
        return (self.make or self.module)(**{**given, **self.sizes})

    def check(self, arguments: Arguments) -> None:
        """Raises `ArgumentError` unless every argument is there, of its type and in range."""
        if arguments.keys() != self.arguments.keys():
            rule = f"the arguments must be {sorted(self.arguments)}"
            raise ArgumentError(rule=rule, got=shorten(sorted(arguments)))
        for name, value in arguments.items():
            self._check_argument(name, value)
        for name, least in self.sizes.items():
            if arguments[name] < least:
                rule = f"must be at least {least}"
                raise ArgumentError(argument=name, rule=rule, got=str(arguments[name]))

    def _check_argument(self, name: str, value: Any) -> None:
        wanted: Any = self.arguments[name]
        kinds = (list,) if isinstance(wanted, Sizes) else get_args(wanted) or (wanted,)
        fits = type(value) in kinds
        if type(value) in (bool, int, float):
            fits &= math.isfinite(value) if float in kinds else abs(value) < _LARGEST
        if not fits or (name in self.limits and value > self.limits[name]):
            names = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
            rule = f"must be of type {names} and in range"
            raise ArgumentError(argument=name, rule=rule, got=f"{name}={shorten(value)}")
        if isinstance(wanted, Sizes):
            check_sizes(self.module.__name__, name, value, wanted)


def with_bias(a: Arguments, weight: tuple[int, ...], outputs: int) -> Shapes:
    """The shapes of a weight and, if the arguments have one, of a bias for each output."""
    return {"weight": weight} | ({"bias": (outputs,)} if a["bias"] else {})


def check_sizes(subject: str, name: str, values: list[Any], wanted: Sizes) -> None:
    """Raises unless a list holds as many whole numbers as wanted, all in range."""
    if wanted.count not in (None, len(values)):
        rule = f"must hold {wanted.count} numbers"
        raise ArgumentError(argument=name, rule=rule, got=str(len(values)))
    for value in values:
        check_count(subject, name, value, wanted.least)
        if value >= _LARGEST:
            raise ArgumentError(argument=name, rule="must be below 2**31", got=str(value))


def shorten(value: object) -> str:
    """What came, cut to a line."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
