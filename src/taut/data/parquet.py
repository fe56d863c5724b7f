"""Parquet files, some rows at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from taut.data.columns import SELECT, Columns, check_names
from taut.data.numbers import float_type, to_floats
from taut.data.source import Source, refuse_damage
from taut.errors import DataError, require

__all__ = ["ParquetSource"]


class ParquetSource(Source):
    """A table in a parquet file; an index that pandas stored with it is left out."""

    rows: int
    _dtype: np.dtype

    def __init__(self, path: Path):
        super().__init__(path.name)
        self._path = path
        self._arrow = require("pyarrow", "data", "data: a parquet file")
        self._parquet = require("pyarrow.parquet", "data", "data: a parquet file")
        with self._open() as file:
            self.rows = int(file.metadata.num_rows)
            schema = file.schema_arrow
            index = (schema.pandas_metadata or {}).get("index_columns", [])
        self._fields = [schema.field(i) for i, name in enumerate(schema.names) if name not in index]
        names = [field.name for field in self._fields]
        if not names or not self.rows:
            raise DataError(
                subject=self.subject,
                rule="a table must have rows and columns",
                got=f"{self.rows} rows, {len(names)} columns",
            )
        self._set_columns(names, len(names))

    def select(self, columns: Columns) -> Self:
        """See `Source`; raises unless the chosen columns hold numbers."""
        selected = super().select(columns)
        self._check_unique(selected.columns)
        selected._dtype = self._check_types(selected.pick(self._fields))
        return selected

    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """See `Source`."""
        with self._open() as file:
            for batch in file.iter_batches(
                batch_rows, columns=list(self.columns), use_threads=False
            ):
                values = np.empty((batch.num_rows, self.dim), self._dtype)
                for i, name in enumerate(self.columns):
                    values[:, i] = self._convert(name, batch.column(name))
                yield values

    def cells(self, column: int) -> list[Any]:
        """The values of one column in every row, as Python's own."""
        self._check_unique([self.names[column]])
        with self._open() as file:
            table = file.read(columns=[self.names[column]], use_threads=False)
        return table.column(self.names[column]).to_pylist()

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

    def _check_unique(self, chosen: Sequence[str]) -> None:
        """Raises where a chosen name repeats in the file: parquet columns are read by name."""
        check_names(self.subject, [name for name in self.names if name in chosen])

    def _check_types(self, fields: Sequence[Any]) -> np.dtype:
        """The dtype that holds the numbers of all these columns."""
        types = self._arrow.types
        wrong, dtypes = [], []
        for field in fields:
            if types.is_decimal(field.type):
                dtypes.append(np.dtype(np.float64))
            elif any(
                check(field.type)
                for check in (types.is_boolean, types.is_integer, types.is_floating)
            ):
                dtypes.append(float_type(np.dtype(field.type.to_pandas_dtype())))
            else:
                wrong.append(field)
        if wrong:
            remedy = "Drop such columns or encode them as numbers."
            if any(types.is_temporal(field.type) for field in wrong):
                remedy = f"{remedy[:-1]}, dates as days since the first."
            raise DataError(
                subject=self.subject,
                rule="every column must hold numbers",
                got=", ".join(f"{field.name!r} of type {field.type}" for field in wrong[:8])
                + (" and others" if len(wrong) > 8 else ""),
                remedy=remedy,
                option=SELECT,
            )
        return np.result_type(*dtypes)

    def _convert(self, name: str, column: Any) -> np.ndarray:
        if self._arrow.types.is_decimal(column.type):
            column = column.cast(self._arrow.float64())
        missing = column.is_null().to_numpy(zero_copy_only=False)
        if column.null_count:
            # Zeros stand in while whole numbers are checked; then what is missing is NaN.
            column = column.fill_null(self._arrow.scalar(0).cast(column.type))
        subject = f"{self.subject}: column {name!r}"
        values = to_floats(subject, column.to_numpy(zero_copy_only=False))
        values[missing] = np.nan
        return values
