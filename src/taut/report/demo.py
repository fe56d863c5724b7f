"""The HTML report of `taut demo`: critics beside the optimum, drift, and a certified classifier."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from taut.plotting import COLOURS, Picture, draw
from taut.report.classifier_report import classifier_sections
from taut.report.demo_run import DemoRun, DigitsResult, TaskResult, TrainedCritic
from taut.report.page import Compared, Meter, Page, Section, Table
from taut.report.sentences import format_bound, percent
from taut.transport import WassersteinResult

LABELS = {"relu": "ReLU", "maxmin": "MaxMin", "fullsort": "FullSort"}
_LINES: dict[str, dict[str, Any]] = {
    "relu": {"color": COLOURS["vermilion"]},
    "maxmin": {"color": COLOURS["blue"]},
    # Dashed, since it overlaps MaxMin where both are correct.
    "fullsort": {"color": COLOURS["orange"], "linestyle": (0, (4, 3))},
}
_TRUTH = {"color": "#c8ccd1", "linewidth": 6, "solid_capstyle": "butt", "label": "truth"}


def demo_page(run: DemoRun) -> Page:
    """Creates the report of a run."""
    line, plane = run.tasks
    digits = run.digits
    sections = [
        Section("Verdicts of this run", table=_verdicts(run)),
        _distances(demo_table(run)),
        _curves(line),
        _surfaces(plane),
        _drift(run),
        _bridge(digits),
        *classifier_sections(
            digits.classifier,
            digits.certificates,
            digits.radius,
            attacked=digits.attacked,
            run=digits.run,
        ),
    ]
    return Page(
        title="The same Lipschitz constant, different slopes",
        lead=(
            "Three 1-Lipschitz networks that differ only in their activation estimate the distance "
            "between two distributions, and one of them falls short. The same distance, with bounds, "
            "shows how far data has moved. Then a network that preserves slope classifies digits, with a "
            "certified radius for each prediction: draw your own digit."
        ),
        sections=sections,
        metadata=_metadata(run),
    )


def demo_table(run: DemoRun) -> Table:
    """Estimated distance and mean slope of each activation on each problem, and the truth."""
    header, rows = ["Activation"], [[LABELS[c.activation]] for c in run.tasks[0].critics]
    truth: list[str | Meter] = ["Truth"]
    cells: list[list[str | Meter]] = [[*row] for row in rows]
    for result in run.tasks:
        header += [_title(result), "Mean slope"]
        true = result.task.problem.distance
        truth += [Meter(true, true), Meter(1.0, 1.0)]
        for row, critic in zip(cells, result.critics, strict=True):
            row += [Meter(critic.fit.estimate.value, true), Meter(critic.mean_slope, 1.0)]
    return Table(header, [*cells, truth])


def _verdicts(run: DemoRun) -> Table:
    """The claims of the demonstration, the measurements of this run, and whether they agree."""
    estimates = [
        {critic.activation: critic.fit.estimate.value for critic in result.critics}
        for result in run.tasks
    ]
    digits, attacked = run.digits, run.digits.attacked
    constants = [digits.certificates.lipschitz.value, digits.checked or np.inf]
    inside = [r.lower.value <= shift <= r.upper.value for shift, r in run.drift.items()]
    shown = {shift: r.lower.value > 0 for shift, r in run.drift.items()}
    moved = [shift for shift in shown if shift > 0]
    rows = [
        (
            "With the same Lipschitz constant, MaxMin reaches more of the true distance than ReLU",
            "; ".join(f"{f['maxmin']:.3f} and {f['relu']:.3f} of 1" for f in estimates),
            all(each["maxmin"] > each["relu"] for each in estimates),
        ),
        (
            "The true distance lies between its bounds, at 95 % confidence for each shift",
            f"{sum(inside)} of {len(inside)} shifts",
            all(inside),
        ),
        (
            "Shifts of the data are detected, and unshifted data raises no alarm",
            f"{sum(shown[s] for s in moved)} of {len(moved)} shifts detected, "
            f"{'a' if shown[0.0] else 'no'} false alarm",
            all(shown[s] for s in moved) and not shown[0.0],
        ),
        (
            "The constant of the digit classifier is proven, also by an independent checker",
            " and ".join(f"at most {format_bound(each, 'upper', 7)}" for each in constants),
            digits.checked is not None,
        ),
        (
            "No attack succeeds inside a certified radius",
            f"{len(attacked.violations)} of {len(attacked.certificates)} images",
            not attacked.violations,
        ),
    ]
    verdicts = {
        True: Compared("", verdict="holds", kind="better"),
        False: Compared("", verdict="fails", kind="worse"),
    }
    cells = [[claim, measured, verdicts[holds]] for claim, measured, holds in rows]
    return Table(["Claim", "Measured", "Verdict"], cells, wide=True)


def _distances(table: Table) -> Section:
    return Section(
        "Estimated distances",
        [
            "The Wasserstein distance W₁ between two distributions is the smallest average distance "
            "that mass has to travel to turn one into the other. It is also the largest difference in "
            "mean value over all functions with slope at most 1, which are called critics. So a "
            "1-Lipschitz network can be trained to estimate W₁: up to sampling error, it never "
            "overestimates the distance.",
            "All weights here are orthonormal, which preserves slope; slope is lost only in the "
            "activation. ReLU sets part of its input to zero and loses the slope there: a ReLU network "
            "with slope 1 everywhere is linear. MaxMin and FullSort only reorder their inputs, so the "
            "slope can be 1 through every layer.",
        ],
        table=table,
        note=(
            "Estimates of W₁ on fresh samples, with sampling error in the last digits, and the mean norm "
            "of the gradient where mass is transported. The bars are relative to the true value."
        ),
    )


def _curves(result: TaskResult) -> Section:
    points = result.task.points.squeeze(-1).numpy()
    height = result.task.problem.potential(result.task.points).numpy()

    def picture(title: str, alt: str, truth: np.ndarray, field: str, **limits: Any) -> Picture:
        def paint(axes: Any) -> None:
            axes.plot(points, truth, **_TRUTH)
            for critic in result.critics:
                style = {"label": LABELS[critic.activation], **_LINES[critic.activation]}
                axes.plot(points, getattr(critic, field).numpy(), **style)
            axes.set(xlabel="x", xlim=(-1.5, 1.5), xticks=[-1, 0, 1], **limits)
            compact = {"columnspacing": 1.0, "handlelength": 1.6, "handletextpad": 0.5}
            axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), **compact)

        return draw(paint, title=title, alt=alt)

    estimates = ", ".join(map(_headline, result.critics))
    ticks: dict[str, Any] = {"ylabel": "height", "ylim": (-0.1, 1.6), "yticks": [0, 0.5, 1, 1.5]}
    values = picture(
        "Critics", f"Learned critics over |x|. {estimates}.", height, "values", **ticks
    )
    ticks = {"ylabel": "slope", "ylim": (0, 1.1), "yticks": [0, 0.25, 0.5, 0.75, 1]}
    alt = "Slope of each critic along the line."
    slopes = picture("Their slopes", alt, np.ones_like(height), "slopes", **ticks)
    return Section(
        "On a line: the absolute value",
        [
            "Half of the mass is at -1, half at 1, and all of it is transported to 0: the distance is "
            "1. The optimal critic is |x|, with slope 1 everywhere."
        ],
        pictures=[values, slopes],
        columns=2,
        note=(
            "A critic is determined up to a constant, so each is shifted to match |x| between -1 and 1. "
            "MaxMin and FullSort overlap where both are correct."
        ),
    )


def _surfaces(result: TaskResult) -> Section:
    truth = result.task.problem.potential(result.task.points).numpy()
    fields, low = {"Truth": truth}, float(truth.min())
    fields |= {_headline(critic): critic.values.numpy() for critic in result.critics}
    return Section(
        "In the plane: three cones",
        [
            "Mass at three points is transported to the unit circles around them: again the distance "
            "is 1. The optimal critic consists of three cones of slope 1, with value 1 at the points "
            "and 0 on the circles. ReLU smooths them into a low ridge.",
            "MaxMin sorts its channels in pairs, so with three layers its cones have few facets, which "
            "are less steep than the round cone in places. More layers or larger groups give more "
            "facets; FullSort, with one group of all channels, gives round cones.",
        ],
        pictures=[_map(result, title, field, low) for title, field in fields.items()],
        columns=2,
        note=(
            "Values of each critic on a common scale, with contour lines every 0.25. Dots are the three "
            "points, dashed lines the circles; values outside the circles have no effect on the "
            "distance."
        ),
    )


def _map(result: TaskResult, title: str, field: np.ndarray, low: float) -> Picture:
    """A heat map over the plane, from `low` to 1, with the supports of both distributions."""
    x, y = (result.task.points[..., axis].numpy() for axis in (0, 1))
    extent = (float(x.min()), float(x.max()), float(y.min()), float(y.max()))
    angle = np.linspace(0, 2 * np.pi, 200)

    def paint(axes: Any) -> None:
        colours = {"cmap": "viridis", "vmin": low, "vmax": 1.0}
        image = axes.imshow(field, origin="lower", extent=extent, aspect="equal", **colours)
        levels = np.arange(-1, 1.01, 0.25)
        axes.contour(x, y, field, levels=levels, colors="white", linewidths=0.5, alpha=0.7)
        for centre in (-2, 0, 2):
            circle = centre + np.cos(angle), np.sin(angle)
            axes.plot(*circle, color="white", linestyle="--", linewidth=0.9)
            axes.plot(centre, 0, "o", color="white", markersize=2.5)
        axes.grid(False)
        axes.set(xticks=[-2, 0, 2], yticks=[-1, 0, 1])
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.022, pad=0.02, label="height")
        bar.outline.set_visible(False)

    drawn = draw(paint, title=title, alt=f"Map of the height. {title}.", size=(4.6, 1.95))
    coarse = 1 + (field.shape[1] - 1) // 80
    heights = np.round(field[::coarse, ::coarse].astype(float), 3).tolist()
    return replace(drawn, data={"heights": heights, "extent": extent, "low": low, "high": 1.0})


def _drift(run: DemoRun) -> Section:
    cells = [
        [f"{shift:g}", *(format_bound(b.value, b.side, 3) for b in (result.lower, result.upper))]
        for shift, result in run.drift.items()
    ]
    alt = "Bounds for each shift: as in the table."
    return Section(
        "How far did the data move?",
        [
            "Points of the unit square are compared with points of a square that was shifted: the true "
            "distance is the shift. taut.wasserstein does not know it: it trains critics on one part of "
            "the rows, and uses the others to bound the distance from below and above, at 95 % "
            "confidence.",
            "An alarm on the lower bound is not raised just because the samples are large.",
        ],
        table=Table(["True distance", "At least", "At most"], cells),
        pictures=[draw(lambda axes: paint_drift(axes, run.drift), alt=alt)],
        note=f"{run.drift[0.0].rows[0]:,} rows of two columns on each side.",
    )


def paint_drift(axes: Any, drift: Mapping[float, WassersteinResult]) -> None:
    """Draws the bounds on the distance, and the estimate, against the shift of the data."""
    for shift, result in drift.items():
        ends = [result.lower.value, result.upper.value]
        label = "95 % bounds" if shift == 0 else None
        axes.plot([shift, shift], ends, color=COLOURS["blue"], lw=6, alpha=0.45, label=label)
        label = "estimate" if shift == 0 else None
        axes.plot(shift, result.estimate.value, "o", color=COLOURS["blue"], label=label)
    axes.plot([*drift], [*drift], color="#555555", lw=1, ls="--", label="true distance", zorder=0)
    axes.set(xlabel="shift of the data", ylabel="Wasserstein-1")
    axes.legend(loc="upper left")


def _bridge(digits: DigitsResult) -> Section:
    clean = float(digits.certificates.certified_accuracy())
    certified = float(digits.certificates.certified_accuracy(digits.radius))
    return Section(
        "The same slope as a certificate",
        [
            "The outputs of a 1-Lipschitz network change slowly: if one class leads the others by a "
            "margin, the prediction can change only if the input moves by at least a certain "
            "distance, the certified radius.",
            "Here a network of orthonormal layers with MaxMin is trained on small images of digits. Of "
            f"{len(digits.certificates)} test images it classifies {percent(clean)} correctly; for "
            f"{percent(certified, 'lower')} it is proven that no change of L2 norm {digits.radius:g} can "
            "alter the prediction.",
        ],
    )


def _headline(critic: TrainedCritic) -> str:
    return f"{LABELS[critic.activation]}: W₁ = {critic.fit.estimate.value:.3f}"


def _title(result: TaskResult) -> str:
    return result.task.problem.name.capitalize()


def _metadata(run: DemoRun) -> list[tuple[str, str]]:
    metadata = [("Command", f"taut demo --seed {run.seed}")]
    for result in run.tasks:
        task = result.task
        times = (f"{LABELS[critic.activation]} {critic.seconds:.0f} s" for critic in result.critics)
        description = (
            f"hidden layers {_sizes(task.hidden)}, {task.num_steps} steps of Adam from lr "
            f"{task.lr:g} down to 0, batches of {task.batch_size}; {', '.join(times)}"
        )
        metadata.append((_title(result), description))
    trained, (training, attacks) = run.digits.run, run.digits.seconds
    description = (
        f"hidden layers {_sizes(trained.config.hidden or ())}, {trained.config.epochs} epochs of "
        f"Adam, batches of {trained.config.batch_size}; training {training:.0f} s, certification "
        f"and attacks {attacks:.0f} s"
    )
    settings = (
        "the same for all three activations, selected by results at seed 0; initial biases uniform "
        "in ±1/√n, where n is the larger dimension of the weight"
    )
    versions = ", ".join(f"{name} {number}" for name, number in trained.result["versions"].items())
    return [
        *metadata,
        ("Digits", description),
        ("Settings", settings),
        ("Time", f"{run.seconds:.0f} s, threads: {trained.result['threads']}"),
        ("Versions", versions),
    ]


def _sizes(hidden: Sequence[int]) -> str:
    return " × ".join(map(str, hidden))
