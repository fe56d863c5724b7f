"""Samples of GANs, by the kind of critic."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator

from taut.plotting import Figure
from taut.training.gan import GanConfig, draw_grid
from taut_lab.experiments.generator_distance import evaluate_generator, train_once
from taut_lab.framework import Check, Config, Experiment, Outcome, Presentation, Result
from taut_lab.framework.datasets import CIFAR_PART
from taut_lab.framework.result_selection import numbers_of, select, tabulate, values_of

# (critic, activation) -> name.
KINDS = {
    ("lipschitz", "maxmin"): "1-Lipschitz critic, MaxMin",
    ("clipped", "leaky_relu"): "Clipped weights, LeakyReLU",
    ("penalty", "leaky_relu"): "Gradient penalty, LeakyReLU",
    ("penalty", "maxmin"): "Gradient penalty, MaxMin",
}
_SIDE = 5


def _configs(preset: str) -> Iterator[Config]:
    estimation: dict[str, Any] = {"activation": "maxmin", "batch_size": 64}
    if preset == "smoke":
        sizes = {"width": 2, "critic_hidden": 8, "generator_hidden": 8, "latent": 4}
        gan, data = {**sizes, "num_steps": 10}, ("digits",)
        estimation |= {"hidden": [16], "num_steps": 10, "lr": 0.01, "num_fresh": 50}
    elif preset == "cpu":
        gan, data = {"num_steps": 2000}, ("mnist", CIFAR_PART)
        estimation |= {"hidden": [360, 360], "num_steps": 300, "lr": 0.003, "num_fresh": 4096}
    else:
        gan, data = GanConfig.paper().to_dict(), ("mnist", "cifar10")
        estimation |= {"hidden": [720, 720], "num_steps": 5000, "lr": 0.003, "num_fresh": 8000}
    for name in data:
        for critic, activation in KINDS:
            own = {"data": name, "critic": critic, "activation": activation}
            yield {
                **estimation,
                "data": name,
                "gan": {**gan, **own, "seed": 0, "threads": 1},
                "critic": critic,
                "critic_activation": activation,
                "seed": 0,
            }


def _run(config: Config) -> Outcome:
    run = train_once(GanConfig(**config["gan"]))
    evaluation = evaluate_generator(run.generator, config)
    numbers = {
        "distance": evaluation.held_out.estimate,
        "lower": evaluation.held_out.lower,
        "dual": run.result["dual"],
    }
    if run.result["lipschitz"] is not None:
        numbers["lipschitz"] = run.result["lipschitz"]
    curve = [{"step": row["step"], "dual": row["dual"]} for row in run.history]
    images = run.generator.sample(_SIDE**2, Generator().manual_seed(config["seed"]))
    # Sixteen grey levels look the same, and keep the record small.
    shades = ((images + 1) * 7.5).round().to(torch.int64)
    return Outcome(numbers, curve, {"shades": shades.tolist()})


def _checks(results: Sequence[Result]) -> list[Check]:
    def distances(critic: str, activation: str, data: str) -> list[float]:
        settings = {"critic": critic, "critic_activation": activation, "data": data}
        return numbers_of(results, "distance", **settings)

    data = ("mnist", CIFAR_PART if CIFAR_PART in values_of(results, "data") else "cifar10")
    clipped = {
        d: (distances("clipped", "leaky_relu", d), distances("lipschitz", "maxmin", d))
        for d in data
    }
    penalised = {
        d: (
            [1.1 * value for value in distances("penalty", "leaky_relu", d)],
            distances("penalty", "maxmin", d),
        )
        for d in data
    }
    return [
        Check("the 1-Lipschitz critic trains a closer generator than clipped weights", clipped),
        Check("under a penalty, MaxMin trains a generator at most 10 % further away", penalised),
    ]


def _show(results: Sequence[Result]) -> Presentation:
    data = values_of(results, "data") or ["mnist", "cifar10"]
    rows = {
        name: {"critic": critic, "critic_activation": activation}
        for (critic, activation), name in KINDS.items()
    }
    columns = {of: {"data": of} for of in data}
    tables = [
        tabulate(
            results,
            "Estimated distance between each generator and held-out images",
            rows,
            columns,
            "distance",
            better="lower",
            note="Estimated by a dense orthonormal MaxMin critic; pixels in [-1, 1].",
        ),
        tabulate(
            results, "Lower bound of that distance, with confidence 95 %", rows, columns, "lower"
        ),
        tabulate(results, "Final value of the critic in training", rows, columns, "dual"),
    ]
    figures = {}
    for of in data:
        for (critic, activation), name in KINDS.items():
            selected = select(results, data=of, critic=critic, critic_activation=activation)
            if selected:
                figures[f"gan-{of}-{critic}-{activation}".replace("_", "-")] = Figure(
                    partial(_paint, selected[0].outcome.series["shades"]),
                    alt=f"{_SIDE**2} samples of a GAN trained on {of} against: {name}.",
                    caption=f"{of}, not selected.",
                    title=name,
                    size=(2.8, 2.8),
                )
    paragraphs = [
        "The value of a 1-Lipschitz critic is at most the distance between the two batches; that of a "
        "clipped or penalised critic has arbitrary units, and is not a distance.",
        f"{CIFAR_PART} are 20,000 training and 5,000 test images of CIFAR-10.",
    ]
    return Presentation(tables, figures, paragraphs)


def _paint(shades: list[Any], axes: Any) -> None:
    images = torch.as_tensor(np.asarray(shades), dtype=torch.float32) / 7.5 - 1
    axes.imshow(draw_grid(images), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()


EXPERIMENT = Experiment(
    name="gan-samples",
    label="Figure 17",
    title="Samples of GANs, by the kind of critic",
    claim="Wasserstein GANs can be trained with critics of 1-Lipschitz layers, and MaxMin can "
    "replace LeakyReLU under a gradient penalty.",
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
