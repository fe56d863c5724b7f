"""Labels in files: the label column, and the class of each label."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.data.column_selection import list_some, select_positions
from taut.data.column_values import parse_number
from taut.errors import ArgumentError, DataError

_USUAL = ("label", "target", "class", "y")
# Words that are numbers, or missing values, in a column of numbers.
_WORDS = {"true", "false", "none", "-", "?"}


class NoLabelError(ArgumentError):
    """It is unknown which column or array holds the labels."""


def find_label(subject: str, names: Sequence[str], width: int, label: str | int | None) -> int:
    """The position of the label among `width` columns.

    `label` is a name or a position, from the end if negative; text may be either. By default it is
    the only column called label, target, class or y.
    """
    if label is None:
        usual = [i for i, name in enumerate(names) if name.lower() in _USUAL]
        if len(usual) == 1:
            return usual[0]
        have = f"the columns are {list_some(names, 20)}" if names else "they have no names"
        rule = (
            f"must say which of the {width} columns holds the classes, unless just one is "
            f"called {', '.join(_USUAL)}; {have}"
        )
        remedy = f"Name it, or count from 0: {width - 1}, or -1, is the last."
        raise NoLabelError(subject, "label", rule, remedy=remedy)
    at = as_position(label)
    if at is not None and -width <= at < 0:
        at += width
    if isinstance(label, str) and label in names:
        named = names.index(label)
        if at is not None and 0 <= at < width and named != at:
            rule = (
                f"must say which column is meant; {label!r} is the name of the column at "
                f"position {named} (counted from 0), and {names[at]!r} is at position {label}"
            )
            remedy = f"Count from the end: {named - width} or {at - width}."
            raise ArgumentError(subject, "label", rule, remedy=remedy)
        at = None
    return select_positions(subject, names, width, [label if at is None else at], "label")[0]


def as_position(label: str | int | None) -> int | None:
    """Converts `label` to a position if it is a number, or text of one, as from a command line."""
    if isinstance(label, str):
        return int(label) if label.removeprefix("-").isdecimal() else None
    return label


def name_classes(subject: str, labels: Sequence[Any]) -> list[str]:
    """The name of the class of each row: whole numbers are written without a point.

    If all labels are numbers they must be whole, and NA, ? and similar cells are missing; otherwise
    labels are words.
    """
    texts = ["" if label is None else str(label).strip() for label in labels]
    numbers = [number for text in texts if (number := parse_number(text)) is not None]
    words = len(numbers) < len(texts) or {text.lower() for text in texts} <= _WORDS
    for row, text in enumerate(texts):
        if not text or (not words and math.isnan(numbers[row])):
            rule = f"every row must have a label; row {row} (counted from 0) has none"
            raise DataError(subject, rule=rule, remedy="Drop it or fill it in.")
        if not words and not numbers[row].is_integer():
            raise DataError(
                subject,
                rule=f"a label must name a class, by a whole number or a word; row {row} "
                f"(counted from 0) has {text}",
                remedy="A column of measurements is for regression.",
            )
    return texts if words else [str(int(number)) for number in numbers]


def number_classes(
    subject: str, names: Sequence[str], classes: Sequence[str] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The index of the class of each row, by its name, and the names of all classes.

    The classes are the given ones, for example those of a network, or all that occur: numbers by size,
    words alphabetically.
    """
    there = set(names)
    if classes is None:
        whole = all(name.lstrip("-").isdecimal() for name in there)
        classes = sorted(there, key=int) if whole else sorted(there)
        if len(classes) < 2:
            rule = f"there must be at least two classes; every row has {names[0]!r}"
            raise DataError(subject, rule=rule, remedy="Choose another label, or give more rows.")
    if strange := sorted(there - set(classes)):
        row = next(row for row, name in enumerate(names) if name in strange)
        remedy = "Drop such rows, or train with them."
        if not there & set(classes):
            remedy = "No row has any of them: is this the right column, and the right network?"
        rule = f"every label must be one of the classes known from training, {list_some(classes)}"
        got = f"{list_some(strange)}, first in row {row} (counted from 0)"
        raise DataError(subject, rule=rule, got=got, remedy=remedy)
    index = {name: number for number, name in enumerate(classes)}
    return np.array([index[name] for name in names], np.int64), tuple(classes)
