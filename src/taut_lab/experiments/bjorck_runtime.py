"""Run times of Björck's iteration: forming the matrix, or multiplying a vector."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from taut.linalg import apply_bjorck, bjorck, bound_by_scaling
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
from taut_lab.framework.result_selection import numbers_of
from taut_lab.framework.timing import TimedFunction, time_in_turn

# Iterations -> seconds for the full form and for products with one vector, as published for a
# matrix of 1000 by 1000 and the mean of 10 runs (Anil, Lucas and Grosse, 2019, appendix).
PAPER_SECONDS: dict[int, tuple[float, float]] = {
    1: (0.020, 0.0002),
    2: (0.039, 0.0005),
    3: (0.059, 0.0011),
    5: (0.095, 0.012),
    10: (0.21, 2.88),
}
# Also as published: ratios of times before rounding.
PAPER_RATIOS: dict[int, float] = {1: 99.98, 2: 78.59, 3: 53.56, 5: 7.77, 10: 0.07}


# Names of the functions that form the matrix, and that multiply one vector, by number of iterations.
full_name, product_name = "full, {}".format, "products, {}".format


def timed_bjorck(
    size: int, iterations: Iterable[int] = tuple(PAPER_SECONDS), *, seed: int = 0
) -> list[TimedFunction]:
    """Both functions for each number of iterations, on a normal matrix scaled by a norm bound."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(size, size, generator=generator)
    weight = weight / bound_by_scaling(weight, "inf")
    vector = torch.randn(size, generator=generator)
    functions = []
    for k in iterations:
        functions += [
            TimedFunction(full_name(k), lambda k=k: bjorck(weight, num_steps=k, scaling=None)),
            TimedFunction(product_name(k), lambda k=k: apply_bjorck(weight, vector, k)),
        ]
    return functions


def _configs(preset: str) -> Iterator[Config]:
    size, rounds = {"smoke": (32, 3), "cpu": (1000, 10), "paper": (1000, 10)}[preset]
    iterations = [k for k in PAPER_SECONDS if preset != "smoke" or k <= 5]
    yield {"size": size, "iterations": iterations, "rounds": rounds, "least_rounds": 2, "seed": 0}


def _run(config: Config) -> Outcome:
    size, iterations = config["size"], config["iterations"]
    functions = timed_bjorck(size, iterations, seed=config["seed"])
    # Both must compute the same product, or their times could not be compared.
    vector = torch.randn(size, generator=torch.Generator().manual_seed(config["seed"]))
    weight = torch.randn(size, size, generator=torch.Generator().manual_seed(config["seed"] + 1))
    weight = weight / bound_by_scaling(weight, "inf")
    gaps = [
        (bjorck(weight, num_steps=k, scaling=None) @ vector - apply_bjorck(weight, vector, k))
        for k in iterations
        if k <= 5
    ]
    rounds, least = config["rounds"], config["least_rounds"]
    timings = time_in_turn(functions, rounds=rounds, min_rounds=least, warmup=1, budget=10.0)
    medians = {timing.name: timing.median for timing in timings}
    numbers = {"largest_gap": max(gap.abs().max().item() for gap in gaps)}
    for k in iterations:
        full, products = medians[full_name(k)], medians[product_name(k)]
        if full is not None and products is not None:
            numbers |= {f"seconds_full_{k}": full, f"seconds_products_{k}": products}
            # A coarse clock may measure 0, which gives no ratio.
            numbers |= {f"ratio_{k}": full / products} if products else {}
    return Outcome(numbers)


def _checks(results: Sequence[Result]) -> list[Check]:
    ratios = {k: numbers_of(results, f"ratio_{k}", size=1000) for k in PAPER_SECONDS}
    few = {f"{k} iterations": (ratios[k], 2.0) for k in ratios if k <= 5}
    return [
        Check("more than twice as fast with up to 5 iterations", few),
        Check("slower with 10", {"10 iterations": (1.0, ratios[10])}),
    ]


def _show(results: Sequence[Result]) -> Presentation:
    recorded = {k for result in results for k in result.config["iterations"]}
    iterations = [k for k in PAPER_SECONDS if k in recorded or not recorded]
    # Times of other sizes cannot be compared with the paper's.
    same_size = all(result.config["size"] == 1000 for result in results)
    published = {
        "seconds_full": [PAPER_SECONDS[k][0] for k in iterations],
        "seconds_products": [PAPER_SECONDS[k][1] for k in iterations],
        "ratio": [PAPER_RATIOS[k] for k in iterations],
    }

    def table(title: str, rows: Mapping[str, str], **look: Any) -> ResultTable:
        entries = {
            row: [
                TableEntry(numbers_of(results, f"{number}_{k}"), value if same_size else None)
                for k, value in zip(iterations, published[number], strict=True)
            ]
            for row, number in rows.items()
        }
        columns = [f"{k} iteration{'s' * (k > 1)}" for k in iterations]
        return ResultTable(title, columns, entries, **look)

    seconds = table(
        "Seconds for one product with an orthonormalised matrix",
        {"full": "seconds_full", "products": "seconds_products"},
        digits=5,
        unit=" s",
        note="Medians of CPU time on one thread, measured in turn; the paper reports means of 10 runs "
        "on a GPU or many cores, so only ratios can be compared.",
    )
    title = "Speed-up of products with a vector"
    ratio = table(title, {"speed-up": "ratio"}, digits=2, unit="x")
    figure = Figure(
        partial(_paint, iterations, ratio),
        alt="Speed-up of matrix-vector products over forming the matrix, against iterations.",
        caption="Below 1, forming the matrix is faster.",
        title="Speed-up by number of iterations",
    )
    paragraphs = [
        "Forming the matrix takes two matrix products per iteration; the other method takes about 3^k "
        "products with a vector for k iterations.",
        "The speed-up holds for a single vector; a batch of n vectors costs n times as much.",
    ]
    return Presentation([seconds, ratio], {"bjorck-runtime": figure}, paragraphs)


def _paint(iterations: Sequence[int], table: ResultTable, axes: Any) -> None:
    entries = table.rows["speed-up"]
    ours = [(k, e.mean) for k, e in zip(iterations, entries, strict=True) if e.values]
    if ours:
        axes.plot(*zip(*ours, strict=True), "o-", color=COLOURS["blue"], label="ours", markersize=4)
    published = [PAPER_RATIOS[k] for k in iterations]
    axes.plot(iterations, published, "s--", color=COLOURS["vermilion"], label="paper", markersize=4)
    axes.axhline(1, color="#999999", linewidth=0.8)
    axes.set(xlabel="iterations", ylabel="speed-up", yscale="log")
    axes.set_xticks(iterations)
    axes.legend()


EXPERIMENT = Experiment(
    name="bjorck-runtime",
    label="Table 3",
    title="Run times of Björck's iteration",
    claim="For up to about five iterations, multiplying a vector by Björck's matrix is much faster "
    "without forming the matrix; with ten it is slower, since the number of products triples with "
    "each iteration.",
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
