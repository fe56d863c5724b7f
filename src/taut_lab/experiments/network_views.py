"""The units of small GroupSort networks as functions of the input, before and after sorting."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.nn import MaxMin, mlp
from taut.plotting import COLOURS, Figure
from taut_lab.framework import Check, Config, Experiment, Outcome, Presentation, Result
from taut_lab.framework.result_selection import numbers_of, select, tabulate

# Target functions, and the widths of the paper's networks.
TARGETS = {"abs": "|x|", "w": "the letter W"}
_HIDDEN = {"abs": [2], "w": [4, 4]}
_UNIT_COLOURS = ("blue", "vermilion", "green", "purple")


def target_values(view: str, x: Tensor) -> Tensor:
    """$|x|$, or $||x| - 1|$: slope 1 almost everywhere, and kinks at 0, or at -1, 0 and 1."""
    return x.abs() if view == "abs" else (x.abs() - 1).abs()


def _configs(preset: str) -> Iterator[Config]:
    num_steps, starts = {"smoke": (120, 1), "cpu": (600, 12), "paper": (5000, 20)}[preset]
    for view in TARGETS:
        yield {"view": view, "num_steps": num_steps, "starts": starts, "lr": 0.02, "seed": 0}


def _train(config: Config, seed: int) -> tuple[nn.Sequential, float]:
    """A network, and its largest error on the line."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = mlp([1, *_HIDDEN[config["view"]], 1])
    x = torch.linspace(-2, 2, 101).unsqueeze(-1)
    target = target_values(config["view"], x)
    optimizer = torch.optim.Adam(net.parameters(), lr=config["lr"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config["num_steps"])
    for _ in range(config["num_steps"]):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), target).backward()
        optimizer.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        return net, (net(x) - target).abs().max().item()


def _run(config: Config) -> Outcome:
    first = config["seed"] * config["starts"]
    tries = [_train(config, seed) for seed in range(first, first + config["starts"])]
    net, error = min(tries, key=lambda one: one[1])
    x = torch.linspace(-2, 2, 81).unsqueeze(-1)
    layers, h = [], x
    with torch.no_grad():
        for module in net:
            z, h = h, module(h)
            if isinstance(module, MaxMin):
                layers.append({"before": _columns(z), "after": _columns(h)})
    numbers = {
        "largest_error": error,
        "bound": bound_lipschitz(net, "l2").value,
        "good_starts": float(sum(one[1] < 0.05 for one in tries)),
    }
    return Outcome(
        numbers, series={"x": _columns(x)[0], "layers": layers, "output": _columns(h)[0]}
    )


def _columns(values: Tensor) -> list[list[float]]:
    return [[round(v, 4) for v in column] for column in values.mT.tolist()]


def _checks(results: Sequence[Result]) -> list[Check]:
    errors_by_name = {
        name: numbers_of(results, "largest_error", view=view) for view, name in TARGETS.items()
    }
    cases = {name: (0.05, errors) for name, errors in errors_by_name.items()}
    return [Check("the largest error is below 0.05", cases)]


def _show(results: Sequence[Result]) -> Presentation:
    table = tabulate(
        results,
        "Small networks with MaxMin, the best of several random initialisations",
        {name: {"view": view} for view, name in TARGETS.items()},
        {
            "largest error": "largest_error",
            "audited constant": "bound",
            "initialisations with error below 0.05": "good_starts",
        },
        digits=4,
        note="On [-2, 2]. The paper shows figures without numbers.",
    )
    figures: dict[str, Figure] = {}
    for view, name in TARGETS.items():
        for result in select(results, view=view)[:1]:
            series = result.outcome.series
            parts = [
                (f"layer {number}, {when} sorting", layer[when], f"{number}-{when}")
                for number, layer in enumerate(series["layers"], 1)
                for when in ("before", "after")
            ]
            for part, lines, key in [*parts, ("output", [series["output"]], "output")]:
                figures[f"network-views-{view}-{key}"] = Figure(
                    partial(_paint, series["x"], lines, view if key == "output" else None),
                    alt=f"{name}, {part}: each unit as a function of the input.",
                    title=f"{name}: {part}",
                    size=(2.8, 2.2),
                )
    paragraphs = [
        "Sorting two lines that cross gives their maximum and minimum: one kink each, without loss of "
        "slope. The next layer combines and sorts them again: two hidden layers give the three kinks "
        "of a W.",
        "With so few units, training often ends in a poor local minimum; the best initialisation is "
        "shown, and the table lists how many succeeded.",
    ]
    return Presentation([table], figures, paragraphs)


def _paint(
    x: Sequence[float], lines: Sequence[Sequence[float]], view: str | None, axes: Any
) -> None:
    if view is not None:
        target = target_values(view, torch.tensor(x)).tolist()
        axes.plot(x, target, color="#bbbbbb", linewidth=5)
    for line, colour in zip(lines, _UNIT_COLOURS, strict=False):
        axes.plot(x, line, color=COLOURS[colour])
    axes.set(xlabel="x", xlim=(-2, 2))


EXPERIMENT = Experiment(
    name="network-views",
    label="Figures 10 and 11",
    title="Inside small GroupSort networks",
    claim="A hidden layer of two units represents the absolute value, and two hidden layers of four "
    "units a curve like the letter W, with slope 1 almost everywhere.",
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
