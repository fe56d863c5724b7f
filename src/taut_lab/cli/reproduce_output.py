"""Output of `taut reproduce`: progress, summary and tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from taut.cli.output import print_table, progress
from taut.cli.output import say as say_aloud
from taut_lab.framework import Cell, Experiment, ResultTable, TableEntry
from taut_lab.framework.records import Record, Records, to_json
from taut_lab.framework.sweep import SweepProgress, SweepResult
from taut_lab.report.claim_sentences import claim_text, mean_text, paper_text
from taut_lab.report.experiment_report import ExperimentReport
from taut_lab.report.run_details import duration

_WIDE = 110  # columns

OnProgress = Callable[[SweepProgress], None]
Say = Callable[[str], None]


@contextmanager
def sweep_progress(quiet: bool) -> Iterator[tuple[OnProgress, Say]]:
    """A progress bar on standard error; without a terminal, one line for each cell."""
    console = Console(stderr=True, quiet=quiet, markup=False, highlight=False)

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True)

    with progress(quiet or not console.is_terminal) as bar:

        def on_progress(now: SweepProgress) -> None:
            left = "" if now.seconds_left is None else f"{duration(now.seconds_left)} left"
            failed = f"{now.failed} failed" if now.failed else ""
            status = ", ".join(filter(None, (failed, left)))
            ended = now.done + now.failed
            position = f"{ended}/{now.total}"
            bar("cells", ended, now.total, f"{position}  {status}")
            if isinstance(now.last, Cell):
                say(f"{position} {_name(now.last)}: failed")
            elif isinstance(now.last, Record) and not console.is_terminal:
                say(f"{position} {_name(now.last.cell)}: {duration(now.last.wall)}; {status}")

        yield on_progress, say


def _name(cell: Cell) -> str:
    return f"{cell.experiment} {cell.key} (seed {cell.config['seed']})"


def list_row(one: ExperimentReport) -> dict[str, Any]:
    """An experiment of the list, for JSON."""
    about, judged = one.experiment, one.verdict
    return {
        "name": about.name,
        "label": about.label,
        "title": about.title,
        "verdict": judged and judged.word,
        "preset": one.preset,
        "presets": {
            preset: {"cells": cells, "finished": done, "datasets": about.datasets(preset)}
            for preset, (done, cells) in one.counts.items()
        },
    }


def print_list(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """The experiments with their verdicts and finished cells; a wide terminal also gets their titles."""
    columns = {"name": "name", "label": "in the paper", "title": "title", "verdict": "verdict"}
    if Console().width < _WIDE:
        del columns["title"]

    def finished(row: Mapping[str, Any]) -> str:
        shown = row["presets"].get(row["preset"])
        return f"{shown['finished']}/{shown['cells']} {row['preset']}" if shown else ""

    cells = [[*(row[name] or "" for name in columns), finished(row)] for row in rows]
    last = len(columns)
    # A name that is wrapped cannot be copied.
    print_table([*columns.values(), "finished cells"], cells, range(last + 1), (0, last))
    say_aloud(
        f"Number of finished cells out of all cells of the preset, in {folder}. Details: "
        "taut reproduce show NAME"
    )


def summarize(
    selected: Mapping[str, tuple[Experiment, Sequence[Cell]]],
    result: SweepResult,
    skipped: Mapping[str, Sequence[str]],
    records: Records,
    preset: str,
) -> dict[str, Any]:
    """The result of a sweep, for JSON."""
    experiments = []
    for name, (_, cells) in selected.items():
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
    rows = []
    for row in summary["experiments"]:
        counts = (row["cells"], row["finished"], row["finished_before"], len(row["failed"]))
        rows.append([row["name"], *map(str, counts), duration(row["wall_seconds"])])
    print_table(["name", "cells", "finished", "found", "failed", "time"], rows, whole=(0,))
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
    say_aloud(f"\n{result.title}", style="bold")
    rows = [
        [name, *(entry_text(entry, result) for entry in entries)]
        for name, entries in result.rows.items()
    ]
    print_table(["", *result.columns], rows)
    papers = any(e.paper is not None for entries in result.rows.values() for e in entries)
    if note := f"{'Values of the paper in brackets. ' * papers}{result.note}".strip():
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
    numbers = ("values", "mean", "spread", "paper", "difference")
    tables = [
        {
            "title": table.title,
            "columns": list(table.columns),
            "unit": table.unit,
            "better": table.better,
            "note": table.note,
            "rows": {
                name: [{each: getattr(entry, each) for each in numbers} for entry in entries]
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
