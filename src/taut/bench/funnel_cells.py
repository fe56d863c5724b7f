"""The funnels grid: critics on a problem whose best critic has many creases, in any dimension."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
from torch import Generator, nn

from taut.bench.cells import Cell, Job, Stopwatch
from taut.bench.networks import scaled_network
from taut.bench.pursuit import fit_pursued_cones
from taut.bench.rivals import RIVALS, fit_rival
from taut.lab.verdict import judge_critic, score
from taut.wasserstein import Problem, dual_value, fit_cones, fit_critic, funnels

__all__ = ["COUNTS", "DIMS", "PART", "funnel_jobs"]

PART = "funnels"
DIMS = (2, 4, 8, 16, 32, 64, 128)
COUNTS = (4, 16, 64, 256)

# From this dimension on, data points are too far from each other to start cones at.
_HIGH = 64
_SCALED_TO = 5 / math.sqrt(12)  # the deviation of a coordinate of the cube


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
) -> Iterator[Job]:
    """One job for each critic and each cell of the grid; ours first.

    Args:
        seed: of the funnels, and of every draw.
        dims: of the space.
        counts: of funnels.
        seconds: of processor time for every network and every rival; "cones" has the same, and
            "cones, patient" as many steps as it needs.
        peers: whether critics without a proven constant take part.
        num_pairs: optimal pairs behind the truth.
        num_fresh: samples of each side behind the estimate and the bound.
        batch_size: samples of each side and step; the patient cones have their own.
        width: of the networks and of the rivals.
        cone_steps: of the patient cones, instead of their own number.
    """

    def job(critic: str, dim: int, count: int, expected: float, fit: "Fit", proven: bool) -> Job:
        return Job(
            f"{PART}/{critic}/{dim}/{count}",
            expected,
            lambda: _run(critic, dim, count, fit, proven, seed, num_pairs, num_fresh),
        )

    grid = [(dim, count) for dim in dims for count in counts]
    for dim, count in grid:

        def patient(problem: Problem, generator: Generator) -> "Fitted":
            return _patient_cones(problem, generator, cone_steps)

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


Fitted = tuple[nn.Module, int]
Fit = Callable[[Problem, Generator], Fitted]


def _patient_cones(problem: Problem, generator: Generator, num_steps: int | None) -> Fitted:
    """From data points in few dimensions; in many, also along the directions in which P leans.

    The dimension decides, never the number of funnels; validation samples choose between two fits.
    """
    high = problem.dim >= _HIGH
    steps = num_steps or (600 if high else 1200)
    fit = fit_cones(
        problem, generator=generator, num_steps=steps, lr=0.3 if high else 0.1, num_fresh=4096
    )
    if not high:
        return fit.critic, steps
    pursued = fit_pursued_cones(
        problem.sample,
        generator=generator,
        num_samples=4096 * problem.dim,
        num_steps=num_steps or 1000,
    )
    x, y = problem.sample(8192, generator)
    with torch.no_grad():
        best = max(fit.critic, pursued, key=lambda critic: dual_value(critic, x, y).item())
    return best, steps + (num_steps or 1000)


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
