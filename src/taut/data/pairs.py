"""`check_pair`: two samples are compared only if their columns mean the same."""

from typing import Generic, NamedTuple, TypeVar

from taut.data.columns import SELECT, list_some
from taut.data.table import Table, TableStream
from taut.errors import DataError

__all__ = ["Pair", "check_pair"]


First = TypeVar("First", Table, TableStream)
Second = TypeVar("Second", Table, TableStream)


class Pair(NamedTuple, Generic[First, Second]):
    """Two samples with the same columns in the same order.

    Attributes:
        first: the first sample, as it came.
        second: the second, with its columns in the order of the first.
        notes: sentences about what was done or could not be checked; often none.
    """

    first: First
    second: Second
    notes: tuple[str, ...]


def check_pair(first: First, second: Second) -> Pair[First, Second]:
    """The two samples with the same columns in the same order, or an error that says what differs.

    Names decide where both have names: the same names in another order are put in the order of
    the first, and a note says so. Where only one has names, positions decide, and a note says so.
    Images must have the same shape, axes of length one aside.

    Example:
        >>> import numpy as np
        >>> a = Table(np.array([[1.0, 2.0], [3.0, 4.0]]), ("x", "y"), None, "a.csv")
        >>> b = Table(np.array([[5.0, 6.0], [7.0, 8.0]]), ("y", "x"), None, "b.csv")
        >>> pair = check_pair(a, b)
        >>> pair.second.values.tolist(), pair.notes
        ([[6.0, 5.0], [8.0, 7.0]], ('columns of b.csv were put into the order of a.csv',))
    """
    notes: list[str] = []

    def refuse(rule: str, got: str, remedy: str = "", option: str = "") -> DataError:
        rule = f"{first.source} and {second.source} must {rule}"
        return DataError(subject="check_pair", rule=rule, got=got, remedy=remedy, option=option)

    if first.columns and second.columns:
        lacking = [name for name in first.columns if name not in second.columns]
        added = [name for name in second.columns if name not in first.columns]
        if lacking or added:
            parts = [f"no {list_some(lacking)} in {second.source}"] if lacking else []
            parts += [f"also {list_some(added)} in {second.source}"] if added else []
            remedy = "Give files with the same columns."
            raise refuse("have the same columns", ", ".join(parts), remedy, SELECT)
        if first.columns != second.columns:
            second = second.select(first.columns)
            notes.append(f"columns of {second.source} were put into the order of {first.source}")
    if first.dim != second.dim:
        raise refuse("have equally many columns", f"{first.dim} and {second.dim}")
    if bool(first.columns) != bool(second.columns):
        bare = second if first.columns else first
        notes.append(f"{bare.source} has no column names: columns were matched by position")
    if first.image_shape and second.image_shape:
        shapes = [tuple(n for n in s.image_shape or () if n != 1) for s in (first, second)]
        if shapes[0] != shapes[1]:
            got = f"{first.image_shape} and {second.image_shape}"
            raise refuse("hold images of one shape", got)
    return Pair(first, second, tuple(notes))
