"""What counts as a number, and the errors about the rest."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from taut.data.columns import SELECT, column_label
from taut.errors import DataError

__all__ = [
    "check_finite",
    "check_rows",
    "check_whole",
    "convert_cells",
    "float_type",
    "parse_number",
    "to_floats",
]

LARGEST_WHOLE = 2**53
_SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"}
_MISSING = {"", "na", "n/a", "#n/a", "null", "none", "?", "-", "<na>"}
_BOOLEANS = {"true": 1.0, "false": 0.0}
_DROP = "Drop {it} or encode {it} as numbers"
# What a cell of text looks like, and what to do about it.
_KINDS = {
    "dates": (
        re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?"),
        f"{_DROP}, such as days since the first.",
    ),
    "decimal commas": (
        re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?"),
        "Write decimals with a point.",
    ),
    "several numbers in a cell": (
        re.compile(r"[-+.\deE]+([ |:][-+.\deE]+)+"),
        "Separate columns by comma, semicolon or tab.",
    ),
    "text": (re.compile(".*", re.DOTALL), f"{_DROP}."),
}
_NO_NUMBERS = {
    "c": ("complex numbers", "Give real and imaginary parts as columns of their own."),
    "O": ("objects", "Turn them into numbers with .astype(float)."),
    "M": ("dates", "Turn them into numbers, such as days since the first one."),
    "m": ("spans of time", "Turn them into numbers, such as seconds."),
    "V": ("records", "Stack their fields as columns of one plain array."),
}


def parse_number(cell: str) -> float | None:
    """The number in a cell of text: NaN where it is missing, `None` where the cell holds text.

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


def float_type(dtype: np.dtype) -> np.dtype | None:
    """float32 where it holds every value of `dtype`, else float64; `None` for what is no number.

    Example:
        >>> float_type(np.dtype("uint8")), float_type(np.dtype("int64"))
        (dtype('float32'), dtype('float64'))
        >>> float_type(np.dtype("complex64")) is None
        True
    """
    if dtype.name in _SMALL:
        return np.dtype(np.float32)
    return np.dtype(np.float64) if dtype.kind in "iuf" else None


def to_floats(subject: str, values: np.ndarray) -> np.ndarray:
    """A copy of the numbers in their `float_type`, in native byte order.

    No whole number is rounded: one beyond `2**53` is refused.
    """
    wanted = float_type(values.dtype)
    if wanted is None:
        unknown = ("text", "Drop it, or encode it as numbers.")
        what, remedy = _NO_NUMBERS.get(values.dtype.kind, unknown)
        raise DataError(
            subject=subject,
            rule="values must be real numbers",
            got=f"{what} (dtype {values.dtype})",
            remedy=remedy,
        )
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        check_whole(subject, int(values.max()))
        check_whole(subject, int(values.min()))
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        return values.astype(wanted)


def convert_cells(
    subject: str,
    cells: Sequence[Sequence[Any]],
    number: Callable[[Any], float | None],
    names: Sequence[str] = (),
    locate: Callable[[int], str] | None = None,
    option: str = SELECT,
) -> np.ndarray:
    """The numbers in rows of cells, in float64; raises for columns that hold something else.

    `number` finds the number in a cell, or returns `None`; `locate` says where a row is; `option`
    is the argument by which the caller can leave columns out.
    """
    numbers = [[number(cell) for cell in row] for row in cells]
    text: dict[int, int] = {}  # column -> its first row without a number
    for at, row in enumerate(numbers):
        for column, value in enumerate(row):
            if value is None:
                text.setdefault(column, at)
    if text:
        columns = sorted(text)
        examples = [str(cells[text[column]][column]).strip() for column in columns]
        where = f" on {locate(text[columns[0]])}" if locate else ""
        _refuse_text(subject, [column_label(names, i) for i in columns], examples, where, option)
    return np.array(numbers, dtype=np.float64)


def _refuse_text(
    subject: str, columns: list[str], examples: list[str], where: str, option: str
) -> NoReturn:
    kinds = {
        next(kind for kind, (form, _) in _KINDS.items() if form.fullmatch(example))
        for example in examples
    }
    kind = kinds.pop() if len(kinds) == 1 else "text"
    remedy = _KINDS[kind][1]
    it, noun = ("them", "columns") if len(columns) > 1 else ("it", "column")
    some = ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")
    first = examples[0] if len(examples[0]) <= 40 else examples[0][:40] + "..."
    raise DataError(
        subject=subject,
        rule="every column must hold numbers",
        got=f"{kind} in {noun} {some}, such as {first!r}{where}",
        remedy=remedy.format(it=it),
        option=option if remedy.startswith(_DROP) else "",
    )


def check_whole(subject: str, value: int, where: str = "") -> None:
    """Raises where float64 may not hold a whole number exactly."""
    if abs(value) > LARGEST_WHOLE:
        rule = "whole numbers must be at most 2**53 in size, or they lose digits"
        remedy = "Drop the column if it is an identifier, or store it as float."
        raise DataError(subject=subject, rule=rule, got=f"{value}{where}", remedy=remedy)


def check_finite(
    subject: str,
    values: np.ndarray,
    names: Sequence[str] = (),
    locate: Callable[[int], str] = "row {} (counted from 0)".format,
    first_row: int = 0,
) -> None:
    """Raises where a value is missing, NaN or infinite; says how many and where the first is."""
    # A sum is finite only if every term is, and needs no array of answers.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    finite = np.isfinite(values)
    if finite.all():
        return
    row, column = divmod(int(np.argmin(finite)), values.shape[1])
    count = int(finite.size - np.count_nonzero(finite))
    cells = "1 value is" if count == 1 else f"{count} values are"
    where = f"{locate(first_row + row)}, column {column_label(names, column)}"
    raise DataError(
        f"{subject}: every value must be a finite number; {cells} missing or not finite, the first "
        f"in {where}. Drop those rows or fill them in."
    )


def check_rows(subject: str, count: int) -> None:
    """Raises for a sample of fewer than two rows."""
    if count < 2:
        rule = "a sample must have at least two rows"
        raise DataError(subject=subject, rule=rule, got=("none", "one")[count])
