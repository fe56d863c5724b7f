"""Tables in memory: data frames of pandas, polars and pyarrow, and loaded columns of other sources."""

from collections.abc import Iterator
from copy import copy
from typing import Any, Self

import numpy as np

from taut.data.column_selection import check_names
from taut.data.column_values import as_column_values
from taut.data.encoding import name_category
from taut.data.source_base import ColumnSource
from taut.errors import DataError

_BATCH_ROWS = 16384
# Types of pandas, of polars (two), and of pyarrow, as they print.
_CATEGORICAL = ("category", "Categorical", "Enum", "dictionary")


def is_frame(data: Any) -> bool:
    """Whether `data` is a table of named columns, such as a pandas or polars frame."""
    named = hasattr(data, "columns") and not hasattr(data, "__next__")
    return named and hasattr(data, "__getitem__") and hasattr(data, "shape")


class _MemorySource(ColumnSource):
    """A source of columns in memory, from which rows can be selected."""

    rows: int
    _taken: np.ndarray | None = None  # row numbers; None for all rows in their order

    def _hold(self, columns: list[np.ndarray]) -> None:
        self._columns, self.rows = columns, len(columns[0])

    def take(self, rows: np.ndarray) -> Self:
        """Some of the rows, in the given order."""
        taken = copy(self)
        taken._taken = rows if self._taken is None else self._taken[rows]
        taken.rows = len(rows)
        return taken

    def column_batches(self, batch_rows: int) -> Iterator[list[np.ndarray]]:
        """See `ColumnSource`."""
        for start in range(0, max(1, self.rows), batch_rows):
            rows = slice(start, start + batch_rows)
            rows = rows if self._taken is None else self._taken[rows]
            yield [column[rows] for column in self.pick(self._columns)]


class LoadedSource(_MemorySource):
    """The columns of another source, loaded into memory."""

    def __init__(self, source: ColumnSource):
        vars(self).update(vars(source), selection=None)
        self.parse, self.has_columns_argument = source.parse, source.has_columns_argument
        self._source = source
        blocks = zip(*source.select(None).column_batches(_BATCH_ROWS), strict=True)
        self._hold([np.concatenate(parts) for parts in blocks])

    def locate(self, row: int) -> str:
        """See `Source`: the location in the other source."""
        return self._source.locate(row if self._taken is None else int(self._taken[row]))


class FrameSource(_MemorySource):
    """The columns of a data frame, copied only on conversion.

    Numbered columns, as in a frame made from an array, have no names.
    """

    has_columns_argument = False

    def __init__(self, frame: Any, name: str):
        super().__init__(name)
        self.subject = name
        # pyarrow has columns, and their names beside them.
        titles = list(getattr(frame, "column_names", frame.columns))
        if not titles:
            raise DataError(name, rule="a frame must have columns", got="none")
        counted = titles == list(range(len(titles)))
        self._set_columns(() if counted else tuple(map(str, titles)), len(titles))
        check_names(name, self.names)
        columns = [frame[title] for title in titles]
        self._hold([as_column_values(np.asarray(column.to_numpy())) for column in columns])
        dtypes: list[Any] = [getattr(c, "dtype", getattr(c, "type", None)) for c in columns]
        self.categorical = frozenset(
            i for i, dtype in enumerate(dtypes) if str(dtype).startswith(_CATEGORICAL)
        )
        self.orders = {
            i: tuple(map(str, name_category(as_column_values(np.asarray(dtypes[i].categories)))))
            for i in self.categorical
            if getattr(dtypes[i], "ordered", False) is True and hasattr(dtypes[i], "categories")
        }
