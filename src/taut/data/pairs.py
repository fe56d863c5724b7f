"""Pairs of samples with the same columns, matched by name or position."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from taut.data.column_selection import keep_columns, list_some
from taut.data.encoding import Encoding
from taut.data.encoding_fit import fit_encoding
from taut.data.source_base import ColumnSource
from taut.data.table import Table, TableStream
from taut.errors import DataError

First = TypeVar("First", Table, TableStream)
Second = TypeVar("Second", Table, TableStream)


class Pair(NamedTuple, Generic[First, Second]):
    """Two samples with the same columns in the same order.

    Attributes:
        first: the first sample, unchanged.
        second: the second, with its columns in the order of the first.
        notes: notes on changes and on checks that were not possible; often none.
    """

    first: First
    second: Second
    notes: tuple[str, ...]


def check_pair(first: First, second: Second) -> Pair[First, Second]:
    """Matches the columns of two samples; raises if they differ.

    If both have names, columns are matched by name; those of the second are put into the order of the
    first, with a note. If only one has names, columns are matched by position, with a note. Images must
    have the same shape, except for axes of length one.

    Example:
        >>> import numpy as np
        >>> a = Table(np.array([[1.0, 2.0], [3.0, 4.0]]), ("x", "y"), None, "a.csv")
        >>> b = Table(np.array([[5.0, 6.0], [7.0, 8.0]]), ("y", "x"), None, "b.csv")
        >>> pair = check_pair(a, b)
        >>> pair.second.values.tolist(), pair.notes
        ([[6.0, 5.0], [8.0, 7.0]], ('columns of b.csv were put into the order of a.csv',))
    """
    notes: list[str] = []
    if first.encoding != second.encoding:
        raise DataError("check_pair", rule="both samples must have one encoding; they have two")
    if first.columns and second.columns:
        _check_same(first.columns, second.columns, first.source, second.source)
        if first.columns != second.columns:
            second = second.select(first.columns)
            notes.append(_note_order(first.source, second.source))
    if first.dim != second.dim:
        raise _refuse_width(first.source, second.source, first.dim, second.dim)
    if bool(first.columns) != bool(second.columns):
        notes.append(_note_positions((second if first.columns else first).source))
    if first.image_shape and second.image_shape:
        shapes = [tuple(n for n in s.image_shape or () if n != 1) for s in (first, second)]
        if shapes[0] != shapes[1]:
            rule = f"{first.source} and {second.source} must hold images of one shape"
            got = f"{first.image_shape} and {second.image_shape}"
            raise DataError("check_pair", rule=rule, got=got)
    return Pair(first, second, tuple(notes))


def fit_pair(
    first: ColumnSource, second: ColumnSource, options: Encoding | Mapping[str, Any] | None = None
) -> tuple[Encoding, tuple[str, ...]]:
    """Fits one encoding to two tables; also returns notes as in `Pair`. Columns match as in `check_pair`.

    `options` are those of `fit_encoding`, or a fitted encoding.
    """
    notes: list[str] = []
    if isinstance(options, Encoding):
        encoding = options
    else:
        fit_options: dict[str, Any] = dict(options or {})
        if first.names and second.names and fit_options.get("columns") is None:
            dropped = {"", *map(str, fit_options.get("drop", ()))}
            ours, theirs = ([n for n in s.names if n not in dropped] for s in (first, second))
            _check_same(ours, theirs, first.name, second.name)
        elif first.width != second.width and not (first.names and second.names):
            raise _refuse_width(first.name, second.name, first.width, second.width)
        # A dropped column may exist only in the second table.
        alone = set(second.names) - set(first.names)
        fit_options["drop"] = [c for c in fit_options.get("drop", ()) if c not in alone]
        encoding = fit_encoding(first, second, **fit_options)
    if first.names and second.names and first.names != second.names:
        order = [name for name in second.names if name in first.names]
        if order != [name for name in first.names if name in second.names]:
            notes.append(_note_order(first.name, second.name))
    if bool(first.names) != bool(second.names):
        notes.append(_note_positions((second if first.names else first).name))
    return encoding, tuple(notes)


def _refuse_width(one: str, other: str, first: int, second: int) -> DataError:
    rule = f"{one} and {other} must have equally many columns"
    return DataError("check_pair", rule=rule, got=f"{first} and {second}")


def _note_order(first: str, second: str) -> str:
    return f"columns of {second} were put into the order of {first}"


def _note_positions(bare: str) -> str:
    return f"{bare} has no column names: columns were matched by position"


def _check_same(first: Sequence[str], second: Sequence[str], one: str, other: str) -> None:
    lacking = [name for name in first if name not in second]
    added = [name for name in second if name not in first]
    if lacking or added:
        parts = [f"no {list_some(lacking)} in {other}"] if lacking else []
        parts += [f"also {list_some(added)} in {other}"] if added else []
        raise DataError(
            "check_pair",
            rule=f"{one} and {other} must have the same columns",
            got=", ".join(parts),
            remedy="Give files with the same columns.",
            option=keep_columns([name for name in first if name in second]),
        )
