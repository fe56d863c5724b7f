"""Convergence of Björck's iteration to an orthonormal matrix, by step size."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from taut.linalg import bjorck
from taut.plotting import COLOURS, Figure
from taut_lab.framework import (
    Check,
    Config,
    Experiment,
    Outcome,
    Presentation,
    Result,
    ResultTable,
    TableEntry,
)
from taut_lab.framework.result_selection import numbers_of, select, values_of

PARSEVAL = 0.0003
_LINES = (("largest", "vermilion"), ("smallest", "blue"))
_BETAS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5)


def _configs(preset: str) -> Iterator[Config]:
    """One cell for each beta: singular values after each number of steps in `steps`."""
    size, last, seeds = {"smoke": (12, 200, 1), "cpu": (64, 30_000, 3), "paper": (128, 40_000, 5)}[
        preset
    ]
    for seed in range(seeds):
        for beta in _BETAS:
            steps = [0, *_spread(last)] if beta == PARSEVAL else list(range(51))
            if beta == PARSEVAL and 50 not in steps:
                steps = sorted([*steps, 50])
            yield {"size": size, "beta": beta, "steps": steps, "seed": seed}


def _spread(last: int) -> list[int]:
    """From 1 to `last`, geometrically spaced."""
    return sorted({round(last ** (i / 40)) for i in range(41)})


def _start(size: int, seed: int) -> Tensor:
    """Torch's initial weight of a dense layer: uniform, largest singular value about 1.15."""
    draws = torch.rand(size, size, generator=Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * draws - 1) / size**0.5


def _run(config: Config) -> Outcome:
    matrix, done = _start(config["size"], config["seed"]), 0
    largest, smallest = [], []
    for step in config["steps"]:
        matrix = bjorck(matrix, beta=config["beta"], num_steps=step - done, scaling=None)
        done = step
        values = torch.linalg.svdvals(matrix)
        largest.append(round(values[0].item(), 8))
        smallest.append(round(values[-1].item(), 8))
    after = config["steps"].index(50)
    numbers = {
        "largest_after_50": largest[after],
        "smallest_after_50": smallest[after],
        "largest_at_end": largest[-1],
        "smallest_at_end": smallest[-1],
    }
    series = {"steps": config["steps"], "largest": largest, "smallest": smallest}
    return Outcome(numbers, series=series)


def _checks(results: Sequence[Result]) -> list[Check]:
    def smallest(result: Result) -> float:
        """The smallest singular value after 2,000 iterations, or a few more."""
        series = result.outcome.series
        after = next(i for i, step in enumerate(series["steps"]) if step >= 2000)
        return series["smallest"][after]

    late = [r for r in select(results, beta=PARSEVAL) if r.config["steps"][-1] >= 2000]
    done = numbers_of(results, "smallest_after_50", beta=0.5)
    return [
        Check("beta 0.5: all singular values above 0.99 after 50 iterations", {"": (done, 0.99)}),
        Check(
            f"beta {PARSEVAL}: the smallest below 0.5 after 2,000",
            {"": (0.5, [smallest(result) for result in late])},
        ),
    ]


def _show(results: Sequence[Result]) -> Presentation:
    betas = values_of(results, "beta") or list(_BETAS)
    rows = {
        name: [TableEntry(numbers_of(results, f"{name}_after_50", beta=beta)) for beta in betas]
        for name, _ in _LINES
    }
    table = ResultTable(
        "Singular values after 50 first-order iterations",
        [f"{beta:g}" for beta in betas],
        rows,
        digits=4,
        note="Columns: step size beta. 0.5 is Björck's; 0.0003 is common in Parseval networks. The "
        "paper shows these curves without numbers.",
    )
    figures = {
        "bjorck-vs-iters": Figure(
            partial(_paint_steps, results),
            alt="Largest and smallest singular value against iterations, on a logarithmic axis.",
            caption=f"First order, beta = {PARSEVAL}. Bands: range over seeds.",
            title="Convergence with the beta of Parseval networks",
        ),
        "bjorck-vs-beta": Figure(
            partial(_paint_betas, results, betas),
            alt="Largest and smallest singular value after 50 iterations, against beta.",
            caption="After 50 iterations. Bands: range over seeds.",
            title="Singular values by beta",
        ),
    }
    paragraphs = [
        "Singular values evolve independently, s to s + beta s (1 - s^2): the largest decrease within "
        "about 1 / (2 beta) iterations, while the smallest grow by a factor of 1 + beta in each and "
        "take longest. Parseval networks take one iteration per training step; with their beta the "
        "weights are far from orthonormal for thousands of steps.",
        "The paper does not specify its matrices; these are torch's initial weights of a square dense "
        "layer. A smaller singular value takes longer.",
    ]
    return Presentation([table], figures, paragraphs)


def _band(axes: Any, x: Sequence[float], rows: list[list[float]], name: str, colour: str) -> None:
    low, high = ([edge(column) for column in zip(*rows, strict=True)] for edge in (min, max))
    middle = [sum(column) / len(column) for column in zip(*rows, strict=True)]
    axes.fill_between(x, low, high, color=COLOURS[colour], alpha=0.2, linewidth=0)
    axes.plot(x, middle, color=COLOURS[colour], label=name)


def _finish(axes: Any, xlabel: str) -> None:
    axes.axhline(1, color="#999999", linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel="singular value", xscale="log", ylim=(-0.03, 1.25))
    axes.legend(loc="center left")


def _paint_steps(results: Sequence[Result], axes: Any) -> None:
    selected = [r.outcome.series for r in select(results, beta=PARSEVAL)]
    for name, colour in _LINES:
        if selected:
            later = slice(1, None)  # a logarithmic axis cannot show step 0
            rows = [series[name][later] for series in selected]
            _band(axes, selected[0]["steps"][later], rows, name, colour)
    _finish(axes, "iterations")


def _paint_betas(results: Sequence[Result], betas: Sequence[float], axes: Any) -> None:
    for name, colour in _LINES:
        columns = [numbers_of(results, f"{name}_after_50", beta=beta) for beta in betas]
        whole = min(map(len, columns))
        if whole:
            rows = [[column[i] for column in columns] for i in range(whole)]
            _band(axes, betas, rows, name, colour)
    _finish(axes, "beta")


EXPERIMENT = Experiment(
    name="bjorck-convergence",
    label="Figures 12 and 13",
    title="Convergence of Björck's iteration, by step size",
    claim="With beta = 0.5, Björck's, 50 iterations make a matrix orthonormal; with the small beta "
    "of Parseval networks the singular values are far from 1 for thousands of iterations.",
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
