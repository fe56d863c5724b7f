"""Parquet files, some rows at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from taut.data.columns import SELECT, Columns, check_names, select_positions
from taut.data.numbers import float_type, to_floats
from taut.data.source import Block, subject_of
from taut.errors import DamagedFileError, DataError, require

__all__ = ["ParquetSource"]


class ParquetSource:
    """A table in a parquet file; an index that pandas stored with it is left out.

    Args:
        path: the file.
        columns: the columns to keep.
        text: admits columns of text, for `cells`.
    """

    image_shape = None

    def __init__(self, path: Path, columns: Columns = None, text: bool = False):
        self._path = path
        self._subject = subject_of(path)
        self._arrow = require("pyarrow", "data", "data: a parquet file")
        self._parquet = require("pyarrow.parquet", "data", "data: a parquet file")
        with self._open() as file:
            self.rows = int(file.metadata.num_rows)
            schema = file.schema_arrow
        index = self._find_index(schema)
        positions = [i for i, name in enumerate(schema.names) if name not in index]
        names = [schema.names[i] for i in positions]
        if not names or not self.rows:
            raise DataError(
                subject=str(self._subject),
                rule="a table must have rows and columns",
                got=f"{self.rows} rows, {len(names)} columns",
            )
        self.all_columns = names
        chosen = select_positions(self._subject, names, len(names), columns)
        self.columns = tuple(names[i] for i in chosen)
        self.dim = len(chosen)
        if text:
            return
        check_names(self._subject, self.columns)
        self._dtype = self._check_types([schema.field(positions[i]) for i in chosen])

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """See `Source`."""
        with self._open() as file:
            batches = file.iter_batches(batch_rows, columns=list(self.columns), use_threads=False)
            while (batch := self._next(batches)) is not None:
                values = np.empty((batch.num_rows, self.dim), self._dtype)
                for i, name in enumerate(self.columns):
                    values[:, i] = self._convert(name, batch.column(name))
                yield Block(values)

    def count(self) -> int:
        """See `Source`."""
        return self.rows

    def cells(self) -> list[list[Any]]:
        """The chosen columns of every row as Python's own values."""
        try:
            with self._open() as file:
                table = file.read(columns=list(self.columns), use_threads=False)
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from error
        columns = [table.column(name).to_pylist() for name in self.columns]
        return [list(row) for row in zip(*columns, strict=True)]

    def _open(self) -> Any:
        try:
            # Buffering ahead would keep every row group that has been read until the file is closed.
            return self._parquet.ParquetFile(
                self._path, page_checksum_verification=True, pre_buffer=False
            )
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            return next(batches, None)
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DamagedFileError:
        reason = str(error).partition("\n")[0]
        return DamagedFileError(
            f"{self._subject}: the file is cut short, altered or not parquet ({reason}). "
            "Write or fetch it again."
        )

    def _find_index(self, schema: Any) -> set[str]:
        try:
            stored = (schema.pandas_metadata or {}).get("index_columns", [])
        except ValueError as error:
            raise self._damaged(error) from error
        return {name for name in stored if isinstance(name, str)}

    def _check_types(self, fields: list[Any]) -> np.dtype:
        types = self._arrow.types
        text, widths = [], []
        for field in fields:
            kind = field.type
            if types.is_temporal(kind):
                raise DataError(
                    subject=self._subject,
                    rule="every column must hold numbers",
                    got=f"dates or times in column {field.name!r} ({kind})",
                    remedy="Drop it or encode it as numbers, such as days since the first.",
                    option=SELECT,
                )
            if types.is_decimal(kind):
                widths.append(np.dtype(np.float64))
            elif types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
                widths.append(float_type(np.dtype(kind.to_pandas_dtype())))
            else:
                text.append(f"{field.name!r} of type {kind}")
        if text:
            raise DataError(
                subject=self._subject,
                rule="every column must hold numbers",
                got=", ".join(text[:8]) + (" and others" if len(text) > 8 else ""),
                remedy="Drop text or encode it as numbers.",
                option=SELECT,
            )
        return np.result_type(*widths)

    def _convert(self, name: str, column: Any) -> np.ndarray:
        if self._arrow.types.is_decimal(column.type):
            column = column.cast(self._arrow.float64())
        subject = f"{self._subject}: column {name!r}"
        if column.null_count:
            # Zeros stand in while whole numbers are checked; then what is missing is NaN.
            missing = column.is_null().to_numpy(zero_copy_only=False)
            full = column.fill_null(self._arrow.scalar(0).cast(column.type))
            values = to_floats(subject, full.to_numpy(zero_copy_only=False))
            values[missing] = np.nan
            return values
        return to_floats(subject, column.to_numpy(zero_copy_only=False))
