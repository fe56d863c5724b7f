"""The page of the demonstration: critics beside the truth, and digits between proof and attack."""

from collections.abc import Callable
from typing import Any

import numpy as np

from taut.lab.demo import CriticRecord, DemoRun, DigitsRecord, TaskRecord
from taut.pictures import COLOURS, draw
from taut.report.classifier import classifier_sections
from taut.report.classifier_words import percent
from taut.report.demo_figures import draw_map, draw_surface, smooth
from taut.report.page import Meter, Page, Section, Table

__all__ = ["demo_page"]

LABELS = {"relu": "ReLU", "maxmin": "MaxMin", "fullsort": "FullSort"}
_LINES: dict[str, dict[str, Any]] = {
    "relu": {"color": COLOURS["vermilion"]},
    "maxmin": {"color": COLOURS["blue"]},
    # Dashed, since it lies on MaxMin wherever both are right.
    "fullsort": {"color": COLOURS["orange"], "linestyle": (0, (4, 3))},
}
_COMPACT: dict[str, Any] = {"columnspacing": 1.0, "handlelength": 1.6, "handletextpad": 0.5}
_TRUTH = {"color": "#c8ccd1", "linewidth": 6, "solid_capstyle": "butt"}


def demo_page(run: DemoRun) -> Page:
    """The page for a run: table, curves, surfaces, slopes, training, and how it was run."""
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
            digits.subject,
            digits.certificates,
            digits.radius,
            attacked=digits.attacked,
            run=digits.run,
        ),
    ]
    return Page(
        title="Same constant, different slope",
        lead=(
            "Three networks, equal but for their activation, each unable to be steeper than 1. "
            "Asked for the distance between two distributions, one of them falls short. Then one "
            "that keeps its slope learns to read digits, and proves how far each answer holds."
        ),
        sections=sections,
        facts=_facts(run),
    )


def _bridge(digits: DigitsRecord) -> Section:
    clean = float(digits.certificates.certified_accuracy())
    held = float(digits.certificates.certified_accuracy(digits.radius))
    return Section(
        "The same slope, as a promise",
        [
            "A network that cannot be steeper than 1 cannot be talked out of an answer quickly: if "
            "one class leads the others by a margin, the input must be moved some way before "
            "another can take over. How far is a number that comes with every prediction.",
            "So MaxMin layers, orthonormal as above, are trained on small images of digits. Of "
            f"{len(digits.certificates)} images that it has not seen, the network reads "
            f"{percent(clean)} rightly; for {percent(held)} it is proven that no change of "
            f"Euclidean length {digits.radius:g} can alter that.",
        ],
    )


def _result(run: DemoRun) -> Section:
    return Section(
        "The distance each one finds",
        [
            "The Wasserstein distance W₁ between two distributions is the least work that turns "
            "one into the other. It is also the largest gap in mean height that any function of "
            "slope at most 1 can open between them; such a function is called a critic. So a "
            "network that is 1-Lipschitz, whatever its weights, can be trained to measure W₁: it "
            "never claims too much but by the luck of its samples, only too little.",
            "Every layer here has an orthonormal weight, which wastes no slope. What is lost is "
            "lost in the activation. ReLU sets part of its input to zero, and the slope that "
            "flowed there is gone for good: a ReLU network that kept slope 1 everywhere could "
            "only be a plane. MaxMin and FullSort merely reorder their inputs. Nothing is thrown "
            "away, so the slope can stay 1 through every layer.",
        ],
        table=_table(
            run,
            lambda critic: critic.fit.estimate.value,
            [record.task.problem.distance for record in run.tasks],
        ),
        note=(
            "W₁ as found on fresh samples, so its last digits are chance. The bar is the share "
            "of the truth."
        ),
    )


def _table(run: DemoRun, find: Callable[[CriticRecord], float], truth: list[float]) -> Table:
    """A row per activation, a column per problem, and the truth below."""
    rows: list[list[str | Meter]] = []
    for critics in zip(*(record.critics for record in run.tasks), strict=True):
        meters = [Meter(find(critic), true) for critic, true in zip(critics, truth, strict=True)]
        rows.append([LABELS[critics[0].activation], *meters])
    rows.append(["Truth", *(Meter(true, true) for true in truth)])
    return Table(["Activation", *map(_title, run.tasks)], rows)


