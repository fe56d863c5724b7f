"""Predictions row by row as CSV, JSON lines or Parquet, written as they come."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
Rows = dict[str, Sequence[Any]]


def check_format(out: Path | None, asked: str | None) -> str:
    """The format of the output, from the option or the ending; its extra is checked at once."""
    from taut.errors import require

    format = asked or ("csv" if out is None else FORMATS.get(out.suffix.lower()))
    if format is None:
        endings = ", ".join(FORMATS)
        message = f"--out must end in {endings}, or give --format; got {out}."
        raise click.UsageError(message)
    if format == "parquet":
        if out is None:
            raise click.UsageError("a Parquet file needs --out.")
        require("pyarrow", "data", "predict: Parquet")
    return format


@contextmanager
def open_output(out: Path | None, kind: str) -> Iterator[Callable[[Rows], None]]:
    """A function that writes a batch of columns; a file gets its name when it is complete."""
    if out is None:
        yield _text_writer(sys.stdout, kind)
        return
    from taut.cli.output import make_folders
    from taut.export import written_beside

    make_folders(out)
    with written_beside(out) as beside:
        if kind == "parquet":
            with _parquet_writer(beside) as write:
                yield write
        else:
            with open(beside, "w", encoding="utf-8", newline="") as file:
                yield _text_writer(file, kind)


def _text_writer(file: IO[str], kind: str) -> Callable[[Rows], None]:
    begun = False

    def write(rows: Rows) -> None:
        nonlocal begun
        lines = zip(*rows.values(), strict=True)
        if kind == "jsonl":
            file.writelines(
                json.dumps(dict(zip(rows, line, strict=True)), ensure_ascii=False) + "\n"
                for line in lines
            )
        else:
            writer = csv.writer(file, lineterminator="\n")
            if not begun:
                writer.writerow(rows)
            writer.writerows(lines)
        begun = True
        file.flush()

    return write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[Rows], None]]:
    import pyarrow
    import pyarrow.parquet

    made: Any = None

    def write(rows: Rows) -> None:
        nonlocal made
        table = pyarrow.table({name: list(values) for name, values in rows.items()})
        if made is None:
            made = pyarrow.parquet.ParquetWriter(path, table.schema)
        made.write_table(table)

    try:
        yield write
    finally:
        if made is not None:
            made.close()
