"""Values of the columns of a table: missing values, numbers, and errors about everything else."""

import datetime
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np

from taut.data.column_selection import column_label, keep_columns
from taut.data.number_and_date_parsing import read_numbers
from taut.errors import DataError

LARGEST_WHOLE = 2**53
# Types whose values float32 holds exactly.
_SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"}
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "<na>"}
_BOOLEANS = {"true": 1.0, "false": 0.0}
_COMMAS = "decimal commas"
_DROP = "Drop {it} or encode {it} as numbers"
# What a cell of text looks like, and what to do about it.
_KINDS = {
    "dates": (
        re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?"),
        f"{_DROP}, such as days since the first.",
    ),
    _COMMAS: (
        re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?"),
        "Write decimals with a point.",
    ),
    "text": (re.compile(".*", re.DOTALL), f"{_DROP}."),
}
_NO_NUMBERS = {
    "c": ("complex numbers", "Give real and imaginary parts as columns of their own."),
    "M": ("dates", "Turn them into numbers, such as days since the first one."),
    "m": ("spans of time", "Turn them into numbers, such as seconds."),
    "V": ("records", "Stack their fields as columns of one plain array."),
}


def is_missing(cell: str | None) -> bool:
    """Whether a cell of text means a missing value."""
    return cell is None or cell.strip().lower() in _MISSING


def parse_number(cell: str) -> float | None:
    """Parses the number in a cell of text: NaN if it is missing, `None` if it is not a number.

    Example:
        >>> [parse_number(cell) for cell in (" 1.5", "True", "n/a", "red", "1_000")]
        [1.5, 1.0, nan, None, None]
    """
    word = cell.strip().lower()
    if word in _MISSING:
        return float("nan")
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None


def as_column_values(values: np.ndarray) -> np.ndarray:
    """Converts a column to numbers, dates or time spans if all of its cells are such, otherwise to text.

    Returns:
        `(n,)`: numbers with NaN for a missing value; booleans; datetime64 (UTC) or timedelta64 with
        NaT; or an object array of `str`, `None` where the value is missing.

    Example:
        >>> as_column_values(np.array([1, None, 3], object))
        array([ 1., nan,  3.])
        >>> as_column_values(np.array(["a", None], object))
        array(['a', None], dtype=object)
    """
    if values.dtype.kind in "biufcMmV":
        return values
    cells = [None if _is_null(cell) else cell for cell in values.tolist()]
    there = [cell for cell in cells if cell is not None]

    def all_are(*types: type) -> bool:
        return bool(there) and all(isinstance(cell, types) for cell in there)

    if all_are(bool, np.bool_) and len(there) == len(cells):
        return np.array(cells, bool)
    if not all_are(bool, np.bool_) and all_are(Real, Decimal, np.bool_):
        if not any(isinstance(cell, Integral) and abs(int(cell)) > LARGEST_WHOLE for cell in there):
            return np.array([np.nan if cell is None else float(cell) for cell in cells])
    if all_are(datetime.date):
        return _as_times([cell if cell is None else _as_utc(cell) for cell in cells], "M8")
    if all_are(datetime.timedelta):
        return _as_times(cells, "m8")
    text = [cell if cell is None or isinstance(cell, str) else str(cell) for cell in cells]
    return np.array([*text, None], object)[:-1]


def _is_null(cell: Any) -> bool:
    if isinstance(cell, float):
        return cell != cell
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def _as_times(cells: list[Any], dtype: str) -> np.ndarray:
    """Datetimes or time spans in microseconds; in nanoseconds for pandas values that have some."""
    if not any(getattr(c, "nanosecond", getattr(c, "nanoseconds", 0)) for c in cells):
        return np.array(cells, f"{dtype}[us]")
    return np.array([getattr(c, "to_numpy", lambda c=c: c)() for c in cells], f"{dtype}[ns]")


def _as_utc(moment: Any) -> Any:
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment


def to_floats(subject: str, values: np.ndarray) -> np.ndarray:
    """Copies the numbers to float32 if it holds all values of their type, otherwise to float64.

    No whole number is rounded: one beyond `2**53` is refused.
    """
    if values.dtype.kind not in "biuf":
        unknown = ("text", "Drop it, or encode it as numbers.")
        what, remedy = _NO_NUMBERS.get(values.dtype.kind, unknown)
        rule = "values must be real numbers"
        raise DataError(subject, rule=rule, got=f"{what} (dtype {values.dtype})", remedy=remedy)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        check_whole(subject, int(values.max()))
        check_whole(subject, int(values.min()))
    with np.errstate(over="ignore"):  # overflow gives infinity, which is refused
        return values.astype(np.float32 if values.dtype.name in _SMALL else np.float64)


