"""Parsers for the text formats of numbers, dates and times in a column."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d*)?([eE][+-]?\d+)?")
_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?"
_ISO = re.compile(r"\d{4}([-/])\d{2}\1\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?")
_ZONED = re.compile(_ISO.pattern + r" ?(Z|UTC|[+-]\d{2}:?\d{2})")
_DAY_MONTH_YEAR = re.compile(
    rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d{{2}})(?:[ T]+{_CLOCK} ?([AP]M)?)?"
)
_TIME = re.compile(r"(\d{1,2})([:.])(\d{2})(?:\2(\d{2}))?(\.\d+)?")
_MONTH_NAMES = ("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%y")


def to_days(datetimes: np.ndarray) -> np.ndarray:
    """Datetimes as days since 1970, to 0.4 microseconds in this century; NaT becomes NaN."""
    return to_unit(_at_least_micro(datetimes) - np.datetime64(0, "us"), "D")


def to_unit(timedeltas: np.ndarray, unit: str) -> np.ndarray:
    """Timedeltas in a unit such as hours; NaT becomes NaN."""
    return _at_least_micro(timedeltas) / np.timedelta64(1, unit)


def _at_least_micro(values: np.ndarray) -> np.ndarray:
    """Datetimes or timedeltas in microseconds, or in their own unit if that is finer."""
    if np.datetime_data(values.dtype)[0] in ("ns", "ps", "fs", "as"):
        return values
    return values.astype(f"{values.dtype.kind}8[us]")


def read_numbers(texts: Sequence[str] | np.ndarray) -> np.ndarray | None:
    """Parses plain numbers at the speed of numpy; `None` if a text is missing or no plain number."""
    try:
        # numpy reads 1_000 as a number; a table means an identifier.
        return None if "_" in "".join(texts) else np.array(texts, np.float64)
    except (ValueError, TypeError):
        return None


def parse_column(format: str, texts: Sequence[str]) -> np.ndarray | None:
    """Parses the texts in one of the `FORMATS` to numbers, days or hours; `None` if one does not match.

    Example:
        >>> parse_column("decimal comma", ["1.234,5", "7"]), parse_column("day first", ["31/12/1970"])
        (array([1234.5,    7. ]), array([364.]))
        >>> parse_column("time", ["6:30"]), parse_column("number", ["red"])
        (array([6.5]), None)
    """
    distinct = list(dict.fromkeys(texts))
    try:
        values = FORMATS[format][1](distinct)
    except (ValueError, OverflowError):
        return None
    if values is None or len(distinct) == len(texts):
        return values
    value_of = dict(zip(distinct, values.tolist(), strict=True))
    return np.array([value_of[text] for text in texts])


def _with_separators(pattern: re.Pattern[str], thousands: str, decimal: str) -> Callable:
    def read(texts: Sequence[str]) -> np.ndarray | None:
        if not all(map(pattern.fullmatch, texts)):
            return None
        return read_numbers([text.replace(thousands, "").replace(decimal, ".") for text in texts])

    return read


def _add_fractions(datetimes: Sequence[Any], fractions: Sequence[str | None]) -> np.ndarray:
    """Datetimes in whole seconds plus fractions of a second, such as ".25", as days since 1970."""
    digits = [(fraction or ".")[1:].ljust(6, "0") for fraction in fractions]
    micro = np.array([int(text[:6]) for text in digits], "m8[us]")
    finer = np.array([float(f"0.000000{text[6:]}") for text in digits])
    return to_days(np.array(datetimes, "M8[us]") + micro) + finer / 86400


def _iso(texts: Sequence[str]) -> np.ndarray | None:
    zoned = not all(map(_ISO.fullmatch, texts))
    datetimes, fractions = [], []
    for text in texts:
        if (match := (_ZONED if zoned else _ISO).fullmatch(text)) is None:
            return None
        fractions.append(match[4])
        text = text.replace(match[4] or "", "", 1)
        if zoned:
            utc = datetime.fromisoformat(text.replace(" UTC", "Z").replace(" +", "+"))
            datetimes.append(utc.astimezone(UTC).replace(tzinfo=None))
        else:
            datetimes.append(text.replace("/", "-"))
    return _add_fractions(datetimes, fractions)


def _day_month_year(day_first: bool) -> Callable:
    def read(texts: Sequence[str]) -> np.ndarray | None:
        datetimes, fractions = [], []
        for text in texts:
            if (match := _DAY_MONTH_YEAR.fullmatch(text.upper())) is None:
                return None
            first, mark, second, year, hour, minute, second_of, fraction, half = match.groups()
            if mark == "." and not day_first:
                return None
            day, month = (first, second) if day_first else (second, first)
            full = int(year) if len(year) == 4 else int(year) + (1900 if int(year) > 68 else 2000)
            of_day = int(hour or 0) % 12 + 12 * (half == "PM") if half else int(hour or 0)
            clock = of_day, int(minute or 0), int(second_of or 0)
            datetimes.append(datetime(full, int(month), int(day), *clock))
            fractions.append(fraction)
        return _add_fractions(datetimes, fractions)

    return read


def _month_names(texts: Sequence[str]) -> np.ndarray | None:
    for format in _MONTH_NAMES:
        try:
            return to_days(
                np.array([datetime.strptime(t, format) for t in texts], "datetime64[us]")
            )
        except ValueError:
            continue
    return None


def _time(texts: Sequence[str]) -> np.ndarray | None:
    hours = []
    for text in texts:
        match = _TIME.fullmatch(text)
        if match is None or (match[2] == "." and match[4] is None):
            return None
        hour, minute = int(match[1]), int(match[3])
        second = float((match[4] or "0") + (match[5] or ""))
        if hour > 24 or minute > 59 or second >= 60:
            return None
        hours.append(hour + minute / 60 + second / 3600)
    return np.array(hours)


# Format name -> (kind of value, parser).
FORMATS: dict[str, tuple[str, Callable]] = {
    "number": ("number", read_numbers),
    "decimal comma": ("number", _with_separators(_DECIMAL_COMMA, ".", ",")),
    "thousands comma": ("number", _with_separators(_THOUSANDS, ",", ".")),
    "ISO": ("date", _iso),
    "day first": ("date", _day_month_year(day_first=True)),
    "month first": ("date", _day_month_year(day_first=False)),
    "month name": ("date", _month_names),
    "time": ("time", _time),
}
