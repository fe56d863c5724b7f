"""The HTML report of `taut demo`: critics beside the optimum, and a certified classifier."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from taut.plotting import COLOURS, Picture, draw
from taut.report.classifier import classifier_sections
from taut.report.demo_run import DemoRun, DigitsResult, TaskResult, TrainedCritic
from taut.report.figures import smooth
from taut.report.page import Meter, Page, Section, Table
from taut.report.sentences import percent

__all__ = ["LABELS", "demo_page", "demo_tables"]

LABELS = {"relu": "ReLU", "maxmin": "MaxMin", "fullsort": "FullSort"}
_LINES: dict[str, dict[str, Any]] = {
    "relu": {"color": COLOURS["vermilion"]},
    "maxmin": {"color": COLOURS["blue"]},
    # Dashed, since it overlaps MaxMin where both are correct.
    "fullsort": {"color": COLOURS["orange"], "linestyle": (0, (4, 3))},
}
_TRUTH = {"color": "#c8ccd1", "linewidth": 6, "solid_capstyle": "butt", "label": "truth"}
_MAPS: dict[str, dict[str, str]] = {
    "height": {"cmap": "viridis", "ink": "white"},
    "slope": {"cmap": "cividis", "ink": "black"},
}


def demo_page(run: DemoRun) -> Page:
    """The report of a run."""
    line, plane = run.tasks
    digits = run.digits
    distances, slopes = demo_tables(run)
    sections = [
        _distances(distances),
        _curves(line),
        _surfaces(plane),
        _slopes(plane, slopes),
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


def demo_tables(run: DemoRun) -> tuple[Table, Table]:
    """Estimated distances and mean slopes: a row per activation, a column per problem, the truth."""

    def table(find: Callable[[TrainedCritic], float], truth: Sequence[float]) -> Table:
        rows: list[list[str | Meter]] = []
        for critics in zip(*(result.critics for result in run.tasks), strict=True):
            found = map(find, critics)
            meters = [Meter(value, true) for value, true in zip(found, truth, strict=True)]
            rows.append([LABELS[critics[0].activation], *meters])
        rows.append(["Truth", *(Meter(true, true) for true in truth)])
        return Table(["Activation", *map(_title, run.tasks)], rows)

    distances = [result.task.problem.distance for result in run.tasks]
    return (
        table(lambda critic: critic.fit.estimate.value, distances),
        table(lambda critic: critic.mean_slope, [1.0] * len(run.tasks)),
    )


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
            "Estimates of W₁ on fresh samples, with sampling error in the last digits. The bars are "
            "relative to the true value."
        ),
    )


def _curves(result: TaskResult) -> Section:
    points = result.task.points.squeeze(-1).numpy()
    height = result.task.problem.potential(result.task.points).numpy()

    def picture(title: str, alt: str, truth: np.ndarray, field: str, **limits: Any) -> Picture:
        def paint(axes: Any) -> None:
            axes.plot(points, truth, **_TRUTH)
            for critic in result.critics:
                _plot(axes, critic, points, getattr(critic, field).numpy())
            axes.set(xlabel="x", xlim=(-1.5, 1.5), xticks=[-1, 0, 1], **limits)
            _legend(axes)

        return draw(paint, title=title, alt=alt)

    found = ", ".join(map(_headline, result.critics))
    ticks: dict[str, Any] = {"ylabel": "height", "ylim": (-0.1, 1.6), "yticks": [0, 0.5, 1, 1.5]}
    values = picture("Critics", f"Learned critics over |x|. {found}.", height, "values", **ticks)
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
        pictures=[_map(result, title, field, "height", low) for title, field in fields.items()],
        columns=2,
        note=(
            "Values of each critic on a common scale, with contour lines every 0.25. Dots are the three "
            "points, dashed lines the circles; values outside the circles have no effect on the "
            "distance."
        ),
    )


def _slopes(result: TaskResult, table: Table) -> Section:
    fields = {"Truth: slope 1": np.ones(result.task.points.shape[:-1])}
    for critic in result.critics:
        title = f"{LABELS[critic.activation]}: mean slope {critic.mean_slope:.3f}"
        fields[title] = critic.slopes.numpy()
    return Section(
        "Slopes",
        [
            "The same critics, coloured by slope, the norm of the gradient. To reach the full distance a "
            "critic needs slope 1 along every path of the transport, here everywhere inside the "
            "circles. No network exceeds 1; the question is which ones reach it."
        ],
        table=table,
        pictures=[_map(result, title, field, "slope", 0.0) for title, field in fields.items()],
        columns=2,
        note=(
            "Slopes in the table and the titles are means over the region of the transport: between -1 "
            "and 1 on the line, inside the circles in the plane."
        ),
    )


def _map(result: TaskResult, title: str, field: np.ndarray, kind: str, low: float) -> Picture:
    """A heat map over the plane, from `low` to 1, with the supports of both distributions."""
    x, y = (result.task.points[..., axis].numpy() for axis in (0, 1))
    angle = np.linspace(0, 2 * np.pi, 200)
    ink = _MAPS[kind]["ink"]

    def paint(axes: Any) -> None:
        extent = (x.min(), x.max(), y.min(), y.max())
        colours = {"cmap": _MAPS[kind]["cmap"], "vmin": low, "vmax": 1.0}
        image = axes.imshow(field, origin="lower", extent=extent, aspect="equal", **colours)
        if kind == "height":
            levels = np.arange(-1, 1.01, 0.25)
            axes.contour(x, y, field, levels=levels, colors=ink, linewidths=0.5, alpha=0.7)
        for centre in (-2, 0, 2):
            circle = centre + np.cos(angle), np.sin(angle)
            axes.plot(*circle, color=ink, linestyle="--", linewidth=0.9)
            axes.plot(centre, 0, "o", color=ink, markersize=2.5)
        axes.grid(False)
        axes.set(xticks=[-2, 0, 2], yticks=[-1, 0, 1])
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.022, pad=0.02, label=kind)
        bar.outline.set_visible(False)

    return draw(paint, title=title, alt=f"Map of the {kind}. {title}.", size=(4.6, 1.95))


def _training(run: DemoRun) -> Section:
    pictures = []
    for result in run.tasks:

        def paint(axes: Any, result: TaskResult = result) -> None:
            axes.axhline(result.task.problem.distance, **_TRUTH)
            for critic in result.critics:
                _plot(axes, critic, *smooth(critic.fit.history))
            axes.set(xlabel="step", ylabel="estimated W₁", ylim=(0, 1.1))
            axes.set_xlim(0, result.task.num_steps)
            _legend(axes)

        title = _title(result)
        alt = f"Estimated distance of each critic during training, {title}."
        pictures.append(draw(paint, title=title, alt=alt))
    note = "Values on the training batches, averaged over up to 25 steps."
    return Section("Training", pictures=pictures, columns=2, note=note)


def _bridge(digits: DigitsResult) -> Section:
    clean = float(digits.certificates.certified_accuracy())
    held = float(digits.certificates.certified_accuracy(digits.radius))
    return Section(
        "The same slope as a certificate",
        [
            "The outputs of a 1-Lipschitz network change slowly: if one class leads the others by a "
            "margin, the prediction can change only if the input moves by at least a certain "
            "distance, the certified radius.",
            "Here a network of orthonormal layers with MaxMin is trained on small images of digits. Of "
            f"{len(digits.certificates)} test images it classifies {percent(clean)} correctly; for "
            f"{percent(held)} it is proven that no change of Euclidean length {digits.radius:g} can "
            "alter that.",
        ],
    )


def _plot(axes: Any, critic: TrainedCritic, x: np.ndarray, y: np.ndarray) -> None:
    axes.plot(x, y, label=LABELS[critic.activation], **_LINES[critic.activation])


def _legend(axes: Any) -> None:
    compact = {"columnspacing": 1.0, "handlelength": 1.6, "handletextpad": 0.5}
    axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), **compact)


def _headline(critic: TrainedCritic) -> str:
    return f"{LABELS[critic.activation]}: W₁ = {critic.fit.estimate.value:.3f}"


def _title(result: TaskResult) -> str:
    return result.task.problem.name.capitalize()


def _facts(run: DemoRun) -> list[tuple[str, str]]:
    facts = [("Command", f"taut demo --seed {run.seed}")]
    for result in run.tasks:
        task = result.task
        times = (f"{LABELS[critic.activation]} {critic.seconds:.0f} s" for critic in result.critics)
        told = (
            f"hidden layers {_sizes(task.hidden)}, {task.num_steps} steps of Adam from lr "
            f"{task.lr:g} down to 0, batches of {task.batch_size}; {', '.join(times)}"
        )
        facts.append((_title(result), told))
    trained, (training, attacks) = run.digits.run, run.digits.seconds
    told = (
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
        *facts,
        ("Digits", told),
        ("Settings", settings),
        ("Time", f"{run.seconds:.0f} s, threads: {trained.result['threads']}"),
        ("Versions", versions),
    ]


def _sizes(hidden: Sequence[int]) -> str:
    return " × ".join(map(str, hidden))
