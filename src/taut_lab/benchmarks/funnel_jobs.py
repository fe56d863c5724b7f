"""Funnel problems, whose optimal critic is a minimum of many cones, in any dimension."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product
from typing import Any

import torch
from torch import Generator, nn

from taut.transport import (
    Problem,
    dual_value,
    fit_cones,
    fit_critic,
    funnels,
    pursue_centres,
    wasserstein,
)
from taut_lab.benchmarks.critic_records import BenchmarkJob, CriticResult, Stopwatch, estimated
from taut_lab.benchmarks.groupsort_critic import scaled_network
from taut_lab.benchmarks.unconstrained_critics import (
    UNCONSTRAINED_CRITICS,
    fit_unconstrained_critic,
)
from taut_lab.experiments.critic_training import critic_values, evaluate_critic

DIMS = (2, 4, 8, 16, 32, 64, 128)
COUNTS = (4, 16, 64, 256)

# From this dimension on, data points are too far apart to initialise cones at.
_HIGH = 64
_SCALED_TO = 5 / math.sqrt(12)  # standard deviation of a coordinate of the cube


def funnel_jobs(
    *,
    seed: int,
    dims: tuple[int, ...] = DIMS,
    counts: tuple[int, ...] = COUNTS,
    seconds: float = 12.0,
    peers: bool = True,
    num_pairs: int = 2**17,
    num_fresh: int = 2**15,
    batch_size: int = 512,
    width: int = 256,
    cone_steps: int | None = None,
) -> Iterator[BenchmarkJob]:
    """One job for each critic and each problem; ours come first.

    `seconds` is the CPU time for training a critic; "cones, more steps" has no limit, but a batch size
    and, unless `cone_steps` is given, a number of steps of its own. `num_pairs` optimal pairs determine
    the true distance.
    """
    pace: dict[str, Any] = {"seconds": seconds, "batch_size": batch_size}
    fits: dict[str, tuple[float, Fit]] = {
        "cones, more steps": (100.0, partial(_cones_with_more_steps, num_steps=cone_steps)),
        "cones": (seconds + 5, partial(_timed_cones, **pace)),
        "GroupSort": (seconds + 5, partial(_timed_network, width=width, **pace)),
    }
    for kind in UNCONSTRAINED_CRITICS if peers else ():
        fits[kind] = (seconds + 2, partial(_unconstrained, kind=kind, width=width, **pace))
    for (critic, (expected, fit)), dim, count in product(fits.items(), dims, counts):
        run = partial(_run, critic, dim, count, fit, seed, num_pairs, num_fresh)
        yield BenchmarkJob(f"funnels/{critic}/{dim}/{count}", expected, run)


def grid_jobs(
    *,
    seed: int,
    dims: tuple[int, ...] = DIMS,
    counts: tuple[int, ...] = COUNTS,
    rows: int = 100_000,
    num_pairs: int = 2**17,
    num_steps: int = 1000,
) -> Iterator[BenchmarkJob]:
    """One job for each problem: `taut.wasserstein` on two samples, as a user would call it."""
    for dim, count in product(dims, counts):
        run = partial(_run_estimator, dim, count, seed, rows, num_pairs, num_steps)
        yield BenchmarkJob(f"grid/{dim}/{count}", 25.0, run)


def _run_estimator(
    dim: int, count: int, seed: int, rows: int, num_pairs: int, num_steps: int
) -> CriticResult:
    problem = funnels(dim, count, seed, num_pairs=num_pairs)
    x, y = problem.sample(rows, Generator().manual_seed(seed))
    watch = Stopwatch()
    result = wasserstein(x, y, seed=seed, num_steps=num_steps)
    return watch.result(
        "grid",
        problem.name,
        "taut wasserstein",
        truth=problem.distance,
        truth_error=problem.standard_error,
        **estimated(result),
        steps=num_steps,
        sizes={"dim": dim, "funnels": count, "rows": rows, "kind": result.kind},
    )


Fitted = tuple[nn.Module, int]
Fit = Callable[[Problem, Generator], Fitted]


def _cones_with_more_steps(problem: Problem, generator: Generator, num_steps: int | None) -> Fitted:
    """Initialised at data points; in high dimensions also along directions of large skewness.

    The choice depends on the dimension alone, and validation samples select one of two fits.
    """
    high = problem.dim >= _HIGH
    steps = num_steps or (600 if high else 1200)
    fit = fit_cones(
        problem, generator=generator, num_steps=steps, lr=0.3 if high else 0.1, num_fresh=4096
    )
    if not high:
        return fit.critic, steps
    pursued = fit_cones(
        problem,
        generator=generator,
        num_steps=num_steps or 1000,
        num_fresh=4096,
        tips="p",
        centres=pursue_centres(*problem.sample(4096 * problem.dim, generator), generator=generator),
    )
    x, y = problem.sample(8192, generator)
    with torch.no_grad():
        best = max(fit.critic, pursued.critic, key=lambda critic: dual_value(critic, x, y).item())
    return best, steps + (num_steps or 1000)


def _unconstrained(problem: Problem, generator: Generator, kind: str, **settings: Any) -> Fitted:
    length = _SCALED_TO * math.sqrt(problem.dim)
    return fit_unconstrained_critic(
        kind, problem.sample, problem.dim, generator=generator, length=length, **settings
    )


_problem = lru_cache(maxsize=32)(funnels)


def _run(
    critic_name: str, dim: int, count: int, fit: Fit, seed: int, num_pairs: int, num_fresh: int
) -> CriticResult:
    problem = _problem(dim, count, seed, num_pairs=num_pairs)
    watch = Stopwatch()
    critic, steps = fit(problem, Generator().manual_seed(seed))
    fit_cpu = watch.cpu
    # All critics are evaluated on the same fresh samples.
    fresh = Generator().manual_seed(seed + 1)
    values: dict[str, Any]
    if critic_name in UNCONSTRAINED_CRITICS:
        x, y = (critic_values(critic, side).double() for side in problem.sample(num_fresh, fresh))
        values = {"estimate": (x.mean() - y.mean()).item()}
    else:
        values = vars(evaluate_critic(critic, problem.sample, generator=fresh, num_fresh=num_fresh))
    return watch.result(
        "funnels",
        problem.name,
        critic_name,
        truth=problem.distance,
        truth_error=problem.standard_error,
        **values,
        steps=steps,
        fit_cpu=fit_cpu,
        sizes={"dim": dim, "funnels": count},
    )


def _affordable(pace: Callable[[int], object], seconds: float, trial: int = 10) -> int:
    """The number of steps that fit into the time, by a trial run."""
    pace(2)  # warm-up
    watch = Stopwatch()
    pace(trial)
    return max(1, int(seconds * trial / max(watch.cpu, 1e-6)))


def _timed_cones(problem: Problem, generator: Generator, seconds: float, batch_size: int) -> Fitted:
    def fit(num_steps: int, draws: Generator, tips: str = "best", num_fresh: int = 4096):
        return fit_cones(
            problem,
            generator=draws,
            num_steps=num_steps,
            batch_size=batch_size,
            tips=tips,  # pyright: ignore[reportArgumentType]
            num_fresh=num_fresh,
        )

    trial = Generator().manual_seed(0)
    steps = _affordable(lambda n: fit(n, trial, "p", 4), seconds)
    # Selecting the side takes two trials of an eighth each.
    fitted = fit(max(1, int(steps / 1.25)), generator)
    return fitted.critic, len(fitted.history)


def _timed_network(
    problem: Problem, generator: Generator, seconds: float, batch_size: int, width: int
) -> Fitted:
    def fit(num_steps: int, draws: Generator) -> nn.Module:
        net = scaled_network(problem.dim, width, _SCALED_TO * math.sqrt(problem.dim), draws)
        fit_critic(
            net,
            problem,
            num_steps=num_steps,
            batch_size=batch_size,
            generator=draws,
            num_fresh=1,
        )
        return net

    trial = Generator().manual_seed(0)
    steps = _affordable(lambda n: fit(n, trial), seconds)
    return fit(steps, generator), steps
