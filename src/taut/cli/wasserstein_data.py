"""The input and output files of `taut wasserstein`, checked before the long work begins."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from taut.data import Columns, Pair, Table, TableStream, check_pair, read_table
from taut.errors import ArgumentError

__all__ = ["check_outputs", "names_of", "open_data", "rows_for_page"]

# Splits, scales and batches of a table held in memory take a few times its size.
_MOST_BYTES = 2**28
_PAGE_ROWS = 20_000
_PAGE_CELLS = 2**24


def open_data(
    paths: Sequence[str],
    columns: Columns,
    stream: bool | None,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> list[Any]:
    """Files or folders: a `Table` of each where all are small, else a `TableStream` of each.

    `stream` overrides. Of two datasets, the columns are compared before any row is read.
    """
    opened = [TableStream(path, columns=columns) for path in paths]
    if len(opened) == 2:
        check_pair(*opened)
    if stream is None:
        stream = max(map(_bytes, paths, opened)) > _MOST_BYTES
    if stream:
        return opened
    tables = []
    for done, path in enumerate(paths):
        on_progress("reading", done, len(paths))
        tables.append(read_table(path, columns=columns))
    on_progress("reading", len(paths), len(paths))
    return tables


def rows_for_page(pair: Pair, a: str, b: str, columns: Columns) -> tuple[Table, Table]:
    """Rows to show in the report: all that are in memory, else the first of each file."""
    if isinstance(pair.first, Table) and isinstance(pair.second, Table):
        return pair.first, pair.second
    limit = max(2, min(_PAGE_ROWS, _PAGE_CELLS // pair.first.dim))
    some = check_pair(*(read_table(path, columns=columns, limit=limit) for path in (a, b)))
    return some.first, some.second


def names_of(a: str, b: str) -> tuple[str, str]:
    """Names of the two: their file names where these differ, else the paths."""
    names = (Path(a).name or a, Path(b).name or b)
    if names[0] != names[1]:
        return names
    return (a, b) if a != b else (f"{a} (first)", f"{b} (second)")


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[str]) -> None:
    """Makes the folders of the output files, and raises if one cannot be written."""
    taken = [Path(path).resolve() for path in inputs]
    given = [path for path in outputs if path is not None]
    for place, path in enumerate(given):
        rule = ""
        if path.resolve() in taken:
            rule = "outputs must not be written over inputs; got {} for both"
        if path.resolve() in [other.resolve() for other in given[:place]]:
            rule = "outputs must be different files; got {} twice"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule = f"the folder of {{}} cannot be made: {error.strerror}"
        else:
            if not all(os.access(p, os.W_OK) for p in (path.parent, path) if p.exists()):
                rule = "{} cannot be written; choose another"
        if rule:
            raise ArgumentError(f"wasserstein: {rule.format(repr(str(path)))}.")


def _bytes(path: str, opened: TableStream) -> int:
    """About how many bytes of memory the numbers take."""
    if opened.rows is not None:
        return 8 * opened.rows * opened.dim
    # Text: a number and its delimiter take about eight bytes; compressed text, a third.
    size = Path(path).stat().st_size
    return 3 * size if path.endswith(".gz") else size
