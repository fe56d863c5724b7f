"""All races of `taut bench layers`, one after the other."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from taut.bench.activations import RELU, activation_contestants
from taut.bench.dense import PLAIN, dense_trainees, weight_errors
from taut.bench.peers import explain_missing
from taut.bench.record import Entry, Race, Record
from taut.errors import check_choice, check_count
from taut.lab.bjorck_runtime import PAPER_SECONDS, bjorck_contestants, full_name
from taut.lab.provenance import describe_machine
from taut.lab.timing import CLOCKS, Contestant, Timing, one_thread, race

__all__ = ["LayerSettings", "run_layers"]


@dataclass(frozen=True)
class LayerSettings:
    """What to time, and how patiently.

    Attributes:
        widths: of the dense layers, input and output alike.
        batches: rows of each input of the dense layers.
        peers: whether other libraries, and torch's own parametrisations, take part.
        activation_size: rows and channels of the input of the activations.
        bjorck_size: rows and columns of the matrix of the paper's table.
        bjorck_iterations: the columns of that table.
        rounds: turns of a contestant that is fast enough.
        least_rounds: turns of the slowest.
        warmup: turns that count for nothing.
        budget: seconds a contestant, beyond which it gets fewer turns.
        clock: `"cpu"`, the time this process had the processor, or `"wall"`.
        seed: decides data and starting weights.
    """

    widths: tuple[int, ...] = (256, 512, 1024)
    batches: tuple[int, ...] = (128, 512)
    peers: bool = True
    activation_size: int = 1024
    bjorck_size: int = 1000
    bjorck_iterations: tuple[int, ...] = tuple(PAPER_SECONDS)
    rounds: int = 40
    least_rounds: int = 5
    warmup: int = 3
    budget: float = 5.0
    clock: str = "cpu"
    seed: int = 0


def run_layers(
    settings: LayerSettings = LayerSettings(),  # noqa: B008 (frozen)
    on_turn: Callable[[str, str, float], None] = lambda race, name, done: None,
) -> Record:
    """Runs every race on one thread.

    Args:
        settings: what to time.
        on_turn: told before each turn which race is on, whose turn it is, and which part of the
            whole is over.

    Returns:
        The record of the run.
    """
    for width in settings.widths:
        check_count("run_layers", "width", width)
    for batch in settings.batches:
        check_count("run_layers", "batch", batch)
    check_choice("run_layers", "clock", settings.clock, tuple(CLOCKS))
    start, machine = time.perf_counter(), describe_machine()
    dense = [(width, batch) for width in settings.widths for batch in settings.batches]
    total = len(dense) + 2
    races: list[Race] = []

    def run(
        title: str, contestants: list[Contestant], rounds: int, least: int, budget: float
    ) -> list[Timing]:
        return race(
            contestants,
            rounds=rounds,
            least_rounds=least,
            warmup=settings.warmup,
            budget=budget,
            clock=CLOCKS[settings.clock],
            on_turn=lambda name, done: on_turn(title, name, (len(races) + done) / total),
        )

    rounds, least, budget = settings.rounds, settings.least_rounds, settings.budget
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for width, batch in dense:
            trainees = dense_trainees(width, batch, peers=settings.peers, seed=settings.seed)
            title = f"width {width}, batch {batch}"
            timings = run(
                title, [trainee.contestant for trainee in trainees], rounds, least, budget
            )
            entries = [
                _judge(timing, trainee.weight)
                for timing, trainee in zip(timings, trainees, strict=True)
            ]
            races.append(Race("dense", {"width": width, "batch": batch}, PLAIN, tuple(entries)))

        size = settings.activation_size
        contestants = activation_contestants(size, size, peers=settings.peers, seed=settings.seed)
        # A turn takes a millisecond: more of them cost little.
        timings = run("activations", contestants, 3 * rounds, least, budget)
        sizes = {"batch": size, "width": size}
        races.append(Race("activations", sizes, RELU, tuple(map(Entry, timings))))

        size = settings.bjorck_size
        iterations = settings.bjorck_iterations
        contestants = bjorck_contestants(size, iterations, seed=settings.seed)
        # Ten turns, as published, but for what takes ten seconds each.
        timings = run("Björck", contestants, 10, min(least, 2), 2 * budget)
        baseline = full_name(iterations[0])
        races.append(Race("bjorck", {"size": size}, baseline, tuple(map(Entry, timings))))

    return Record(
        settings=asdict(settings),
        races=tuple(races),
        missing=tuple(explain_missing()) if settings.peers else (),
        seconds=round(time.perf_counter() - start, 1),
        machine=machine,
    )


def _judge(timing: Timing, weight: Callable[[], torch.Tensor]) -> Entry:
    if timing.failure is not None:
        return Entry(timing)
    return Entry(timing, *weight_errors(weight()))
