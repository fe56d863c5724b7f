"""`TableStream`: a table of any length, batch by batch, in constant memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from taut.data.columns import Columns, select_positions
from taut.data.formats import PathLike, open_source
from taut.data.numbers import check_finite, check_rows
from taut.errors import check_count

__all__ = ["TableStream", "count_rows", "stream_table"]


class TableStream:
    """The rows of a file or folder in batches; can be iterated again and again.

    Every pass reads the file again and gives the same rows in the same order: `batch_rows` at a
    time, fewer at the end. Memory does not grow with the file, except for .npz, which numpy
    unpacks whole. Every value given is finite; a batch with one that is not raises.

    Args:
        path: whatever `read_table` reads.
        columns: names, or positions from 0; `None` for all.
        batch_rows: rows of a batch.

    Attributes:
        columns: the names, or none where the file gives no names.
        dim: how many columns there are.
        image_shape: the shape of one row before it was made flat, where rows are images.
        rows: how many rows there are where the file says so, else `None`; `len` is the same
            number. Text does not say: `count_rows` reads it to find out.
        source: where it comes from.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/ramp.npy", np.arange(10.0).reshape(5, 2))
        ...     stream = TableStream(f"{folder}/ramp.npy", batch_rows=2)
        ...     len(stream), stream.dim, [len(batch) for batch in stream]
        (5, 2, [2, 2, 1])
    """

    def __init__(self, path: PathLike, *, columns: Columns = None, batch_rows: int = 4096):
        check_count("TableStream", "batch_rows", batch_rows)
        self._path = path
        self._choice = columns
        self._batch_rows = batch_rows
        self._opened = open_source(path, columns)
        self.columns = self._opened.columns
        self.dim = self._opened.dim
        self.image_shape = self._opened.image_shape
        self.rows = self._opened.rows
        self.source = Path(path).name

    def __iter__(self) -> Iterator[np.ndarray]:
        subject, seen = f"data: {self.source}", 0
        for values, lines in self._opened.blocks(self._batch_rows):
            check_finite(subject, values, self.columns, lines, seen)
            seen += len(values)
            yield values
        check_rows(subject, seen)

    def __len__(self) -> int:
        if self.rows is None:
            raise TypeError(
                f"TableStream: `len` must be written in the file; {self.source} does not say how "
                "many rows it has. Use taut.data.count_rows, which reads it."
            )
        return self.rows

    def select(self, columns: Sequence[str | int]) -> "TableStream":
        """A stream of the chosen columns, by name or position among those of this stream."""
        among = select_positions(f"data: {self.source}", self.columns, self.dim, columns)
        known = range(self.dim) if self._choice is None else self._choice
        choice = [known[i] for i in among]
        return TableStream(self._path, columns=choice, batch_rows=self._batch_rows)

    def __reduce__(self):
        return _reopen, (self._path, self._choice, self._batch_rows)

    def __repr__(self) -> str:
        rows = "?" if self.rows is None else self.rows
        return f"TableStream({rows} x {self.dim}, from {self.source})"


def _reopen(path: PathLike, columns: Columns, batch_rows: int) -> TableStream:
    return TableStream(path, columns=columns, batch_rows=batch_rows)


def stream_table(
    path: PathLike, *, columns: Columns = None, batch_rows: int = 4096
) -> Iterator[np.ndarray]:
    """One pass over the rows of a file, `(batch_rows, d)` at a time; see `TableStream`."""
    return iter(TableStream(path, columns=columns, batch_rows=batch_rows))


def count_rows(path: PathLike, *, columns: Columns = None) -> int:
    """How many rows a file has: from its header where there is one, else by reading it once.

    `columns` chooses as in `read_table`, for files that can only be read in part.
    """
    return open_source(path, columns).count()
