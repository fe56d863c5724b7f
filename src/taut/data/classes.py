"""Class indices from the labels of files: whole numbers or words."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.data.columns import list_some
from taut.data.numbers import parse
from taut.errors import DataError

__all__ = ["name_classes", "number_classes"]

# Words that a column of numbers would read as numbers, or as missing ones.
_WORDS = {"true", "false", "none", "-", "?"}


def name_classes(subject: str, labels: Sequence[Any]) -> list[str]:
    """The name of the class of each row: whole numbers are written without a point.

    If all labels are numbers they must be whole, and NA, ? and similar cells are missing; otherwise
    labels are words.

    Example:
        >>> name_classes("data", [" 3", "8.0", 5.0]), name_classes("data", ["cat", "none"])
        (['3', '8', '5'], ['cat', 'none'])
    """
    texts = ["" if label is None else str(label).strip() for label in labels]
    if "" in texts:
        raise _missing(subject, texts.index(""))
    values = [parse(text) for text in texts]
    if any(value is None for value in values) or {text.lower() for text in texts} <= _WORDS:
        return texts
    for row, value in enumerate(values):
        if value is None or math.isnan(value):
            raise _missing(subject, row)
        if not float(value).is_integer():
            raise DataError(
                f"{subject}: a label must name a class, by a whole number or a word; row {row} "
                f"(counted from 0) has {texts[row]}. A column of measurements is for regression."
            )
    return [str(int(value)) for value in values if value is not None]


def number_classes(
    subject: str, names: Sequence[str], classes: tuple[str, ...] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of the class of each row, and what the classes are called.

    Args:
        subject: subject of an error.
        names: of the class of each row.
        classes: those known already, as to a network; else all that occur, numbers by size and
            words by the alphabet.

    Example:
        >>> number_classes("data", ["10", "9", "10"])
        (array([1, 0, 1]), ('9', '10'))
    """
    there = set(names)
    if classes is None:
        whole = all(name.lstrip("-").isdecimal() for name in there)
        classes = tuple(sorted(there, key=int) if whole else sorted(there))
        if len(classes) < 2:
            raise DataError(
                f"{subject}: there must be two classes at least; every row has {names[0]!r}. "
                "Choose another label, or give more rows."
            )
    if strange := sorted(there - set(classes)):
        row = next(row for row, name in enumerate(names) if name in strange)
        remedy = "Drop such rows, or train with them."
        if not there & set(classes):
            remedy = "No row has a known one: is this the right column, and the right network?"
        raise DataError(
            f"{subject}: every label must be one of the classes known from training, "
            f"{list_some(classes)}; got {list_some(strange)}, first in row {row} (counted from 0). "
            f"{remedy}"
        )
    position = {name: number for number, name in enumerate(classes)}
    return np.array([position[name] for name in names], np.int64), classes


def _missing(subject: str, row: int) -> DataError:
    return DataError(
        f"{subject}: every row must have a label; row {row} (counted from 0) has none. "
        "Drop it or fill it in."
    )
