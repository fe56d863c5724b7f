"""JSON files of records: plain data, written in one step, read with a diagnosis."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from taut.errors import ArgumentError, DamagedFileError
from taut.export import write_atomically

__all__ = ["current_date", "from_json", "read_record_file", "to_json", "write_record_file"]

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_FORMAT = 1

T = TypeVar("T")


def current_date() -> str:
    """The current time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def to_json(value: Any, name: str = "value") -> Any:
    """The value in the types of JSON; non-finite numbers become "nan", "inf", "-inf".

    Args:
        value: numbers, strings, None, and mappings and sequences of these.
        name: name of the value in errors.

    Raises:
        ArgumentError: the value holds something else, such as a tensor.

    Example:
        >>> to_json({"a": (1, 0.5, math.inf), "b": math.nan})
        {'a': [1, 0.5, 'inf'], 'b': 'nan'}
        >>> from_json(to_json([math.inf, -math.inf, 1]))
        [inf, -inf, 1]
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, Mapping):
        return {str(key): to_json(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item, f"{name}[{index}]") for index, item in enumerate(value)]
    raise ArgumentError(
        f"Outcome: `{name}` must be plain data, that is numbers, strings, None, and lists and "
        f"mappings of these; got a {type(value).__name__}. Use .item() or .tolist()."
    )


def from_json(value: Any) -> Any:
    """The inverse of `to_json`: the strings "nan", "inf" and "-inf" become numbers again."""
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def write_record_file(path: Path, fields: Mapping[str, Any]) -> None:
    """Writes a record in one step: whoever reads the file finds all of it, or the old one."""
    content = {"format": _FORMAT, **fields}.items()
    # One field per line: records are committed, and one number per line would hide what changed.
    lines = (f' "{name}": {json.dumps(value, allow_nan=False)}' for name, value in content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_record_file(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> T:
    """What `parse` makes of the fields of a record file.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: the file is truncated, altered, or of another kind; `parse` says so by
            a KeyError, TypeError, ValueError or AttributeError.
    """
    try:
        fields = json.loads(path.read_bytes())
        if fields["format"] != _FORMAT:
            raise ValueError(f"its format is {fields['format']!r}, not {_FORMAT}")
        return parse(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DamagedFileError(f"{path} is not a complete record ({reason}).") from error
