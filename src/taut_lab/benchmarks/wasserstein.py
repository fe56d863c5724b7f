"""The benchmark `taut bench wasserstein`: critics and bounds on problems of known distance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from taut.errors import check_choice, check_positive
from taut_lab.benchmarks.cone_and_coverage_jobs import cone_jobs, coverage_jobs
from taut_lab.benchmarks.critic_records import BenchmarkJob, CriticRecords, CriticResult, Stopwatch
from taut_lab.benchmarks.funnel_jobs import COUNTS, DIMS, funnel_jobs, grid_jobs
from taut_lab.benchmarks.real_data_jobs import real_jobs
from taut_lab.experiments.cone_dimensions import Recipe
from taut_lab.framework.timing import one_thread

PARTS = ("table1", "funnels", "grid", "coverage", "real")
# Tiny sizes, for tests.
_QUICK: dict[str, dict[str, Any]] = {
    "table1": {"results": ((4, 3),), "recipe": Recipe(8, 5, 8), "num_fresh": 200},
    "funnels": {
        **{"num_pairs": 100, "num_fresh": 200},
        **{"batch_size": 16, "width": 16, "cone_steps": 8},
    },
    "grid": {"rows": 60, "num_pairs": 100, "num_steps": 4},
    "coverage": {"count": 2, "num_steps": 4},
    "real": {"num_steps": 4, "names": ("wine, cultivar 0 and 1",)},
}


@dataclass(frozen=True)
class WassersteinSettings:
    """Settings of the benchmark."""

    parts: tuple[str, ...] = PARTS  # some of `PARTS`, in the order in which they are computed
    dims: tuple[int, ...] = (
        DIMS  # dimensions of the funnel problems, in the parts "funnels" and "grid"
    )
    counts: tuple[int, ...] = COUNTS  # numbers of funnels
    peers: bool = True  # whether to include critics without a proven constant
    budget_seconds: float = 12.0  # CPU time for training each critic of the funnel problems
    seed: int = 0  # random seed
    data_dir: Path | None = None  # folder of MNIST and the wine-quality tables
    quick: bool = False  # whether to use tiny sizes, for tests

    def of_results(self) -> dict[str, Any]:
        """The settings that change results, rather than select them."""
        return {name: getattr(self, name) for name in ("budget_seconds", "seed", "quick")}


def wasserstein_jobs(settings: WassersteinSettings) -> list[BenchmarkJob]:
    """The jobs, in the order in which they are run."""
    for part in settings.parts:
        check_choice("WassersteinSettings", "parts", part, PARTS)
    check_positive("WassersteinSettings", "budget_seconds", settings.budget_seconds)
    makers: dict[str, Callable[..., Iterator[BenchmarkJob]]] = {
        "table1": cone_jobs,
        "funnels": partial(
            funnel_jobs,
            dims=settings.dims,
            counts=settings.counts,
            seconds=settings.budget_seconds,
            peers=settings.peers,
        ),
        "grid": partial(grid_jobs, dims=settings.dims, counts=settings.counts),
        "coverage": coverage_jobs,
        "real": partial(real_jobs, data_dir=settings.data_dir),
    }
    return [
        job
        for part in settings.parts
        for job in makers[part](seed=settings.seed, **(_QUICK[part] if settings.quick else {}))
    ]


def run_wasserstein(
    settings: WassersteinSettings = WassersteinSettings(),  # noqa: B008 (frozen)
    path: Path | None = None,
    *,
    before: Callable[[str, float, float], None] = lambda name, done, left: None,
    after: Callable[[str, CriticResult], None] = lambda name, result: None,
) -> CriticRecords:
    """Computes every result that the file does not contain, on one thread; gives all of them.

    Args:
        settings: settings of the benchmark.
        path: JSON file, written after every result; None keeps the results in memory.
        before: called before each job with its name, the fraction done, and the seconds left.
        after: called after each job with its name and result.
    """
    records = CriticRecords(path, settings.of_results())
    jobs = wasserstein_jobs(settings)
    left = [job for job in jobs if job.name not in records.results]
    total = sum(job.seconds for job in jobs) or 1.0
    ahead, behind = sum(job.seconds for job in left), 0.0
    watch = Stopwatch()
    with one_thread():
        for job in left:
            pace = watch.wall / behind if behind else 1.0
            before(job.name, 1 - ahead / total, ahead * pace)
            result = job.run()
            records.add(job.name, result)
            after(job.name, result)
            ahead, behind = ahead - job.seconds, behind + job.seconds
    return records
