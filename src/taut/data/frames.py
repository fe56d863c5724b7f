"""Tables in memory: data frames of pandas, polars and pyarrow, and the cells of other sources."""

from collections.abc import Iterator
from copy import copy
from typing import Any, Self

import numpy as np

from taut.data.cells import as_cells
from taut.data.columns import check_names
from taut.data.source import ColumnSource
from taut.errors import DataError

__all__ = ["CellSource", "FrameSource", "is_frame"]

_BATCH_ROWS = 16384


def is_frame(data: Any) -> bool:
    """Whether `data` is a table of named columns, such as a frame of pandas or polars."""
    named = hasattr(data, "columns") and not hasattr(data, "__next__")
    return named and hasattr(data, "__getitem__") and hasattr(data, "shape")


class FrameSource(ColumnSource):
    """The columns of a data frame; they are copied only where they are converted.

    Columns that are counted, as those of a frame made of a bare array, have no names.
    """

    has_columns_argument = False
    rows: int

    def __init__(self, frame: Any, name: str):
        super().__init__(name)
        self.subject = name
        # pyarrow has columns, and their names beside them.
        titles = list(getattr(frame, "column_names", frame.columns))
        if not titles:
            raise DataError(subject=name, rule="a frame must have columns", got="none")
        counted = titles == list(range(len(titles)))
        names = () if counted else tuple(map(str, titles))
        check_names(name, names)
        columns = [frame[title] for title in titles]
        self._columns = [as_cells(np.asarray(column.to_numpy())) for column in columns]
        dtypes: list[Any] = [getattr(column, "dtype", None) for column in columns]
        self.orders = {
            i: tuple(map(str, dtype.categories))
            for i, dtype in enumerate(dtypes)
            if getattr(dtype, "ordered", False) is True
        }
        self.rows = len(self._columns[0])
        self._set_columns(names, len(titles))

    def cells(self, batch_rows: int) -> Iterator[list[np.ndarray]]:
        """See `ColumnSource`."""
        for start in range(0, max(1, self.rows), batch_rows):
            yield [column[start : start + batch_rows] for column in self.pick(self._columns)]


class CellSource(ColumnSource):
    """The cells of another source, held in memory, so that rows can be taken from them."""

    rows: int

    def __init__(self, source: ColumnSource):
        super().__init__(source.name)
        for name in ("subject", "has_columns_argument", "parse", "decimal_comma", "orders"):
            setattr(self, name, getattr(source, name))
        self._set_columns(source.names, source.width)
        blocks = zip(*source.select(None).cells(_BATCH_ROWS), strict=True)
        self._columns = [np.concatenate(parts) for parts in blocks]
        self._locate, self._rows = source.locate, np.arange(len(self._columns[0]))
        self.rows = len(self._rows)

    def take(self, rows: np.ndarray) -> Self:
        """Some of the rows, in the given order."""
        taken = copy(self)
        taken._rows, taken.rows = self._rows[rows], len(rows)
        return taken

    def locate(self, row: int) -> str:
        """See `Source`: the place in the other source."""
        return self._locate(int(self._rows[row]))

    def cells(self, batch_rows: int) -> Iterator[list[np.ndarray]]:
        """See `ColumnSource`."""
        for start in range(0, max(1, self.rows), batch_rows):
            rows = self._rows[start : start + batch_rows]
            yield [column[rows] for column in self.pick(self._columns)]
