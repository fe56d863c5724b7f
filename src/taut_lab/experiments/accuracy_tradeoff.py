"""Clean against certified accuracy, by offset and temperature of the loss.

This experiment is not in the paper: one network, one radius, a grid of losses.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from taut.plotting import COLOURS, Figure
from taut.training import evaluate
from taut_lab.experiments.classifier_training import train_classifier, training_curve
from taut_lab.framework import Config, Experiment, Outcome, Presentation, Result
from taut_lab.framework.result_selection import mean_of, tabulate, values_of

_LINES = ("sky", "blue", "vermilion", "green", "purple", "orange")
# Offsets, temperatures and the number of seeds.
_GRIDS = {
    "smoke": ((0.25, 1.0), (1.0, 8.0), 1),
    "cpu": ((0.5, 1.5, 2.5), (0.5, 2.0, 8.0), 1),
    "paper": ((0.5, 1.0, 1.5, 2.0, 2.5, 3.0), (0.5, 1.0, 2.0, 4.0, 8.0), 3),
}
_DIGITS: dict[str, Any] = {"data": "digits", "radius": 0.5}
_MNIST: dict[str, Any] = {"data": "mnist", "radius": 1.58}
_FIXED = {
    "smoke": {**_DIGITS, "hidden": [16, 16], "epochs": 2, "batch_size": 64},
    "cpu": {**_MNIST, "hidden": [512, 512, 512], "epochs": 2, "batch_size": 512},
    "paper": {**_MNIST, "hidden": [1024, 1024, 1024], "epochs": 40, "batch_size": 256},
}


def _configs(preset: str) -> Iterable[Config]:
    offsets, temperatures, seeds = _GRIDS[preset]
    for seed in range(seeds):
        for temperature in temperatures:
            for offset in offsets:
                grid = {"offset": offset, "temperature": temperature, "seed": seed}
                yield {**_FIXED[preset], **grid}


def _run(config: Config) -> Outcome:
    settings = dict(config)
    settings["margin"] = settings.pop("offset")
    # The last epoch is used, so no validation rows are needed.
    run = train_classifier({**settings, "norm": "l2", "lr": 3e-3, "validation": 0.0})
    evaluation = evaluate(run.model, run.data().test, "l2", run.inputs)
    radius = config["radius"]
    radii = [round(radius * step / 10, 4) for step in range(21)]
    return Outcome(
        numbers={
            "clean": evaluation.clean,
            "certified": evaluation.certified(radius),
            "median_radius": evaluation.radii.median().item(),
            "lipschitz": evaluation.lipschitz.value,
        },
        curve=training_curve(run),
        series={"radii": radii, "certified": [evaluation.certified(r) for r in radii]},
    )


def _show(results: Sequence[Result]) -> Presentation:
    if not results:
        return Presentation()
    offsets = sorted(values_of(results, "offset"))
    temperatures = sorted(values_of(results, "temperature"))
    radius = results[0].config["radius"]
    grids = {
        name: [[_mean(results, name, o, t) for o in offsets] for t in temperatures]
        for name in ("certified", "clean")
    }
    tables = [
        tabulate(
            results,
            title,
            {f"temperature {t:g}": {"temperature": t} for t in temperatures},
            {f"offset {offset:g}": {"offset": offset} for offset in offsets},
            name,
            better="higher",
            digits=1,
            unit="%",
            note="This experiment is not in the paper.",
        )
        for name, title in (
            ("certified", f"Certified accuracy within {radius:g} in L2"),
            ("clean", "Clean accuracy"),
        )
    ]
    figures = {
        "tradeoff": _front(grids, offsets, temperatures, radius),
        "tradeoff-grid": _heat(grids["certified"], offsets, temperatures, radius),
    }
    return Presentation(tables, figures, _paragraphs(grids, offsets, temperatures, radius))


def _mean(results: Sequence[Result], name: str, offset: float, temperature: float) -> float:
    """Mean over seeds in percent; nan where the cell has not been run."""
    mean = mean_of(results, name, offset=offset, temperature=temperature)
    return math.nan if mean is None else 100 * mean


def _front(grids: Any, offsets: list[float], temperatures: list[float], radius: float) -> Figure:
    def paint(axes: Any) -> None:
        for index, temperature in enumerate(temperatures):
            colour = COLOURS[_LINES[index % len(_LINES)]]
            clean, certified = grids["clean"][index], grids["certified"][index]
            axes.plot(clean, certified, color=colour, label=f"T = {temperature:g}")
            for offset, x, y in zip(offsets, clean, certified, strict=True):
                size = 20 + 70 * offset / max(offsets)
                axes.scatter([x], [y], s=size, color=colour, edgecolor="white", zorder=3)
        axes.set(xlabel="clean accuracy, %", ylabel=f"certified at {radius:g}, %")
        axes.legend(title="temperature", loc="best")

    shown = ", ".join(f"{offset:g}" for offset in offsets)
    return Figure(
        paint,
        alt="Certified against clean accuracy, one line for each temperature of the loss.",
        caption=f"Larger dots have larger offsets: {shown}. Up and right is better.",
        title="Certified against clean accuracy",
        size=(4.8, 3.4),
    )


def _heat(
    grid: list[list[float]], offsets: list[float], temperatures: list[float], radius: float
) -> Figure:
    def paint(axes: Any) -> None:
        values = [value for row in grid for value in row if not math.isnan(value)]
        axes.imshow(grid, cmap="cividis", aspect="auto", origin="lower")
        middle = (min(values) + max(values)) / 2
        for i, row in enumerate(grid):
            for j, value in enumerate(row):
                ink = "black" if value > middle else "white"
                if not math.isnan(value):
                    axes.text(j, i, f"{value:.1f}", ha="center", va="center", color=ink)
        axes.set_xticks(range(len(offsets)), [f"{offset:g}" for offset in offsets])
        axes.set_yticks(range(len(temperatures)), [f"{t:g}" for t in temperatures])
        axes.set(xlabel="offset", ylabel="temperature")
        axes.grid(False)

    return Figure(
        paint,
        alt="Certified accuracy for every offset and temperature, as a map with its numbers.",
        caption=f"Certified accuracy within {radius:g}, in percent of the test rows.",
        title="Certified accuracy",
        size=(3.8, 2.9),
    )


def _paragraphs(
    grids: Any, offsets: list[float], temperatures: list[float], radius: float
) -> list[str]:
    networks = [
        (grids["certified"][i][j], grids["clean"][i][j], offset, temperature)
        for i, temperature in enumerate(temperatures)
        for j, offset in enumerate(offsets)
        if not math.isnan(grids["certified"][i][j])
    ]
    proof, clean = max(networks), max(networks, key=lambda network: network[1])
    return [
        f"The highest certified accuracy is at offset {proof[2]:g} and temperature {proof[3]:g}: "
        f"{proof[0]:.1f} % "
        f"certified within {radius:g}, {proof[1]:.1f} % clean. The most accurate network, offset "
        f"{clean[2]:g} and temperature {clean[3]:g}, has {clean[1]:.1f} % clean and {clean[0]:.1f} "
        "% certified. All networks are 1-Lipschitz; they differ in the loss alone.",
    ]


EXPERIMENT = Experiment(
    name="tradeoff",
    label="ours",
    title="Clean against certified accuracy",
    claim=(
        "Not in the paper. With a fixed constant, the loss determines the trade-off between clean and "
        "certified accuracy: the offset sets the target margin, and the temperature how much weight "
        "examples below it get."
    ),
    configs=_configs,
    run=_run,
    show=_show,
)
