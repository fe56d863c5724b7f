"""`read_table`: a file or folder becomes a sample in memory."""

from pathlib import Path

import numpy as np

from taut.data.columns import Columns
from taut.data.formats import PathLike, open_source
from taut.data.numbers import check_finite, check_rows
from taut.data.source import Block, Source
from taut.data.table import Table
from taut.errors import check_count

__all__ = ["read_source", "read_table"]

_CELLS_AT_ONCE = 2**20


def read_table(path: PathLike, *, columns: Columns = None, limit: int | None = None) -> Table:
    r"""The sample that a file holds: finite numbers, at least two rows.

    Reads .csv and .tsv (with or without header; comma, semicolon or tab; also .csv.gz), .parquet,
    .npy, .npz (`archive.npz:key` where it holds several arrays), idx files such as MNIST's (also
    .gz; `train-images-idx3-ubyte.gz:3` for the images of label 3), and folders of images. Numbers
    are kept as they are, with one exception: the bytes of idx files and of images are scaled to
    [0, 1]. Nothing is unpickled.

    Args:
        path: the file or folder.
        columns: names, or positions from 0, in the order wanted; `None` for all.
        limit: reads the first `limit` rows and no further.

    Raises:
        ArgumentError: there is no such file or column.
        DataError: the file holds text, dates, missing values, too few rows.
        DamagedFileError: the file is cut short, altered or not what its name says.
        MissingExtraError: pyarrow or pillow is needed and not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     written = Path(folder, "cups.csv").write_text("height,width\n9.5,8\n11,7.5\n")
        ...     table = read_table(f"{folder}/cups.csv")
        >>> table.columns, table.values.tolist()
        (('height', 'width'), [[9.5, 8.0], [11.0, 7.5]])
    """
    if limit is not None:
        check_count("read_table", "limit", limit, least=2)
    return read_source(open_source(path, columns), Path(path).name, limit)


def read_source(source: Source, name: str, limit: int | None = None) -> Table:
    """What `read_table` gives, of an open source."""
    subject = f"data: {name}"
    step = max(1, _CELLS_AT_ONCE // source.dim)
    taken: list[Block] = []
    left = limit
    for block in source.blocks(step if limit is None else min(step, limit)):
        if left is not None and len(block.values) >= left:
            taken.append(Block(block.values[:left], block.lines))
            break
        taken.append(block)
        left = None if left is None else left - len(block.values)
    values = np.concatenate([block.values for block in taken])
    lines = [block.lines for block in taken if block.lines is not None]
    check_finite(subject, values, source.columns, np.concatenate(lines) if lines else None)
    check_rows(subject, len(values))
    return Table(values, source.columns, source.image_shape, name)
