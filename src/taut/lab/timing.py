"""Fair clocks: contestants take turns in one process, on one thread, and medians are compared.

A shared machine slows down for seconds at a time. Contestants that run one after the other meet
different machines; contestants that take turns meet the same one, and the ratio of their medians
stays put while the medians themselves move.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from taut.errors import check_count, check_positive

__all__ = ["CLOCKS", "Contestant", "Timing", "one_thread", "race", "turns_of"]

# Time on the processor leaves out the moments in which another process had it.
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class Contestant:
    """Something to be timed: `run` is one turn."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """What the turns of one contestant took, in seconds, or why it had to leave.

    Example:
        >>> timing = Timing.of("sleep", [3.0, 1.0, 2.0])
        >>> timing.median, timing.mean, timing.rounds
        (2.0, 2.0, 3)
    """

    name: str
    rounds: int
    median: float | None = None
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    mean: float | None = None
    failure: str | None = None

    @classmethod
    def of(cls, name: str, seconds: Sequence[float], failure: str | None = None) -> "Timing":
        """Sums up a list of turns; quartiles are interpolated between neighbours."""
        if not seconds:
            return cls(name, 0, failure=failure or "never ran")
        spread = list(seconds) * 2 if len(seconds) == 1 else seconds
        lower, median, upper = statistics.quantiles(spread, n=4, method="inclusive")
        return cls(
            name, len(seconds), median, lower, upper, statistics.fmean(seconds), failure=failure
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch works on one thread inside, and on as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def turns_of(share: int, rounds: int) -> set[int]:
    """In which of `rounds` rounds a contestant with `share` turns runs: evenly spread.

    Example:
        >>> sorted(turns_of(2, 6))
        [2, 5]
    """
    return {i for i in range(rounds) if (i + 1) * share // rounds > i * share // rounds}


def race(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    least_rounds: int = 5,
    warmup: int = 3,
    budget: float = 6.0,
    clock: Callable[[], float] = time.process_time,
    on_turn: Callable[[str, float], None] = lambda name, done: None,
) -> list[Timing]:
    """Times contestants round-robin on one thread.

    First come the warm-up turns, which count for nothing but an idea of the pace. A contestant
    whose turns would not fit into its budget gets fewer of them, evenly spread over the rounds,
    and never fewer than `least_rounds`. One that raises leaves the race, with the reason on record.

    Args:
        contestants: in the order of their turns.
        rounds: turns of a contestant that is fast enough.
        least_rounds: turns of the slowest.
        warmup: warm-up turns, fewer once they have spent the budget.
        budget: seconds a contestant.
        clock: seconds that never go back.
        on_turn: told before each turn who runs, and which part of the race is over.

    Returns:
        One timing for each contestant, in the same order.

    Example:
        >>> [timing] = race([Contestant("nothing", lambda: None)], rounds=7)
        >>> timing.rounds
        7
    """
    check_count("race", "rounds", rounds)
    check_count("race", "least_rounds", least_rounds)
    check_count("race", "warmup", warmup)
    check_positive("race", "budget", budget)
    seconds: list[list[float]] = [[] for _ in contestants]
    failures: list[str | None] = [None for _ in contestants]

    def turn(index: int, done: float) -> float | None:
        contestant = contestants[index]
        on_turn(contestant.name, done)
        try:
            start = clock()
            contestant.run()
            return clock() - start
        except Exception as error:  # a peer's defect must not end everyone's race
            failures[index] = f"{type(error).__name__}: {error}"
            return None

    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plans: list[set[int]] = []
        for index in range(len(contestants)):
            spent: list[float] = []
            while len(spent) < warmup and sum(spent) < budget:
                taken = turn(index, 0.0)
                if taken is None:
                    break
                spent.append(taken)
            pace = min(spent, default=0.0)
            affordable = rounds if pace * rounds <= budget else int(budget / pace)
            plans.append(turns_of(min(rounds, max(least_rounds, affordable)), rounds))
        for number in range(rounds):
            for index, plan in enumerate(plans):
                if number in plan and failures[index] is None:
                    taken = turn(index, number / rounds)
                    if taken is not None:
                        seconds[index].append(taken)
    return [
        Timing.of(contestant.name, taken, failure)
        for contestant, taken, failure in zip(contestants, seconds, failures, strict=True)
    ]
