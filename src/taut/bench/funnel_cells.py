"""The funnels grid: critics on a problem whose best critic has many creases, in any dimension."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
from torch import Generator, nn

from taut.bench.cells import Cell, Job, Stopwatch
from taut.bench.rivals import RIVALS, fit_rival
from taut.bench.verdict import judge_critic, score
from taut.nn import Scale, mlp
from taut.wasserstein import Problem, fit_cones, fit_critic, funnels

__all__ = ["COUNTS", "DIMS", "PART", "cone_options", "funnel_jobs"]

PART = "funnels"
DIMS = (2, 4, 8, 16, 32, 64, 128)
COUNTS = (4, 16, 64, 256)

_SCALED_TO = 5 / math.sqrt(12)  # the deviation of a coordinate of the cube


def funnel_jobs(
    *,
    seed: int,
    dims: tuple[int, ...] = DIMS,
    counts: tuple[int, ...] = COUNTS,
    seconds: float = 20.0,
    peers: bool = True,
    num_pairs: int = 2**17,
    num_fresh: int = 2**15,
    batch_size: int = 512,
    width: int = 256,
    cone_steps: int | None = None,
) -> Iterator[Job]:
    """One job for each critic and each cell of the grid; ours first.

    Args:
        seed: of the funnels, and of every draw.
        dims: of the space.
        counts: of funnels.
        seconds: of processor time for every network and every rival; "cones" has the same, and
            "cones, patient" as many steps as `cone_options` asks for.
        peers: whether critics without a proven constant take part.
        num_pairs: optimal pairs behind the truth.
        num_fresh: samples of each side behind the estimate and the bound.
        batch_size: samples of each side and step; the patient cones have their own.
        width: of the networks and of the rivals.
        cone_steps: of the patient cones, instead of what `cone_options` says.
    """

    def job(critic: str, dim: int, count: int, expected: float, fit: "Fit", proven: bool) -> Job:
        return Job(
            f"{PART}/{critic}/{dim}/{count}",
            expected,
            lambda: _run(critic, dim, count, fit, proven, seed, num_pairs, num_fresh),
        )

    grid = [(dim, count) for dim in dims for count in counts]
    for dim, count in grid:
        options = cone_options(dim)
        if cone_steps is not None:
            options["num_steps"] = cone_steps

        def patient(problem: Problem, generator: Generator, options=options) -> "Fitted":
            fit = fit_cones(problem, generator=generator, num_fresh=4096, **options)
            return fit.critic, len(fit.history)

        yield job("cones, patient", dim, count, 100.0, patient, True)
    for dim, count in grid:

        def cones(problem: Problem, generator: Generator) -> "Fitted":
            return _timed_cones(problem, generator, seconds, batch_size)

        yield job("cones", dim, count, seconds + 5, cones, True)
    for dim, count in grid:

        def network(problem: Problem, generator: Generator) -> "Fitted":
            return _timed_network(problem, generator, seconds, batch_size, width)

        yield job("GroupSort", dim, count, seconds + 5, network, True)
    for kind in RIVALS if peers else ():
        for dim, count in grid:

            def rival(problem: Problem, generator: Generator, kind=kind) -> "Fitted":
                return fit_rival(
                    kind,
                    problem.sample,
                    problem.dim,
                    seconds=seconds,
                    generator=generator,
                    width=width,
                    batch_size=batch_size,
                    length=_SCALED_TO * math.sqrt(problem.dim),
                )

            yield job(kind, dim, count, seconds + 2, rival, False)


def cone_options(dim: int) -> dict[str, int | float | str]:
    """How patient cones are fitted in a dimension, whatever the number of funnels."""
    return {"num_steps": 1000, "batch_size": 512, "lr": 0.1 if dim < 128 else 0.3}


Fitted = tuple[nn.Module, int]
Fit = Callable[[Problem, Generator], Fitted]


@lru_cache(maxsize=32)
def _problem(dim: int, count: int, seed: int, num_pairs: int) -> Problem:
    return funnels(dim, count, seed, num_pairs=num_pairs)


def _run(
    critic_name: str,
    dim: int,
    count: int,
    fit: Fit,
    proven: bool,
    seed: int,
    num_pairs: int,
    num_fresh: int,
) -> Cell:
    problem = _problem(dim, count, seed, num_pairs)
    watch = Stopwatch()
    generator = Generator().manual_seed(seed)
    critic, steps = fit(problem, generator)
    fit_cpu = watch.cpu
    estimate, lower, confidence = 0.0, None, None
    # All critics of a cell meet the same fresh samples.
    fresh = Generator().manual_seed(seed + 1)
    if proven:
        verdict = judge_critic(critic, problem.sample, generator=fresh, num_fresh=num_fresh)
        estimate, lower, confidence = verdict.estimate, verdict.lower, verdict.confidence
    else:
        x, y = (score(critic, side).double() for side in problem.sample(num_fresh, fresh))
        estimate = (x.mean() - y.mean()).item()
    return Cell(
        PART,
        problem.name,
        critic_name,
        truth=problem.distance,
        truth_error=problem.standard_error,
        estimate=estimate,
        lower=lower,
        confidence=confidence,
        steps=steps,
        fit_cpu=fit_cpu,
        cpu=watch.cpu,
        wall=watch.wall,
        sizes={"dim": dim, "funnels": count},
    )


def _affordable(pace: Callable[[int], object], seconds: float, trial: int = 10) -> int:
    """How many steps fit into the seconds, by a trial that throws its work away."""
    pace(2)  # the first steps pay for what later ones find ready
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
    # Choosing the side takes two trials of an eighth.
    found = fit(max(1, int(steps / 1.25)), generator)
    return found.critic, len(found.history)


def _timed_network(
    problem: Problem, generator: Generator, seconds: float, batch_size: int, width: int
) -> Fitted:
    def fit(num_steps: int, draws: Generator) -> nn.Module:
        net = _network(problem.dim, width, draws)
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


def _network(dim: int, width: int, generator: Generator) -> nn.Sequential:
    length = _SCALED_TO * math.sqrt(dim)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        net = mlp([dim, width, width, 1], activation="groupsort8")
    return nn.Sequential(Scale(1 / length), net, Scale(length))
