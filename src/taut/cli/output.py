"""What several commands print and write: sentences, JSON, plain tables, progress bars, files."""

import json
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from taut.errors import ArgumentError

_LOG_SECONDS = 10.0


def say(sentence: str, style: str | None = None) -> None:
    """Prints one line to standard output, wrapped by the terminal alone."""
    Console().print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def print_json(record: dict[str, Any]) -> None:
    """Prints one object to standard output; paths are written as text."""
    click.echo(json.dumps(record, allow_nan=False, default=os.fspath))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    left: Container[int] = (0,),
    whole: Container[int] = (),
) -> None:
    """Prints a table without borders; columns `left` are aligned to the left, `whole` never wrap."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, name in enumerate(header):
        justify = "left" if index in left else "right"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=index in whole)
    for row in rows:
        table.add_row(*row)
    Console().print(table, highlight=False, markup=False)


def _log_lines(quiet: bool) -> Callable[..., None]:
    """Writes a line with the time to standard error, at most one in `_LOG_SECONDS`."""
    written = time.monotonic()

    def report(stage: str, done: int, total: int, text: str = "") -> None:
        nonlocal written
        now = time.monotonic()
        if not quiet and now - written >= _LOG_SECONDS:
            written = now
            moment = time.strftime("%Y-%m-%d %H:%M:%S")
            click.echo(f"{moment} {stage} {done}/{total}  {text}".rstrip(), err=True)

    return report


@contextmanager
def announce_folders(*folders: Path) -> Iterator[None]:
    """Says on standard error which of these folders were created, even if the work then failed."""
    missing = [folder for folder in dict.fromkeys(folders) if not folder.exists()]
    try:
        yield
    finally:
        for folder in missing:
            if folder.exists():
                click.echo(f"Created folder {folder}", err=True)


def check_outputs(
    outputs: Sequence[Path | None], inputs: Sequence[str], subject: str = "wasserstein"
) -> None:
    """Raises if an output file cannot be written; creates nothing, since the work may still fail."""
    taken = [Path(path).resolve() for path in inputs]
    paths = [path for path in outputs if path is not None]
    for index, path in enumerate(paths):
        rule, got, remedy = "", repr(str(path)), ""
        if path.resolve() in taken:
            rule, got = "outputs must not be written over inputs", f"{got} for both"
        if path.resolve() in [other.resolve() for other in paths[:index]]:
            rule, got = "outputs must be different files", f"{got} twice"
        above = next(each for each in path.absolute().parents if each.exists())
        if not all(os.access(p, os.W_OK) for p in (above, path) if p.exists()):
            rule, remedy = "outputs must be writable", "Choose another file."
        if rule:
            raise ArgumentError(subject, rule=rule, got=got, remedy=remedy)


def make_folders(*outputs: Path | None) -> None:
    """Creates the folders of the output files, and says so."""
    folders = [path.parent for path in outputs if path is not None]
    with announce_folders(*folders):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Progress bars on standard error, one for each stage, with the time left.

    Where standard error is no terminal, as in a log, it is a line now and then instead.

    Yields a function of the stage, the amount done, the total, and a text beside the bar. Stages
    follow each other: one that stopped early is complete.
    """
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield _log_lines(quiet)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[text]}", markup=False),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    # The bars take the width that the texts leave.
    with Progress(*columns, console=console, expand=True) as bars:
        tasks: dict[str, TaskID] = {}

        def finish() -> None:
            for task in bars.tasks:
                bars.update(task.id, total=task.completed)

        def report(stage: str, done: int, total: int, text: str = "") -> None:
            if stage not in tasks:
                finish()
                tasks[stage] = bars.add_task(stage, total=total, text=text)
            bars.update(tasks[stage], completed=done, total=total, text=text)

        yield report
        finish()
