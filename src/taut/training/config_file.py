"""A configuration as a TOML file: written in the order of its fields, read with checks."""

import difflib
import json
import tomllib
from dataclasses import fields
from typing import TypeVar

from taut.errors import ArgumentError
from taut.training.config import TrainConfig
from taut.training.configuration import Configuration

__all__ = ["AnyConfig", "from_toml", "to_toml"]

_SUBJECT = "from_toml"

AnyConfig = TypeVar("AnyConfig", bound=Configuration)


def to_toml(config: Configuration) -> str:
    """The fields that are set, one per line; `from_toml` gives the same configuration back.

    Example:
        >>> text = to_toml(TrainConfig(data="mnist", hidden=(64, 64)))
        >>> text.splitlines()[0], "hidden = [64, 64]" in text
        ('data = "mnist"', True)
        >>> from_toml(text) == TrainConfig(data="mnist", hidden=(64, 64))
        True
    """
    return "".join(f"{name} = {_value(value)}\n" for name, value in config.to_dict().items())


def from_toml(text: str, kind: type[AnyConfig] = TrainConfig) -> AnyConfig:
    """The configuration in a TOML text; fields that it leaves out have their defaults.

    Args:
        text: content of the file.
        kind: class of the configuration.

    Raises:
        ArgumentError: the text is no TOML, or has an unknown key.
    """
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(
            subject=_SUBJECT, rule="the text must be TOML", got=str(error)
        ) from error
    known = [f.name for f in fields(kind)]
    for name in held:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)[0]
            raise ArgumentError(
                subject=_SUBJECT,
                rule=f"every key must be a field of {kind.__name__}",
                got=repr(name),
                remedy=f"The nearest is {near!r}.",
            )
    return kind(**held)


def _value(value: object) -> str:
    if isinstance(value, str):
        # Basic strings of TOML have the escapes of JSON, but no raw delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
