"""Columns: names in messages, and selections."""

import csv
import operator
from collections import Counter
from collections.abc import Iterable, Sequence

from taut.errors import ArgumentError, DataError, did_you_mean

# A selection by names, or by positions counted from 0; None for all.
Columns = Sequence[str | int] | None
_MOST_SUGGESTED = 12


def list_some(items: Iterable[object], most: int = 8) -> str:
    """Lists the items in a sentence, only the first few if there are many.

    Example:
        >>> list_some(["a", 3]), list_some(range(10), most=2)
        ("'a', 3", '0, 1 and 8 more')
    """
    shown = [repr(item) for item in items]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def keep_columns(names: Sequence[str | int]) -> tuple[str, list[str | int]] | None:
    """The remedy to select only these columns, for the field `option` of an error; None for many."""
    return ("columns", [*names]) if 0 < len(names) <= _MOST_SUGGESTED else None


def parse_columns(text: str) -> list[str | int]:
    """Parses column names and positions from text; a name with a comma is quoted.

    Example:
        >>> parse_columns('age, "height, cm", 3')
        ['age', 'height, cm', 3]
    """
    cells = [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]
    if not cells or "" in cells:
        rule = "must be a list of columns, like age,income,3"
        raise ArgumentError("data", "columns", rule, repr(text))
    return [int(cell) if cell.isdecimal() else cell for cell in cells]


def column_label(names: Sequence[str], position: int) -> str:
    """The name of a column in a sentence.

    Example:
        >>> column_label(("age", ""), 0), column_label(("age", ""), 1), column_label((), 4)
        ("'age'", '1 (counted from 0)', '4 (counted from 0)')
    """
    if names and names[position]:
        return repr(names[position])
    return f"{position} (counted from 0)"


def describe_columns(names: Sequence[str], positions: Sequence[int]) -> str:
    """The names of at least one column in a note.

    Example:
        >>> describe_columns(("a", "b"), [1]), describe_columns((), [0, 1])
        ("column 'b'", 'columns 0, 1 (counted from 0)')
        >>> describe_columns(("column 0", "column 1"), [1])  # without a header
        "'column 1'"
    """
    if len(positions) == 1:
        label = column_label(names, positions[0])
        return label if label.startswith("'column ") else f"column {label}"
    some = list_some([names[i] for i in positions] if names else positions)
    return f"columns {some}" if names else f"columns {some} (counted from 0)"


def select_positions(
    subject: str, names: Sequence[str], dim: int, columns: Columns, argument: str = "columns"
) -> list[int]:
    """The positions of the selected columns among `dim`, in the order of the selection.

    `names` are `dim` names, or empty if the columns have none; `argument` is the name of the selection in
    errors. A selection of `None` selects all columns.

    Example:
        >>> select_positions("data", ("a", "b", "c"), 3, ["c", 0])
        [2, 0]
    """
    if columns is None:
        return list(range(dim))

    def refuse(rule: str, got: str, remedy: str = "") -> ArgumentError:
        return ArgumentError(subject, argument, rule, got, remedy)

    def position_of(column: str | int) -> int:
        last = dim - 1
        if isinstance(column, str):
            if not names:
                rule = "must be positions, because the columns have no names"
                raise refuse(rule, repr(column), f"Use numbers from 0 to {last}.")
            count = names.count(column)
            if not count:
                near = did_you_mean(repr(column), map(repr, names))
                raise refuse(f"must be among {list_some(names, 20)}", repr(column), near)
            if count > 1:
                rule = "must name one column; use positions where names repeat"
                raise refuse(rule, f"{column!r}, the name of {count}")
            return names.index(column)
        try:
            position = operator.index(column)
        except TypeError:
            position = -1
        if isinstance(column, bool) or not 0 <= position < dim:
            raise refuse(f"must be names, or positions from 0 to {last}", repr(column))
        return position

    if isinstance(columns, str) or not columns:
        raise refuse("must be a list of names or positions, at least one", f"columns={columns!r}")
    positions = [position_of(column) for column in columns]
    counts = Counter(positions)
    if twice := [column for column, at in zip(columns, positions, strict=True) if counts[at] > 1]:
        raise refuse("must name each column once", f"{list_some(twice)} for the same one")
    return positions


def check_names(subject: str, names: Sequence[str]) -> None:
    """Raises unless all names are non-empty and different."""
    if "" in names:
        raise DataError(
            subject,
            rule="every column must have a name",
            got=f"none for column {names.index('')} (counted from 0), which is often an index "
            "saved by mistake",
            remedy="Drop it or name it.",
            option=keep_columns([name for name in names if name]),
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            subject,
            rule="columns must have different names",
            got=f"{list_some(twice)} more than once",
            remedy="Rename them.",
            option=keep_columns([name for name in names if name not in twice]),
        )
