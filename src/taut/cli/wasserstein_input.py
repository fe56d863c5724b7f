"""The input files of `taut wasserstein`, checked before the long work begins."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from taut.cli.column_encoding_options import COLUMN_OPTIONS
from taut.data import (
    ColumnSource,
    Encoding,
    Pair,
    Table,
    TableStream,
    check_pair,
    fit_pair,
    open_source,
    read_table,
)
from taut.errors import ArgumentError

# Splits, scales and batches of a table held in memory take a few times its size.
_MOST_BYTES = 2**28
_PAGE_ROWS = 20_000
_PAGE_CELLS = 2**24


class Samples(NamedTuple):
    """The data sets of a run, and how their columns are encoded."""

    data: list[Any]  # a `Table` of each, or a `TableStream` of each where one is large
    encoding: Encoding | None  # encoding of the columns; `None` for arrays and images
    notes: tuple[str, ...]  # sentences about columns that were matched


def open_data(
    paths: Sequence[str],
    options: dict[str, Any],
    encoding: Encoding | None = None,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Samples:
    """Files or folders: a `Table` of each where all are small, else a `TableStream` of each.

    `options["stream"]` overrides. The columns of two tables are compared, and their encoding is
    found, before any row is used; `encoding` is one that is known already.
    """
    stream, names, notes = options["stream"], options["names"] or (), ()
    sources = []
    for path, argument in zip(paths, ("A", "B") if len(paths) == 2 else ("--score",), strict=True):
        try:
            sources.append(open_source(path, names))
        except ArgumentError as error:
            named = argument if error.argument == "path" else error.argument
            raise error.replace(subject="", argument=named) from error
    tables = [source for source in sources if isinstance(source, ColumnSource)]
    given: dict[str, Any] = {"columns": options["columns"], "names": names}
    if encoding is not None:
        given = {"names": names, "encoding": encoding}
    elif len(tables) == 2:
        on_progress("reading", 0, len(paths))
        wishes = {name: options[name] for name in COLUMN_OPTIONS if options[name]}
        encoding, notes = fit_pair(tables[0], tables[1], wishes)
        given = {"names": names, "encoding": encoding}
    else:
        for name in ("drop", "categorical", "encode"):
            if options[name]:
                raise ArgumentError("wasserstein", name, "is for two tables: text or parquet files")
    opened = [TableStream(path, **given) for path in paths]
    if len(opened) == 2:
        check_pair(*opened)
    if stream is None:
        stream = max(map(_bytes, paths, opened)) > _MOST_BYTES
    if stream:
        return Samples(opened, encoding, notes)
    read = []
    for done, path in enumerate(paths):
        on_progress("reading", done, len(paths))
        read.append(read_table(path, **given))
    on_progress("reading", len(paths), len(paths))
    return Samples(read, encoding, notes)


def rows_for_page(pair: Pair, a: str, b: str, options: dict[str, Any]) -> tuple[Table, Table]:
    """Rows to show in the report: all that are in memory, else the first of each file."""
    if isinstance(pair.first, Table) and isinstance(pair.second, Table):
        return pair.first, pair.second
    limit = max(2, min(_PAGE_ROWS, _PAGE_CELLS // pair.first.dim))
    encoding, names = pair.first.encoding, options["names"] or ()
    columns = options["columns"] if encoding is None else None
    some = check_pair(
        *(
            read_table(path, columns=columns, limit=limit, names=names, encoding=encoding)
            for path in (a, b)
        )
    )
    return some.first, some.second


def names_of(a: str, b: str) -> tuple[str, str]:
    """Names of the two: their file names where these differ, else the paths."""
    names = (Path(a).name or a, Path(b).name or b)
    if names[0] != names[1]:
        return names
    return (a, b) if a != b else (f"{a} (first)", f"{b} (second)")


def _bytes(path: str, opened: TableStream) -> int:
    """About how many bytes of memory the numbers take."""
    if opened.rows is not None:
        return 8 * opened.rows * opened.dim
    # Text: a number and its delimiter take about eight bytes; compressed text, a third.
    file = Path(path if Path(path).exists() else path.rpartition(":")[0])
    return file.stat().st_size * (3 if file.suffix in (".gz", ".zip") else 1)
