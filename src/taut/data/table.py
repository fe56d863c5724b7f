"""`Table`, a sample in memory, and `TableStream`, a file read in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from taut.data.column_selection import Columns, select_positions
from taut.data.column_values import check_finite, check_rows
from taut.data.encoding import Encoding
from taut.data.format_detection import PathLike, open_source
from taut.data.source_base import ColumnSource, Source
from taut.errors import DataError, check_count

_CELLS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A sample of finite numbers, or of encoded rows.

    Attributes:
        values: `(n, d)`, float32 or float64; NaN for the missing numbers of encoded rows alone.
        columns: `d` names, or none if the source has no names.
        image_shape: shape of a row before flattening, if rows are images.
        source: name of the source, for errors and captions.
        encoding: encoding of the columns, if the source is a table of columns.

    Example:
        >>> Table(np.zeros((3, 2)), ("a", "b"), None, "zeros")
        Table(3 x 2, float64, from zeros)
    """

    values: np.ndarray
    columns: tuple[str, ...]
    image_shape: tuple[int, ...] | None
    source: str
    encoding: Encoding | None = None

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def select(self, columns: Sequence[str | int]) -> "Table":
        """The selected columns, by name or position, in the given order."""
        positions = select_positions(f"data: {self.source}", self.columns, self.dim, columns)
        names = tuple(self.columns[i] for i in positions) if self.columns else ()
        shape = self.image_shape if positions == list(range(self.dim)) else None
        # Rows stay contiguous, so that later sums round as without a selection.
        values = self.values.take(positions, axis=1)
        return replace(self, values=values, columns=names, image_shape=shape, encoding=None)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape))
        return f"Table({shape}, {self.values.dtype}, from {self.source})"


