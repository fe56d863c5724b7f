"""The accepted forms of a data set: rows in memory, or a stream that can be read repeatedly."""

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
    """A re-iterable source of batches, such as a data loader, never loaded into memory as a whole.

    It has the attributes of a `Table`. `first` is its first batch, `positions` those of the used columns.
    """

    encoding = None  # batches hold numbers

    def __init__(
        self, data: Iterable[Any], name: str, first: Table, positions: list[int] | None = None
    ) -> None:
        self._data, self._first, self.source = data, first, name
        self._positions = list(range(first.dim)) if positions is None else positions
        some = first.select(self._positions)
        self.columns, self.dim, self.image_shape = some.columns, some.dim, some.image_shape

    def __iter__(self) -> Iterator[Table]:
        for at, item in enumerate(self._data):
            batch = as_table([item], f"{self.source}, batch {at}", min_rows=1)
            if batch.dim != self._first.dim or batch.columns != self._first.columns:
                rule = f"every batch must have the columns of the first, {self._first.dim} of them"
                got = f"{batch.dim} columns, or other names, in batch {at}"
                raise DataError(self.source, rule=rule, got=got)
            yield batch.select(self._positions)

    def select(self, columns: Sequence[str | int]) -> "BatchStream":
        """The same stream with the selected columns, in the given order."""
        selected = select_positions(self.source, self.columns, self.dim, columns)
        positions = [self._positions[i] for i in selected]
        return BatchStream(self._data, self.source, self._first, positions)


Dataset = Table | TableStream | BatchStream


def open_pair(
    x: Any, y: Any, encoding: Encoding | Mapping[str, Any] | None = None
) -> Pair[Any, Any]:
    """Opens two data sets with the same features; tables of columns are encoded.

    `encoding` is an encoding of the columns, or options of `taut.data.fit_encoding`.
    """
    first, second = columns_of(x, "x"), columns_of(y, "y")
    if first is None or second is None:
        if encoding is not None:
            rule = "needs two tables with columns: frames, or streams of text or parquet files"
            got = f"{type(x).__name__} and {type(y).__name__}"
            raise ArgumentError("wasserstein", "encoding", rule, got)
        sides: Any = open_dataset(x, "x"), open_dataset(y, "y")
        return check_pair(*sides)
    shared_encoding, notes = fit_pair(first, second, encoding)
    encoded: Any = (
        open_dataset(x, "x", 2, shared_encoding),
        open_dataset(y, "y", 2, shared_encoding),
    )
    pair = check_pair(*encoded)
    return pair._replace(notes=(*notes, *pair.notes))


def columns_of(data: Any, name: str) -> ColumnSource | None:
    """The columns of a table before encoding; `None` for data without columns to encode."""
    if isinstance(data, TableStream):
        return None if data.choice is not None else data.table
    return FrameSource(data, name) if is_frame(data) else None


def open_dataset(
    data: Any, name: str, min_rows: int = 2, encoding: Encoding | None = None
) -> Dataset:
    """Opens `data` as a stream if it can be iterated repeatedly, otherwise as a table in memory.

    An iterator, or an iterable that always returns the same iterator, is also read into memory.
    `encoding` applies to tables of columns, `min_rows` to tables in memory.
    """
    if encoding is not None and (columns := columns_of(data, name)) is not None:
        if isinstance(data, TableStream):
            return data.encoded(encoding)
        selected = columns.select(encoding.select(columns.names, columns.subject))
        return read_source(selected, None, encoding, min_rows)
    if isinstance(data, (Table, TableStream, BatchStream)):
        return data
    in_memory = isinstance(data, (Iterator, Sequence, Mapping, Set, Tensor)) or any(
        hasattr(data, mark) for mark in ("__array__", "to_numpy", "toarray", "columns")
    )
    # An iterable that always returns the same iterator can be read once: peeking would lose rows.
    if not in_memory and isinstance(data, Iterable) and (batches := iter(data)) is not iter(data):
        first = next(batches, None)
        if first is None:
            raise DataError(name, rule="a sample must have at least two rows", got="no batches")
        inner = first[0] if isinstance(first, (list, tuple)) and first else first
        # An iterable of single rows or numbers is small enough for memory.
        if getattr(inner, "ndim", 0) > 1:
            return BatchStream(data, name, as_table([first], name, min_rows=1))
    return as_table(data, name, min_rows=min_rows)


def match_columns(data: Dataset, columns: Sequence[str] | None, dim: int, whose: str) -> Dataset:
    """Puts the columns of a sample into the given order, by name if both have names.

    Raises `DataError` unless there are `dim` columns; `whose` completes the message, for example "the
    critic was trained on".
    """
    if columns and data.columns and tuple(columns) != data.columns:
        if missing := [name for name in columns if name not in data.columns]:
            rule = f"must have the columns that {whose}"
            raise DataError(data.source, rule=rule, got=f"none called {list_some(missing)}")
        return data.select(columns)
    if data.dim != dim:
        rule = f"must have the {dim} columns that {whose}"
        raise DataError(data.source, rule=rule, got=str(data.dim))
    return data


def iterate_batches(data: Dataset) -> Iterator[Tensor]:
    """Yields all rows in batches `(n, dim)`, in their own dtype."""
    if isinstance(data, Table):
        rows = max(1, _BATCH_CELLS // data.dim)
        batches = (data.values[start : start + rows] for start in range(0, len(data), rows))
    else:
        batches = (batch.values if isinstance(batch, Table) else batch for batch in data)
    for batch in batches:
        # The memory layout decides the order of summation, and with it the rounding of row sums.
        yield torch.from_numpy(np.ascontiguousarray(batch))


def load_rows(data: Dataset, subject: str) -> Tensor:
    """Loads all rows as `(n, dim)` in float64; raises for a stream of more than 2**26 numbers."""
    if isinstance(data, Table):
        return torch.from_numpy(np.ascontiguousarray(data.values)).double()
    parts, cells = [], 0
    for batch in iterate_batches(data):
        parts.append(batch.double())
        cells += batch.numel()
        if cells > _MOST_CELLS:
            rule = (
                "needs both sets in memory, so a stream must have at most "
                f"{_MOST_CELLS // data.dim} rows of {data.dim} columns"
            )
            got, remedy = f"more in {data.source}", "Take a sample of its rows."
            raise ArgumentError(subject, "finite", rule, got, remedy, option=("finite", False))
    return torch.cat(parts)


def find_unseen(encoding: Encoding | None, rows: Tensor) -> tuple[str, ...]:
    """Names of the columns with values that the encoding, if any, has not seen."""
    return () if encoding is None else encoding.unseen(rows.numpy())


def note_constant(names: Sequence[str], low: Tensor, high: Tensor) -> list[str]:
    """A note on the columns that are constant over both samples."""
    constant = (low == high).nonzero().flatten().tolist()
    if not constant:
        return []
    return [f"constant, so they add nothing to distances: {describe_columns(names, constant)}"]
