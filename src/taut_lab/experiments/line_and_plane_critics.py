"""The absolute value and three circular cones, learned with each activation."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from taut.plotting import COLOURS, Figure
from taut.transport import absolute_value, three_cones
from taut_lab.experiments.critic_training import (
    ACTIVATION_COLOURS,
    ACTIVATION_NAMES,
    at_point,
    authors_recipe,
    by_activation,
    run_critic,
)
from taut_lab.framework import Check, Config, Experiment, Outcome, Presentation, Result
from taut_lab.framework.result_selection import numbers_of, select, tabulate

_ROWS = {name: {"activation": activation} for activation, name in ACTIVATION_NAMES.items()}
# Even counts of points avoid the kinks, which have no gradient.
_COLUMNS, _LINES = 66, 30


# Preset -> recipe and number of seeds.
_LINE_RECIPES: dict[str, tuple[dict[str, Any], int]] = {
    "smoke": ({"hidden": [16, 16], "num_steps": 60, "batch_size": 32, "lr": 1e-2}, 1),
    "cpu": ({"hidden": [128] * 3, "num_steps": 300, "batch_size": 32, "lr": 3e-3}, 3),
    # The paper states three hidden layers, the authors' configuration two.
    "paper": ({"hidden": [128] * 3, **authors_recipe(3600)}, 3),
}
_PLANE_RECIPES: dict[str, tuple[dict[str, Any], int]] = {
    "smoke": ({"hidden": [24, 24], "num_steps": 60, "batch_size": 64, "lr": 1e-2}, 1),
    "cpu": ({"hidden": [128] * 3, "num_steps": 800, "batch_size": 128, "lr": 5e-3}, 1),
    "paper": ({"hidden": [312] * 3, **authors_recipe(9600)}, 3),
}


def _plane() -> torch.Tensor:
    """`(rows, columns, 2)`."""
    x, y = torch.linspace(-3.25, 3.25, _COLUMNS), torch.linspace(-1.45, 1.45, _LINES)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def _run_line(config: Config) -> Outcome:
    problem = absolute_value()
    run = run_critic(1, at_point(problem), config)
    evaluation = run.evaluate(config["num_fresh"])
    points = torch.linspace(-1.5, 1.5, 62).unsqueeze(-1)
    values, slope = run.aligned(points, problem.potential(points))
    rounded = [[round(v, 4) for v in row] for row in (points.flatten().tolist(), values.tolist())]
    numbers = {"objective": evaluation.estimate, "slope": slope}
    return Outcome(numbers, run.curve(), {"x": rounded[0], "f": rounded[1]})


def _run_plane(config: Config) -> Outcome:
    problem = three_cones()
    run = run_critic(2, problem.sample, config)
    evaluation = run.evaluate(config["num_fresh"])
    plane = _plane()
    heights, slope = run.aligned(plane, problem.potential(plane))
    rounded = [[round(height, 3) for height in row] for row in heights.tolist()]
    numbers = {"objective": evaluation.estimate, "lower": evaluation.lower, "slope": slope}
    return Outcome(numbers, run.curve(), {"heights": rounded})


def _checks(results: Sequence[Result]) -> list[Check]:
    objectives = {a: numbers_of(results, "objective", activation=a) for a in ACTIVATION_NAMES}
    lossy = {ACTIVATION_NAMES[a]: (0.95, objectives[a]) for a in ("relu", "maxout")}
    sorting = {
        ACTIVATION_NAMES[a]: (objectives[a], 0.9) for a in ("maxmin", "groupsort4", "fullsort")
    }
    return [
        Check("ReLU and Maxout miss the distance by more than 5 %", lossy),
        Check("sorting activations come within 10 % of the distance", sorting),
    ]


def _show_line(results: Sequence[Result]) -> Presentation:
    table = tabulate(
        results,
        "The absolute value (the distance is 1)",
        _ROWS,
        {"dual objective": "objective", "mean slope on [-1, 1]": "slope"},
        better="higher",
        note="The objective is divided by the proven constant of the critic. The paper shows these "
        "curves without numbers.",
    )
    figure = Figure(
        partial(_paint_line, results),
        alt="Learned functions on the line beside |x|: ReLU is flatter, MaxMin lies on it.",
        caption="One seed each; the number is the estimated distance. Grey: the optimal critic, |x|.",
        title="Approximating the absolute value",
        size=(5.4, 3.2),
    )
    paragraphs = [
        "A 1-Lipschitz ReLU network cannot represent |x|: at its kinks units are inactive, and slope is "
        "lost. Maxout drops the smaller value of each pair. Activations that permute their inputs "
        "lose no slope; their remaining error is due to training.",
    ]
    return Presentation([table], {"absolute-value": figure}, paragraphs)


def _first(results: Sequence[Result]) -> Iterator[tuple[str, str, Result]]:
    """Activation, label and first result; the best come first, so that others are drawn on top."""
    for activation in reversed(ACTIVATION_NAMES):
        for result in select(results, activation=activation)[:1]:
            objective = result.outcome.numbers["objective"]
            yield activation, f"{ACTIVATION_NAMES[activation]}: {objective:.3f}", result


def _paint_line(results: Sequence[Result], axes: Any) -> None:
    axes.plot([-1.5, 0, 1.5], [1.5, 0, 1.5], color="#bbbbbb", linewidth=5, label="|x|: 1")
    for activation, label, result in _first(results):
        series = result.outcome.series
        axes.plot(series["x"], series["f"], color=ACTIVATION_COLOURS[activation], label=label)
    axes.plot([-1, 1], [1, 1], "o", color=COLOURS["black"], markersize=4)
    axes.plot([0], [0], "s", color=COLOURS["black"], markersize=4)
    axes.set(xlabel="x", ylabel="f(x)", xlim=(-1.5, 1.5))
    axes.legend(loc="upper center", title="estimated distance", ncols=2)
    axes.set_ylim(top=2.4)


def _show_plane(results: Sequence[Result]) -> Presentation:
    table = tabulate(
        results,
        "Three circular cones (the distance is 1)",
        _ROWS,
        {
            "dual objective": "objective",
            "proven, 95 %": "lower",
            "mean slope on the cones": "slope",
        },
        better="higher",
        note="The paper shows the surfaces without numbers.",
    )
    section = Figure(
        partial(_paint_section, results),
        alt="The learned functions along the line through the three tips, beside the cones.",
        caption="Mean of two lines, 0.05 on either side of the tips. Grey: the optimal critic.",
        title="Cross-section through the tips",
        size=(5.4, 3.0),
    )
    shown = [("truth", "Optimal critic", three_cones().potential(_plane()).tolist())]
    learned = [(key, name, r.outcome.series["heights"]) for key, name, r in _first(results)]
    surfaces = {
        f"three-cones-{key}": Figure(
            partial(_paint_surface, heights),
            alt=f"Surface over the plane: {name}.",
            title=name,
            size=(3.6, 2.4),
            projection="3d",
        )
        for key, name, heights in shown + learned[::-1]
    }
    paragraphs = [
        "The optimal cones have slope 1 everywhere. Where an activation loses slope, the cones are not "
        "only flatter but distorted, as the cross-section shows: the available slope is spent where it "
        "increases the objective most. Scaling the output cannot correct that.",
    ]
    return Presentation([table], {"three-cones-section": section, **surfaces}, paragraphs)


def _paint_section(results: Sequence[Result], axes: Any) -> None:
    x = _plane()[0, :, 0].tolist()
    corners = [-3.25, -3, -2, -1, 0, 1, 2, 3, 3.25]
    heights = [-0.25, 0, 1, 0, 1, 0, 1, 0, -0.25]
    axes.plot(corners, heights, color="#bbbbbb", linewidth=5, label="optimal: 1")
    for activation, label, result in _first(results):
        beside = result.outcome.series["heights"][_LINES // 2 - 1 : _LINES // 2 + 1]
        middle = [(a + b) / 2 for a, b in zip(*beside, strict=True)]
        axes.plot(x, middle, color=ACTIVATION_COLOURS[activation], label=label)
    axes.set(xlabel="x", ylabel="f(x, 0)", xlim=(-3.25, 3.25), ylim=(-0.5, 2.2))
    axes.legend(loc="upper center", ncols=2, title="estimated distance")


def _paint_surface(heights: Sequence[Sequence[float]], axes: Any) -> None:
    x, y = _plane().numpy().T
    look = {"vmin": -0.6, "vmax": 1.0, "rcount": _LINES, "ccount": _COLUMNS, "antialiased": False}
    axes.plot_surface(x.T, y.T, torch.tensor(heights).numpy(), cmap="viridis", linewidth=0, **look)
    axes.set_box_aspect((6.5, 2.9, 1.75), zoom=1.35)
    axes.view_init(elev=45, azim=-75)
    axes.set(zlim=(-0.75, 1))
    axes.set_axis_off()


ABSOLUTE_VALUE = Experiment(
    name="absolute-value",
    label="Figure 4",
    title="The absolute value, by activation",
    claim="Networks that do not preserve gradient norms cannot learn the absolute value, the optimal "
    "critic between a point and its two neighbours; GroupSort networks can.",
    configs=lambda preset: by_activation(*_LINE_RECIPES[preset]),
    run=_run_line,
    show=_show_line,
    checks=_checks,
)
THREE_CONES = Experiment(
    name="three-cones",
    label="Figure 5",
    title="Three circular cones, by activation",
    claim="Activations that do not preserve gradient norms flatten and distort the three cones of the "
    "optimal critic, which a larger constant cannot correct; GroupSort networks learn them.",
    configs=lambda preset: by_activation(*_PLANE_RECIPES[preset]),
    run=_run_plane,
    show=_show_plane,
    checks=_checks,
)
