"""Comparison of two datasets column by column, as a table, small plots and JSON records."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from taut.bounds import format_number
from taut.data import ColumnEncoding
from taut.data import Table as Rows
from taut.plotting import COLOURS, Picture, draw
from taut.report.page import Section, Table
from taut.report.sentences import shorten
from taut.transport import FeatureComparison

_MOST_ROWS = 40
_MOST_PLOTS = 12
_MOST_CATEGORIES = 6
_MOST_BINS = 24
_MOST_TICKS = 4
_SPACE = "\N{NO-BREAK SPACE}"
# Histograms of the first and of the second dataset.
_FILLED: dict[str, Any] = {"color": COLOURS["blue"], "alpha": 0.35}
_DASHED: dict[str, Any] = {"color": COLOURS["vermilion"], "histtype": "step", "linestyle": "--"}
_DASHED["linewidth"] = 1.4


def feature_records(
    compared: Sequence[FeatureComparison], shares: Sequence[float] | None
) -> list[dict[str, Any]]:
    """The columns for JSON, with their shares of the joint distance if known."""
    records = []
    for j, one in enumerate(compared):
        record = asdict(one)
        for name in ("means", "spreads"):
            if (values := record[name]) is not None:
                record[name] = [value if math.isfinite(value) else None for value in values]
        record["share_of_distance"] = None if shares is None else shares[j]
        records.append(record)
    return records


def feature_sections(
    compared: Sequence[FeatureComparison],
    shares: Sequence[float] | None,
    tables: tuple[Rows, Rows],
    names: tuple[str, str],
) -> list[Section]:
    """A table of the columns, most different first, and small plots of the first few."""
    weight = [0.0] * len(compared) if shares is None else [abs(share) for share in shares]
    keys = [(-size, one.corrected_p_value) for size, one in zip(weight, compared, strict=True)]
    order = sorted(range(len(compared)), key=keys.__getitem__)
    header = ["column", *(["share"] if shares is not None else []), "distance", "corrected p"]
    header += ["test", *(f"mean ± spread, {name}" for name in names)]
    gaps = any(max(one.missing) > 0 for one in compared)
    header += ["missing"] if gaps else []
    rows = []
    for j in order[:_MOST_ROWS]:
        one, column = compared[j], _column(tables[0], compared[j].name)
        p_value = "< 1e-6" if one.corrected_p_value < 1e-6 else f"{one.corrected_p_value:.2g}"
        row = [one.name]
        row += [] if shares is None else [f"{round(100 * shares[j], 1) + 0.0:g}{_SPACE}%"]
        row += [format_number(one.distance, 3), p_value]
        row.append(f"{'KS' if one.means else 'χ²'}{_SPACE}{format_number(one.statistic, 2)}")
        row += [_mean(one, side, column) for side in (0, 1)]
        if gaps:
            missing = f"{_SPACE}/{_SPACE}".join(f"{100 * share:.2g}" for share in one.missing)
            row.append(f"{missing}{_SPACE}%")
        rows.append(row)
    rest = len(compared) - len(rows)
    note = (
        "Share: part of the joint distance that the critic attributes to the column. Distance: "
        "Wasserstein distance of the column alone, in its own unit; for categories, the share of "
        "rows that would have to change category, times the distance between categories. Tests: "
        "Kolmogorov-Smirnov (KS) for numbers, chi-square (χ²) for categories; the p-values are "
        "asymptotic and corrected for the number of columns by Holm's method."
    )
    note += f" {rest} more columns are not shown here." * (rest > 0)
    drawn = (_plot(compared[j], tables, names) for j in order[:_MOST_PLOTS])
    pictures = [picture for picture in drawn if picture is not None]
    blue, orange = names
    sections = [Section("Column by column", table=Table(header, rows, wide=True), note=note)]
    if pictures:
        text = f"Filled, blue: {blue}. Dashed, orange-red: {orange}. In % of the rows."
        sections.append(Section("Distributions", pictures=pictures, columns=3, note=text))
    return sections


def _plot(
    one: FeatureComparison, tables: tuple[Rows, Rows], names: tuple[str, str]
) -> Picture | None:
    if one.categories:
        return _plot_categories(one, names)
    sides = [_values(table, one.name) for table in tables]
    if min(map(len, sides)) == 0:
        return None
    together, column = np.concatenate(sides), _column(tables[0], one.name)
    # Heavy tails would leave the rest in one bin.
    low, high = np.quantile(together, [0.005, 0.995])
    if (together == np.rint(together)).all():
        # Each bin contains the same number of whole numbers.
        low, high = math.floor(low) - 0.5, math.ceil(high) + 0.5
        size = math.ceil((high - low) / _MOST_BINS)
        edges = low + size * np.arange(math.ceil((high - low) / size) + 1)
        high = edges[-1]
    else:
        edges = np.linspace(low, high, _MOST_BINS + 1)

    def paint(axes: Any) -> None:
        for values, style in zip(sides, (_FILLED, _DASHED), strict=True):
            weights = np.full(len(values), 100 / len(values))
            axes.hist(np.clip(values, low, high), edges, weights=weights, **style)
        axes.locator_params(nbins=3 if column else 4)
        if one.kind == "date":  # whose labels are long
            axes.set_xticks(np.floor(np.linspace(low, high, 5)[1::2]))
        if column is not None and column.kind == "ordered":
            count = len(column.categories)
            axes.set_xticks(range(0, count, math.ceil(count / _MOST_TICKS)))
        if column is not None:
            axes.xaxis.set_major_formatter(lambda value, _, shown=column: _tick(shown, value))

    alt = f"Histograms of {one.name} in {' and '.join(names)}; distance {format_number(one.distance)}."
    return draw(paint, alt=alt, title=shorten(one.name), size=(3.0, 2.0))


def _plot_categories(one: FeatureComparison, names: tuple[str, str]) -> Picture:
    shown = one.categories[:_MOST_CATEGORIES]

    def paint(axes: Any) -> None:
        places = np.arange(len(shown))
        first, second = ([100 * row[side] for row in shown] for side in (1, 2))
        axes.barh(places, first, color=COLOURS["blue"], alpha=0.35, height=0.7)
        style = {"facecolor": "none", "linestyle": "--", "linewidth": 1.4}
        axes.barh(places, second, edgecolor=COLOURS["vermilion"], height=0.7, **style)
        axes.set_yticks(places, [shorten(row[0], 12) for row in shown])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.locator_params(axis="x", nbins=4)

    description = ", ".join(f"{name} {100 * a:.3g} and {100 * b:.3g} %" for name, a, b in shown)
    alt = f"Shares of {one.name} in {' and '.join(names)}: {description}."
    return draw(paint, alt=alt, title=shorten(one.name), size=(3.0, 2.0))


def _column(table: Rows, name: str) -> ColumnEncoding | None:
    """The encoding of a column whose numbers stand for other values: dates, times, ordered categories."""
    columns = () if table.encoding is None else table.encoding.used
    return next(
        (c for c in columns if c.name == name and c.kind in ("date", "time", "ordered")), None
    )


def _tick(column: ColumnEncoding, value: float) -> str:
    if column.kind == "ordered":
        inside = value == int(value) and 0 <= value < len(column.categories)
        return shorten(column.categories[int(value)], 10) if inside else ""
    return column.show(math.floor(value) if column.kind == "date" else value)


def _mean(one: FeatureComparison, side: int, column: ColumnEncoding | None) -> str:
    if one.means is None or one.spreads is None or not math.isfinite(one.means[side]):
        return "–"
    mean, spread = one.means[side], format_number(one.spreads[side], 3)
    if column is not None and column.kind != "ordered":
        unit = "days" if column.kind == "date" else "hours"
        return f"{_tick(column, mean)} ±{_SPACE}{spread}{_SPACE}{unit}"
    return f"{format_number(mean)} ±{_SPACE}{spread}"


def _values(table: Rows, name: str) -> np.ndarray:
    """The numbers of a column that are not missing."""
    names = table.columns or tuple(f"column {j}" for j in range(table.dim))
    values = np.asarray(table.values[:, names.index(name)], np.float64)
    return values[~np.isnan(values)]
