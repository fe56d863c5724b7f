"""All cells of `taut bench wasserstein`, one after the other, each kept as soon as it is done."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.bench.cells import Cell, Job, Stopwatch
from taut.bench.cone_cells import cone_jobs
from taut.bench.coverage import coverage_jobs
from taut.bench.funnel_cells import COUNTS, DIMS, funnel_jobs
from taut.bench.ledger import Ledger
from taut.bench.real_cells import real_jobs
from taut.errors import check_choice, check_count, check_positive
from taut.lab.prob_dim import PAPER_VALUES, Recipe
from taut.lab.timing import one_thread

__all__ = ["PARTS", "WassersteinSettings", "run_wasserstein", "wasserstein_jobs"]

PARTS = ("table1", "funnels", "coverage", "real")


@dataclass(frozen=True)
class WassersteinSettings:
    """What to measure.

    Attributes:
        parts: some of `PARTS`, in the order of work.
        dims: of the funnels.
        counts: of the funnels.
        peers: whether critics without a proven constant take part.
        budget_seconds: of processor time for each critic of the funnels that has a budget.
        seed: of everything.
        data_dir: where MNIST and the wine tables are.
        quick: tiny sizes, to try the machinery.
    """

    parts: tuple[str, ...] = PARTS
    dims: tuple[int, ...] = DIMS
    counts: tuple[int, ...] = COUNTS
    peers: bool = True
    budget_seconds: float = 12.0
    seed: int = 0
    data_dir: Path | None = None
    quick: bool = False

    def deciding(self) -> dict[str, Any]:
        """What changes the numbers in a cell, rather than which cells there are."""
        names = ("budget_seconds", "seed", "quick")
        return {name: getattr(self, name) for name in names}


def wasserstein_jobs(settings: WassersteinSettings) -> list[Job]:
    """The cells to be made, in the order of work."""
    for part in settings.parts:
        check_choice("WassersteinSettings", "parts", part, PARTS)
    for name in ("dims", "counts"):
        for value in getattr(settings, name):
            check_count("WassersteinSettings", name, value)
    check_positive("WassersteinSettings", "budget_seconds", settings.budget_seconds)
    seed, quick = settings.seed, settings.quick
    tiny: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    if quick:
        tiny = {
            "table1": {"cells": ((4, 3),), "recipe": Recipe(8, 5, 8), "num_fresh": 200},
            "funnels": {
                "num_pairs": 100,
                "num_fresh": 200,
                "batch_size": 16,
                "width": 16,
                "cone_steps": 8,
            },
            "coverage": {"count": 2, "num_steps": 4},
            "real": {"num_steps": 4, "names": ("wine, cultivar 0 and 1",)},
        }
    makers: dict[str, Callable[[], Any]] = {
        "table1": lambda: cone_jobs(seed=seed, **{"cells": tuple(PAPER_VALUES), **tiny["table1"]}),
        "funnels": lambda: funnel_jobs(
            seed=seed,
            dims=settings.dims,
            counts=settings.counts,
            seconds=settings.budget_seconds,
            peers=settings.peers,
            **tiny["funnels"],
        ),
        "coverage": lambda: coverage_jobs(seed=seed, **tiny["coverage"]),
        "real": lambda: real_jobs(seed=seed, data_dir=settings.data_dir, **tiny["real"]),
    }
    return [job for part in settings.parts for job in makers[part]()]


def run_wasserstein(
    settings: WassersteinSettings = WassersteinSettings(),  # noqa: B008 (frozen)
    path: Path | None = None,
    *,
    before: Callable[[str, float, float], None] = lambda name, done, left: None,
    after: Callable[[str, Cell], None] = lambda name, cell: None,
) -> Ledger:
    """Makes every cell that the file does not hold yet, on one thread.

    Args:
        settings: what to measure.
        path: the JSON file that grows with every cell; None keeps the cells in memory.
        before: told before each cell its name, which part of the work is over, and the seconds
            left, by the pace so far.
        after: told the cell.

    Returns:
        The record, with what it held before.
    """
    ledger = Ledger(path, settings.deciding())
    jobs = wasserstein_jobs(settings)
    left = [job for job in jobs if job.name not in ledger]
    total = sum(job.seconds for job in jobs) or 1.0
    ahead, behind = sum(job.seconds for job in left), 0.0
    watch = Stopwatch()
    with one_thread():
        for job in left:
            pace = watch.wall / behind if behind else 1.0
            before(job.name, 1 - ahead / total, ahead * pace)
            cell = job.run()
            ledger.add(job.name, cell)
            after(job.name, cell)
            ahead, behind = ahead - job.seconds, behind + job.seconds
    return ledger
