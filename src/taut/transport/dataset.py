"""What may be passed as a data set: rows in memory, or a stream that can be read again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taut.data import (
    ColumnSource,
    Encoding,
    FrameSource,
    Pair,
    Table,
    TableStream,
    as_table,
    check_pair,
    describe_columns,
    fit_pair,
    is_frame,
    list_some,
    read_source,
    select_positions,
)
from taut.errors import ArgumentError, DataError

_BATCH_CELLS = 2**20
# 512 MB of float64.
_MOST_CELLS = 2**26


class BatchStream:
    """An iterable of batches that can be iterated again, such as a loader, never held whole.

    The attributes are those of a `Table`; `first` is a batch, of which `chosen` columns are taken.
    """

    encoding = None  # batches hold numbers

    def __init__(
        self, data: Iterable[Any], name: str, first: Table, chosen: list[int] | None = None
    ) -> None:
        self._data, self._first, self.source = data, first, name
        self._chosen = list(range(first.dim)) if chosen is None else chosen
        some = first.select(self._chosen)
        self.columns, self.dim, self.image_shape = some.columns, some.dim, some.image_shape

    def __iter__(self) -> Iterator[Table]:
        for at, item in enumerate(self._data):
            batch = as_table([item], f"{self.source}, batch {at}", min_rows=1)
            if batch.dim != self._first.dim or batch.columns != self._first.columns:
                raise DataError(
                    subject=self.source,
                    rule=f"every batch must have the columns of the first, {self._first.dim} of them",
                    got=f"{batch.dim} columns, or other names, in batch {at}",
                )
            yield batch.select(self._chosen)

    def select(self, columns: Sequence[str | int]) -> "BatchStream":
        """The same stream with the selected columns, in the given order."""
        selected = select_positions(self.source, self.columns, self.dim, columns)
        chosen = [self._chosen[i] for i in selected]
        return BatchStream(self._data, self.source, self._first, chosen)


Dataset = Table | TableStream | BatchStream


def open_pair(
    x: Any, y: Any, encoding: Encoding | Mapping[str, Any] | None = None
) -> Pair[Any, Any]:
    """Both data sets with the same features; tables of columns are encoded.

    `encoding` is an encoding of the columns, or options of `taut.data.fit_encoding`.
    """
    first, second = columns_of(x, "x"), columns_of(y, "y")
    if first is None or second is None:
        if encoding is not None:
            raise ArgumentError(
                subject="wasserstein",
                argument="encoding",
                rule="needs two tables with columns: frames, or streams of text or parquet files",
                got=f"{type(x).__name__} and {type(y).__name__}",
            )
        sides: Any = open_dataset(x, "x"), open_dataset(y, "y")
        return check_pair(*sides)
    found, notes = fit_pair(first, second, encoding)
    encoded: Any = open_dataset(x, "x", 2, found), open_dataset(y, "y", 2, found)
    pair = check_pair(*encoded)
    return pair._replace(notes=(*notes, *pair.notes))


def columns_of(data: Any, name: str) -> ColumnSource | None:
    """The columns of a table before they are encoded; `None` where there are none."""
    if isinstance(data, TableStream):
        return None if data.choice is not None else data.table
    return FrameSource(data, name) if is_frame(data) else None


def open_dataset(
    data: Any, name: str, min_rows: int = 2, encoding: Encoding | None = None
) -> Dataset:
    """The data set that `data` is: a stream where it can be iterated again, else a table in memory.

    An iterator, or an iterable that returns the same one each time, is read into memory too.
    `encoding` is for tables of columns, `min_rows` for tables in memory.
    """
    if encoding is not None and (columns := columns_of(data, name)) is not None:
        if isinstance(data, TableStream):
            return data.encoded(encoding)
        chosen = columns.select(encoding.select(columns.names, columns.subject))
        return read_source(chosen, None, encoding, min_rows)
    if isinstance(data, (Table, TableStream, BatchStream)):
        return data
    held = isinstance(data, (Iterator, Sequence, Mapping, Set, Tensor)) or any(
        hasattr(data, mark) for mark in ("__array__", "to_numpy", "toarray", "columns")
    )
    # An iterable that always returns the same iterator can be read once: a look would lose rows.
    if not held and isinstance(data, Iterable) and (batches := iter(data)) is not iter(data):
        first = next(batches, None)
        if first is None:
            rule = "a sample must have at least two rows"
            raise DataError(subject=name, rule=rule, got="no batches")
        inner = first[0] if isinstance(first, (list, tuple)) and first else first
        # Single rows and numbers, as of a set of points, are small enough for memory.
        if getattr(inner, "ndim", 0) > 1:
            return BatchStream(data, name, as_table([first], name, min_rows=1))
    return as_table(data, name, min_rows=min_rows)


def match_columns(data: Dataset, columns: Sequence[str] | None, dim: int, whose: str) -> Dataset:
    """The same sample with the given columns in their order, matched by name where both have names.

    Raises where it has others than the `dim` columns that, in an error, `whose`.
    """
    if columns and data.columns and tuple(columns) != data.columns:
        if missing := [name for name in columns if name not in data.columns]:
            raise DataError(
                subject=data.source,
                rule=f"must have the columns that {whose}",
                got=f"none called {list_some(missing)}",
            )
        return data.select(columns)
    if data.dim != dim:
        rule = f"must have {dim} columns, as {whose}"
        raise DataError(subject=data.source, rule=rule, got=str(data.dim))
    return data


def iterate_batches(data: Dataset) -> Iterator[Tensor]:
    """All rows, `(n, dim)` at a time, in the dtype they have."""
    if isinstance(data, Table):
        rows = max(1, _BATCH_CELLS // data.dim)
        batches = (data.values[start : start + rows] for start in range(0, len(data), rows))
    else:
        batches = (batch.values if isinstance(batch, Table) else batch for batch in data)
    for batch in batches:
        # Sums of a row are rounded in an order that depends on the memory layout.
        yield torch.from_numpy(np.ascontiguousarray(batch))


def load_rows(data: Dataset, subject: str) -> Tensor:
    """All rows in memory, `(n, dim)` in float64; raises for a stream of more than 2**26 numbers."""
    if isinstance(data, Table):
        return torch.from_numpy(np.ascontiguousarray(data.values)).double()
    parts, cells = [], 0
    for batch in iterate_batches(data):
        parts.append(batch.double())
        cells += batch.numel()
        if cells > _MOST_CELLS:
            raise ArgumentError(
                subject=subject,
                argument="finite",
                rule="needs both sets in memory, so a stream must have at most "
                f"{_MOST_CELLS // data.dim} rows of {data.dim} columns",
                got=f"more in {data.source}",
                remedy="Take a sample of its rows.",
                option=("finite", False),
            )
    return torch.cat(parts)


def find_unseen(encoding: Encoding | None, rows: Tensor) -> tuple[str, ...]:
    """Names of the columns in which rows have values that their encoding, if any, has not seen."""
    return () if encoding is None else encoding.unseen(rows.numpy())


def note_constant(names: Sequence[str], low: Tensor, high: Tensor) -> list[str]:
    """A note on columns whose smallest and largest value, over both samples, are equal."""
    constant = (low == high).nonzero().flatten().tolist()
    if not constant:
        return []
    return [f"constant, so they add nothing to distances: {describe_columns(names, constant)}"]
