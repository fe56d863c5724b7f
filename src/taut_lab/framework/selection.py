"""Selecting results by configuration: the tables and sentences made of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from taut_lab.framework.experiment import Result
from taut_lab.framework.presentation import ResultTable, TableEntry

__all__ = [
    "largest_difference",
    "mean_of",
    "numbers_of",
    "percent",
    "reached",
    "select",
    "sentences",
    "tabulate",
    "values_of",
]


def select(results: Iterable[Result], **wanted: Any) -> list[Result]:
    """The results whose configuration has these values, in the given order.

    Example:
        >>> from taut_lab.framework.experiment import Outcome
        >>> results = [Result({"seed": s, "activation": "relu"}, Outcome({})) for s in (0, 1)]
        >>> len(select(results, activation="relu")), len(select(results, seed=1))
        (2, 1)
    """
    return [
        result
        for result in results
        if all(result.config.get(name) == value for name, value in wanted.items())
    ]


def numbers_of(results: Iterable[Result], number: str, **wanted: Any) -> list[float]:
    """One number of every selected result that has it, one per seed: the values of a `TableEntry`."""
    chosen = select(results, **wanted)
    return [r.outcome.numbers[number] for r in chosen if number in r.outcome.numbers]


def mean_of(results: Iterable[Result], number: str, **wanted: Any) -> float | None:
    """The mean over seeds of a number; None without any."""
    return TableEntry(numbers_of(results, number, **wanted)).mean


def values_of(results: Iterable[Result], name: str) -> list[Any]:
    """The distinct values of a field of the configurations, in the order of the results."""
    return list(dict.fromkeys(r.config[name] for r in results if name in r.config))


def percent(values: Sequence[float]) -> list[float]:
    """Fractions as percentages, rounded.

    Example:
        >>> percent([0.0125])
        [1.25]
    """
    return [round(100 * value, 6) for value in values]


def tabulate(
    results: Sequence[Result],
    title: str,
    rows: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, str | Mapping[str, Any]],
    number: str = "",
    paper: Mapping[str, Sequence[float | None]] | None = None,
    **look: Any,
) -> ResultTable:
    """A table of numbers, by the configurations of rows and columns.

    Args:
        results: results of any subset of the cells.
        title: title of the table.
        rows: name of a row -> values that select its results.
        columns: name of a column -> its number, or values that select its results.
        number: the number of columns that select results.
        paper: name of a row -> the paper's values, one for each column.
        **look: further fields of the table. With the unit "%", fractions are shown as percentages.

    Example:
        >>> from taut_lab.framework.experiment import Outcome
        >>> results = [Result({"net": "relu"}, Outcome({"error": 0.02}))]
        >>> tabulate(results, "t", {"ReLU": {"net": "relu"}}, {"test": "error"}, unit="%").rows
        {'ReLU': [TableEntry(values=[2.0], paper=None)]}
    """

    def entry(row: str, index: int, column: str | Mapping[str, Any]) -> TableEntry:
        name, where = (column, {}) if isinstance(column, str) else (number, column)
        values = numbers_of(results, name, **{**rows[row], **where})
        published = (paper or {}).get(row)
        return TableEntry(
            percent(values) if look.get("unit") == "%" else values,
            published[index] if published else None,
        )

    entries = {row: [entry(row, i, c) for i, c in enumerate(columns.values())] for row in rows}
    return ResultTable(title, list(columns), entries, **look)


def largest_difference(table: ResultTable) -> str:
    """A sentence on the entry that differs most from the paper; empty without any to compare.

    Example:
        >>> rows = {"ReLU": [TableEntry([0.5], paper=0.51), TableEntry([0.7], paper=0.6)]}
        >>> largest_difference(ResultTable("", ["3 layers", "7 layers"], rows, digits=2))
        'Largest difference from the paper: ReLU, 7 layers, 0.70 where the paper has 0.60.'
    """
    compared: list[tuple[float, str, str, TableEntry]] = [
        (abs(entry.difference), row, column, entry)
        for row, entries in table.rows.items()
        for column, entry in zip(table.columns, entries, strict=True)
        if entry.difference is not None
    ]
    if not compared:
        return ""
    _, row, column, entry = max(compared, key=lambda one: one[0])
    ours, paper = (f"{value:.{table.digits}f}{table.unit}" for value in (entry.mean, entry.paper))
    return (
        f"Largest difference from the paper: {row}, {column}, {ours} where the paper has {paper}."
    )


def reached(table: ResultTable, goal: float, what: str) -> str:
    """A sentence on which rows have a first entry within 5 % of `goal`.

    Example:
        >>> rows = {"ReLU": [TableEntry([0.5])], "MaxMin": [TableEntry([0.99])], "FullSort": [TableEntry()]}
        >>> reached(ResultTable("", ["W"], rows), 1.0, "the distance")
        'Within 5 % of the distance: MaxMin. Not: ReLU.'
    """
    means = {row: entries[0].mean for row, entries in table.rows.items()}
    there, short = (
        ", ".join(
            r for r, mean in means.items() if mean is not None and (mean >= 0.95 * goal) is near
        )
        for near in (True, False)
    )
    if not there and not short:
        return ""
    return f"Within 5 % of {what}: {there or 'none'}." + (f" Not: {short}." if short else "")


def sentences(*lines: str) -> Sequence[str]:
    """The lines that are not empty."""
    return [line for line in lines if line]
