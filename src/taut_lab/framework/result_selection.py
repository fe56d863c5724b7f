"""Results selected by configuration, and the tables and sentences made of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from taut_lab.framework.experiment import Result
from taut_lab.framework.presentation import ResultTable, TableEntry


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
    selected = select(results, **wanted)
    return [r.outcome.numbers[number] for r in selected if number in r.outcome.numbers]


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
