"""The records of an experiment, collected for a report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from taut_lab.framework import PRESETS, Experiment, Presentation, Verdict
from taut_lab.framework.records import Record, Records


@dataclass(frozen=True)
class ExperimentReport:
    """The records of an experiment, ready to be shown."""

    experiment: Experiment  # the experiment
    preset: str | None  # the requested or the most complete preset; None without a finished cell
    found: Sequence[Record]  # the records of that preset, in the order of its cells
    presentation: Presentation  # tables and figures of these records
    verdict: Verdict | None  # the verdict on the paper's claim; None without a claim of the paper
    counts: dict[str, tuple[int, int]]  # preset -> number of finished cells, number of all cells
    problems: Sequence[str]  # sentences on damaged files, failed cells and unknown files


def collect_report(
    experiment: Experiment, records: Records, preset: str | None = None
) -> ExperimentReport:
    """The records of an experiment, ready to be shown; computes nothing."""
    by_preset: dict[str, list[Record]] = {}
    counts: dict[str, tuple[int, int]] = {}
    problems: dict[str, None] = {}
    paths: set[Path] = set()
    for each in PRESETS:
        cells = experiment.cells(each)
        loaded, damaged = records.load(cells)
        by_preset[each] = list(loaded.values())
        counts[each] = (len(loaded), len(cells))
        paths.update(records.path(cell) for cell in cells)
        problems.update(dict.fromkeys(damaged))
        for cell in cells:
            if (reason := records.error_path(cell)).exists():
                sentence = f"The cell {cell.key} of {experiment.name} failed: see {reason}."
                problems[sentence] = None
    others = set((records.folder / experiment.name).glob("*.json")) - paths
    if others:
        problems[
            f"{len(others)} of the files in {records.folder / experiment.name} belong to other "
            "versions or configurations of the experiment, and are not shown."
        ] = None
    preset = preset or _choose(counts)
    shown = by_preset[preset] if preset else []
    results = [record.result for record in shown]
    presentation = experiment.show(results) if shown else Presentation()
    if experiment.departs_from_paper(record.cell for record in shown):
        tables = [replace(table, comparable=False) for table in presentation.tables]
        presentation = replace(presentation, tables=tables)
    verdict = experiment.verdict(results, preset or "paper") if experiment.in_paper else None
    return ExperimentReport(
        experiment, preset, shown, presentation, verdict, counts, list(problems)
    )


def _choose(counts: dict[str, tuple[int, int]]) -> str | None:
    # The most complete preset, the largest of equals; smoke only if there is nothing else.
    shares = {preset: done / cells for preset, (done, cells) in counts.items() if done}
    large = {preset: share for preset, share in shares.items() if preset != "smoke"} or shares
    return max(reversed(large), key=lambda preset: large[preset], default=None)
