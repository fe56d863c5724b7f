"""`Table`: a sample in memory; `TableStream`: the same in a file, batch by batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from taut.data.columns import Columns, select_positions
from taut.data.formats import PathLike, open_source
from taut.data.numbers import check_finite, check_rows
from taut.data.source import Source
from taut.errors import check_count

__all__ = ["Table", "TableStream", "count_rows", "read_source", "read_table", "stream_table"]

_CELLS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A sample of finite numbers.

    Attributes:
        values: `(n, d)`, float32 or float64.
        columns: `d` names, or none where the source gives no names.
        image_shape: shape of one row before it was flattened, where rows are images.
        source: name of the source, for errors and captions.

    Example:
        >>> Table(np.zeros((3, 2)), ("a", "b"), None, "zeros")
        Table(3 x 2, float64, from zeros)
    """

    values: np.ndarray
    columns: tuple[str, ...]
    image_shape: tuple[int, ...] | None
    source: str

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def select(self, columns: Sequence[str | int]) -> "Table":
        """The chosen columns, by name or position, in the order of the choice."""
        chosen = select_positions(f"data: {self.source}", self.columns, self.dim, columns)
        names = tuple(self.columns[i] for i in chosen) if self.columns else ()
        shape = self.image_shape if chosen == list(range(self.dim)) else None
        # Rows stay contiguous, so that later sums round as they do without a selection.
        values = self.values.take(chosen, axis=1)
        return replace(self, values=values, columns=names, image_shape=shape)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape))
        return f"Table({shape}, {self.values.dtype}, from {self.source})"


def read_table(path: PathLike, *, columns: Columns = None, limit: int | None = None) -> Table:
    r"""The sample that a file holds: finite numbers, at least two rows.

    Reads .csv and .tsv (with or without header; comma, semicolon or tab; also .csv.gz), .parquet,
    .npy, .npz (`archive.npz:key` where it holds several arrays), idx files such as MNIST's (also
    .gz; `train-images-idx3-ubyte.gz:3` for the images of label 3), and folders of images. Numbers
    are kept as they are, with one exception: the bytes of idx files and of images are scaled to
    [0, 1]. Nothing is unpickled.

    Args:
        path: file or folder.
        columns: names, or positions from 0, in the order wanted; `None` for all.
        limit: number of rows to read at most.

    Raises:
        ArgumentError: there is no such file or column.
        DataError: the file holds text, dates, missing values or too few rows.
        DamagedFileError: the file is cut short, altered or not what its name says.
        MissingExtraError: pyarrow or pillow is needed and not installed.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     written = Path(folder, "cups.csv").write_text("height,width\n9.5,8\n11,7.5\n")
        ...     table = read_table(f"{folder}/cups.csv")
        >>> table.columns, table.values.tolist()
        (('height', 'width'), [[9.5, 8.0], [11.0, 7.5]])
    """
    if limit is not None:
        check_count("read_table", "limit", limit, least=2)
    return read_source(open_source(path, columns), limit)


def read_source(source: Source, limit: int | None = None) -> Table:
    """What `read_table` returns, of an open source."""
    step = max(1, _CELLS_AT_ONCE // source.dim)
    blocks: list[np.ndarray] = []
    seen = 0
    for block in source.blocks(step if limit is None else min(step, limit)):
        blocks.append(block)
        seen += len(block)
        if limit is not None and seen >= limit:
            break
    values = np.concatenate(blocks)[:limit]
    check_finite(source.subject, values, source.columns, source.locate)
    check_rows(source.subject, len(values))
    return Table(values, source.columns, source.image_shape, source.name)


class TableStream:
    """The rows of a file or folder in batches; can be iterated again and again.

    Every pass reads the file again and gives the same rows in the same order: `batch_rows` at a
    time, fewer at the end. Memory does not grow with the file, except for .npz, which numpy
    unpacks whole. Every value is finite; a batch with one that is not raises.

    Args:
        path: file or folder, as for `read_table`.
        columns: names, or positions from 0; `None` for all.
        batch_rows: rows of a batch.

    Attributes:
        columns: as of `Table`, and so are `dim`, `image_shape` and `source`.
        rows: number of rows where the file states it, else `None`; `len` is the same number. Text
            does not state it: `count_rows` reads it to find out.

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
        self.source = self._opened.name

    def __iter__(self) -> Iterator[np.ndarray]:
        opened, seen = self._opened, 0
        for values in opened.blocks(self._batch_rows):
            check_finite(opened.subject, values, self.columns, opened.locate, seen)
            seen += len(values)
            yield values
        check_rows(opened.subject, seen)

    def __len__(self) -> int:
        if self.rows is None:
            raise TypeError(
                f"TableStream: `len` must be written in the file; {self.source} does not say how "
                "many rows it has. Use taut.data.count_rows, which reads it."
            )
        return self.rows

    def select(self, columns: Sequence[str | int]) -> "TableStream":
        """A stream of the chosen columns, by name or position among those of this stream."""
        among = select_positions(self._opened.subject, self.columns, self.dim, columns)
        chosen = among if self._opened.chosen is None else [self._opened.chosen[i] for i in among]
        return TableStream(self._path, columns=chosen, batch_rows=self._batch_rows)

    def __reduce__(self):
        reopen = partial(TableStream, columns=self._choice, batch_rows=self._batch_rows)
        return reopen, (self._path,)

    def __repr__(self) -> str:
        rows = "?" if self.rows is None else self.rows
        return f"TableStream({rows} x {self.dim}, from {self.source})"


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
