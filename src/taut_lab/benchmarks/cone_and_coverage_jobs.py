"""Cones of the paper's first table, and many small problems for the coverage of the bounds."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from taut.transport import Problem, laplaces, shells, shifted_gaussians, wasserstein
from taut_lab.benchmarks.critic_records import BenchmarkJob, CriticResult, Stopwatch, estimated
from taut_lab.experiments.cone_dimensions import PAPER_VALUES, RECIPES, Recipe, train_cone

_SIZES = (200, 500, 1000, 2000)
_DIMS = (1, 2, 3, 5, 10, 20, 50)
_KINDS = ("basic", "plus", "premium", None)
_MISSING = 0.1


def cone_jobs(
    *,
    seed: int,
    results: tuple[tuple[int, int], ...] = tuple(PAPER_VALUES),
    recipe: Recipe | None = None,
    num_fresh: int = 2**15,
) -> Iterator[BenchmarkJob]:
    """One job for each activation, and for each dimension and number of linear layers of `results`."""
    for activation, recipes in RECIPES.items():
        for dim, depth in results:
            settings = recipe or recipes[depth]
            run = partial(_run_cone, activation, dim, depth, settings, seed, num_fresh)
            yield BenchmarkJob(f"table1/{activation}/{dim}/{depth}", 40.0, run)


def _run_cone(
    activation: str, dim: int, depth: int, recipe: Recipe, seed: int, num_fresh: int
) -> CriticResult:
    watch = Stopwatch()
    run = train_cone(dim, depth, activation, recipe, seed)
    fit_cpu = watch.cpu
    published = PAPER_VALUES.get((dim, depth), {}).get(activation)
    return watch.result(
        "table1",
        f"cone, dimension {dim}, {depth} layers",
        activation,
        truth=1.0,
        **vars(run.evaluate(num_fresh)),
        steps=recipe.num_steps,
        fit_cpu=fit_cpu,
        sizes={"dim": dim, "depth": depth, **vars(recipe), "paper": published},
    )


def coverage_problems(count: int) -> Iterator[tuple[Problem, int]]:
    """Problems with sample sizes, alternating between families; four of ten have distance zero.

    Example:
        >>> [(problem.name, n) for problem, n in coverage_problems(2)]
        [('gaussians 0 apart in 1 dimensions', 200), ('gaussians 0.5 apart in 1 dimensions', 500)]
    """
    families = (
        lambda d: shifted_gaussians(d, 0.0),
        lambda d: shifted_gaussians(d, 0.5),
        lambda d: shells(d, 1.0, 1.0),
        lambda d: shells(d, 1.5, 1.0),
        lambda d: _atoms(d, 0.0),
        lambda d: _atoms(d, 0.3),
        lambda d: _students(d, 0.5),
        lambda d: laplaces(1.5, 1.0),
        lambda d: _mixed(d, 0.0),
        lambda d: _mixed(d, 0.3),
    )
    for i in range(count):
        # So that every sample size and every dimension occurs with every family.
        number = i // len(families)
        size = i + i // len(families) + i // (len(families) * len(_DIMS))
        dim = _DIMS[number % len(_DIMS)]
        yield families[i % len(families)](dim), _SIZES[size % len(_SIZES)]


def _atoms(dim: int, share: float) -> Problem:
    """Atoms at distance 1 from each other; P has `share` more mass at one, which is the distance."""
    places = torch.tensor([[0.0], [1.0]]) if dim == 1 else torch.eye(dim) / math.sqrt(2)
    even = torch.full((len(places),), 1 / len(places))
    more = even - share / (len(places) - 1)
    more[0] = even[0] + share

    def draw(weights: Tensor, n: int, generator: Generator) -> Tensor:
        return places[torch.multinomial(weights, n, replacement=True, generator=generator)]

    return Problem(
        f"atoms {share:g} apart in {dim} dimensions",
        dim,
        share,
        lambda z: (1 - (z - places[0]).norm(dim=-1)).clamp(min=0),
        partial(draw, more),
        partial(draw, even),
    )


def _students(dim: int, shift: float) -> Problem:
    """Student's distribution with three degrees of freedom, moved along the diagonal."""
    gaussian = shifted_gaussians(dim, shift)

    def draw(move: float, n: int, generator: Generator) -> Tensor:
        normal, chi = torch.randn(n, dim + 3, generator=generator).split([dim, 3], 1)
        return normal / (chi.square().mean(1, keepdim=True)).sqrt() + move * dim**-0.5

    name = f"students {shift:g} apart in {dim} dimensions"
    return replace(gaussian, name=name, draw_p=partial(draw, shift), draw_q=partial(draw, 0.0))


def _mixed(dim: int, share: float) -> Problem:
    """One column of categories and `dim - 1` numeric ones with missing values, independent of each other.

    P has `share` more mass at the first category. Moving it changes the category alone, by 1, and no row
    with another category is nearer: `share` is the distance, whatever the scale of the numeric columns.
    Points hold the number of the category, then the numbers, NaN if missing; see `_mixed_frame`.
    """
    even = torch.full((len(_KINDS),), 1 / len(_KINDS))
    more = even - share / (len(_KINDS) - 1)
    more[0] = even[0] + share

    def draw(weights: Tensor, n: int, generator: Generator) -> Tensor:
        kinds = torch.multinomial(weights, n, replacement=True, generator=generator)
        numbers = 100 + 20 * torch.randn(n, dim - 1, generator=generator)
        missing = torch.rand(n, dim - 1, generator=generator) < _MISSING
        return torch.cat([kinds[:, None], numbers.masked_fill(missing, math.nan)], 1)

    return Problem(
        f"mixed columns, {dim} of them, {share:g} apart",
        dim,
        share,
        lambda z: (z[..., 0] == 0).to(z.dtype),
        partial(draw, more),
        partial(draw, even),
    )


def _mixed_frame(points: Tensor) -> Any:
    """The points of `_mixed` as a frame with categories, numbers and missing values of both."""
    from pyarrow import table

    kinds, *numbers = points.T
    columns: dict[str, Any] = {"plan": [_KINDS[int(kind)] for kind in kinds]}
    return table(columns | {f"number {j}": column.numpy() for j, column in enumerate(numbers)})


def coverage_jobs(*, seed: int, count: int = 500, num_steps: int = 100) -> Iterator[BenchmarkJob]:
    """One job for each problem, with its own samples; few steps, since bounds hold for every critic."""
    for i, (problem, n) in enumerate(coverage_problems(count)):
        run = partial(_run_coverage, problem, n, 100_000 * seed + i, num_steps)
        yield BenchmarkJob(f"coverage/{i:03d}", 5.0, run)


def _run_coverage(problem: Problem, n: int, seed: int, num_steps: int) -> CriticResult:
    watch = Stopwatch()
    x, y = problem.sample(n, Generator().manual_seed(seed))
    if problem.name.startswith("mixed"):
        x, y = _mixed_frame(x), _mixed_frame(y)
    result = wasserstein(x, y, num_steps=num_steps, num_permutations=99, seed=seed)
    return watch.result(
        "coverage",
        problem.name,
        result.kind,
        truth=problem.distance,
        **estimated(result),
        steps=num_steps,
        sizes={"dim": problem.dim, "n": n, "p_value": result.p_value},
    )
