"""Command-line options made from the fields of a configuration."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from taut.cli.parameters import COUNT, NOT_NEGATIVE, POSITIVE, Finite, Sizes
from taut.training import Configuration, FieldType, field_docs, field_types

__all__ = ["config_options"]

_TYPES = {
    "positive": POSITIVE,
    "not_negative": NOT_NEGATIVE,
    "share": Finite(0, 1, max_open=True),
    "whole": click.IntRange(min=0),
}


def config_options(
    kind: type[Configuration], leave_out: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option for every field, with its type, range and description.

    Options have no default of their own: one that is not given is None, and the configuration file
    or the configuration itself decides.
    """
    docs, types = field_docs(kind), field_types(kind)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for entry in reversed(fields(kind)):
            if entry.name not in leave_out:
                text = docs[entry.name].replace("`", "").rstrip(".")
                shown = (
                    "" if entry.default in (None, (), "", 0) else f"  [default: {entry.default}]"
                )
                option = click.option(
                    f"--{entry.name.replace('_', '-')}",
                    type=_type(entry.name, types[entry.name]),
                    help=f"{text[:1].upper()}{text[1:]}.{shown}",
                )
                command = option(command)
        return command

    return add


def _type(name: str, kind: FieldType) -> click.ParamType:
    if kind.choices:
        return click.Choice(kind.choices)
    if kind.base is tuple:
        return Sizes(f"a list of {name}", "20 or 20,30")
    if kind.base is str:
        return click.STRING
    return _TYPES.get(kind.check, COUNT)
