"""Timing functions in turn: round-robin in one process, on one thread, compared by medians.

A shared machine slows down for seconds at a time. Functions that run one after the other see
different conditions; functions that alternate see the same ones, so the ratio of their medians is
stable while the medians themselves vary.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from taut.errors import check_count, check_positive

# Time on the processor leaves out the updates in which another process had it.
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class TimedFunction:
    """A function to be timed; `run` is one run of it."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Statistics of the runs of one function, in seconds, or the reason why it failed.

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
        """Statistics of a list of times; quartiles are interpolated."""
        if not seconds:
            return cls(name, 0, failure=failure or "never ran")
        spread = list(seconds) * 2 if len(seconds) == 1 else seconds
        lower, median, upper = statistics.quantiles(spread, n=4, method="inclusive")
        return cls(
            name, len(seconds), median, lower, upper, statistics.fmean(seconds), failure=failure
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch to one thread for the duration of a `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def scheduled_rounds(num_runs: int, rounds: int) -> set[int]:
    """The rounds, of `rounds` in all, in which a function with `num_runs` runs is run: evenly spaced.

    Example:
        >>> sorted(scheduled_rounds(2, 6))
        [2, 5]
    """
    return {i for i in range(rounds) if (i + 1) * num_runs // rounds > i * num_runs // rounds}


def time_in_turn(
    functions: Sequence[TimedFunction],
    *,
    rounds: int,
    min_rounds: int = 5,
    warmup: int = 3,
    budget: float = 6.0,
    clock: Callable[[], float] = time.process_time,
    on_run: Callable[[str, float], None] = lambda name, done: None,
) -> list[Timing]:
    """Times functions in turn on one thread.

    Warm-up runs come first; they are not counted, and estimate the time of a run. A function too
    slow for its budget gets fewer runs, evenly spaced over the rounds, but at least `min_rounds`.
    One that raises is not run again, and its timing holds the reason.

    Args:
        functions: the functions, in the order in which they take turns.
        rounds: number of runs of each function.
        min_rounds: smallest number of runs of a slow function.
        warmup: number of warm-up runs; fewer once they have used up the budget.
        budget: seconds for each function.
        clock: monotonic clock in seconds.
        on_run: called before each run with the name of the function and the fraction done.

    Returns:
        One timing for each function, in the given order.

    Example:
        >>> [timing] = time_in_turn([TimedFunction("nothing", lambda: None)], rounds=7)
        >>> timing.rounds
        7
    """
    check_count("time_in_turn", "rounds", rounds)
    check_count("time_in_turn", "min_rounds", min_rounds)
    check_count("time_in_turn", "warmup", warmup)
    check_positive("time_in_turn", "budget", budget)
    seconds: list[list[float]] = [[] for _ in functions]
    failures: list[str | None] = [None for _ in functions]

    def run_once(index: int, done: float) -> float | None:
        function = functions[index]
        on_run(function.name, done)
        try:
            start = clock()
            function.run()
            return clock() - start
        except Exception as error:  # an error in one library must not end the comparison
            failures[index] = f"{type(error).__name__}: {error}"
            return None

    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plans: list[set[int]] = []
        for index in range(len(functions)):
            spent: list[float] = []
            while len(spent) < warmup and sum(spent) < budget:
                taken = run_once(index, 0.0)
                if taken is None:
                    break
                spent.append(taken)
            pace = min(spent, default=0.0)
            affordable = rounds if pace * rounds <= budget else int(budget / pace)
            plans.append(scheduled_rounds(min(rounds, max(min_rounds, affordable)), rounds))
        for number in range(rounds):
            for index, plan in enumerate(plans):
                if number in plan and failures[index] is None:
                    taken = run_once(index, number / rounds)
                    if taken is not None:
                        seconds[index].append(taken)
    return [
        Timing.of(function.name, taken, failure)
        for function, taken, failure in zip(functions, seconds, failures, strict=True)
    ]
