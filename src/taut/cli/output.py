"""What several commands print: sentences, JSON, plain tables, progress bars."""

import json
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["plain_table", "print_json", "progress_bars", "say"]


def say(sentence: str, style: str | None = None) -> None:
    """Prints one line to standard output, wrapped by the terminal alone."""
    Console().print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def print_json(record: dict[str, Any]) -> None:
    """Prints one object to standard output."""
    click.echo(json.dumps(record, allow_nan=False))


def plain_table(*headers: str, left: int = 1) -> Table:
    """A table without borders; all columns but the first `left` are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, header in enumerate(headers):
        table.add_column(header, justify="left" if at < left else "right", overflow="fold")
    return table


def progress_bars(before: str, *after: str | ProgressColumn, quiet: bool = False) -> Progress:
    """Progress bars on standard error, with text before and after the bar and the time left."""
    columns = [TextColumn(text) if isinstance(text, str) else text for text in after]
    left = TimeRemainingColumn(elapsed_when_finished=True)
    console = Console(stderr=True, quiet=quiet)
    return Progress(TextColumn(before), BarColumn(), *columns, left, console=console)
