"""Output of `taut reproduce`: progress, summary and tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from taut.cli.output import say as say_aloud
from taut_lab.framework.experiment import Cell, Experiment
from taut_lab.framework.presentation import ResultTable, TableEntry
from taut_lab.framework.records import Record, Records, to_json
from taut_lab.framework.sweep import SweepProgress, SweepResult
from taut_lab.report.collection import ExperimentReport
from taut_lab.report.run_details import duration
from taut_lab.report.table_text import claim_text, mean_text, paper_text

_WIDE = 110  # columns

OnProgress = Callable[[SweepProgress], None]
Say = Callable[[str], None]


@contextmanager
def sweep_progress(quiet: bool) -> Iterator[tuple[OnProgress, Say]]:
    """A progress bar on standard error; without a terminal, one line for each cell."""
    console = Console(stderr=True, quiet=quiet, markup=False, highlight=False)
    columns = (
        TextColumn("cells"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
    )

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True)

    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=None, status="")

        def on_progress(now: SweepProgress) -> None:
            left = "" if now.seconds_left is None else f"{duration(now.seconds_left)} left"
            failed = f"{now.failed} failed" if now.failed else ""
            status = ", ".join(filter(None, (failed, left)))
            bars.update(bar, total=now.total, completed=now.done + now.failed, status=status)
            if isinstance(now.last, Cell):
                say(f"{_position(now)} {_name(now.last)}: failed")
            elif isinstance(now.last, Record) and not console.is_terminal:
                took = duration(now.last.wall)
                say(f"{_position(now)} {_name(now.last.cell)}: {took}; {status}")

        yield on_progress, say


def _position(now: SweepProgress) -> str:
    return f"{now.done + now.failed}/{now.total}"


def _name(cell: Cell) -> str:
    return f"{cell.experiment} {cell.key} (seed {cell.config['seed']})"


def list_row(one: ExperimentReport) -> dict[str, Any]:
    """An experiment of the list, for JSON."""
    about = one.experiment
    return {
        "name": about.name,
        "label": about.label,
        "title": about.title,
        "verdict": None if one.verdict is None else one.verdict.word,
        "preset": one.preset,
        "presets": {
            preset: {
                "cells": cells,
                "finished": done,
                "datasets": about.datasets(preset),
            }
            for preset, (done, cells) in one.counts.items()
        },
    }


def print_list(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """The experiments with their verdicts and finished cells; a wide terminal also gets their titles."""
    console = Console(markup=False, highlight=False)
    titled = console.width >= _WIDE
    table = _table(
        "name", "in the paper", *(["title"] if titled else []), "verdict", "finished cells"
    )
    for row in rows:
        title = [row["title"]] if titled else []
        shown = row["presets"].get(row["preset"])
        done = f"{shown['finished']}/{shown['cells']} {row['preset']}" if shown else ""
        table.add_row(row["name"], row["label"], *title, row["verdict"] or "", done)
    console.print(table)
    say_aloud(
        f"Finished cells of all cells of a preset, in {folder}. Details: taut reproduce show NAME"
    )


def summarize(
    chosen: Mapping[str, tuple[Experiment, Sequence[Cell]]],
    result: SweepResult,
    skipped: Mapping[str, Sequence[str]],
    records: Records,
    preset: str,
) -> dict[str, Any]:
    """The result of a sweep, for JSON."""
    experiments = []
    for name, (_, cells) in chosen.items():
        ran = [record for record in result.completed if record.cell.experiment == name]
        failed = [(cell, reason) for cell, reason in result.failed if cell.experiment == name]
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
                        "error": reason.strip().splitlines()[-1],
                        "file": str(records.error_path(cell)),
                    }
                    for cell, reason in failed
                ],
            }
        )
    return {"records": str(records.folder), "preset": preset, "experiments": experiments}


def print_summary(summary: Mapping[str, Any]) -> None:
    """Prints the result of a sweep."""
    table = _table("name")
    for column in ("cells", "finished", "found", "failed", "time"):
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


def print_presentation(one: ExperimentReport) -> None:
    """Prints the verdict, tables and paragraphs of an experiment."""
    experiment, presentation = one.experiment, one.presentation
    done, cells = one.counts[one.preset or "smoke"]
    count = f"preset {one.preset}, {done} of {cells} cells"
    say_aloud(f"{experiment.title} ({experiment.label}; {count})", style="bold")
    say_aloud(claim_text(experiment))
    if one.verdict is not None:
        say_aloud(f"Verdict: {one.verdict.word}. {one.verdict.reason}", style="bold")
        say_aloud(f"Seeds: {one.verdict.seeds}. Budget: {one.verdict.budget}.")
    for table in presentation.tables:
        _print_result(table)
    for paragraph in presentation.paragraphs:
        say_aloud(paragraph)
    if presentation.figures:
        names = ", ".join(presentation.figures)
        say_aloud(f"Figures in the HTML report (taut reproduce report): {names}.")
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
    if note := " ".join(
        filter(None, ("Values of the paper in brackets." if papers else "", result.note))
    ):
        say_aloud(note, style="dim")
    say_aloud("")


def entry_text(entry: TableEntry, table: ResultTable) -> str:
    """Our mean and standard deviation over seeds, and the paper's value in brackets.

    Example:
        >>> table = ResultTable("t", ["c"], {}, digits=1, unit="%")
        >>> entry_text(TableEntry([90.0, 92.0], paper=87.5), table)
        '91.0 ± 1.4 % [87.5 %]'
        >>> entry_text(TableEntry(paper=87.5), table), entry_text(TableEntry(), table)
        ('- [87.5 %]', '-')
    """
    paper = paper_text(entry, table)
    return mean_text(entry, table) + (f" [{paper}]" if paper else "")


def presentation_json(one: ExperimentReport) -> dict[str, Any]:
    """The verdict and the tables of an experiment, for JSON."""
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
        for table in one.presentation.tables
    ]
    done, cells = one.counts[one.preset or "smoke"]
    about, verdict = one.experiment, one.verdict
    return {
        "name": about.name,
        "label": about.label,
        "title": about.title,
        "claim": about.claim,
        "verdict": verdict and {"word": verdict.word, "reason": verdict.reason},
        "preset": one.preset,
        "cells": cells,
        "finished": done,
        "tables": to_json(tables, "tables"),
        "paragraphs": list(one.presentation.paragraphs),
    }


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        # A name that is wrapped cannot be copied.
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "finished cells"))
    return table
