"""A configuration as a TOML file: written in the order of its fields, read without trust."""

import difflib
import json
import tomllib
from dataclasses import fields

from taut.errors import ArgumentError
from taut.training.config import TrainConfig

__all__ = ["from_toml", "to_toml"]

_SUBJECT = "from_toml"


def to_toml(config: TrainConfig) -> str:
    """The fields that are set, one a line; `from_toml` gives the same configuration back.

    Example:
        >>> text = to_toml(TrainConfig(data="mnist", hidden=(64, 64)))
        >>> text.splitlines()[0], "hidden = [64, 64]" in text
        ('data = "mnist"', True)
        >>> from_toml(text) == TrainConfig(data="mnist", hidden=(64, 64))
        True
    """
    return "".join(f"{name} = {_value(value)}\n" for name, value in config.to_dict().items())


def from_toml(text: str) -> TrainConfig:
    """The configuration that a TOML text states; fields that it leaves out have their defaults.

    Raises:
        ArgumentError: the text is no TOML, or names a field that there is not.
    """
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{_SUBJECT}: the text must be TOML: {error}.") from error
    known = [f.name for f in fields(TrainConfig)]
    for name in held:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)[0]
            raise ArgumentError(
                f"{_SUBJECT}: every key must be a field of TrainConfig; got {name!r}. "
                f"The nearest is {near!r}."
            )
    return TrainConfig(**held)


def _value(value: object) -> str:
    if isinstance(value, str):
        # Basic strings of TOML have the escapes of JSON, but no raw delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
