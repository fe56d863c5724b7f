"""How often ReLUs are active, with and without a Lipschitz constraint."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.pictures import COLOURS, Figure
from taut_lab.experiments.classifier_training import (
    PLAIN,
    percent,
    train_classifier,
    training_curve,
)
from taut_lab.framework.experiment import Config, Experiment, Outcome, Result
from taut_lab.framework.presentation import Presentation, ResultTable, TableEntry
from taut_lab.framework.selection import numbers_of

__all__ = ["EXPERIMENT"]

_FREE = "free"
_THRESHOLDS = [round(0.02 * step, 2) for step in range(51)]
_LINES = ("vermilion", "orange", "green", "sky", "blue")
_CONSTANTS: dict[str, tuple[float | str, ...]] = {
    "smoke": (1.0, _FREE),
    "cpu": (0.1, 1.0, 10.0, 100.0, _FREE),
    "paper": (0.1, 1.0, 10.0, 100.0, _FREE),
}
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "hidden": [32, 32], "epochs": 3, "batch_size": 64},
    "cpu": {"data": "mnist", "hidden": [256] * 3, "epochs": 3, "batch_size": 256},
    "paper": {"data": "mnist", "hidden": [1024] * 3, "epochs": 200, "batch_size": 128},
}


def _configs(preset: str) -> Iterable[Config]:
    for seed in (0, 1, 2) if preset == "paper" else (0,):
        for constant in _CONSTANTS[preset]:
            yield {**_SIZES[preset], "constant": constant, "seed": seed}


def _run(config: Config) -> Outcome:
    settings = dict(config)
    constant = settings.pop("constant")
    held = (
        {"constraint": "none"}
        if constant == _FREE
        else {"constraint": "orthonormal", "lipschitz": constant}
    )
    run = train_classifier({**PLAIN, **held, **settings, "activation": "relu", "lr": 1e-3})
    shares = activation_frequencies(run.model, run.data().train.inputs)
    return Outcome(
        numbers={
            "undead": (shares == 1).double().mean().item(),
            "dead": (shares == 0).double().mean().item(),
            "mean": shares.mean().item(),
            "error": 1 - run.result["clean"],
        },
        curve=training_curve(run),
        series={
            "thresholds": _THRESHOLDS,
            "active": [round((shares >= t).double().mean().item(), 6) for t in _THRESHOLDS],
        },
    )


@torch.no_grad()
def activation_frequencies(model: nn.Module, inputs: Tensor) -> Tensor:
    """Fraction of inputs at which each ReLU of a sequential network is positive, `(units,)`.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten())
        >>> activation_frequencies(net, torch.tensor([[1.0, -1.0], [1.0, 2.0]]))
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    positive: list[list[Tensor]] = []
    for part in inputs.split(4096):
        counts = []
        for layer in model.children():
            part = layer(part)
            if isinstance(layer, nn.ReLU):
                counts.append((part > 0).double().sum(0).flatten())
        positive.append(counts)
    return torch.cat([torch.stack(layer).sum(0) for layer in zip(*positive, strict=True)]) / len(
        inputs
    )


def _show(results: Sequence[Result]) -> Presentation:
    seen = {result.config["constant"] for result in results}
    constants = sorted((c for c in seen if c != _FREE), key=float)
    order = [*constants, *([_FREE] if _FREE in seen else [])]
    columns = {
        "undead": "always active",
        "dead": "never active",
        "mean": "active on average",
        "error": "test error",
    }
    table = ResultTable(
        title="Hidden units over the training inputs",
        columns=list(columns.values()),
        rows={
            _name(constant): [
                TableEntry(
                    percent(numbers_of(results, number, constant=constant)),
                    # The worst case, which is the smallest constant.
                    10.0 if number == "undead" and constant == order[0] != _FREE else None,
                )
                for number in columns
            ]
            for constant in order
        },
        digits=1,
        unit="%",
        note='The paper shows curves; its text states "about 10 %" always active in the worst case.',
    )
    if not results:
        return Presentation([table])
    figures = {"activation-statistics": _curves(results, order)}
    return Presentation([table], figures, _paragraphs(results, order))


def _name(constant: Any) -> str:
    return "no constraint" if constant == _FREE else f"{constant:g}-Lipschitz"


def _curves(results: Sequence[Result], order: Sequence[Any]) -> Figure:
    def paint(axes: Any) -> None:
        for index, constant in enumerate(order):
            held = [r.outcome.series for r in results if r.config["constant"] == constant]
            shares = [
                100 * sum(at) / len(held) for at in zip(*(s["active"] for s in held), strict=True)
            ]
            colour = "black" if constant == _FREE else _LINES[index % len(_LINES)]
            style = "--" if constant == _FREE else "-"
            look = {"color": COLOURS[colour], "linestyle": style}
            axes.plot(held[0]["thresholds"], shares, label=_name(constant), **look)
        axes.set_xlabel("threshold")
        axes.set_ylabel("units active at least this often, %")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 102)
        axes.legend()

    return Figure(
        paint,
        alt="Share of ReLUs that are active at least as often as a threshold, by constraint.",
        caption="Units at threshold 1 are active on every training input, and therefore linear.",
        title="How often ReLUs are active",
    )


def _paragraphs(results: Sequence[Result], order: Sequence[Any]) -> list[str]:
    def told(number: str) -> str:
        means = {
            c: TableEntry(percent(numbers_of(results, number, constant=c))).mean for c in order
        }
        return ", ".join(
            f"{_name(c)} {share:.1f} %" for c, share in means.items() if share is not None
        )

    return [
        f"Active on every training input: {told('undead')}. The paper reports about 10 % in the "
        "worst case.",
        f"Mean fraction of inputs on which a unit is active: {told('mean')}. In the paper, almost no "
        "unit of an unconstrained network is active on more than 40 % of the inputs.",
    ]


EXPERIMENT = Experiment(
    name="activation-statistics",
    label="hist_and_stat, right",
    title="Activation statistics of ReLU networks",
    claim=(
        "ReLU networks under a Lipschitz constraint keep their units active to preserve slope, the "
        "more so the smaller the constant; in the worst case a tenth of all units is active on "
        "every input, and is therefore linear. Unconstrained networks are sparse."
    ),
    configs=_configs,
    run=_run,
    show=_show,
    needs=("mnist",),
)
