"""All singular values of a classifier's Jacobian: before training, along it, and at its end."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from taut.lab.classifiers import PLAIN, train_classifier
from taut.lab.exhibit import Entry, Exhibit, ResultTable
from taut.lab.experiment import Config, Experiment, Outcome, Result
from taut.lab.jacobian_norms import jacobian_singular_values
from taut.lab.robustness import spread_rows
from taut.lab.selection import numbers_of, select, values_of
from taut.nn import mlp
from taut.pictures import COLOURS, Figure

__all__ = ["EXPERIMENT"]

_CONSTANT = 10.0
_BINS = 50
_NAMES = {"relu": "ReLU", "maxmin": "GroupSort (MaxMin)"}
_LOOK = {"relu": COLOURS["vermilion"], "maxmin": COLOURS["blue"]}


def _configs(preset: str) -> Iterator[Config]:
    """One cell for each length of training: a shorter one has its whole schedule, too."""
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
        for activation in _NAMES:
            yield {**size, "activation": activation, "epochs": epochs, "seed": 0}


def _run(config: Config) -> Outcome:
    run = train_classifier(
        {
            **PLAIN,
            "constraint": "orthonormal",
            "lipschitz": _CONSTANT,
            "lr": 1e-3,
            **{k: config[k] for k in ("data", "hidden", "batch_size", "activation", "seed")},
            "epochs": max(1, config["epochs"]),
        }
    )
    seen = run.data().train.inputs
    part = seen[spread_rows(len(seen), config["rows"])]
    model: torch.nn.Module = run.model
    if config["epochs"] == 0:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config["seed"])
            sizes = [part[0].numel(), *config["hidden"], 10]
            model = mlp(sizes, config["activation"], lipschitz=_CONSTANT).eval()
        part = part.flatten(1).cpu()
    values = torch.cat([jacobian_singular_values(model, x) for x in part.split(1000)]).cpu()
    spread = torch.quantile(values.flatten()[:1_000_000], torch.tensor([0.05, 0.5, 0.95]))
    low, middle, high = spread.tolist()
    numbers = {
        "low": low,
        "median": middle,
        "high": high,
        "near": (values >= 0.9 * _CONSTANT).float().mean().item(),
    }
    return Outcome(numbers, series={"shares": _shares(values)})


def _shares(values: Tensor) -> list[float]:
    """The share of values in each of the bins that divide [0, K]."""
    counts = torch.histc(values.flatten().clamp(max=_CONSTANT), _BINS, 0.0, _CONSTANT)
    return [round(share, 5) for share in (counts / values.numel()).tolist()]


def _show(results: Sequence[Result]) -> Exhibit:
    lengths = sorted(values_of(results, "epochs")) or [0]
    columns = {
        "5 % are below": "low",
        "median": "median",
        "5 % are above": "high",
        "share in [9, 10]": "near",
    }
    table = ResultTable(
        "All singular values of the Jacobian on training inputs; the constant is 10",
        list(columns),
        {
            f"{name}, {_length(epochs)}": [
                Entry(numbers_of(results, number, activation=activation, epochs=epochs))
                for number in columns.values()
            ]
            for epochs in lengths
            for activation, name in _NAMES.items()
        },
        digits=2,
        note="The paper's histogram: ReLU spread between 4 and 8, GroupSort between 9 and 10.",
    )
    figures = {
        f"dynamical-isometry-{epochs}": Figure(
            partial(_paint, select(results, epochs=epochs)),
            alt=f"Histograms of singular values, {_length(epochs)}: ReLU and GroupSort.",
            caption="The dotted line is the constant.",
            title=_length(epochs).capitalize(),
            size=(3.6, 2.5),
        )
        for epochs in lengths
    }
    words = [
        "Where no layer widens, every weight has orthonormal rows, so the transposed Jacobian of a "
        "GroupSort network is a product of isometries: all of its singular values are the "
        "constant, whatever the training did. Ours are, less a margin of at most 0.001 a layer; "
        "the paper's lie between 9 and 10, which we put down to Björck iterations that had not "
        "converged. ReLU drops the rows of units that are off, and with them part of every value.",
        "Each length of training has its own schedule, so the rows are not stations of one run.",
    ]
    return Exhibit([table], figures, words)


def _length(epochs: int) -> str:
    return f"after {epochs} epoch{'s' * (epochs != 1)}" if epochs else "before training"


def _paint(results: Sequence[Result], axes: Any) -> None:
    ends = [_CONSTANT * place / _BINS for place in range(_BINS + 1)]
    for activation, name in _NAMES.items():
        held = [r.outcome.series["shares"] for r in select(results, activation=activation)]
        if held:
            shares = [sum(column) / len(held) for column in zip(*held, strict=True)]
            # Each in units of its own peak, or a spike would leave nothing to see of the rest.
            heights = [share / max(shares) for share in shares]
            axes.stairs(heights, ends, fill=True, alpha=0.7, color=_LOOK[activation], label=name)
    axes.axvline(_CONSTANT, color="#777777", linewidth=1, linestyle=":")
    axes.set(
        xlim=(0, 10.3), ylim=(0, 1.35), xlabel="singular value", ylabel="frequency, of its peak"
    )
    axes.legend(loc="upper left")


EXPERIMENT = Experiment(
    name="dynamical-isometry",
    label="fig:all_sn_hist",
    title="Singular values of Jacobians: dynamical isometry",
    claim="In classifiers of constant 10, the singular values of a ReLU network's Jacobian spread "
    "between 4 and 8; those of a GroupSort network stay between 9 and 10, throughout training.",
    configs=_configs,
    run=_run,
    show=_show,
    needs=("mnist",),
)
