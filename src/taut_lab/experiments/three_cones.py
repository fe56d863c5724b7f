"""Three circular cones, learned with each activation."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from taut.pictures import Figure
from taut.transport import three_cones
from taut_lab.experiments.critic_training import (
    ACTIVATION_COLOURS,
    ACTIVATION_NAMES,
    authors_recipe,
    by_activation,
    run_critic,
)
from taut_lab.framework.experiment import Config, Experiment, Outcome, Result
from taut_lab.framework.presentation import Presentation, ResultTable, TableEntry
from taut_lab.framework.selection import numbers_of, reached, select, sentences

__all__ = ["EXPERIMENT"]

# Even counts avoid the tips of the cones, which have no gradient.
_COLUMNS, _ROWS = 66, 30


def _configs(preset: str) -> Iterator[Config]:
    recipe: dict[str, Any]
    if preset == "smoke":
        recipe, seeds = {"hidden": [24, 24], "num_steps": 60, "batch_size": 64, "lr": 1e-2}, 1
    elif preset == "cpu":
        recipe, seeds = {"hidden": [128] * 3, "num_steps": 800, "batch_size": 128, "lr": 5e-3}, 1
    else:
        recipe, seeds = {"hidden": [312] * 3, **authors_recipe(9600)}, 3
    return by_activation(recipe, seeds)


def _plane() -> torch.Tensor:
    """`(rows, columns, 2)`."""
    x, y = torch.linspace(-3.25, 3.25, _COLUMNS), torch.linspace(-1.45, 1.45, _ROWS)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def _run(config: Config) -> Outcome:
    problem = three_cones()
    run = run_critic(2, problem.sample, config)
    evaluation = run.evaluate(config["num_fresh"])
    plane = _plane()
    heights, slope = run.aligned(plane, problem.potential(plane))
    kept = [[round(height, 3) for height in row] for row in heights.tolist()]
    numbers = {"objective": evaluation.estimate, "lower": evaluation.lower, "slope": slope}
    return Outcome(numbers, run.curve(), {"heights": kept})


def _show(results: Sequence[Result]) -> Presentation:
    numbers = {
        "dual objective": "objective",
        "proven, 95 %": "lower",
        "mean slope on the cones": "slope",
    }
    table = ResultTable(
        "Three circular cones (the distance is 1)",
        list(numbers),
        {
            name: [
                TableEntry(numbers_of(results, n, activation=activation)) for n in numbers.values()
            ]
            for activation, name in ACTIVATION_NAMES.items()
        },
        better="higher",
        note="The paper shows the surfaces without numbers.",
    )
    figures = {
        "three-cones-section": Figure(
            partial(_paint_section, results),
            alt="The learned functions along the line through the three tips, beside the cones.",
            caption="Mean of two lines, 0.05 on either side of the tips. Grey: the optimal critic.",
            title="Cross-section through the tips",
            size=(5.4, 3.0),
        )
    }
    truth = three_cones().potential(_plane()).tolist()
    shown = [("truth", "Optimal critic", truth, "")]
    for activation, name in ACTIVATION_NAMES.items():
        for result in select(results, activation=activation)[:1]:
            value = f": {result.outcome.numbers['objective']:.3f}"
            shown.append((activation, name, result.outcome.series["heights"], value))
    for key, name, heights, value in shown:
        figures[f"three-cones-{key}"] = Figure(
            partial(_paint_surface, heights),
            alt=f"Surface over the plane: {name}.",
            title=f"{name}{value}",
            size=(3.6, 2.4),
            projection="3d",
        )
    paragraphs = sentences(
        "The optimal cones have slope 1 everywhere. Where an activation loses slope, the cones are not "
        "only flatter but distorted, as the cross-section shows: the available slope is spent where it "
        "increases the objective most. Scaling the output cannot correct that.",
        reached(table, 1.0, "the distance"),
    )
    return Presentation([table], figures, paragraphs)


def _paint_section(results: Sequence[Result], axes: Any) -> None:
    x = _plane()[0, :, 0].tolist()
    corners = [-3.25, -3, -2, -1, 0, 1, 2, 3, 3.25]
    heights = [-0.25, 0, 1, 0, 1, 0, 1, 0, -0.25]
    axes.plot(corners, heights, color="#bbbbbb", linewidth=5, label="optimal: 1")
    for activation in reversed(ACTIVATION_NAMES):
        for result in select(results, activation=activation)[:1]:
            rows = result.outcome.series["heights"]
            middle = [
                (a + b) / 2 for a, b in zip(*rows[_ROWS // 2 - 1 : _ROWS // 2 + 1], strict=True)
            ]
            label = f"{ACTIVATION_NAMES[activation]}: {result.outcome.numbers['objective']:.3f}"
            axes.plot(x, middle, color=ACTIVATION_COLOURS[activation], label=label)
    axes.set(xlabel="x", ylabel="f(x, 0)", xlim=(-3.25, 3.25), ylim=(-0.5, 2.2))
    axes.legend(loc="upper center", ncols=2, title="estimated distance")


def _paint_surface(heights: Sequence[Sequence[float]], axes: Any) -> None:
    plane = _plane().numpy()
    field = torch.tensor(heights).numpy()
    axes.plot_surface(
        plane[..., 0],
        plane[..., 1],
        field,
        cmap="viridis",
        vmin=-0.6,
        vmax=1.0,
        rcount=_ROWS,
        ccount=_COLUMNS,
        linewidth=0,
        antialiased=False,
    )
    axes.set_box_aspect((6.5, 2.9, 1.75), zoom=1.35)
    axes.view_init(elev=45, azim=-75)
    axes.set(zlim=(-0.75, 1))
    axes.set_axis_off()


EXPERIMENT = Experiment(
    name="three-cones",
    label="f:3_cone",
    title="Three circular cones, by activation",
    claim="The optimal critic between three points and the unit circles around them consists of "
    "three cones. Activations that do not preserve gradient norms flatten the cones and distort their "
    "shape, which a larger constant cannot correct; GroupSort networks learn them.",
    configs=_configs,
    run=_run,
    show=_show,
)
