"""The report of a monitor: evidence of drift over time, changed scores, and guarantees."""

from collections.abc import Sequence
from typing import Any

from taut.bounds import format_number
from taut.plotting import COLOURS, Picture, draw
from taut.report.page import Page, Section, Table
from taut.report.sentences import UNITS
from taut.transport import Monitor, MonitoredBatch

_MOST_ROWS = 60


def monitor_headline(monitor: Monitor) -> str:
    """Summarises the batches so far in one sentence."""
    count = f"{len(monitor.batches)} batch{'es' * (len(monitor.batches) != 1)}"
    if not monitor.alarm:
        return f"No drift detected in {count}"
    first = next(batch for batch in monitor.batches if batch.alarm)
    headline = f"Drift detected in batch {first.name}: {_largest_change(first)}"
    if first is not monitor.batches[-1]:
        headline = f"{headline}; the alarm stays on until a new reference is fitted"
    return headline


def _largest_change(batch: MonitoredBatch) -> str:
    """The change with the most evidence; its size, unless this batch went the other way."""
    change = batch.changes[0]
    size = f", by {format_number(change.difference, 3)}" if change.difference > 0 else ""
    return f"{change.what}{size}"


def monitor_rows(
    monitor: Monitor, batches: Sequence[MonitoredBatch]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of batches."""
    rows = [
        [
            batch.name,
            f"{batch.rows:,}",
            format_number(batch.evidence, 3),
            f"{batch.p_value:.3g}",
            _largest_change(batch),
        ]
        for batch in batches
    ]
    return ["batch", "rows", "evidence", "p-value so far", "strongest evidence for"], rows


def monitor_page(monitor: Monitor, metadata: Sequence[tuple[str, str]] = ()) -> Page:
    """Creates the report of all batches so far.

    Args:
        monitor: the monitor.
        metadata: names and values that describe the run.
    """
    unit, rate = UNITS[monitor.scaling.method], monitor.false_alarm_rate
    header, rows = monitor_rows(monitor, monitor.batches[-_MOST_ROWS:])
    left_out = len(monitor.batches) - len(rows)
    sections = []
    if monitor.batches:
        last = monitor.batches[-1]
        sections = [
            Section(
                "Evidence over time",
                pictures=[_line(monitor)],
                note=f"The alarm is raised when the evidence reaches {1 / rate:.3g}, and stays on.",
            ),
            Section(
                f"What has changed most, up to {last.name}",
                table=Table(
                    ["change", "evidence", "difference"],
                    [
                        [c.what, format_number(c.evidence, 3), format_number(c.difference, 3)]
                        for c in last.changes
                    ],
                ),
                note=f"Differences of the last batch from the reference, {unit}; values beyond the range "
                "of the reference count as its ends. The evidence of a single score shows where to "
                "look; the alarm depends on the mean over all scores.",
            ),
            Section(
                "Batches",
                table=Table(header, rows[::-1]),
                note=f"The last {len(rows)} batches; {left_out} earlier ones are not shown."
                * (left_out > 0),
            ),
        ]
    return Page(
        title=monitor_headline(monitor),
        lead=f"{len(monitor.nodes)} scores compare the batches with a reference of {monitor.rows:,} rows.",
        sections=[*sections, Section("Guarantees", terms=_guarantees(monitor))],
        metadata=metadata,
    )


def _line(monitor: Monitor) -> Picture:
    values = [batch.evidence for batch in monitor.batches]
    threshold, positions = 1 / monitor.false_alarm_rate, range(1, len(values) + 1)
    above = [
        position for position, value in zip(positions, values, strict=True) if value >= threshold
    ]

    def paint(axes: Any) -> None:
        axes.plot(positions, values, color=COLOURS["blue"], marker="o", markersize=3)
        axes.plot(
            above, [values[p - 1] for p in above], "o", color=COLOURS["vermilion"], markersize=4
        )
        axes.axhline(threshold, color=COLOURS["vermilion"], linestyle="--", linewidth=1.2)
        axes.text(0.6, threshold, "alarm", color=COLOURS["vermilion"], va="bottom", ha="left")
        axes.set(yscale="log", xlabel="batch", ylabel="evidence of drift")
        axes.set_ylim(min(0.01, *values) / 2, max(5 * threshold, *values) * 2)
        axes.set_xlim(0.5, len(values) + 0.5)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)

    alt = f"Evidence after {len(values)} batches: {format_number(values[-1], 3)}; alarm at {threshold:g}."
    return draw(paint, alt=alt, size=(4.6, 2.9))


def _guarantees(monitor: Monitor) -> list[tuple[str, str]]:
    rate = f"{100 * monitor.false_alarm_rate:g} %"
    law = (
        "comes from the population of the reference"
        if monitor.tolerance == 0
        else f"comes, given the rows before it, from a population within a Wasserstein distance of "
        f"{monitor.tolerance:g} of the reference's, {UNITS[monitor.scaling.method]}"
    )
    return [
        (
            "False alarms",
            f"As long as every row {law}, the probability that an alarm is ever raised is at most {rate}, "
            "over all batches together, however many there are.",
        ),
        (
            "Method",
            "Bets that the scores of a batch exceed those of held-out rows of the reference, at fair odds: "
            "the evidence is what a stake of 1 has grown to (Ville's inequality). The finite size of the "
            "reference is accounted for. New bets start with every batch, so that late drift is "
            "detected too.",
        ),
        (
            "Assumptions",
            "The rows of the reference are i.i.d. samples of one population, and the rows of the "
            "batches are drawn independently: no row is used twice, and none depends on others.",
        ),
        (
            "Not claimed",
            "That no alarm means no drift: drift that no score measures, or that is too small for so few "
            "rows, is not detected.",
        ),
    ]
