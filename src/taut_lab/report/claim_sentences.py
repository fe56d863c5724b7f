"""Text about experiments and tables: claims, verdicts, values, comparisons with the paper."""

import math
from collections import Counter
from collections.abc import Iterable

from taut_lab.framework import Experiment, ResultTable, TableEntry, Verdict


def claim_text(experiment: Experiment) -> str:
    """The claim of an experiment, attributed to the paper if it is the paper's."""
    source = "The paper claims: " if experiment.in_paper else ""
    return source + experiment.claim


def mean_text(entry: TableEntry, table: ResultTable) -> str:
    """Mean and standard deviation over seeds; a dash where nothing was run.

    Example:
        >>> table = ResultTable("t", ["c"], {}, digits=1, unit="%")
        >>> mean_text(TableEntry([90.0, 92.0], paper=87.5), table), mean_text(TableEntry(), table)
        ('91.0 ± 1.4 %', '-')
    """
    if entry.mean is None:
        return "-"
    spread = "" if entry.spread is None else f" ± {entry.spread:.{table.digits}f}"
    return f"{entry.mean:.{table.digits}f}{spread}{_unit(table)}"


def paper_text(entry: TableEntry, table: ResultTable) -> str:
    """The paper's value; empty if it has none."""
    return "" if entry.paper is None else f"{entry.paper:.{table.digits}f}{_unit(table)}"


def compare(entry: TableEntry, table: ResultTable) -> str:
    """Our value compared with the paper's, at the digits shown; decides the colour.

    Returns:
        "better", "worse" or "equal"; "higher" or "lower" if neither is better; "not comparable"
        for "worse" with less than the paper's budget; empty if there is nothing to compare.

    Example:
        >>> lower = ResultTable("errors", ["c"], {}, better="lower", digits=1)
        >>> compare(TableEntry([1.2], paper=1.5), lower), compare(TableEntry([1.51], paper=1.5), lower)
        ('better', 'equal')
    """
    if entry.difference is None or not math.isfinite(entry.difference):
        return ""
    if round(entry.difference, table.digits) == 0:
        return "equal"
    direction = "higher" if entry.difference > 0 else "lower"
    if table.better is None:
        return direction
    if direction == table.better:
        return "better"
    return "worse" if table.comparable else "not comparable"


def difference_text(entry: TableEntry, table: ResultTable) -> str:
    """The signed difference from the paper's value, and the word of `compare`.

    Example:
        >>> table = ResultTable("t", ["c"], {}, better="higher", digits=2)
        >>> difference_text(TableEntry([0.5], paper=0.75), table)
        '-0.25, worse'
    """
    word = compare(entry, table)
    if not word or entry.difference is None:
        return ""
    text = "reduced budget" if word == "not comparable" else word
    return word if word == "equal" else f"{entry.difference:+.{table.digits}f}, {text}"


def summary(tables: Iterable[ResultTable]) -> str:
    """The number of entries for each word of `compare`.

    Example:
        >>> high, low = TableEntry([2.0], 1.0), TableEntry([0.0], 1.0)
        >>> rows = {"a": [high, high], "b": [low, TableEntry()]}
        >>> summary([ResultTable("t", ["c", "d"], rows, better="higher")])
        '2 better, 1 worse'
        >>> summary([])
        'nothing to compare'
    """
    rows = ((entry, table) for table in tables for row in table.rows.values() for entry in row)
    counts = Counter(compare(*row) for row in rows)
    kinds = ("better", "equal", "worse", "not comparable", "higher", "lower")
    parts = (f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    return ", ".join(parts) or "nothing to compare"


def table_note(table: ResultTable, where: str = "in brackets") -> str:
    """The legend of a table: where the paper's values are, which direction is better, and its note.

    Example:
        >>> table = ResultTable("t", ["c"], {"a": [TableEntry([1.0], paper=2.0)]}, better="lower")
        >>> table_note(table)
        "In brackets the paper's value and the difference. Lower is better."
    """
    entries = [entry for row in table.rows.values() for entry in row]
    legend = ""
    if any(entry.spread is not None for entry in entries):
        legend = "Mean over seeds ± standard deviation"
    if any(entry.paper is not None for entry in entries):
        paper = f"{where} the paper's value and the difference"
        legend = f"{legend}; {paper}" if legend else paper[0].upper() + paper[1:]
    better = f"{table.better.capitalize()} is better." if table.better else ""
    reduced = ""
    if any(compare(entry, table) == "not comparable" for entry in entries):
        reduced = "Reduced budget: not comparable with the paper's value."
    return " ".join(filter(None, (legend and f"{legend}.", better, reduced, table.note)))


def _unit(table: ResultTable) -> str:
    return f" {table.unit.strip()}" if table.unit.strip() else ""


VERDICT_COLUMNS = ("In the paper", "Claim", "Verdict", "Why", "Seeds", "Budget")


def verdict_cells(experiment: Experiment, verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Claim, verdict, reason, number of seeds and budget."""
    return experiment.claim, verdict.word, verdict.reason, verdict.seeds, verdict.budget


def verdict_summary(verdicts: Iterable[Verdict]) -> str:
    """How many claims have each verdict, and the rule.

    Example:
        >>> verdict_summary([Verdict((), "")])[:32]
        'Claims of the paper: 1 undecided'
    """
    counts = Counter(verdict.word for verdict in verdicts)
    words = ("confirmed", "refuted", "undecided")
    text = ", ".join(f"{counts[word]} {word}" for word in words if counts[word])
    return (
        f"Claims of the paper: {text}. A claim is a list of inequalities between recorded numbers: it "
        "is confirmed if all of them hold, refuted if one fails, and undecided where cells are missing, "
        "a difference is within the noise, or a size would need the paper's budget."
    )
