"""The HTML report of `taut demo`: critics beside the optimum, and a certified classifier."""

from collections.abc import Callable
from typing import Any

import numpy as np

from taut.pictures import COLOURS, draw
from taut.report.classifier import classifier_sections
from taut.report.demo_figures import draw_map, draw_surface, smooth
from taut.report.demo_run import DemoRun, DigitsResult, TaskResult, TrainedCritic
from taut.report.numbers import percent
from taut.report.page import Meter, Page, Section, Table

__all__ = ["demo_page"]

LABELS = {"relu": "ReLU", "maxmin": "MaxMin", "fullsort": "FullSort"}
_LINES: dict[str, dict[str, Any]] = {
    "relu": {"color": COLOURS["vermilion"]},
    "maxmin": {"color": COLOURS["blue"]},
    # Dashed, since it overlaps MaxMin where both are correct.
    "fullsort": {"color": COLOURS["orange"], "linestyle": (0, (4, 3))},
}
_COMPACT: dict[str, Any] = {"columnspacing": 1.0, "handlelength": 1.6, "handletextpad": 0.5}
_TRUTH = {"color": "#c8ccd1", "linewidth": 6, "solid_capstyle": "butt"}


def demo_page(run: DemoRun) -> Page:
    """The report of a run."""
    line, plane = run.tasks
    digits = run.digits
    sections = [
        _result(run),
        _curves(line),
        _surfaces(plane),
        _slopes(run, plane),
        _training(run),
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
            "between two distributions, and one of them falls short. Then a network that preserves "
            "slope classifies digits, with a certified radius for each prediction."
        ),
        sections=sections,
        facts=_facts(run),
    )


def _bridge(digits: DigitsResult) -> Section:
    clean = float(digits.certificates.certified_accuracy())
    held = float(digits.certificates.certified_accuracy(digits.radius))
    return Section(
        "The same slope as a certificate",
        [
            "The outputs of a 1-Lipschitz network change slowly: if one class leads the others by a "
            "margin, every change of the prediction needs a change of the input of at least a certain "
            "length, the certified radius.",
            "Here a network of orthonormal layers with MaxMin is trained on small images of digits. Of "
            f"{len(digits.certificates)} test images it classifies {percent(clean)} correctly; for "
            f"{percent(held)} it is proven that no change of Euclidean length {digits.radius:g} can "
            "alter that.",
        ],
    )


def _result(run: DemoRun) -> Section:
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
        table=_table(
            run,
            lambda critic: critic.fit.estimate.value,
            [record.task.problem.distance for record in run.tasks],
        ),
        note=(
            "Estimates of W₁ on fresh samples, with sampling error in the last digits. The bars are "
            "relative to the true value."
        ),
    )


def _table(run: DemoRun, find: Callable[[TrainedCritic], float], truth: list[float]) -> Table:
    """A row per activation, a column per problem, and the true values below."""
    rows: list[list[str | Meter]] = []
    for critics in zip(*(record.critics for record in run.tasks), strict=True):
        meters = [Meter(find(critic), true) for critic, true in zip(critics, truth, strict=True)]
        rows.append([LABELS[critics[0].activation], *meters])
    rows.append(["Truth", *(Meter(true, true) for true in truth)])
    return Table(["Activation", *map(_title, run.tasks)], rows)


def _curves(record: TaskResult) -> Section:
    points = record.task.points.squeeze(-1).numpy()
    height = record.task.problem.potential(record.task.points).numpy()

    def paint(axes: Any, truth: np.ndarray, field: str, label: str) -> None:
        axes.plot(points, truth, label="truth", **_TRUTH)
        for critic in record.critics:
            values = getattr(critic, field).numpy()
            axes.plot(points, values, label=LABELS[critic.activation], **_LINES[critic.activation])
        axes.set(xlabel="x", ylabel=label, xlim=(-1.5, 1.5), xticks=[-1, 0, 1])
        axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), **_COMPACT)

    def paint_values(axes: Any) -> None:
        paint(axes, height, "values", "height")
        axes.set(ylim=(-0.1, 1.6), yticks=[0, 0.5, 1, 1.5])

    def paint_slopes(axes: Any) -> None:
        paint(axes, np.ones_like(height), "slopes", "slope")
        axes.set(ylim=(0, 1.1), yticks=[0, 0.25, 0.5, 0.75, 1])

    found = ", ".join(
        f"{LABELS[critic.activation]} {critic.fit.estimate.value:.3f}" for critic in record.critics
    )
    return Section(
        "On a line: the absolute value",
        [
            "Half of the mass is at -1, half at 1, and all of it is transported to 0: the distance is "
            "1. The optimal critic is |x|, with slope 1 everywhere."
        ],
        pictures=[
            draw(paint_values, title="Critics", alt=f"Learned critics over |x|. W1: {found}."),
            draw(paint_slopes, title="Their slope", alt="Slope of each critic along the line."),
        ],
        columns=2,
        note=(
            "A critic is determined up to a constant, so each is shifted to match |x| between -1 and 1. "
            "MaxMin and FullSort overlap where both are correct."
        ),
    )