def _curves(record: TaskRecord) -> Section:
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
            "Half of the mass sits at -1, half at 1, and all of it must come to 0: the work is 1. "
            "The best critic is |x|, straight down and straight up again at full slope."
        ],
        pictures=[
            draw(paint_values, title="Critics", alt=f"Learned critics over |x|. W1: {found}."),
            draw(paint_slopes, title="Their slope", alt="Slope of each critic along the line."),
        ],
        columns=2,
        note=(
            "A critic is known up to a constant, so each is shifted to lie nearest to |x| between "
            "-1 and 1, where the mass travels. MaxMin and FullSort cover each other where both "
            "are right."
        ),
    )


def _surfaces(record: TaskRecord) -> Section:
    truth = record.task.problem.potential(record.task.points).numpy()
    low = float(truth.min())
    pictures = [draw_surface("Truth", truth, record, low)]
    for critic in record.critics:
        pictures.append(draw_surface(_headline(critic), critic.values.numpy(), record, low))
    return Section(
        "In the plane: three cones",
        [
            "Mass at three points must spread to the unit circles around them: again the work is "
            "1. The best critic is three cones of slope 1, with tips at height 1 above the points "
            "and feet at height 0 on the circles. ReLU smooths them into a low ridge.",
            "MaxMin sorts its channels in pairs, so three layers of it draw cones with few facets, "
            "and off its middle line a facet falls less steeply than the round cone. More layers "
            "or larger groups have more facets; FullSort, one group of all channels, comes out "
            "round.",
        ],
        pictures=pictures,
        columns=2,
        note=(
            "Height of each critic, all on one scale, with a contour line every 0.25. Dots are the "
            "three points, dashed lines the circles; what a critic does outside the circles has no "
            "effect on the distance."
        ),
    )


def _slopes(run: DemoRun, record: TaskRecord) -> Section:
    options: dict[str, Any] = {"low": 0.0, "colours": "cividis", "label": "slope", "ink": "black"}
    flat = np.ones(record.task.points.shape[:-1])
    pictures = [draw_map("Truth: slope 1", flat, record, alt="Slope 1 everywhere.", **options)]
    for critic in record.critics:
        title = f"{LABELS[critic.activation]}: slope {critic.mean_slope:.3f}"
        alt = f"Map of the slope. {title} on average inside the circles."
        pictures.append(draw_map(title, critic.slopes.numpy(), record, alt=alt, **options))
    return Section(
        "Where the slope went",
        [
            "The same three cones, coloured by slope: the norm of the gradient. To earn the whole "
            "distance a critic needs slope 1 along every path that mass takes, here everywhere "
            "inside the circles. No network can go above 1; the question is which can stay there."
        ],
        table=_table(run, lambda critic: critic.mean_slope, [1.0] * len(run.tasks)),
        pictures=pictures,
        columns=2,
        note=(
            "Slopes in the table and the titles are means over the region that mass travels: "
            "between -1 and 1 on the line, inside the circles in the plane."
        ),
    )


def _training(run: DemoRun) -> Section:
    pictures = []
    for record in run.tasks:

        def paint(axes: Any, record: TaskRecord = record) -> None:
            axes.axhline(record.task.problem.distance, label="truth", **_TRUTH)
            for critic in record.critics:
                steps, values = smooth(critic.fit.history)
                label = LABELS[critic.activation]
                axes.plot(steps, values, label=label, **_LINES[critic.activation])
            axes.set(
                xlabel="step", ylabel="W₁ claimed", ylim=(0, 1.1), xlim=(0, record.task.num_steps)
            )
            axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), **_COMPACT)

        pictures.append(
            draw(
                paint,
                title=_title(record),
                alt=f"The distance each critic claims during training, {_title(record)}.",
                size=(4.6, 2.9),
            )
        )
    return Section(
        "While they learn",
        pictures=pictures,
        columns=2,
        note="Value on the training batches, averaged over up to 25 steps.",
    )


def _headline(critic: CriticRecord) -> str:
    return f"{LABELS[critic.activation]}: W₁ = {critic.fit.estimate.value:.3f}"


def _title(record: TaskRecord) -> str:
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
            f"Adam, batches of {config.batch_size}; training {run.digits.seconds[0]:.0f} s, proof "
            f"and attack {run.digits.seconds[1]:.0f} s",
        )
    )
    facts.append(
        (
            "Settings",
            "critics: the same for all three activations, chosen among a few by their results at seed 0; "
            "first biases within ±1/√n, n the larger side of the layer",
        )
    )
    threads = "one thread" if run.threads == 1 else f"{run.threads} threads"
    facts.append(("Time", f"{run.seconds:.0f} s in all, {threads}"))
    facts.append(
        ("Versions", ", ".join(f"{name} {number}" for name, number in run.versions.items()))
    )
    return facts
