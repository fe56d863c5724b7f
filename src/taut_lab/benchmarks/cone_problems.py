"""The first table of the paper: critics of the n-dimensional cone, by activation."""

from collections.abc import Iterator
from dataclasses import asdict

from taut_lab.benchmarks.critic_result import BenchmarkJob, CriticResult, Stopwatch
from taut_lab.experiments.prob_dim import PAPER_VALUES, RECIPES, Recipe, train_cone

__all__ = ["PART", "cone_jobs"]

PART = "table1"


def cone_jobs(
    *,
    seed: int,
    results: tuple[tuple[int, int], ...] = tuple(PAPER_VALUES),
    recipe: Recipe | None = None,
    num_fresh: int = 2**15,
) -> Iterator[BenchmarkJob]:
    """One job for each activation, dimension and depth.

    Args:
        seed: random seed.
        results: `(dimension, number of linear layers)`.
        recipe: training recipe of all jobs; None for those of the table.
        num_fresh: number of fresh samples for the estimate and the bound.
    """
    for activation, recipes in RECIPES.items():
        for dim, depth in results:
            chosen = recipe or recipes[depth]
            yield BenchmarkJob(
                f"{PART}/{activation}/{dim}/{depth}",
                40.0,
                lambda a=activation, d=dim, k=depth, r=chosen: _run(a, d, k, r, seed, num_fresh),
            )


def _run(
    activation: str, dim: int, depth: int, recipe: Recipe, seed: int, num_fresh: int
) -> CriticResult:
    watch = Stopwatch()
    run = train_cone(dim, depth, activation, recipe, seed)
    fit_cpu = watch.cpu
    evaluation = run.evaluate(num_fresh)
    published = PAPER_VALUES.get((dim, depth), {}).get(activation)
    return watch.result(
        PART,
        f"cone, dimension {dim}, {depth} layers",
        activation,
        truth=1.0,
        **asdict(evaluation),
        steps=recipe.num_steps,
        fit_cpu=fit_cpu,
        sizes={"dim": dim, "depth": depth, **vars(recipe), "paper": published},
    )