def read_table(
    path: PathLike,
    *,
    columns: Columns = None,
    limit: int | None = None,
    names: Sequence[str] = (),
    encoding: Encoding | None = None,
) -> Table:
    r"""Reads a sample from a file: finite numbers, at least two rows.

    Reads .csv and .tsv (with or without header; comma, semicolon, tab, bar or spaces; also .gz and
    .zip, `archive.zip:name.csv` where it holds several), .parquet, .npy, .npz (`archive.npz:key`
    where it holds several arrays), idx files such as MNIST's (also .gz;
    `train-images-idx3-ubyte.gz:3` for the images of label 3), and folders of images. Numbers are
    kept as they are, with one exception: the bytes of idx files and of images are scaled to [0, 1].
    Nothing is unpickled.

    Args:
        path: file or folder.
        columns: names, or positions from 0, in the order wanted; `None` for all.
        limit: largest number of rows to read.
        names: names of all columns, for a table without a header.
        encoding: encoding of the columns, instead of `columns`; without one all must hold numbers.

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
        check_count("read_table", "limit", limit, minimum=2)
    return read_source(_open(path, columns, names, encoding), limit, encoding)


def _open(
    path: PathLike, columns: Columns, names: Sequence[str], encoding: Encoding | None
) -> Source:
    source = open_source(path, names)
    if encoding is not None:
        columns = encoding.select(source.names, source.subject)
    return source.select(columns)


def read_source(
    source: Source, limit: int | None = None, encoding: Encoding | None = None, min_rows: int = 2
) -> Table:
    """Reads the table of `read_table` from an open source with selected columns."""
    step = max(1, _CELLS_AT_ONCE // source.dim)
    blocks: list[np.ndarray] = []
    num_rows = 0
    for block in _read_blocks(source, encoding, step if limit is None else min(step, limit)):
        blocks.append(block)
        num_rows += len(block)
        if limit is not None and num_rows >= limit:
            break
    values = np.concatenate(blocks)[:limit]
    if encoding is None:
        check_finite(source.subject, values, source.columns, source.locate)
    if len(values) < min_rows:
        check_rows(source.subject, len(values))
    columns = source.columns if encoding is None else encoding.features
    return Table(values, columns, source.image_shape, source.name, encoding)


def _read_blocks(
    source: Source, encoding: Encoding | None, batch_rows: int
) -> Iterator[np.ndarray]:
    if encoding is None:
        yield from source.blocks(batch_rows)
        return
    if not isinstance(source, ColumnSource):
        # Arrays and images hold only numbers.
        yield from (encoding.encode(list(block.T)) for block in source.blocks(batch_rows))
        return
    for cells in source.column_batches(batch_rows):
        try:
            yield encoding.encode(cells)
        except DataError as error:
            raise error.replace(subject=f"{source.subject}: {error.subject}") from error


class TableStream:
    """The rows of a file or folder in batches; can be iterated repeatedly.

    Every pass reads the file again and gives the same rows in the same order: `batch_rows` at a
    time, fewer at the end. Memory does not grow with the file, except for .npz, which numpy
    unpacks whole. Every value is finite; a batch with one that is not raises.

    Args:
        path: file or folder, as for `read_table`.
        columns: names, or positions from 0; `None` for all.
        batch_rows: rows of a batch.
        names: names of all columns, for a table without a header.
        encoding: encoding of the columns, instead of `columns`.
        min_rows: smallest accepted number of rows.

    Attributes:
        columns: as of `Table`, and so are `dim`, `image_shape`, `source` and `encoding`.
        rows: number of rows if the file states it, otherwise `None`; `len` is the same number. Text
            files do not state it; `count_rows` reads them.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/ramp.npy", np.arange(10.0).reshape(5, 2))
        ...     stream = TableStream(f"{folder}/ramp.npy", batch_rows=2)
        ...     len(stream), stream.dim, [len(batch) for batch in stream]
        (5, 2, [2, 2, 1])
    """

    def __init__(
        self,
        path: PathLike,
        *,
        columns: Columns = None,
        batch_rows: int = 4096,
        names: Sequence[str] = (),
        encoding: Encoding | None = None,
        min_rows: int = 2,
    ):
        check_count("TableStream", "batch_rows", batch_rows)
        self.path, self.choice, self.encoding = path, columns, encoding
        self._options: Any = dict(batch_rows=batch_rows, names=tuple(names), min_rows=min_rows)
        self._opened = _open(path, columns, names, encoding)
        self.columns = self._opened.columns if encoding is None else encoding.features
        self.dim = self._opened.dim if encoding is None else len(encoding.features)
        self.image_shape = self._opened.image_shape
        self.rows = self._opened.rows
        self.source = self._opened.name

    def __iter__(self) -> Iterator[np.ndarray]:
        opened, num_rows = self._opened, 0
        for values in _read_blocks(opened, self.encoding, self._options["batch_rows"]):
            if self.encoding is None:
                check_finite(opened.subject, values, self.columns, opened.locate, num_rows)
            num_rows += len(values)
            yield values
        if num_rows < self._options["min_rows"]:
            check_rows(opened.subject, num_rows)

    @property
    def table(self) -> ColumnSource | None:
        """All columns of the file before they are encoded, if it is a table of columns."""
        source = open_source(self.path, self._options["names"])
        return source if isinstance(source, ColumnSource) and self.encoding is None else None

    def encoded(self, encoding: Encoding) -> "TableStream":
        """A stream of the encoded rows of the same file."""
        return TableStream(self.path, encoding=encoding, **self._options)

    def __len__(self) -> int:
        if self.rows is None:
            raise TypeError(
                f"TableStream: `len` must be written in the file; {self.source} does not say how "
                "many rows it has. Use taut.data.count_rows, which reads it."
            )
        return self.rows

    def select(self, columns: Sequence[str | int]) -> "TableStream":
        """A stream of the selected columns, by name or position among those of this stream."""
        among = select_positions(self._opened.subject, self.columns, self.dim, columns)
        positions = (
            among if self._opened.selection is None else [self._opened.selection[i] for i in among]
        )
        return TableStream(self.path, columns=positions, **self._options)

    def __reduce__(self):
        selection = {"columns": self.choice, "encoding": self.encoding}
        return partial(TableStream, **selection, **self._options), (self.path,)

    def __repr__(self) -> str:
        rows = "?" if self.rows is None else self.rows
        return f"TableStream({rows} x {self.dim}, from {self.source})"


def count_rows(path: PathLike, *, columns: Columns = None) -> int:
    """Counts the rows of a file, from its header if there is one, otherwise by reading it once.

    `columns` selects as in `read_table`, for files of which only some columns can be read.
    """
    return open_source(path).select(columns).count()
