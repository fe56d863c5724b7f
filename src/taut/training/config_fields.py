"""Configurations: frozen dataclasses of plain values, checked field by field."""

import inspect
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from taut.errors import (
    ArgumentError,
    check_choice,
    check_count,
    check_nonnegative,
    check_positive,
    check_within,
)

Check = Literal["", "open", "positive", "not_negative", "share", "fraction", "whole"]


def setting(default: Any, check: Check = "") -> Any:
    """A field of a configuration.

    Args:
        default: default value.
        check: range of the value: "positive", "not_negative", "share" (at least 0 and below 1),
            "fraction" (above 0 and at most 1) or "whole" (a whole number of at least 0); integers are at
            least 1 otherwise. "open" skips the check of the choices.
    """
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class FieldType:
    """The type of one field.

    Attributes:
        base: `str`, `int`, `float` or `tuple` (of integers).
        choices: admissible strings; empty for any.
        optional: whether None is admissible.
        check: see `setting`.
    """

    base: type
    choices: tuple[str, ...]
    optional: bool
    check: Check

    def __str__(self) -> str:
        name = "tuple[int, ...]" if self.base is tuple else self.base.__name__
        return f"{name} | None" if self.optional else name


def field_types(kind: type["Configuration"]) -> dict[str, FieldType]:
    """The type of every field of a configuration."""
    types = {}
    hints = get_type_hints(kind)
    for entry in fields(kind):
        hint = hints[entry.name]
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        optional = type(None) in parts
        # A literal in a union with `str` lists some of the admissible names.
        hint = str if str in parts else parts[0]
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        base = str if choices else get_origin(hint) or hint
        check = entry.metadata.get("check", "")
        types[entry.name] = FieldType(base, choices, optional, check)
    return types


def field_docs(kind: type["Configuration"]) -> dict[str, str]:
    """The description of every field, from the section `Attributes` of the docstring."""
    docs: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].splitlines():
        if not line.startswith("    "):
            break
        if line[4] != " ":
            name, _, text = line.strip().partition(": ")
            docs[name] = text
        else:
            docs[name] += f" {line.strip()}"
    return docs


def config_error(argument: str, rule: str, got: object, remedy: str = "") -> ArgumentError:
    """The error of a field of `TrainConfig`."""
    return ArgumentError("TrainConfig", argument, rule, got, remedy)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The base of configurations: every field is checked by its type and range."""

    def __post_init__(self) -> None:
        for name, kind in field_types(type(self)).items():
            if not (kind.optional and getattr(self, name) is None):
                self._check(name, kind)

    def _check(self, name: str, kind: FieldType) -> None:
        subject = type(self).__name__
        value: Any = getattr(self, name)
        # A file has lists for tuples, and whole numbers for floats.
        if (kind.base, type(value)) in ((tuple, list), (float, int)):
            value = kind.base(value)
        if not isinstance(value, kind.base) or isinstance(value, bool):
            raise ArgumentError(subject, name, f"must be of type {kind}", f"{name}={value!r}")
        object.__setattr__(self, name, value)
        if kind.choices and kind.check != "open":
            check_choice(subject, name, value, kind.choices)
        elif kind.base is int:
            check_count(subject, name, value, minimum=int(kind.check != "whole"))
        elif kind.base is tuple:
            for item in value:
                check_count(subject, name, item)
        elif kind.check == "positive":
            check_positive(subject, name, value)
        elif kind.check == "not_negative":
            check_nonnegative(subject, name, value)
        elif kind.check == "share":
            check_within(subject, name, value, "[0, 1)")
        elif kind.check == "fraction":
            check_within(subject, name, value, "(0, 1]")

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value is not None
        }


AnyConfig = TypeVar("AnyConfig", bound=Configuration)
