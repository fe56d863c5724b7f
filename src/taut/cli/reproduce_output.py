"""What `taut reproduce` prints."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from taut.cli.wasserstein_output import say as say_aloud
from taut.lab.exhibit import Entry, Exhibit, ResultTable
from taut.lab.experiment import Cell, Experiment
from taut.lab.records import Record, Records, to_plain
from taut.lab.sweep import Moment, Swept
from taut.report.lab_facts import duration
from taut.report.lab_words import claim_text, mean_text, paper_text

__all__ = [
    "entry_text",
    "exhibit_record",
    "print_exhibit",
    "print_list",
    "print_summary",
    "summarize",
    "sweep_progress",
]

OnMoment = Callable[[Moment], None]
Say = Callable[[str], None]


@contextmanager
def sweep_progress(quiet: bool) -> Iterator[tuple[OnMoment, Say]]:
    """A bar on standard error for all cells; a line for each cell where there is no terminal."""
    console = Console(stderr=True, quiet=quiet, markup=False, highlight=False)
    columns = (
        TextColumn("cells"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
    )

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True)

    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=None, words="")

        def on_moment(now: Moment) -> None:
            left = "" if now.seconds_left is None else f"{duration(now.seconds_left)} left"
            failed = f"{now.failed} failed" if now.failed else ""
            words = ", ".join(filter(None, (failed, left)))
            bars.update(bar, total=now.total, completed=now.done + now.failed, words=words)
            if isinstance(now.last, Cell):
                say(f"{_place(now)} {_name(now.last)}: failed")
            elif isinstance(now.last, Record) and not console.is_terminal:
                took = duration(now.last.wall)
                say(f"{_place(now)} {_name(now.last.cell)}: {took}; {words}")

        yield on_moment, say


def _place(now: Moment) -> str:
    return f"{now.done + now.failed}/{now.total}"


def _name(cell: Cell) -> str:
    return f"{cell.experiment} {cell.key} (seed {cell.config['seed']})"


def print_list(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """The experiments, and finished cells of all cells for each preset."""
    table = _table("name", "in the paper", "title")
    for preset in rows[0]["presets"] if rows else ():
        table.add_column(preset, justify="right", no_wrap=True)
    for row in rows:
        counts = [f"{held['finished']}/{held['cells']}" for held in row["presets"].values()]
        table.add_row(row["name"], row["label"], row["title"], *counts)
    Console(markup=False, highlight=False).print(table)
    say_aloud(f"Finished cells of all cells, in {folder}.")


def summarize(
    chosen: Mapping[str, tuple[Experiment, Sequence[Cell]]],
    swept: Swept,
    skipped: Mapping[str, Sequence[str]],
    records: Records,
    preset: str,
) -> dict[str, Any]:
    """What a sweep did, as JSON knows it."""
    experiments = []
    for name, (_, cells) in chosen.items():
        ran = [record for record in swept.ran if record.cell.experiment == name]
        failed = [(cell, story) for cell, story in swept.failed if cell.experiment == name]
        done = len(records.load(cells)[0])
        experiments.append(
            {
                "name": name,
                "cells": len(cells),
                "finished": done,
                "finished_before": done - len(ran),
                "wall_seconds": round(sum(record.wall for record in ran), 3),
                "skipped": list(skipped.get(name, ())),
                "failed": [
                    {
                        "key": cell.key,
                        "config": cell.config,
                        "error": story.strip().splitlines()[-1],
                        "file": str(records.error_path(cell)),
                    }
                    for cell, story in failed
                ],
            }
        )
    return {"records": str(records.folder), "preset": preset, "experiments": experiments}


def print_summary(summary: Mapping[str, Any]) -> None:
    """What a sweep did, as people read it."""
    table = _table("name")
    for column in ("cells", "finished", "of them before", "failed", "time of cells"):
        table.add_column(column, justify="right")
    for row in summary["experiments"]:
        counts = (row["cells"], row["finished"], row["finished_before"], len(row["failed"]))
        table.add_row(row["name"], *map(str, counts), duration(row["wall_seconds"]))
    Console(markup=False, highlight=False).print(table)
    for row in summary["experiments"]:
        for failed in row["failed"]:
            say_aloud(f"{row['name']}: {failed['error']} See {failed['file']}.", style="red")
    shown = [row["name"] for row in summary["experiments"] if row["finished"]]
    if shown:
        where = f"--records {summary['records']}"
        preset = f"--preset {summary['preset']}"
        say_aloud(f"Next: taut reproduce show {shown[0]} {preset} {where}")
        say_aloud(f"      taut reproduce report {where}")


def print_exhibit(experiment: Experiment, count: str, exhibit: Exhibit) -> None:
    """The tables of an experiment, and what is said about them."""
    say_aloud(f"{experiment.title} ({experiment.label}; {count})", style="bold")
    say_aloud(claim_text(experiment))
    for table in exhibit.tables:
        _print_result(table)
    for paragraph in exhibit.words:
        say_aloud(paragraph)
    if exhibit.figures:
        names = ", ".join(exhibit.figures)
        say_aloud(f"Figures, drawn by taut reproduce report: {names}.")
    say_aloud("")


def _print_result(result: ResultTable) -> None:
    table = _table("")
    for column in result.columns:
        table.add_column(column, justify="right", overflow="fold")
    for name, entries in result.rows.items():
        table.add_row(name, *(entry_text(entry, result) for entry in entries))
    papers = any(e.paper is not None for entries in result.rows.values() for e in entries)
    say_aloud(f"\n{result.title}", style="bold")
    Console(markup=False, highlight=False).print(table)
    if note := " ".join(filter(None, ("In brackets: the paper." if papers else "", result.note))):
        say_aloud(note, style="dim")
    say_aloud("")


def entry_text(entry: Entry, table: ResultTable) -> str:
    """Ours with its spread over seeds, and the paper's in brackets.

    Example:
        >>> table = ResultTable("t", ["c"], {}, digits=1, unit="%")
        >>> entry_text(Entry([90.0, 92.0], paper=87.5), table)
        '91.0 ± 1.4 % [87.5 %]'
        >>> entry_text(Entry(paper=87.5), table), entry_text(Entry(), table)
        ('- [87.5 %]', '-')
    """
    paper = paper_text(entry, table)
    return mean_text(entry, table) + (f" [{paper}]" if paper else "")


def exhibit_record(
    experiment: Experiment, preset: str, finished: int, exhibit: Exhibit
) -> dict[str, Any]:
    """The tables of an experiment, as JSON knows them."""
    tables = [
        {
            "title": table.title,
            "columns": list(table.columns),
            "unit": table.unit,
            "better": table.better,
            "note": table.note,
            "rows": {
                name: [
                    {
                        "values": list(entry.values),
                        "mean": entry.mean,
                        "spread": entry.spread,
                        "paper": entry.paper,
                        "difference": entry.difference,
                    }
                    for entry in entries
                ]
                for name, entries in table.rows.items()
            },
        }
        for table in exhibit.tables
    ]
    return {
        "name": experiment.name,
        "label": experiment.label,
        "title": experiment.title,
        "claim": experiment.claim,
        "preset": preset,
        "cells": len(experiment.cells(preset)),
        "finished": finished,
        "tables": to_plain(tables, "tables"),
        "words": list(exhibit.words),
    }


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        # A name that is broken cannot be copied.
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    return table
