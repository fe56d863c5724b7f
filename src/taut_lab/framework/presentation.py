"""What an experiment presents: tables with the paper's numbers beside ours, figures and text."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taut.plotting import Figure

__all__ = ["Presentation", "ResultTable", "TableEntry"]


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table: our value for each seed, and the paper's value.

    Attributes:
        values: one value per seed; empty where nothing has been run yet.
        paper: the paper's value in the same unit, or None where it has none.

    Example:
        >>> entry = TableEntry([0.90, 0.92], paper=0.87)
        >>> round(entry.mean, 3), round(entry.spread, 3), round(entry.difference, 3)
        (0.91, 0.014, 0.04)
    """

    values: Sequence[float] = ()
    paper: float | None = None

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None without any."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        finite = all(math.isfinite(value) for value in self.values)
        return statistics.stdev(self.values) if len(self.values) > 1 and finite else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's value; None where one is missing."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class ResultTable:
    """Rows of entries.

    Attributes:
        title: title of the table.
        columns: names of the columns, except the first, which holds the names of the rows.
        rows: name of a row -> its entries, one for each column.
        better: "higher", "lower", or None where neither is better; decides the colours.
        digits: digits after the decimal point.
        unit: unit of all entries, such as "%" or "s"; may be empty.
        note: a line in small print.
        comparable: whether the paper's budget was spent; without it nothing counts as worse.
    """

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[TableEntry]]
    better: str | None = None
    digits: int = 3
    unit: str = ""
    note: str = ""
    comparable: bool = True


@dataclass(frozen=True)
class Presentation:
    """Everything that an experiment presents, in this order.

    Attributes:
        tables: our numbers beside the paper's.
        figures: figures by the name of their file, without extension.
        paragraphs: what was found, and where it differs from the paper.
    """

    tables: Sequence[ResultTable] = ()
    figures: Mapping[str, Figure] | None = None
    paragraphs: Sequence[str] = ()
