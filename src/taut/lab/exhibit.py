"""What an experiment shows: tables with the paper's number beside ours, figures and words."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taut.pictures import Figure

__all__ = ["Entry", "Exhibit", "ResultTable"]


@dataclass(frozen=True)
class Entry:
    """A place in a table: what was found with each seed, and what the paper has there.

    Attributes:
        values: one per seed; none where nothing has been run yet.
        paper: the paper's number in the same unit, or None where it has none.

    Example:
        >>> entry = Entry([0.90, 0.92], paper=0.87)
        >>> round(entry.mean, 3), round(entry.spread, 3), round(entry.difference, 3)
        (0.91, 0.014, 0.04)
    """

    values: Sequence[float] = ()
    paper: float | None = None

    @property
    def mean(self) -> float | None:
        """Over the seeds; None without any."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None for fewer than two."""
        finite = all(math.isfinite(value) for value in self.values)
        return statistics.stdev(self.values) if len(self.values) > 1 and finite else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None where one is missing."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class ResultTable:
    """Rows of entries.

    Attributes:
        title: what it shows.
        columns: their names, without that of the first, which holds the names of rows.
        rows: the name of a row -> its entries, one for each column.
        better: "higher", "lower", or None where neither is better: decides colours.
        digits: digits after the point.
        unit: such as "%" or "s"; may be empty.
        note: a line in small print.
    """

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Entry]]
    better: str | None = None
    digits: int = 3
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Exhibit:
    """All that an experiment shows, in this order.

    Attributes:
        tables: with our numbers and the paper's.
        figures: by the name of their file, without its ending.
        words: paragraphs: what came out, and plainly where it differs from the paper.
    """

    tables: Sequence[ResultTable] = ()
    figures: Mapping[str, Figure] | None = None
    words: Sequence[str] = ()
