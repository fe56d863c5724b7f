"""The paper's first table: what each activation makes of the n-dimensional cone."""

from collections.abc import Iterator

from taut.bench.cells import Cell, Job, Stopwatch
from taut.lab.prob_dim import PAPER_VALUES, RECIPES, Recipe, train_cone

__all__ = ["PART", "cone_jobs"]

PART = "table1"


def cone_jobs(
    *,
    seed: int,
    cells: tuple[tuple[int, int], ...] = tuple(PAPER_VALUES),
    recipe: Recipe | None = None,
    num_fresh: int = 2**15,
) -> Iterator[Job]:
    """One job for each activation, dimension and depth.

    Args:
        seed: of weights and samples.
        cells: `(dimension, number of linear layers)`.
        recipe: for all of them; None takes those of the table.
        num_fresh: points behind the estimate and the bound.
    """
    for activation, recipes in RECIPES.items():
        for dim, depth in cells:
            chosen = recipe or recipes[depth]
            yield Job(
                f"{PART}/{activation}/{dim}/{depth}",
                40.0,
                lambda a=activation, d=dim, k=depth, r=chosen: _run(a, d, k, r, seed, num_fresh),
            )


def _run(activation: str, dim: int, depth: int, recipe: Recipe, seed: int, num_fresh: int) -> Cell:
    watch = Stopwatch()
    run = train_cone(dim, depth, activation, recipe, seed)
    fit_cpu = watch.cpu
    verdict = run.judge(num_fresh)
    published = PAPER_VALUES.get((dim, depth), {}).get(activation)
    return Cell(
        PART,
        f"cone, dimension {dim}, {depth} layers",
        activation,
        truth=1.0,
        estimate=verdict.estimate,
        lower=verdict.lower,
        confidence=verdict.confidence,
        steps=recipe.num_steps,
        fit_cpu=fit_cpu,
        cpu=watch.cpu,
        wall=watch.wall,
        sizes={"dim": dim, "depth": depth, **vars(recipe), "paper": published},
    )
