"""The timing benchmark `taut bench layers`."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from taut.errors import check_choice, check_count
from taut_lab.benchmarks.activations import RELU, timed_activations
from taut_lab.benchmarks.dense_layers import PLAIN, dense_layers_in_training, weight_errors
from taut_lab.benchmarks.peers import explain_missing
from taut_lab.benchmarks.timing_records import Comparison, TimingEntry, TimingRecord
from taut_lab.experiments.bjorck_runtime import PAPER_SECONDS, full_name, timed_bjorck
from taut_lab.framework.provenance import describe_machine
from taut_lab.framework.timing import CLOCKS, TimedFunction, Timing, one_thread, time_in_turn

__all__ = ["LayerSettings", "run_layers"]


@dataclass(frozen=True)
class LayerSettings:
    """Settings of the benchmark.

    Attributes:
        widths: input and output features of the dense layers.
        batches: batch sizes of the dense layers.
        peers: whether to include other libraries and torch's parametrisations.
        activation_size: batch size and number of channels for the activations.
        bjorck_size: rows and columns of the matrix for Björck's iteration.
        bjorck_iterations: numbers of iterations.
        rounds: number of runs of each layer.
        min_rounds: smallest number of runs of a slow layer.
        warmup: number of warm-up runs.
        budget: seconds for each layer; a slower one gets fewer runs.
        clock: `"cpu"` for CPU time, or `"wall"`.
        seed: random seed.
    """

    widths: tuple[int, ...] = (256, 512, 1024)
    batches: tuple[int, ...] = (128, 512)
    peers: bool = True
    activation_size: int = 1024
    bjorck_size: int = 1000
    bjorck_iterations: tuple[int, ...] = tuple(PAPER_SECONDS)
    rounds: int = 40
    min_rounds: int = 5
    warmup: int = 3
    budget: float = 5.0
    clock: str = "cpu"
    seed: int = 0


def run_layers(
    settings: LayerSettings = LayerSettings(),  # noqa: B008 (frozen)
    on_run: Callable[[str, str, float], None] = lambda comparison, name, done: None,
) -> TimingRecord:
    """Runs all comparisons on one thread.

    Args:
        settings: settings of the benchmark.
        on_run: called before each run with the names of the comparison and of the layer, and the
            fraction done.

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
    comparisons: list[Comparison] = []

    def run(
        title: str, functions: list[TimedFunction], rounds: int, least: int, budget: float
    ) -> list[Timing]:
        return time_in_turn(
            functions,
            rounds=rounds,
            min_rounds=least,
            warmup=settings.warmup,
            budget=budget,
            clock=CLOCKS[settings.clock],
            on_run=lambda name, done: on_run(title, name, (len(comparisons) + done) / total),
        )

    rounds, least, budget = settings.rounds, settings.min_rounds, settings.budget
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for width, batch in dense:
            layers = dense_layers_in_training(
                width, batch, peers=settings.peers, seed=settings.seed
            )
            title = f"width {width}, batch {batch}"
            timings = run(title, [layer.function for layer in layers], rounds, least, budget)
            entries = [
                _entry(timing, layer.weight) for timing, layer in zip(timings, layers, strict=True)
            ]
            comparisons.append(
                Comparison("dense", {"width": width, "batch": batch}, PLAIN, tuple(entries))
            )

        size = settings.activation_size
        functions = timed_activations(size, size, peers=settings.peers, seed=settings.seed)
        # A run takes a millisecond, so more of them cost little.
        timings = run("activations", functions, 3 * rounds, least, budget)
        sizes = {"batch": size, "width": size}
        comparisons.append(Comparison("activations", sizes, RELU, tuple(map(TimingEntry, timings))))

        size = settings.bjorck_size
        iterations = settings.bjorck_iterations
        functions = timed_bjorck(size, iterations, seed=settings.seed)
        # Ten runs as in the paper, fewer where one takes ten seconds.
        timings = run("Björck", functions, 10, min(least, 2), 2 * budget)
        baseline = full_name(iterations[0])
        comparisons.append(
            Comparison("bjorck", {"size": size}, baseline, tuple(map(TimingEntry, timings)))
        )

    return TimingRecord(
        settings=asdict(settings),
        comparisons=tuple(comparisons),
        missing=tuple(explain_missing()) if settings.peers else (),
        seconds=round(time.perf_counter() - start, 1),
        machine=machine,
    )


def _entry(timing: Timing, weight: Callable[[], torch.Tensor]) -> TimingEntry:
    if timing.failure is not None:
        return TimingEntry(timing)
    return TimingEntry(timing, *weight_errors(weight()))
