"""Singular values of a classifier's Jacobian, before, during and after training."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from taut.training import Prepared, TrainConfig, build_network, load_data, prepare, resolve
from taut_lab.experiments.classifier_training import PLAIN, train_classifier
from taut_lab.experiments.jacobian_histograms import (
    CONSTANT,
    NAMES,
    histogram,
    shares,
    singular_values_at,
)
from taut_lab.framework.experiment import Config, Experiment, Outcome, Result
from taut_lab.framework.presentation import Presentation, ResultTable, TableEntry
from taut_lab.framework.selection import numbers_of, select, values_of

__all__ = ["EXPERIMENT"]


def _configs(preset: str) -> Iterator[Config]:
    """One cell for each number of epochs, each with its full learning-rate schedule."""
    size: dict[str, Any]
    if preset == "smoke":
        size = {"data": "digits", "hidden": [24, 24], "batch_size": 128, "rows": 60}
        lengths = (0, 2)
    elif preset == "cpu":
        size = {"data": "mnist", "hidden": [256] * 3, "batch_size": 256, "rows": 500}
        lengths = (0, 1, 3)
    else:
        size = {"data": "mnist", "hidden": [1024] * 3, "batch_size": 128, "rows": 5000}
        lengths = (0, 1, 10, 50, 200)
    for epochs in lengths:
        for activation in NAMES:
            yield {**size, "activation": activation, "epochs": epochs, "seed": 0}


def _run(config: Config) -> Outcome:
    settings = {name: value for name, value in config.items() if name != "rows"}
    fixed = {**PLAIN, "constraint": "orthonormal", "lipschitz": CONSTANT, "lr": 1e-3}
    if config["epochs"]:
        run = train_classifier({**fixed, **settings})
        model, data = run.model, run.data()
    else:
        model, data = _untrained(TrainConfig(**{**fixed, **settings, "epochs": 1}))
    values = singular_values_at(model, data.train.inputs, config["rows"])
    spread = torch.quantile(values.flatten()[:1_000_000], torch.tensor([0.05, 0.5, 0.95]))
    low, middle, high = spread.tolist()
    numbers = {
        "low": low,
        "median": middle,
        "high": high,
        "near": (values >= 0.9 * CONSTANT).float().mean().item(),
    }
    return Outcome(numbers, series={"shares": shares(values)})


def _untrained(asked: TrainConfig) -> tuple[nn.Module, Prepared]:
    source = load_data(asked)
    asked = resolve(asked, source)
    data = prepare(asked, source)
    return build_network(asked, data.spec.shape, len(data.spec.classes)).eval(), data


def _show(results: Sequence[Result]) -> Presentation:
    lengths = sorted(values_of(results, "epochs")) or [0]
    columns = {
        "5 % quantile": "low",
        "median": "median",
        "95 % quantile": "high",
        "fraction in [9, 10]": "near",
    }
    table = ResultTable(
        "All singular values of the Jacobian on training inputs; the constant is 10",
        list(columns),
        {
            f"{name}, {_length(epochs)}": [
                TableEntry(numbers_of(results, number, activation=activation, epochs=epochs))
                for number in columns.values()
            ]
            for epochs in lengths
            for activation, name in NAMES.items()
        },
        digits=2,
        note="In the paper's histogram, ReLU lies between 4 and 8, GroupSort between 9 and 10.",
    )
    figures = {
        f"dynamical-isometry-{epochs}": histogram(
            select(results, epochs=epochs),
            "shares",
            "singular values",
            alt=f"Histograms of singular values, {_length(epochs)}: ReLU and GroupSort.",
            title=_length(epochs).capitalize(),
            size=(3.6, 2.5),
        )
        for epochs in lengths
    }
    paragraphs = [
        "If no layer is wider than the one before, every weight has orthonormal rows, so the transposed "
        "Jacobian of a GroupSort network is a product of isometries, and all of its singular values "
        "equal the constant throughout training. Ours do, up to 0.001 per layer; the paper's lie "
        "between 9 and 10, probably because its Björck iterations had not converged. ReLU removes the "
        "rows of inactive units, which reduces every singular value.",
        "Each number of epochs is a separate run with its own learning-rate schedule.",
    ]
    return Presentation([table], figures, paragraphs)


def _length(epochs: int) -> str:
    return f"after {epochs} epoch{'s' * (epochs != 1)}" if epochs else "before training"


EXPERIMENT = Experiment(
    name="dynamical-isometry",
    label="fig:all_sn_hist",
    title="Singular values of Jacobians: dynamical isometry",
    claim="In classifiers with constant 10, the singular values of a ReLU network's Jacobian lie "
    "between 4 and 8; those of a GroupSort network stay between 9 and 10 throughout training.",
    configs=_configs,
    run=_run,
    show=_show,
    version=2,
    needs=("mnist",),
)
