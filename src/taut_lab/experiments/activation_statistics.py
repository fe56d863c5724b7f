"""How often ReLUs are active, with and without a Lipschitz constraint."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from taut.plotting import COLOURS, Figure
from taut_lab.experiments.classifier_training import PLAIN, train_classifier, training_curve
from taut_lab.framework import Check, Config, Experiment, Outcome, Presentation, Result, ResultTable
from taut_lab.framework.result_selection import numbers_of, select, tabulate

_FREE = "free"
_THRESHOLDS = [round(0.02 * step, 2) for step in range(51)]
_LINES = ("vermilion", "orange", "green", "sky", "blue")
_CONSTANTS = (0.1, 1.0, 10.0, 100.0, _FREE)
_SHORT = {"data": "mnist", "hidden": [256] * 3, "epochs": 3, "batch_size": 256}
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "hidden": [32, 32], "epochs": 3, "batch_size": 64},
    # Units switch off little by little while the rate is high, so the rate is constant; `_SHORT`
    # shows what a few epochs with a falling rate give.
    "cpu": {
        "data": "mnist",
        "hidden": [256] * 3,
        "epochs": 40,
        "batch_size": 128,
        "schedule": "constant",
    },
    "paper": {
        "data": "mnist",
        "hidden": [1024] * 3,
        "epochs": 200,
        "batch_size": 128,
        "schedule": "step",
        "milestones": [60, 100, 150],
    },
}


def _configs(preset: str) -> Iterable[Config]:
    for seed in (0, 1, 2) if preset == "paper" else (0,):
        for constant in (1.0, _FREE) if preset == "smoke" else _CONSTANTS:
            yield {**_SIZES[preset], "constant": constant, "seed": seed}
    if preset == "cpu":
        yield from ({**_SHORT, "constant": constant, "seed": 0} for constant in _CONSTANTS)


def _run(config: Config) -> Outcome:
    settings = dict(config)
    constant = settings.pop("constant")
    constraint = (
        {"constraint": "none"}
        if constant == _FREE
        else {"constraint": "orthonormal", "lipschitz": constant}
    )
    run = train_classifier({**PLAIN, **constraint, **settings, "activation": "relu", "lr": 1e-3})
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


def _checks(results: Sequence[Result]) -> list[Check]:
    trained = _without_short(results)

    def numbers(number: str, constant: float | str) -> list[float]:
        return numbers_of(trained, number, constant=constant)

    active = {
        f"{_name(small)} and {_name(large)}": (numbers("mean", small), numbers("mean", large))
        for small, large in pairwise(_CONSTANTS[:-1])
    }
    sparse = {_name(c): (numbers("mean", c), numbers("mean", _FREE)) for c in _CONSTANTS[:-1]}
    always = {"0.1-Lipschitz": (numbers("undead", 0.1), 0.05)}
    return [
        Check("units are active more often with a smaller constant", active),
        Check("units are active more often than without a constraint", sparse),
        Check("at least 5 % of units always active in the worst case", always, magnitude=True),
    ]


def _without_short(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if r.config["epochs"] != 3 or r.config["data"] != "mnist"]


def _show(results: Sequence[Result]) -> Presentation:
    trained = _without_short(results)
    short = [result for result in results if result not in trained]
    tables = [_table(trained, "Hidden units over the training inputs")]
    if short:
        tables.append(_table(short, "The same after three epochs, with a rate that falls to zero"))
    if not results:
        return Presentation(tables)
    order = [c for c in _CONSTANTS if select(trained, constant=c)]
    figures = {"activation-statistics": _curves(trained, order)} if trained else None
    words = (
        "A unit that is active on every input is linear. In the paper, almost no unit of an unconstrained "
        "network is active on more than 40 % of the inputs. Sparsity takes many steps of Adam at a high "
        "rate: initialisation, centred inputs and weight decay change it little. In a trial, 58, 44, 38 "
        "and 32 % of the units were active after 1, 5, 10 and 15 epochs at rate 0.001, and 22, 13 and "
        "9 % after 1, 5 and 10 epochs at rate 0.005; with a cosine schedule, still 63 % after 10."
    )
    return Presentation(tables, figures, [words])


def _table(results: Sequence[Result], title: str) -> ResultTable:
    order = [c for c in _CONSTANTS if select(results, constant=c)]
    # The paper's number is for the worst case, which is the smallest constant.
    worst = {_name(order[0]): (10.0, None, None, None)} if order and order[0] != _FREE else {}
    return tabulate(
        results,
        title,
        {_name(constant): {"constant": constant} for constant in order},
        {
            "always active": "undead",
            "never active": "dead",
            "active on average": "mean",
            "test error": "error",
        },
        paper=worst,
        digits=1,
        unit="%",
        note='The paper shows curves; its text states "about 10 %" always active in the worst case.',
    )


def _name(constant: Any) -> str:
    return "no constraint" if constant == _FREE else f"{constant:g}-Lipschitz"


def _curves(results: Sequence[Result], order: Sequence[Any]) -> Figure:
    def paint(axes: Any) -> None:
        for index, constant in enumerate(order):
            series = [r.outcome.series for r in results if r.config["constant"] == constant]
            shares = [
                100 * sum(at) / len(series)
                for at in zip(*(s["active"] for s in series), strict=True)
            ]
            colour = "black" if constant == _FREE else _LINES[index % len(_LINES)]
            style = "--" if constant == _FREE else "-"
            look = {"color": COLOURS[colour], "linestyle": style}
            axes.plot(series[0]["thresholds"], shares, label=_name(constant), **look)
        axes.set(xlabel="threshold", ylabel="units active at least this often, %")
        axes.set(xlim=(0, 1), ylim=(0, 102))
        axes.legend()

    return Figure(
        paint,
        alt="Share of ReLUs that are active at least as often as a threshold, by constraint.",
        caption="Units at threshold 1 are active on every training input, and therefore linear.",
        title="How often ReLUs are active",
    )


EXPERIMENT = Experiment(
    name="activation-statistics",
    label="Figure 6, right",
    title="Activation statistics of ReLU networks",
    claim="The smaller its Lipschitz constant, the more often a ReLU network keeps its units active, up "
    "to a tenth of them on every input; unconstrained networks are sparse.",
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
