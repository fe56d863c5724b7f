"""Tolerances of the columns of a table: parsing, writing, and conversion to features."""

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taut.data import Encoding, select_positions
from taut.errors import ArgumentError

# A category that changes freely.
FREE = math.inf
_WORDS = {"fixed": 0.0, "free": FREE}
_SUBJECT = "tolerance"


def parse_tolerances(text: str) -> dict[str | int, float]:
    """Parses tolerances by column, from text such as `pH=0.1,sulphur=2,colour=free`, or a TOML file.

    `fixed` is 0: the column does not change, like all columns that are not named. `free` is for a category
    that may take any value. A TOML file has one line for each column, `pH = 0.1`.

    Example:
        >>> parse_tolerances("pH=0.1, 3=2, colour=free")
        {'pH': 0.1, 3: 2.0, 'colour': inf}
    """
    if Path(text).suffix == ".toml" and "=" not in text:
        pairs = _read_file(Path(text))
    else:
        cells = next(csv.reader([text], skipinitialspace=True), [])
        pairs = [(name, value) for name, _, value in (cell.rpartition("=") for cell in cells)]
    tolerances: dict[str | int, float] = {}
    for name, value in pairs:
        key: str | int = int(name) if name.strip().isdecimal() else name.strip()
        try:
            number = float(_WORDS.get(str(value).strip(), value))
        except (TypeError, ValueError):
            number = math.nan
        if key == "" or not number >= 0:
            rule = "must be a column and a number of at least 0, fixed or free, for each column"
            got, remedy = f"{name}={value}", "Write it like pH=0.1,sulphur=2,colour=free."
            got = got if name else repr(value)
            raise ArgumentError(_SUBJECT, rule=rule, got=got, remedy=remedy)
        tolerances[key] = number
    if not any(0 < value < FREE for value in tolerances.values()):
        rule = "a column must have a positive tolerance"
        raise ArgumentError(_SUBJECT, rule=rule, got=repr(text))
    return tolerances


def write_tolerances(given: Mapping[str | int, float]) -> str:
    """Writes tolerances as the text that `parse_tolerances` reads, for a configuration.

    Example:
        >>> write_tolerances({"pH": 0.1, "colour": FREE})
        'pH=0.1,colour=free'
    """
    file = io.StringIO()
    cells = [f"{name}={'free' if value == FREE else repr(value)}" for name, value in given.items()]
    csv.writer(file, lineterminator="").writerow(cells)
    return file.getvalue()


def _read_file(path: Path) -> list[tuple[str, Any]]:
    try:
        return list(tomllib.loads(path.read_text(encoding="utf-8")).items())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArgumentError(_SUBJECT, rule=f"{path} must be a TOML file", got=str(error)) from error


def feature_tolerances(
    given: Mapping[str | int, float],
    columns: Sequence[str],
    count: int,
    encoding: Encoding | None = None,
) -> tuple[float, ...]:
    """The tolerance of each feature: 0 for fixed features, infinity for free ones.

    A number, date, time or ordered category has its tolerance in its own unit (days, hours, steps);
    missing values stay missing. Categories are fixed or free.

    Args:
        given: tolerances by name or position of the column.
        columns: names of the features of a table of numbers, or none.
        count: number of features.
        encoding: encoding of a table that holds more than numbers.

    Raises:
        ArgumentError: no such column, or a tolerance for which nothing can be proven.

    Example:
        >>> feature_tolerances({"b": 0.5}, ("a", "b"), 2)
        (0.0, 0.5)
    """
    used = [] if encoding is None else [column.name for column in encoding.used]
    names = used if encoding is not None and encoding.named else list(columns)
    width = len(used) or count
    positions = select_positions(_SUBJECT, names, width, list(given), "tolerance")
    tolerances = [0.0] * count
    for position, value in zip(positions, given.values(), strict=True):
        column = None if encoding is None else encoding.used[position]
        group = slice(position, position + 1) if encoding is None else encoding.groups[position]
        name = names[position] if names else position
        is_category = column is not None and column.kind == "category"
        if is_category and value in (0.0, FREE):
            tolerances[group] = [value] * (group.stop - group.start)
        elif is_category or value == FREE:
            rule = "a category must be fixed or free, and nothing else can be free"
            remedy = "Drop a number that may take any value: no prediction can rest on it."
            raise ArgumentError(_SUBJECT, rule=rule, got=f"{name}={value:g}", remedy=remedy)
        else:
            tolerances[group.start] = value
    return tuple(tolerances)
