"""A configuration as a TOML file: written in the order of its fields, read without trust."""

import difflib
import json
import tomllib
from dataclasses import fields
from typing import Any, ClassVar, Protocol, TypeVar

from taut.errors import ArgumentError
from taut.training.config import TrainConfig

__all__ = ["Configuration", "Kind", "from_toml", "to_toml"]

_SUBJECT = "from_toml"


class Configuration(Protocol):
    """A frozen dataclass of plain values that can name those that are set."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name, in their order."""
        ...


Kind = TypeVar("Kind", bound=Configuration)


def to_toml(config: Configuration) -> str:
    """The fields that are set, one a line; `from_toml` gives the same configuration back.

    Example:
        >>> text = to_toml(TrainConfig(data="mnist", hidden=(64, 64)))
        >>> text.splitlines()[0], "hidden = [64, 64]" in text
        ('data = "mnist"', True)
        >>> from_toml(text) == TrainConfig(data="mnist", hidden=(64, 64))
        True
    """
    return "".join(f"{name} = {_value(value)}\n" for name, value in config.to_dict().items())


def from_toml(text: str, kind: type[Kind] = TrainConfig) -> Kind:
    """The configuration that a TOML text states; fields that it leaves out have their defaults.

    Args:
        text: of the file.
        kind: the class of the configuration.

    Raises:
        ArgumentError: the text is no TOML, or names a field that there is not.
    """
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{_SUBJECT}: the text must be TOML: {error}.") from error
    known = [f.name for f in fields(kind)]
    for name in held:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)[0]
            raise ArgumentError(
                f"{_SUBJECT}: every key must be a field of {kind.__name__}; got "
                f"{name!r}. "
                f"The nearest is {near!r}."
            )
    return kind(**held)


def _value(value: object) -> str:
    if isinstance(value, str):
        # Basic strings of TOML have the escapes of JSON, but no raw delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
