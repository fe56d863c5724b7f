"""Which column of a table holds the labels, and whether its first line names the columns."""

from collections.abc import Callable, Sequence

from taut.data.columns import list_some, select_positions
from taut.data.numbers import parse
from taut.errors import ArgumentError

__all__ = ["NoLabelError", "find_label", "has_header"]

_USUAL = ("label", "target", "class", "y")


class NoLabelError(ArgumentError):
    """Nothing says which column or array holds the labels."""


def has_header(
    subject: str,
    first: Sequence[str],
    label: str | int | None,
    cells_of: Callable[[int], Sequence[str]],
) -> bool:
    """Whether the first line names the columns.

    It does if it has a word, or a missing cell, outside the column of the labels: there words may
    be classes. It does too if it counts the columns, 0, 1, 2, ..., or if it alone has the name that
    `label` asks for. Other lines of numbers are rows.

    Args:
        subject: subject of an error.
        first: the cells of the first line.
        label: the requested column; text may be a name or a position.
        cells_of: the cells of one column, the first line's too.

    Raises:
        ArgumentError: the line may be a row or a header, and `label` a position or a name in it.

    Example:
        >>> def read(column): return ["5", "6"]
        >>> has_header("data", ["7.4", "11", "5"], "2", read)
        False
        >>> has_header("data", ["acid", "sugar", "5"], "2", read)
        True
    """
    width, at = len(first), _as_position(label)
    if at is None:
        if label in first:
            return True
        at = width
    at = at + width if at < 0 else at
    if any(parse(cell) is None for i, cell in enumerate(first) if i != at):
        return True
    inside = 0 <= at < width
    if width > 2 and all(cell == str(i) for i, cell in enumerate(first) if i != at):
        # So a table is written that had no names. The label's own may be a name or a class.
        return not inside or first[at] == str(at) or cells_of(at).count(first[at]) == 1
    if not (isinstance(label, str) and label in first and _could_be_names(first)):
        return False
    if not inside:
        return True
    raise ArgumentError(
        f"{subject}: `label` must say which column is meant; the first line, {list_some(first)}, "
        f"may be a row or a header, and {label!r} the column at position {label} or the one with "
        f"that name. For a table without a header count from the end: {at - width}. Or name the "
        "columns by words."
    )


def find_label(subject: str, names: Sequence[str], width: int, label: str | int | None) -> int:
    """The position of the label among `width` columns.

    Args:
        subject: subject of an error.
        names: of the columns, or none.
        width: how many there are.
        label: a name or a position, from the end if negative; text may be either. By default the
            one called label, target, class or y.

    Example:
        >>> find_label("data", ["a", "b", "Class"], 3, None), find_label("data", [], 3, "-2")
        (2, 1)
    """
    if label is None:
        usual = [i for i, name in enumerate(names) if name.lower() in _USUAL]
        if len(usual) == 1:
            return usual[0]
        have = f"the columns are {list_some(names, 20)}" if names else "they have no names"
        raise NoLabelError(
            f"{subject}: `label` must say which of the {width} columns holds the classes, unless "
            f"just one is called {', '.join(_USUAL)}; {have}. "
            f"Name it, or count from 0: {width - 1}, or -1, is the last."
        )
    at = _as_position(label)
    if at is not None and -width <= at < 0:
        at += width
    if isinstance(label, str) and label in names:
        named = names.index(label)
        if at is not None and 0 <= at < width and named != at:
            raise ArgumentError(
                f"{subject}: `label` must say which column is meant; {label!r} is the name of the "
                f"column at position {named} (counted from 0), and {names[at]!r} is at position "
                f"{label}. Count from the end: {named - width} or {at - width}."
            )
        at = None
    return select_positions(subject, names, width, [label if at is None else at], "label")[0]


def _as_position(label: str | int | None) -> int | None:
    """The number that `label` is, or that its text says: a command line has only text."""
    if isinstance(label, str):
        return int(label) if label.removeprefix("-").isdecimal() else None
    return label


def _could_be_names(first: Sequence[str]) -> bool:
    """Names that are numbers are whole and differ; few rows of measures are so."""
    return all(cell.isdecimal() for cell in first) and len(set(first)) == len(first)