def _surfaces(record: TaskResult) -> Section:
    truth = record.task.problem.potential(record.task.points).numpy()
    low = float(truth.min())
    pictures = [draw_surface("Truth", truth, record, low)]
    for critic in record.critics:
        pictures.append(draw_surface(_headline(critic), critic.values.numpy(), record, low))
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
        pictures=pictures,
        columns=2,
        note=(
            "Values of each critic on a common scale, with contour lines every 0.25. Dots are the three "
            "points, dashed lines the circles; values outside the circles have no effect on the "
            "distance."
        ),
    )


def _slopes(run: DemoRun, record: TaskResult) -> Section:
    options: dict[str, Any] = {"low": 0.0, "colours": "cividis", "label": "slope", "ink": "black"}
    flat = np.ones(record.task.points.shape[:-1])
    pictures = [draw_map("Truth: slope 1", flat, record, alt="Slope 1 everywhere.", **options)]
    for critic in record.critics:
        title = f"{LABELS[critic.activation]}: slope {critic.mean_slope:.3f}"
        alt = f"Map of the slope. {title} on average inside the circles."
        pictures.append(draw_map(title, critic.slopes.numpy(), record, alt=alt, **options))
    return Section(
        "Slopes",
        [
            "The same critics, coloured by slope, the norm of the gradient. To reach the full distance a "
            "critic needs slope 1 along every path of the transport, here everywhere inside the "
            "circles. No network exceeds 1; the question is which ones reach it."
        ],
        table=_table(run, lambda critic: critic.mean_slope, [1.0] * len(run.tasks)),
        pictures=pictures,
        columns=2,
        note=(
            "Slopes in the table and the titles are means over the region of the transport: between -1 "
            "and 1 on the line, inside the circles in the plane."
        ),
    )


def _training(run: DemoRun) -> Section:
    pictures = []
    for record in run.tasks:

        def paint(axes: Any, record: TaskResult = record) -> None:
            axes.axhline(record.task.problem.distance, label="truth", **_TRUTH)
            for critic in record.critics:
                steps, values = smooth(critic.fit.history)
                label = LABELS[critic.activation]
                axes.plot(steps, values, label=label, **_LINES[critic.activation])
            axes.set(
                xlabel="step", ylabel="estimated W₁", ylim=(0, 1.1), xlim=(0, record.task.num_steps)
            )
            axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), **_COMPACT)

        pictures.append(
            draw(
                paint,
                title=_title(record),
                alt=f"Estimated distance of each critic during training, {_title(record)}.",
                size=(4.6, 2.9),
            )
        )
    return Section(
        "Training",
        pictures=pictures,
        columns=2,
        note="Values on the training batches, averaged over up to 25 steps.",
    )


def _headline(critic: TrainedCritic) -> str:
    return f"{LABELS[critic.activation]}: W₁ = {critic.fit.estimate.value:.3f}"


def _title(record: TaskResult) -> str:
    return record.task.problem.name.capitalize()


def _facts(run: DemoRun) -> list[tuple[str, str]]:
    facts = [("Command", f"taut demo --seed {run.seed}")]
    for record in run.tasks:
        task = record.task
        shape = " × ".join(str(width) for width in task.hidden)
        seconds = ", ".join(
            f"{LABELS[critic.activation]} {critic.seconds:.0f} s" for critic in record.critics
        )
        facts.append(
            (
                _title(record),
                f"hidden layers {shape}, {task.num_steps} steps of Adam from lr {task.lr:g} down "
                f"to 0, batches of {task.batch_size}; {seconds}",
            )
        )
    config = run.digits.run.config
    facts.append(
        (
            "Digits",
            f"hidden layers {' × '.join(map(str, config.hidden or ()))}, {config.epochs} epochs of "
            f"Adam, batches of {config.batch_size}; training {run.digits.seconds[0]:.0f} s, "
            f"certification and attacks {run.digits.seconds[1]:.0f} s",
        )
    )
    facts.append(
        (
            "Settings",
            "the same for all three activations, selected by results at seed 0; initial biases uniform "
            "in ±1/√n, where n is the larger dimension of the weight",
        )
    )
    threads = "one thread" if run.threads == 1 else f"{run.threads} threads"
    facts.append(("Time", f"{run.seconds:.0f} s, {threads}"))
    facts.append(
        ("Versions", ", ".join(f"{name} {number}" for name, number in run.versions.items()))
    )
    return facts
