"""How text writes numbers, dates and times: the forms that a column of a file may have."""

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
_PARTS = re.compile(
    rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d{{2}})(?:[ T]+{_CLOCK} ?([AP]M)?)?"
)
_TIME = re.compile(r"(\d{1,2})([:.])(\d{2})(?:\2(\d{2}))?(\.\d+)?")
_MONTH_NAMES = ("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%y")


def days(moments: np.ndarray) -> np.ndarray:
    """Moments as days since 1970, to 0.4 microseconds in this century; NaN where there is none."""
    return divide_spans(_at_least_micro(moments) - np.datetime64(0, "us"), "D")


def divide_spans(spans: np.ndarray, unit: str) -> np.ndarray:
    """Spans of time in a unit such as hours; NaN where there is none."""
    return _at_least_micro(spans) / np.timedelta64(1, unit)


def _at_least_micro(values: np.ndarray) -> np.ndarray:
    """Moments or spans in microseconds, or in their own unit if that is finer."""
    if np.datetime_data(values.dtype)[0] in ("ns", "ps", "fs", "as"):
        return values
    return values.astype(f"{values.dtype.kind}8[us]")


def read_numbers(texts: Sequence[str] | np.ndarray) -> np.ndarray | None:
    """Plain numbers, at the speed of numpy; `None` if one of the texts is missing or something else."""
    try:
        # numpy reads 1_000 as a number; a table means an identifier.
        return None if "_" in "".join(texts) else np.array(texts, np.float64)
    except (ValueError, TypeError):
        return None


def read_form(form: str, texts: Sequence[str]) -> np.ndarray | None:
    """What the texts say in one of the `FORMS`: numbers, days or hours; `None` if one does not fit.

    Example:
        >>> read_form("decimal comma", ["1.234,5", "7"]), read_form("day first", ["31/12/1970"])
        (array([1234.5,    7. ]), array([364.]))
        >>> read_form("time", ["6:30"]), read_form("number", ["red"])
        (array([6.5]), None)
    """
    distinct = list(dict.fromkeys(texts))
    try:
        values = FORMS[form][1](distinct)
    except (ValueError, OverflowError):
        return None
    if values is None or len(distinct) == len(texts):
        return values
    known = dict(zip(distinct, values.tolist(), strict=True))
    return np.array([known[text] for text in texts])


def _marked(form: re.Pattern[str], thousands: str, decimal: str) -> Callable:
    def read(texts: Sequence[str]) -> np.ndarray | None:
        if not all(map(form.fullmatch, texts)):
            return None
        return read_numbers([text.replace(thousands, "").replace(decimal, ".") for text in texts])

    return read


def _add_fractions(moments: Sequence[Any], fractions: Sequence[str | None]) -> np.ndarray:
    """Moments in whole seconds, with fractions such as ".25" of a second, as days since 1970."""
    digits = [(fraction or ".")[1:].ljust(6, "0") for fraction in fractions]
    micro = np.array([int(text[:6]) for text in digits], "m8[us]")
    finer = np.array([float(f"0.000000{text[6:]}") for text in digits])
    return days(np.array(moments, "M8[us]") + micro) + finer / 86400


def _iso(texts: Sequence[str]) -> np.ndarray | None:
    zoned = not all(map(_ISO.fullmatch, texts))
    moments, fractions = [], []
    for text in texts:
        if (found := (_ZONED if zoned else _ISO).fullmatch(text)) is None:
            return None
        fractions.append(found[4])
        text = text.replace(found[4] or "", "", 1)
        if zoned:
            moment = datetime.fromisoformat(text.replace(" UTC", "Z").replace(" +", "+"))
            moments.append(moment.astimezone(UTC).replace(tzinfo=None))
        else:
            moments.append(text.replace("/", "-"))
    return _add_fractions(moments, fractions)


def _parts(day_first: bool) -> Callable:
    def read(texts: Sequence[str]) -> np.ndarray | None:
        moments, fractions = [], []
        for text in texts:
            if (found := _PARTS.fullmatch(text.upper())) is None:
                return None
            first, mark, second, year, hour, minute, second_of, fraction, half = found.groups()
            if mark == "." and not day_first:
                return None
            day, month = (first, second) if day_first else (second, first)
            full = int(year) if len(year) == 4 else int(year) + (1900 if int(year) > 68 else 2000)
            of_day = int(hour or 0) % 12 + 12 * (half == "PM") if half else int(hour or 0)
            clock = of_day, int(minute or 0), int(second_of or 0)
            moments.append(datetime(full, int(month), int(day), *clock))
            fractions.append(fraction)
        return _add_fractions(moments, fractions)

    return read


def _month_names(texts: Sequence[str]) -> np.ndarray | None:
    for form in _MONTH_NAMES:
        try:
            return days(np.array([datetime.strptime(t, form) for t in texts], "datetime64[us]"))
        except ValueError:
            continue
    return None


def _time(texts: Sequence[str]) -> np.ndarray | None:
    hours = []
    for text in texts:
        found = _TIME.fullmatch(text)
        if found is None or (found[2] == "." and found[4] is None):
            return None
        hour, minute = int(found[1]), int(found[3])
        second = float((found[4] or "0") + (found[5] or ""))
        if hour > 24 or minute > 59 or second >= 60:
            return None
        hours.append(hour + minute / 60 + second / 3600)
    return np.array(hours)


# Names of forms, the kind of what they write, and its readers.
FORMS: dict[str, tuple[str, Callable]] = {
    "number": ("number", read_numbers),
    "decimal comma": ("number", _marked(_DECIMAL_COMMA, ".", ",")),
    "thousands comma": ("number", _marked(_THOUSANDS, ",", ".")),
    "ISO": ("date", _iso),
    "day first": ("date", _parts(day_first=True)),
    "month first": ("date", _parts(day_first=False)),
    "month name": ("date", _month_names),
    "time": ("time", _time),
}