def stack_numbers(
    subject: str,
    columns: Sequence[np.ndarray],
    names: Sequence[str] = (),
    locate: Callable[[int], str] | None = None,
    *,
    parse: bool = False,
    selectable: bool = False,
) -> np.ndarray:
    """Columns of cells as numbers, `(n, d)`; raises for columns that hold something else.

    `parse` reads numbers in text, as of a file; `locate` says where a row is; `selectable` is
    whether the caller can leave columns out.
    """
    numbers, text = [], {}  # column -> its first non-numeric cell, and its row
    for i, cells in enumerate(columns):
        if cells.dtype.kind != "O":
            label = f"{subject}: column {column_label(names, i)}"
            numbers.append(to_floats(label if len(columns) > 1 or names else subject, cells))
            continue
        values = read_numbers(cells) if parse else None
        if values is None:
            values = [np.nan if c is None else parse_number(c) if parse else None for c in cells]
            if None in values:
                row = values.index(None)
                text[i] = (str(cells[row]).strip(), row)
                values = [0.0] * len(cells)
        values = np.array(values, np.float64)
        large = np.flatnonzero(np.abs(values) >= LARGEST_WHOLE).tolist()
        for row in large + ([text[i][1]] if i in text else []):
            cell = str(cells[row]).strip().lstrip("+-")
            if cell.isdecimal():
                location = f" in {locate(row)}" if locate else ""
                check_whole(subject, int(cell), f"{location}, column {column_label(names, i)}")
        numbers.append(values)
    if text:
        others = [names[i] if names else i for i in range(len(columns)) if i not in text]
        _refuse_text(subject, text, names, locate, others if selectable else [])
    return np.stack(numbers, axis=1)


def _refuse_text(
    subject: str,
    text: dict[int, tuple[str, int]],
    names: Sequence[str],
    locate: Callable[[int], str] | None,
    others: Sequence[str | int],
) -> NoReturn:
    kinds = {
        next(kind for kind, (form, _) in _KINDS.items() if form.fullmatch(example))
        for example, _ in text.values()
    }
    kind = kinds.pop() if len(kinds) == 1 else "text"
    columns = [column_label(names, i) for i in text]
    it, noun = ("them", "columns") if len(columns) > 1 else ("it", "column")
    some = ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")
    example, row = next(iter(text.values()))
    example = example if len(example) <= 40 else example[:40] + "..."
    raise DataError(
        subject,
        rule="every column must hold numbers",
        got=f"{kind} in {noun} {some}, such as {example!r}{f' in {locate(row)}' if locate else ''}",
        remedy=_KINDS[kind][1].format(it=it),
        option=None if kind == _COMMAS else keep_columns(others),
    )


def check_whole(subject: str, value: int, where: str = "") -> None:
    """Raises if float64 may not hold a whole number exactly."""
    if abs(value) > LARGEST_WHOLE:
        rule = "whole numbers must be at most 2**53 in size, or they lose digits"
        remedy = "Drop the column if it is an identifier, or store it as float."
        raise DataError(subject, rule=rule, got=f"{value}{where}", remedy=remedy)


def check_finite(
    subject: str,
    values: np.ndarray,
    names: Sequence[str] = (),
    locate: Callable[[int], str] = "row {} (counted from 0)".format,
    first_row: int = 0,
) -> None:
    """Raises if values are missing, NaN or infinite; reports their number and the first position."""
    # A sum is finite only if every term is, and needs no boolean array.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return
    row, column = divmod(int(np.argmax(wrong)), values.shape[1])
    count = np.count_nonzero(wrong)
    cells = "1 value is" if count == 1 else f"{count} values are"
    where = f"{locate(first_row + row)}, column {column_label(names, column)}"
    rule = (
        f"every value must be a finite number; {cells} missing or not finite, the first in {where}"
    )
    raise DataError(subject, rule=rule, remedy="Drop those rows or fill them in.")


def check_rows(subject: str, count: int) -> None:
    """Raises for a sample of fewer than two rows."""
    if count < 2:
        rule = "a sample must have at least two rows"
        raise DataError(subject, rule=rule, got=("none", "one")[count])
