"""The paper's first table: what each activation makes of the n-dimensional cone."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from taut.bench.cells import Cell, Job, Stopwatch
from taut.bench.verdict import judge_critic
from taut.nn import mlp
from taut.wasserstein import cone, fit_critic

__all__ = ["PAPER_VALUES", "PART", "Recipe", "cone_jobs"]

PART = "table1"

# (dimension, layers) -> activation -> the published estimate of a distance of 1 (Anil, Lucas and
# Grosse 2019, table 1). GroupSort is not in that table.
PAPER_VALUES: dict[tuple[int, int], dict[str, float]] = {
    (128, 3): {"relu": 0.51, "maxout": 0.66, "maxmin": 0.87, "fullsort": 1.00},
    (128, 7): {"relu": 0.60, "maxout": 0.71, "maxmin": 0.95, "fullsort": 1.00},
    (256, 3): {"relu": 0.50, "maxout": 0.60, "maxmin": 0.83, "fullsort": 1.00},
    (256, 7): {"relu": 0.53, "maxout": 0.66, "maxmin": 0.93, "fullsort": 1.00},
    (512, 3): {"relu": 0.46, "maxout": 0.52, "maxmin": 0.72, "fullsort": 1.00},
    (512, 7): {"relu": 0.49, "maxout": 0.56, "maxmin": 0.88, "fullsort": 1.00},
}


@dataclass(frozen=True)
class Recipe:
    """How the critics of this table are trained.

    Attributes:
        width: of each hidden layer.
        num_steps: of Adam.
        batch_size: points of the sphere in a step.
        lr: the first rate, which falls to zero along a half cosine.
    """

    width: int = 512
    num_steps: int = 500
    batch_size: int = 128
    lr: float = 3e-3


# The order is that of the jobs: first the activations that the time limit of the table is about.
# A sorted layer is symmetric enough to learn the cone from few points.
RECIPES: dict[str, dict[int, Recipe]] = {
    "fullsort": {3: Recipe(batch_size=32), 7: Recipe(batch_size=32, num_steps=300)},
    "maxmin": {3: Recipe(width=1024), 7: Recipe(num_steps=800)},
    "groupsort8": {3: Recipe(), 7: Recipe(num_steps=300)},
    "relu": {3: Recipe(), 7: Recipe(num_steps=300)},
    "maxout": {3: Recipe(), 7: Recipe(num_steps=300)},
}


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
    problem = cone(dim)
    # Q is one point: one copy of it is all of Q, and its mean is exact.
    centre = problem.draw_q(1, Generator())

    def sample(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        return problem.draw_p(n, generator), centre

    generator = Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = mlp([dim, *[recipe.width] * (depth - 1), 1], activation=activation)
    training = Stopwatch()
    fit_critic(
        net,
        sample,
        num_steps=recipe.num_steps,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        generator=generator,
        num_fresh=1,
    )
    fit_cpu = training.cpu
    verdict = judge_critic(net, sample, generator=generator, num_fresh=num_fresh)
    published = PAPER_VALUES.get((dim, depth), {}).get(activation)
    return Cell(
        PART,
        f"cone, dimension {dim}, {depth} layers",
        activation,
        truth=problem.distance,
        estimate=verdict.estimate,
        lower=verdict.lower,
        confidence=verdict.confidence,
        steps=recipe.num_steps,
        fit_cpu=fit_cpu,
        cpu=watch.cpu,
        wall=watch.wall,
        sizes={"dim": dim, "depth": depth, **vars(recipe), "paper": published},
    )
