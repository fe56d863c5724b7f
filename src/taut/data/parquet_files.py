"""Reads Parquet files in batches of rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from taut.data.column_selection import Columns, check_names
from taut.data.column_values import as_column_values
from taut.data.source_base import ColumnSource, refuse_damage
from taut.errors import require


class ParquetSource(ColumnSource):
    """A table in a parquet file; an index that pandas stored with it is left out."""

    rows: int

    def __init__(self, path: Path):
        super().__init__(path.name)
        self._path = path
        self._arrow = require("pyarrow", "data", "data: a parquet file")
        self._parquet = require("pyarrow.parquet", "data", "data: a parquet file")
        with self._open() as file:
            self.rows = int(file.metadata.num_rows)
            schema = file.schema_arrow
            stored = schema.pandas_metadata or {}
            index = stored.get("index_columns", [])
            self._names = [name for name in schema.names if name not in index]
            self.orders = self._find_orders(file, schema)
            # The Arrow type does not mark numeric categories; the pandas metadata does.
            categorical = [
                c for c in stored.get("columns", []) if c["pandas_type"] == "categorical"
            ]
            unordered = [c["name"] for c in categorical if not c["metadata"]["ordered"]]
            self.categorical = frozenset(i for i, n in enumerate(self._names) if n in unordered)
        if not self._names or not self.rows:
            got = f"{self.rows} rows, {len(self._names)} columns"
            raise self.refuse("a table must have rows and columns", got)
        self._set_columns(self._names, len(self._names))

    def select(self, columns: Columns) -> Self:
        """See `Source`; raises where a name repeats: parquet columns are read by name."""
        selected = super().select(columns)
        names = selected.pick(self._names)
        check_names(self.subject, [name for name in self._names if name in names])
        return selected

    def column_batches(self, batch_rows: int) -> Iterator[list[np.ndarray]]:
        """See `ColumnSource`."""
        names = list(self.pick(self._names))
        with self._open() as file:
            for batch in file.iter_batches(batch_rows, columns=names, use_threads=False):
                yield [self._convert(batch.column(name)) for name in names]

    @contextmanager
    def _open(self) -> Iterator[Any]:
        errors = (self._arrow.ArrowException, OSError, ValueError)
        with (
            refuse_damage(self.subject, "the parquet file", errors),
            # Buffering ahead would keep every row group that has been read until the file is closed.
            self._parquet.ParquetFile(
                self._path, page_checksum_verification=True, pre_buffer=False
            ) as file,
        ):
            yield file

    def _find_orders(self, file: Any, schema: Any) -> dict[int, tuple[str, ...]]:
        """The categories of the columns that pandas stored as ordered ones."""
        names = [f.name for f in schema if getattr(f.type, "ordered", False)]
        if not names:
            return {}
        batch = next(file.iter_batches(1, columns=names, use_threads=False))
        return {
            self._names.index(name): tuple(map(str, batch.column(name).dictionary.to_pylist()))
            for name in names
        }

    def _convert(self, column: Any) -> np.ndarray:
        types, arrow = self._arrow.types, self._arrow
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_decimal(column.type):
            column = column.cast(arrow.float64())
        if types.is_integer(column.type) and column.null_count:
            try:
                column = column.cast(arrow.float64())  # raises if precision would be lost
            except arrow.ArrowInvalid:
                return as_column_values(np.array([*column.to_pylist(), None], object)[:-1])
        return as_column_values(column.to_numpy(zero_copy_only=False))
