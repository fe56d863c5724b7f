"""What counts as a number, and the errors about the rest."""

import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np

from taut.data.columns import SELECT, column_label
from taut.errors import DataError

__all__ = [
    "check_finite",
    "check_rows",
    "check_whole",
    "float_type",
    "parse",
    "refuse_text",
    "to_floats",
]

LARGEST_WHOLE = 2**53
_SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"}
_MISSING = {"", "na", "n/a", "#n/a", "null", "none", "?", "-", "<na>"}
_BOOLEANS = {"true": 1.0, "false": 0.0}
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_SPACED = re.compile(r"[-+.\deE]+([ |:][-+.\deE]+)+")


def parse(cell: str) -> float | None:
    """The number a cell of text stands for: NaN where it is missing, `None` where it is text.

    Example:
        >>> parse(" 1.5"), parse("True"), parse("n/a"), parse("red"), parse("1_000")
        (1.5, 1.0, nan, None, None)
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
    """The same numbers as float32 or float64, of the machine's own byte order.

    float32 where it loses nothing; float64 otherwise. No whole number is rounded: one beyond
    `2**53` is refused. Never a view of `values`.
    """
    wanted = float_type(values.dtype)
    if wanted is None:
        kinds = {
            "c": ("complex numbers", "Give real and imaginary parts as columns of their own."),
            "O": ("objects", "Turn them into numbers with .astype(float)."),
            "M": ("dates", "Turn them into numbers, such as days since the first one."),
            "m": ("spans of time", "Turn them into numbers, such as seconds."),
            "V": ("records", "Stack their fields as columns of one plain array."),
        }
        what, remedy = kinds.get(values.dtype.kind, ("text", "Drop it, or encode it as numbers."))
        raise DataError(
            f"{subject}: values must be real numbers; got {what} (dtype {values.dtype}). {remedy}"
        )
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        check_whole(subject, int(values.max()))
        check_whole(subject, int(values.min()))
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        return values.astype(wanted)


def check_whole(subject: str, value: int, where: str = "") -> None:
    """Raises where float64 may not hold a whole number exactly."""
    if abs(value) > LARGEST_WHOLE:
        raise DataError(
            subject=subject,
            rule="whole numbers must be at most 2**53 in size, or they lose digits",
            got=f"{value}{where}",
            remedy="Drop the column if it is an identifier, or store it as float.",
        )


def check_finite(
    subject: str,
    values: np.ndarray,
    names: Sequence[str] = (),
    lines: np.ndarray | None = None,
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
    where = f"row {first_row + row} (counted from 0)" if lines is None else f"line {lines[row]}"
    cells = "1 value is" if count == 1 else f"{count} values are"
    raise DataError(
        f"{subject}: every value must be a finite number; {cells} missing or not finite, the first "
        f"in {where}, column {column_label(names, column)}. Drop those rows or fill them in."
    )


def check_rows(subject: str, count: int) -> None:
    """Raises for a sample of fewer than two rows."""
    if count < 2:
        raise DataError(
            subject=subject,
            rule="a sample must have at least two rows",
            got=str(("none", "one")[count]),
        )


def refuse_text(
    subject: str,
    columns: Sequence[str],
    cells: Iterable[object],
    where: str = "",
    option: str = SELECT,
) -> NoReturn:
    """Raises for columns that hold something other than numbers.

    Args:
        subject: subject of the error.
        columns: names of those columns, as `column_label` gives them.
        cells: one offending cell of each.
        where: position of the first, such as `" on line 3"`.
        option: argument by which the caller can leave columns out, if there is one.
    """
    examples = [str(cell).strip() for cell in cells]
    kinds = {_kind_of(example) for example in examples}
    kind = kinds.pop() if len(kinds) == 1 else "text"
    many = len(columns) > 1
    it = "them" if many else "it"
    remedies = {
        "dates": f"Drop {it} or encode {it} as numbers, such as days since the first.",
        "decimal commas": "Write decimals with a point.",
        "several numbers in a cell": "Separate columns by comma, semicolon or tab.",
    }
    advice = kind not in ("decimal commas", "several numbers in a cell")
    some = ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")
    first = examples[0] if len(examples[0]) <= 40 else examples[0][:40] + "..."
    raise DataError(
        subject=subject,
        rule="every column must hold numbers",
        got=f"{kind} in {'columns' if many else 'column'} {some}, such as {first!r}{where}",
        remedy=remedies.get(kind, f"Drop {it} or encode {it} as numbers."),
        option=option if advice else "",
    )


def _kind_of(example: str) -> str:
    if _DATE.fullmatch(example):
        return "dates"
    if _DECIMAL_COMMA.fullmatch(example):
        return "decimal commas"
    return "several numbers in a cell" if _SPACED.fullmatch(example) else "text"
