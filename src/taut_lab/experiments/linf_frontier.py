"""Certified and attacked accuracy in L-inf against the radius, by networks of five kinds.

This experiment is not in the paper: its networks, and those that are made for L-inf, each trained for
minutes on one core.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from taut.evaluation import EvaluatedClassifier, evaluate_robustness, evenly_spaced_rows
from taut.norms import LINF
from taut.plotting import COLOURS, Figure
from taut_lab.experiments.classifier_training import train_classifier, training_curve
from taut_lab.framework import Config, Experiment, Outcome, Presentation, Result, ResultTable
from taut_lab.framework.datasets import CIFAR_PART
from taut_lab.framework.result_selection import mean_of, select, tabulate, values_of

_NUM_RADII, _FARTHEST = 40, 0.4
# The paper's loss and constant, at the rate that suits a margin of 0.3 in units of the constant.
_CONSTANT, _LARGEST_MARGIN = 1000.0, 0.3
_HINGE: dict[str, Any] = {
    "loss": "hinge",
    "lipschitz": _CONSTANT,
    "optimizer": "aggmo",
    "lr": 6e-4,
    "batch_size": 256,
}
_METHODS: dict[str, dict[str, Any]] = {
    "l1 rows, ReLU": {"arch": "dense", "activation": "relu", **_HINGE},
    "l1 rows, MaxMin": {"arch": "dense", "activation": "maxmin", **_HINGE},
    "distances": {"arch": "distance"},
    "order statistics": {"arch": "distance", "keep": 0.75},
    "interval-trained": {"arch": "ibp", "dtype": "bfloat16"},
}
_LINES = dict(zip(_METHODS, ("sky", "blue", "vermilion", "orange", "green"), strict=True))
# Epochs that take about two processor minutes of one core on MNIST, and the widths of the layers.
_EPOCHS = dict(zip(_METHODS, (15, 15, 8, 8, 18), strict=True))
_HIDDEN = dict(zip(_METHODS, ([512] * 3, [512] * 3, [256] * 3, [256] * 3, [512] * 2), strict=True))


def _configs(preset: str) -> Iterable[Config]:
    tasks, seeds = [("mnist", 0.1), ("mnist", 0.3), ("fashion-mnist", 0.1)], 1
    force = {"attacked": 500, "attack_steps": 50}
    if preset == "smoke":
        tasks, force = [("digits", 0.05)], {"attacked": 40, "attack_steps": 5}
    else:
        cifar = CIFAR_PART if preset == "cpu" else "cifar10"
        tasks += [(cifar, round(each / 255, 6)) for each in (2, 8)]
    if preset == "paper":
        seeds, force = 3, {"attacked": 10_000, "attack_steps": 200}
    for seed in range(seeds):
        for data, radius in tasks:
            for method, options in _METHODS.items():
                epochs, hidden = _EPOCHS[method], _HIDDEN[method]
                if preset == "smoke":
                    epochs, hidden = 4, [24, 24]
                elif data == CIFAR_PART:
                    epochs = 2 * epochs  # of a third as many images
                elif preset == "paper":
                    epochs = 15 * epochs
                training = {**options, "data": data, "hidden": hidden, "epochs": epochs}
                if "loss" in options:
                    training["margin"] = _CONSTANT * min(3 * radius, _LARGEST_MARGIN)
                yield {
                    "method": method,
                    "data": data,
                    "radius": radius,
                    "training": training,
                    **force,
                    "seed": seed,
                }


def _run(config: Config) -> Outcome:
    common = {"norm": "linf", "validation": 0.0, "radius": config["radius"], "seed": config["seed"]}
    began = time.process_time()
    run = train_classifier({**config["training"], **common})
    seconds = time.process_time() - began
    classifier = EvaluatedClassifier.from_run(run, LINF)
    certificates = classifier.certify()
    part = classifier.take(evenly_spaced_rows(len(classifier.examples), config["attacked"]))
    robustness = evaluate_robustness(
        part,
        [round(config["radius"] * share, 6) for share in (0.5, 1.0, 1.5)],
        ["pgd"],
        num_steps=config["attack_steps"],
        num_restarts=1,
        num_minimal=0,
        seed=config["seed"],
    )
    farthest = min(4 * config["radius"], _FARTHEST)
    reach = [round(farthest * step / _NUM_RADII, 6) for step in range(_NUM_RADII + 1)]
    numbers = {
        "clean": float(certificates.certified_accuracy()),
        "certified": float(certificates.certified_accuracy(config["radius"])),
        "attacked": robustness.accuracy(round(config["radius"], 6), "pgd"),
        "violations": len(robustness.violations),
        "seconds": seconds,
    }
    series = {
        "reach": reach,
        "proven": certificates.certified_accuracy(torch.tensor(reach)).tolist(),
        "radii": [0.0, *robustness.radii],
        "attacked": [robustness.clean, *(robustness.accuracy(r, "pgd") for r in robustness.radii)],
    }
    return Outcome(numbers, training_curve(run), series)


def _tasks(results: Sequence[Result]) -> list[tuple[str, float]]:
    pairs = [
        (data, radius) for data in values_of(results, "data") for radius in _radii(results, data)
    ]
    return pairs or [("mnist", 0.1)]


def _radii(results: Sequence[Result], data: str) -> list[float]:
    return sorted(values_of(select(results, data=data), "radius"))


def _show(results: Sequence[Result]) -> Presentation:
    tables = [_table(results, data, radius) for data, radius in _tasks(results)]
    figures = {
        f"linf-frontier-{data}-{radius:g}": _figure(results, data, radius)
        for data, radius in _tasks(results)
        if results
    }
    return Presentation(tables, figures or None, _paragraphs(results))


def _table(results: Sequence[Result], data: str, radius: float) -> ResultTable:
    return tabulate(
        results,
        f"{data}, radius {radius:g}",
        {method: {"method": method, "data": data, "radius": radius} for method in _METHODS},
        {"clean": "clean", "certified": "certified", "under PGD": "attacked"},
        better="higher",
        digits=1,
        unit="%",
        note="This experiment is not in the paper. All but PGD over all test examples.",
    )


def _figure(results: Sequence[Result], data: str, radius: float) -> Figure:
    def paint(axes: Any) -> None:
        for method, colour in _LINES.items():
            selected = select(results, method=method, data=data, radius=radius)
            if selected:
                series, look = selected[0].outcome.series, {"color": COLOURS[colour]}
                axes.plot(series["reach"], _percent(series["proven"]), label=method, **look)
                axes.plot(series["radii"], _percent(series["attacked"]), "o", ms=3, **look)
        axes.axvline(radius, color="#999999", linewidth=0.8)
        axes.set(xlabel="radius in L-inf", ylabel="accuracy, %", ylim=(0, 102))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    return Figure(
        paint,
        alt=f"Certified and attacked accuracy against the radius on {data}, a line for each network.",
        caption=f"{data}, trained for radius {radius:g} (grey line). Lines: certified; dots: PGD.",
        title="Accuracy in L-inf",
        size=(4.6, 3.6),
    )


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _paragraphs(results: Sequence[Result]) -> list[str]:
    if not results:
        return []
    sentences = []
    for data, radius in _tasks(results):
        means = {
            method: mean_of(results, "certified", method=method, data=data, radius=radius)
            for method in _METHODS
        }
        certified = {method: value for method, value in means.items() if value is not None}
        best = max(certified, key=lambda method: certified[method])
        sentences.append(
            f"On {data} at radius {radius:g} the largest certified accuracy is "
            f"{100 * certified[best]:.1f} % ({best})."
        )
    times = [r.outcome.numbers["seconds"] for r in results]
    attacks = int(sum(r.outcome.numbers["violations"] for r in results))
    sentences.append(
        f"Training took {min(times):.0f} to {max(times):.0f} processor seconds. PGD changed {attacks} "
        "predictions within their certified radii."
    )
    return [" ".join(sentences)]


EXPERIMENT = Experiment(
    name="linf-frontier",
    label="ours",
    title="Certified accuracy in L-inf",
    claim=(
        "Not in the paper. In L-inf, networks of distances and networks trained on interval bounds "
        "certify far more than dense layers with rows in the l1 ball, each within minutes of one core."
    ),
    configs=_configs,
    run=_run,
    show=_show,
)
