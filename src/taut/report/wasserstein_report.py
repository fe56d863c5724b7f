"""The report of a distance between two datasets: bounds, scores, features, rows, guarantees."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Generator

from taut.bounds import format_number
from taut.data import Table as Rows
from taut.plotting import COLOURS, Picture, draw
from taut.report.figures import smooth
from taut.report.page import Page, Section, Table
from taut.report.sentences import (
    UNITS,
    as_sentence,
    distance_guarantees,
    distance_headline,
    distance_rows,
    format_bound,
)
from taut.report.wasserstein_differences import collect_details, columns, extremes, features
from taut.transport import WassersteinResult


def wasserstein_page(
    result: WassersteinResult,
    x: Rows,
    y: Rows,
    *,
    names: tuple[str, str] = ("A", "B"),
    method: str = "",
    metadata: Sequence[tuple[str, str]] = (),
    seed: int = 0,
) -> Page:
    """Creates the report of a result.

    Args:
        result: result of `taut.wasserstein`.
        x: rows of the first dataset, or some of them, in their original units.
        y: rows of the second dataset.
        names: names of the two datasets.
        method: confidence bound of the means.
        metadata: names and values that describe the run.
        seed: random seed of the choice of rows if there are many.
    """
    details = collect_details(result, x, y, names, Generator().manual_seed(seed))
    whose = "finite sets of rows" if result.finite else "populations behind the samples"
    return Page(
        title=distance_headline(result, names),
        lead=(
            f"The distance between the two {whose}: the smallest average distance that mass has to "
            f"travel, {UNITS[result.scaling.method]}."
        ),
        sections=[
            Section(
                "Bounds on the distance",
                pictures=[draw_interval(result)],
                note="A bar that does not reach 0 shows that the two differ.",
            ),
            Section(
                "In numbers",
                table=Table(["", "value", "method"], distance_rows(result)),
                note=" ".join(map(as_sentence, result.notes)),
            ),
            _scores(result, names),
            *features(details),
            *columns(details),
            *extremes(details),
            *_training(result),
            Section("Guarantees", terms=tuple(distance_guarantees(result, method).items())),
        ],
        metadata=metadata,
    )


def draw_interval(result: WassersteinResult) -> Picture:
    """Draws the bounds as a bar and the estimate as a mark on it, with zero at the left."""
    low, high, middle = result.lower.value, result.upper.value, result.estimate.value
    least, most = format_bound(low, "lower"), format_bound(high, "upper")
    open_ended = bool(result.unseen) or not result.upper_is_useful
    if result.unseen:
        high = max(2 * middle, 1.0)

    def paint(axes: Any) -> None:
        reach = max(high, middle, 1e-300) * 1.06
        axes.barh(0, reach, color="#f3f4f5", height=0.34)
        right = reach if open_ended else high
        axes.barh(0, max(right - low, reach / 300), left=low, color=COLOURS["sky"], height=0.34)
        # A bar without width would be invisible, so its ends are drawn as well.
        ends = [low] if open_ended else [low, high]
        axes.vlines(ends, -0.24, 0.24, color=COLOURS["blue"])
        axes.plot(middle, 0, "D", color="black", markersize=6)
        if high - low < 0.3 * reach and not open_ended:
            position, side = (high, "right") if low > reach / 2 else (low, "left")
            axes.text(position, 0.36, f"{least} to {most}", ha=side, va="bottom")
        else:
            side = "left" if low < 0.12 * reach else "center"
            axes.text(low, 0.36, f"at least {least}", ha=side, va="bottom")
            missing = "no upper bound" if result.unseen else "no useful upper bound"
            end = missing if open_ended else f"at most {most}"
            axes.text(high, 0.36, end, ha="right", va="bottom")
        side = "center" if middle < 0.85 * reach else "right"
        side = "left" if middle <= 0.15 * reach else side
        axes.text(middle, -0.36, f"estimate {format_number(middle)}", ha=side, va="top")
        axes.set(xlim=(min(0, middle), reach), ylim=(-0.75, 0.75), yticks=[])
        axes.grid(False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("Wasserstein-1 distance")

    range_text = f"At least {least}" if open_ended else f"Between {least} and {most}"
    alt = f"{range_text}; estimate {format_number(middle)}."
    return draw(paint, alt=alt, size=(4.6, 1.55))


def _scores(result: WassersteinResult, names: Sequence[str]) -> Section:
    scores = [side.double().numpy() for side in result.scores]
    means = [float(values.mean()) for values in scores]
    labels = [
        f"{name}, mean {format_number(mean)}" for name, mean in zip(names, means, strict=True)
    ]
    together = np.concatenate(scores)
    # A few distant rows would leave the others in one bin.
    low, high = np.quantile(together, [0.002, 0.998])
    bins = min(50, max(10, int(math.sqrt(len(together)))))
    edges = np.histogram_bin_edges(together.clip(low, high), bins=bins)

    def paint(axes: Any) -> None:
        for side, (values, mean) in enumerate(zip(scores, means, strict=True)):
            colour, line = COLOURS[("blue", "vermilion")[side]], ("-", "--")[side]
            weights = np.full(len(values), 100 / len(values))
            inside, style = np.clip(values, low, high), {"weights": weights, "color": colour}
            axes.hist(inside, edges, alpha=0.35, **style)
            axes.hist(inside, edges, histtype="step", linestyle=line, **style)
            axes.axvline(mean, color=colour, linestyle=line, linewidth=1.4, label=labels[side])
        axes.set(xlabel="score", ylabel="% of rows")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)

    alt = f"Histograms of the scores: {'; '.join(labels)}."
    whose = "all rows" if result.finite else "held-out rows"
    sides = "datasets" if result.finite else "populations"
    return Section(
        "Scores of the critic",
        [
            "The critic gives every row a score, and its Lipschitz constant is at most 1: rows that "
            f"are close have close scores. So the mean scores of the two {sides} differ by at most "
            f"the distance; here the means differ by {format_number(means[0] - means[1])} on {whose}. "
            "Where the two histograms overlap, the critic cannot tell the datasets apart. The first and "
            "the last bar include all scores beyond them."
        ],
        pictures=[draw(paint, alt=alt, size=(4.6, 3.1))],
    )


def _training(result: WassersteinResult) -> list[Section]:
    history = result.history
    if not history:
        return []

    def paint(axes: Any) -> None:
        axes.plot(range(1, len(history) + 1), history, color="#c8ccd1", linewidth=1)
        axes.plot(*smooth(history), color=COLOURS["blue"])
        axes.set(xlabel="step", ylabel="dual value", xlim=(1, max(2, len(history))))

    alt = (
        f"From {format_number(history[0])} to {format_number(history[-1])} in {len(history)} steps."
    )
    note = "The dual value of the critic on its training batches, and its moving average."
    if not result.finite:
        note = (
            "The dual value of the selected critic on its training rows, and its moving average. It "
            "is too large because of overfitting; the bounds above come from held-out rows."
        )
    return [Section("Training", pictures=[draw(paint, alt=alt, size=(4.6, 2.6))], note=note)]
