"""Experiments in words: what the paper claims, our number beside its own, which is better."""

import math
from collections.abc import Iterable

from taut.lab.exhibit import Entry, ResultTable
from taut.lab.experiment import Experiment

__all__ = [
    "claim_text",
    "compare",
    "count_kinds",
    "difference_text",
    "mean_text",
    "paper_text",
    "summary",
    "table_note",
]


def claim_text(experiment: Experiment) -> str:
    """What an experiment is to show, and whether it is the paper that says so."""
    said = "The paper claims: " if experiment.in_paper else ""
    return said + experiment.claim


def mean_text(entry: Entry, table: ResultTable) -> str:
    """The mean over seeds with its spread; a dash where nothing was run.

    Example:
        >>> table = ResultTable("t", ["c"], {}, digits=1, unit="%")
        >>> mean_text(Entry([90.0, 92.0], paper=87.5), table), mean_text(Entry(), table)
        ('91.0 ± 1.4 %', '-')
    """
    if entry.mean is None:
        return "-"
    spread = "" if entry.spread is None else f" ± {entry.spread:.{table.digits}f}"
    return f"{entry.mean:.{table.digits}f}{spread}{_unit(table)}"


def paper_text(entry: Entry, table: ResultTable) -> str:
    """The paper's number; empty where it has none."""
    return "" if entry.paper is None else f"{entry.paper:.{table.digits}f}{_unit(table)}"


def compare(entry: Entry, table: ResultTable) -> str:
    """How ours stands to the paper's, at the digits shown: what a colour stands for.

    Returns:
        "better", "worse" or "equal"; "higher" or "lower" where neither is better; empty where
        there is nothing to compare.

    Example:
        >>> lower = ResultTable("errors", ["c"], {}, better="lower", digits=1)
        >>> compare(Entry([1.2], paper=1.5), lower), compare(Entry([1.51], paper=1.5), lower)
        ('better', 'equal')
    """
    if entry.difference is None or not math.isfinite(entry.difference):
        return ""
    if round(entry.difference, table.digits) == 0:
        return "equal"
    direction = "higher" if entry.difference > 0 else "lower"
    if table.better is None:
        return direction
    return "better" if direction == table.better else "worse"


def difference_text(entry: Entry, table: ResultTable) -> str:
    """Ours minus the paper's, with its sign and the word of `compare`.

    Example:
        >>> table = ResultTable("t", ["c"], {}, better="higher", digits=2)
        >>> difference_text(Entry([0.5], paper=0.75), table)
        '-0.25, worse'
    """
    word = compare(entry, table)
    if not word or entry.difference is None:
        return ""
    return word if word == "equal" else f"{entry.difference:+.{table.digits}f}, {word}"


def count_kinds(tables: Iterable[ResultTable]) -> dict[str, int]:
    """How many entries are what `compare` calls them, the most telling first."""
    words = [
        compare(entry, table)
        for table in tables
        for entries in table.rows.values()
        for entry in entries
    ]
    kinds = ("better", "equal", "worse", "higher", "lower")
    return {kind: words.count(kind) for kind in kinds if kind in words}


def summary(tables: Iterable[ResultTable]) -> str:
    """The counts in a line.

    Example:
        >>> rows = {"a": [Entry([2.0], 1.0), Entry([3.0], 1.0)], "b": [Entry([0.0], 1.0), Entry()]}
        >>> summary([ResultTable("t", ["c", "d"], rows, better="higher")])
        '2 better, 1 worse'
        >>> summary([])
        'nothing to compare'
    """
    counts = count_kinds(tables)
    return ", ".join(f"{n} {kind}" for kind, n in counts.items()) or "nothing to compare"


def table_note(table: ResultTable, where: str = "in brackets") -> str:
    """How to read the table: whose numbers are where, which way is better, and its own note.

    Example:
        >>> table = ResultTable("t", ["c"], {"a": [Entry([1.0], paper=2.0)]}, better="lower")
        >>> table_note(table)
        "In brackets the paper's number and the difference. Lower is better."
    """
    entries = [entry for row in table.rows.values() for entry in row]
    legend = ""
    if any(entry.spread is not None for entry in entries):
        legend = "Ours is the mean over seeds ± the standard deviation"
    if any(entry.paper is not None for entry in entries):
        paper = f"{where} the paper's number and the difference"
        legend = f"{legend}; {paper}" if legend else paper[0].upper() + paper[1:]
    better = f"{table.better.capitalize()} is better." if table.better else ""
    return " ".join(filter(None, (legend and f"{legend}.", better, table.note)))


def _unit(table: ResultTable) -> str:
    return f" {table.unit.strip()}" if table.unit.strip() else ""
