"""The absolute value, the simplest function of the paper, learned with each activation."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from taut.pictures import COLOURS, Figure
from taut.transport import absolute_value
from taut_lab.experiments.critic_training import (
    ACTIVATION_COLOURS,
    ACTIVATION_NAMES,
    at_point,
    authors_recipe,
    by_activation,
    run_critic,
)
from taut_lab.framework.experiment import Config, Experiment, Outcome, Result
from taut_lab.framework.presentation import Presentation, ResultTable, TableEntry
from taut_lab.framework.selection import numbers_of, reached, select, sentences

__all__ = ["EXPERIMENT"]


def _configs(preset: str) -> Iterator[Config]:
    recipe: dict[str, Any]
    if preset == "smoke":
        recipe, seeds = {"hidden": [16, 16], "num_steps": 60, "batch_size": 32, "lr": 1e-2}, 1
    elif preset == "cpu":
        recipe, seeds = {"hidden": [128] * 3, "num_steps": 300, "batch_size": 32, "lr": 3e-3}, 3
    else:
        # The paper states three hidden layers, the authors' configuration two.
        recipe, seeds = {"hidden": [128] * 3, **authors_recipe(3600)}, 3
    return by_activation(recipe, seeds)


def _run(config: Config) -> Outcome:
    problem = absolute_value()
    run = run_critic(1, at_point(problem), config)
    evaluation = run.evaluate(config["num_fresh"])
    # An even number of points avoids the kink at 0.
    points = torch.linspace(-1.5, 1.5, 62).unsqueeze(-1)
    values, slope = run.aligned(points, problem.potential(points))
    rounded = [[round(v, 4) for v in row] for row in (points.flatten().tolist(), values.tolist())]
    return Outcome(
        {"objective": evaluation.estimate, "slope": slope},
        run.curve(),
        {"x": rounded[0], "f": rounded[1]},
    )


def _show(results: Sequence[Result]) -> Presentation:
    table = ResultTable(
        "The absolute value (the distance is 1)",
        ["dual objective", "mean slope on [-1, 1]"],
        {
            name: [
                TableEntry(numbers_of(results, number, activation=activation))
                for number in ("objective", "slope")
            ]
            for activation, name in ACTIVATION_NAMES.items()
        },
        better="higher",
        note="The objective is divided by the proven constant of the critic. The paper shows these "
        "curves without numbers.",
    )
    figures = {
        "absolute-value": Figure(
            partial(_paint, results),
            alt="Learned functions on the line beside |x|: ReLU is flatter, MaxMin lies on it.",
            caption="One seed each; the number is the estimated distance. Grey: the optimal critic, |x|.",
            title="Approximating the absolute value",
            size=(5.4, 3.2),
        )
    }
    paragraphs = sentences(
        "A 1-Lipschitz ReLU network cannot represent |x|: at its kinks units are inactive, and slope is "
        "lost. Maxout drops the smaller value of each pair. Activations that permute their inputs "
        "lose no slope; their remaining error is due to training.",
        reached(table, 1.0, "the distance"),
    )
    return Presentation([table], figures, paragraphs)


def _paint(results: Sequence[Result], axes: Any) -> None:
    axes.plot([-1.5, 0, 1.5], [1.5, 0, 1.5], color="#bbbbbb", linewidth=5, label="|x|: 1")
    # The best come first, so that the others are drawn on top of them.
    for activation in reversed(ACTIVATION_NAMES):
        for result in select(results, activation=activation)[:1]:
            objective = result.outcome.numbers["objective"]
            series = result.outcome.series
            label = f"{ACTIVATION_NAMES[activation]}: {objective:.3f}"
            colour = ACTIVATION_COLOURS[activation]
            axes.plot(series["x"], series["f"], color=colour, label=label)
    axes.plot([-1, 1], [1, 1], "o", color=COLOURS["black"], markersize=4)
    axes.plot([0], [0], "s", color=COLOURS["black"], markersize=4)
    axes.set(xlabel="x", ylabel="f(x)", xlim=(-1.5, 1.5))
    axes.legend(loc="upper center", title="estimated distance", ncols=2)
    axes.set_ylim(top=2.4)


EXPERIMENT = Experiment(
    name="absolute-value",
    label="f:abs",
    title="The absolute value, by activation",
    claim="Between a point and its two neighbours at distance 1, the optimal critic is the "
    "absolute value. Networks that do not preserve gradient norms cannot learn it; GroupSort networks "
    "can.",
    configs=_configs,
    run=_run,
    show=_show,
)
