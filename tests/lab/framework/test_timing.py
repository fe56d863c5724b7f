"""Medians, quartiles and the order of runs, with a fake clock."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import ArgumentError
from taut_lab.framework.timing import (
    TimedFunction,
    Timing,
    one_thread,
    scheduled_rounds,
    time_in_turn,
)


class FakeClock:
    """A clock that moves only when a function works."""

    def __init__(self):
        self.now = 100.0
        self.log = []

    def __call__(self):
        return self.now

    def function(self, name, *seconds):
        """Takes the given times in turn, the last one for ever."""
        left = list(seconds)

        def run():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return TimedFunction(name, run)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30))
def test_summary_is_that_of_numpy(seconds):
    timing = Timing.of("a", seconds)
    found = (timing.lower_quartile, timing.median, timing.upper_quartile, timing.mean)
    expected = (*np.quantile(seconds, (0.25, 0.5, 0.75)), np.mean(seconds))
    assert found == pytest.approx(expected, rel=1e-12)
    assert timing.rounds == len(seconds) and timing.failure is None


def test_functions_alternate_and_warm_up_is_not_counted():
    clock = FakeClock()
    a = clock.function("a", 50.0, 50.0, 1.0, 2.0, 9.0)
    b = clock.function("b", 4.0)
    first, second = time_in_turn([a, b], rounds=3, warmup=2, budget=1e6, clock=clock)
    assert clock.log == ["a", "a", "b", "b"] + ["a", "b"] * 3
    assert (first.median, first.mean, first.rounds) == (2.0, 4.0, 3)
    assert second.median == second.lower_quartile == second.upper_quartile == 4.0


def test_slow_functions_get_fewer_runs_but_at_least_the_minimum():
    clock = FakeClock()
    made = [clock.function(name, pace) for name, pace in (("a", 0.25), ("b", 1.0), ("c", 64.0))]
    timings = time_in_turn(made, rounds=20, min_rounds=3, warmup=2, budget=8.0, clock=clock)
    assert [timing.rounds for timing in timings] == [20, 8, 3]
    assert [timing.median for timing in timings] == [0.25, 1.0, 64.0]
    # One warm-up turn spent the budget of the slowest.
    assert clock.log.count("c") == 1 + 3


def test_min_rounds_is_at_most_rounds():
    clock = FakeClock()
    (timing,) = time_in_turn([clock.function("a", 99.0)], rounds=2, min_rounds=5, clock=clock)
    assert timing.rounds == 2


@given(st.integers(1, 60), st.data())
def test_runs_are_evenly_spaced(rounds, data):
    share = data.draw(st.integers(1, rounds))
    turns = sorted(scheduled_rounds(share, rounds))
    assert len(turns) == share
    gaps = np.diff([-1, *turns])
    assert gaps.max() - gaps.min() <= 1


def test_a_function_that_raises_is_not_run_again():
    clock = FakeClock()
    calls = []

    def break_at_third():
        clock.now += 1.0
        calls.append(0)
        if len(calls) == 3:
            raise ValueError("no more")

    made = [TimedFunction("broken", break_at_third), clock.function("sound", 2.0)]
    broken, sound = time_in_turn(made, rounds=4, warmup=1, budget=100.0, clock=clock)
    assert broken.failure == "ValueError: no more"
    assert (broken.rounds, broken.median) == (1, 1.0)
    assert sound.failure is None and sound.rounds == 4


def test_a_function_that_always_raises_has_no_median():
    def refuse():
        raise RuntimeError("refused")

    (timing,) = time_in_turn([TimedFunction("broken", refuse)], rounds=2)
    assert timing.median is None and timing.rounds == 0
    assert timing.failure == "RuntimeError: refused"


def test_an_interrupt_is_not_swallowed():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_in_turn([TimedFunction("a", interrupt)], rounds=2)


def test_progress_names_the_function_and_never_decreases():
    clock = FakeClock()
    told = []
    made = [clock.function("a", 1.0), clock.function("b", 1.0)]
    time_in_turn(made, rounds=2, warmup=1, clock=clock, on_run=lambda *news: told.append(news))
    assert [name for name, _ in told] == clock.log
    parts = [part for _, part in told]
    assert parts == sorted(parts) and 0 <= min(parts) and max(parts) < 1


def test_one_thread_restores_the_number_of_threads():
    outside = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        time_in_turn([TimedFunction("a", lambda: seen.append(torch.get_num_threads()))], rounds=1)
        assert set(seen) == {1} and torch.get_num_threads() == 2
        with pytest.raises(RuntimeError, match="inside"), one_thread():
            raise RuntimeError("inside")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(outside)


def test_wrong_counts_are_explained():
    with pytest.raises(ArgumentError, match="time_in_turn: `rounds` must be a whole number >= 1"):
        time_in_turn([], rounds=0)
