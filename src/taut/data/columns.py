"""Columns: how they are called, and which of them are chosen."""

import operator
from collections import Counter
from collections.abc import Iterable, Sequence

from taut.errors import ArgumentError, DataError

__all__ = ["ColumnChoice", "check_names", "choose", "label", "list_some"]

# Names, or positions counted from 0.
ColumnChoice = Sequence[str | int] | None


def list_some(items: Iterable[object], most: int = 8) -> str:
    """The items as a sentence lists them, the first few of many.

    Example:
        >>> list_some(["a", 3])
        "'a', 3"
        >>> list_some(range(10), most=2)
        '0, 1 and 8 more'
    """
    shown = [repr(item) for item in items]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def label(names: Sequence[str], position: int) -> str:
    """What a sentence calls a column.

    Example:
        >>> label(("age", ""), 0), label(("age", ""), 1), label((), 4)
        ("'age'", '1 (counted from 0)', '4 (counted from 0)')
    """
    if names and names[position]:
        return repr(names[position])
    return f"{position} (counted from 0)"


def choose(subject: str, names: Sequence[str], dim: int, columns: ColumnChoice) -> list[int]:
    """The positions of the chosen columns among `dim`, in the order of the choice.

    Args:
        subject: who speaks in an error.
        names: `dim` names, or none where the columns have no names.
        dim: how many columns there are.
        columns: names or positions; `None` chooses all.

    Example:
        >>> choose("data", ("a", "b", "c"), 3, ["c", 0])
        [2, 0]
    """
    if columns is None:
        return list(range(dim))
    if isinstance(columns, str) or not columns:
        raise ArgumentError(
            f"{subject}: `columns` must be a list of names or positions, at least one; "
            f"got columns={columns!r}."
        )
    found = [_position(subject, names, dim, column) for column in columns]
    if twice := [
        column for column, position in zip(columns, found, strict=True) if found.count(position) > 1
    ]:
        raise ArgumentError(
            f"{subject}: `columns` must name a column once; got {list_some(twice)} for the same one."
        )
    return found


def _position(subject: str, names: Sequence[str], dim: int, column: str | int) -> int:
    if isinstance(column, str):
        if not names:
            raise ArgumentError(
                f"{subject}: `columns` must be positions, since the columns have no names; "
                f"got {column!r}. Use numbers from 0 to {dim - 1}."
            )
        if column not in names:
            raise ArgumentError(
                f"{subject}: `columns` must be among {list_some(names, 20)}; got {column!r}."
            )
        if names.count(column) > 1:
            raise ArgumentError(
                f"{subject}: `columns` must say which column is meant; {column!r} is the name of "
                f"{names.count(column)}. Use positions from 0 to {dim - 1}."
            )
        return names.index(column)
    try:
        position = operator.index(column)
    except TypeError:
        position = -1
    if isinstance(column, bool) or not 0 <= position < dim:
        raise ArgumentError(
            f"{subject}: `columns` must be names, or positions from 0 to {dim - 1}; got {column!r}."
        )
    return position


def check_names(subject: str, names: Sequence[str]) -> None:
    """Raises unless every name is there and differs from the others."""
    if not names:
        return
    if "" in names:
        raise DataError(
            f"{subject}: every column must have a name; column {names.index('')} (counted from 0) "
            "has none. A column without a name is often an index saved by mistake: choose the "
            "others with columns=[...], or name it."
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{subject}: columns must have different names; got {list_some(twice)} more than once. "
            "Rename them, or choose one of each by position with columns=[...]."
        )
