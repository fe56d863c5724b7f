"""The page of the demonstration: what the critics learned, beside the truth."""

from collections.abc import Callable
from typing import Any

import numpy as np

from taut.lab.demo import CriticRecord, DemoRun, TaskRecord
from taut.report.figures import COLOURS, Picture, draw
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
    return Page(
        title="Same constant, different slope",
        lead=(
            "Three networks, equal but for their activation, each unable to be steeper than 1. "
            "Asked for the distance between two distributions, one of them falls short."
        ),
        sections=[
            _result(run),
            _curves(line),
            _surfaces(plane),
            _slopes(run, plane),
            _training(run),
        ],
        facts=_facts(run),
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
    pictures = [_surface("Truth", truth, record, low)]
    for critic in record.critics:
        pictures.append(_surface(_headline(critic), critic.values.numpy(), record, low))
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
    pictures = [_map("Truth: slope 1", flat, record, alt="Slope 1 everywhere.", **options)]
    for critic in record.critics:
        title = f"{LABELS[critic.activation]}: slope {critic.mean_slope:.3f}"
        alt = f"Map of the slope. {title} on average inside the circles."
        pictures.append(_map(title, critic.slopes.numpy(), record, alt=alt, **options))
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
                steps, values = _smooth(critic.fit.history)
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


def _surface(title: str, heights: np.ndarray, record: TaskRecord, low: float) -> Picture:
    return _map(title, heights, record, low, "viridis", "height", f"Heat map: {title}.", lines=True)


def _map(
    title: str,
    field: np.ndarray,
    record: TaskRecord,
    low: float,
    colours: str,
    label: str,
    alt: str,
    ink: str = "white",
    lines: bool = False,
) -> Picture:
    """One map over the plane, from `low` to 1, with the supports of both distributions on it."""
    x, y = (record.task.points[..., axis].numpy() for axis in (0, 1))
    angle = np.linspace(0, 2 * np.pi, 200)

    def paint(axes: Any) -> None:
        extent = (x.min(), x.max(), y.min(), y.max())
        image = axes.imshow(
            field, cmap=colours, vmin=low, vmax=1.0, origin="lower", extent=extent, aspect="equal"
        )
        if lines:
            levels = np.arange(-1, 1.01, 0.25)
            axes.contour(x, y, field, levels=levels, colors="white", linewidths=0.5, alpha=0.7)
        for centre in (-2, 0, 2):
            axes.plot(
                centre + np.cos(angle), np.sin(angle), color=ink, linestyle="--", linewidth=0.9
            )
            axes.plot(centre, 0, "o", color=ink, markersize=2.5)
        axes.grid(False)
        axes.set(xticks=[-2, 0, 2], yticks=[-1, 0, 1])
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.022, pad=0.02, label=label)
        bar.outline.set_visible(False)

    return draw(paint, title=title, alt=alt, size=(4.6, 1.95))


def _smooth(history: tuple[float, ...], window: int = 25) -> tuple[np.ndarray, np.ndarray]:
    window = min(window, max(1, len(history) // 10))
    values = np.convolve(history, np.ones(window) / window, mode="valid")
    return np.arange(len(values)) + window, values


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
    facts.append(
        (
            "Settings",
            "the same for all three activations, chosen among a few by their results at seed 0; "
            "first biases within ±1/√n, n the larger side of the layer",
        )
    )
    threads = "one thread" if run.threads == 1 else f"{run.threads} threads"
    facts.append(("Time", f"{run.seconds:.0f} s in all, {threads}"))
    facts.append(
        ("Versions", ", ".join(f"{name} {number}" for name, number in run.versions.items()))
    )
    return facts
