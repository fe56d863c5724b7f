"""The timing benchmarks `taut bench layers`, `taut bench conv` and `taut bench distances`."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import torch

from taut.errors import check_choice
from taut_lab.benchmarks.peer_imports import explain_missing
from taut_lab.benchmarks.timed_distance_kernels import DENSE, compile_kernels, timed_distances
from taut_lab.benchmarks.timed_layers import (
    PLAIN,
    PLAIN_CONV,
    RELU,
    Errors,
    TrainedModel,
    conv_layers_in_training,
    image_batches,
    networks_in_training,
    timed_activations,
)
from taut_lab.benchmarks.timing_records import Comparison, TimingEntry, TimingRecord
from taut_lab.experiments.bjorck_runtime import PAPER_SECONDS, full_name, timed_bjorck
from taut_lab.framework.provenance import describe_machine
from taut_lab.framework.timing import CLOCKS, TimedFunction, one_thread, time_in_turn

# Called before each run with the names of the comparison and of the layer, and the fraction done.
OnRun = Callable[[str, str, float], None]


@dataclass(frozen=True)
class TimingSettings:
    """Settings of both benchmarks.

    Attributes:
        peers: whether to include other libraries and torch's parametrisations.
        compiled: whether to time layers of torch and taut under `torch.compile` as well.
        rounds: number of runs of each layer.
        min_rounds: smallest number of runs of a slow layer.
        warmup: number of warm-up runs.
        budget: seconds for each layer; a slower one gets fewer runs.
        clock: `"cpu"` for CPU time, or `"wall"`.
        seed: random seed.
    """

    peers: bool = True
    compiled: bool = False
    rounds: int = 40
    min_rounds: int = 5
    warmup: int = 3
    budget: float = 5.0
    clock: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class LayerSettings(TimingSettings):
    """Further settings of the benchmark of dense layers.

    Attributes:
        data: `"mnist"` or `"digits"`, enlarged.
        data_dir: folder of the dataset; None for the variable `TAUT_DATA`.
        widths: widths of the three hidden layers of a network.
        batches: batch sizes.
        rates: learning rates of Adam.
        activation_size: batch size and number of channels for the activations.
        bjorck_size: rows and columns of the matrix for Björck's iteration.
        bjorck_iterations: numbers of iterations.
    """

    data: str = "digits"
    data_dir: str | None = None
    widths: tuple[int, ...] = (1024,)
    batches: tuple[int, ...] = (128, 512)
    rates: tuple[float, ...] = (1e-3, 3e-3)
    activation_size: int = 1024
    bjorck_size: int = 1000
    bjorck_iterations: tuple[int, ...] = tuple(PAPER_SECONDS)


@dataclass(frozen=True)
class ConvSettings(TimingSettings):
    """Further settings of the benchmark of convolutions.

    Attributes:
        shapes: input channels, output channels and image side of each comparison.
        batch: batch size.
        kernel_size: kernel size of all layers.
    """

    rounds: int = 30
    budget: float = 10.0
    shapes: tuple[tuple[int, int, int], ...] = ((3, 32, 32), (64, 64, 16))
    batch: int = 64
    kernel_size: int = 3


@dataclass(frozen=True)
class DistanceSettings(TimingSettings):
    """Further settings of the benchmark of distances.

    Attributes:
        batch: number of points.
        width: number of stored points, and length of each.
        exponents: finite exponents; infinity is added.
    """

    rounds: int = 20
    peers: bool = False
    batch: int = 256
    width: int = 512
    exponents: tuple[int, ...] = (8, 1024)


@dataclass(frozen=True)
class _Plan:
    """A comparison to be run; `limits` override arguments of `time_in_turn`."""

    title: str
    kind: str
    sizes: Mapping[str, float]
    baseline: str
    functions: Sequence[TimedFunction]
    errors: Callable[[str], Errors] = lambda name: (None, None)
    limits: Mapping[str, Any] = field(default_factory=dict)


def run_layers(
    settings: LayerSettings = LayerSettings(),  # noqa: B008 (frozen)
    on_run: OnRun = lambda comparison, name, done: None,
) -> TimingRecord:
    """Compares training steps of dense networks, activations and Björck's iteration on one thread."""
    total = len(settings.widths) * len(settings.batches) * len(settings.rates) + 2
    return _run(settings, _layer_plans(settings), total, on_run)


def run_conv(
    settings: ConvSettings = ConvSettings(),  # noqa: B008 (frozen)
    on_run: OnRun = lambda comparison, name, done: None,
) -> TimingRecord:
    """Compares convolutions on one thread, for each shape."""
    return _run(settings, _conv_plans(settings), len(settings.shapes), on_run)


def run_distances(
    settings: DistanceSettings = DistanceSettings(),  # noqa: B008 (frozen)
    on_run: OnRun = lambda comparison, name, done: None,
) -> TimingRecord:
    """Compares distances with a dense layer of the same size on one thread."""
    return _run(settings, _distance_plans(settings), 1, on_run)


def _run(
    settings: TimingSettings, plans: Iterator[_Plan], total: int, on_run: OnRun
) -> TimingRecord:
    check_choice(type(settings).__name__, "clock", settings.clock, tuple(CLOCKS))
    start, machine = time.perf_counter(), describe_machine()
    comparisons: list[Comparison] = []
    limits = {
        name: getattr(settings, name) for name in ("rounds", "min_rounds", "warmup", "budget")
    }
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for plan in plans:

            def before(name: str, done: float, title: str = plan.title) -> None:
                on_run(title, name, (len(comparisons) + done) / total)

            timings = time_in_turn(
                plan.functions,
                **{**limits, **plan.limits},
                clock=CLOCKS[settings.clock],
                on_run=before,
            )
            entries = tuple(
                TimingEntry(timing, *(() if timing.failure else plan.errors(timing.name)))
                for timing in timings
            )
            comparisons.append(Comparison(plan.kind, plan.sizes, plan.baseline, entries))
    return TimingRecord(
        settings=asdict(settings),
        comparisons=tuple(comparisons),
        missing=tuple(explain_missing()) if settings.peers else (),
        seconds=round(time.perf_counter() - start, 1),
        machine=machine,
    )


def _trained(models: Sequence[TrainedModel], **about: Any) -> _Plan:
    errors = {model.function.name: model.errors for model in models}
    functions = [model.function for model in models]
    return _Plan(functions=functions, errors=lambda name: errors[name](), **about)


def _conv_plans(settings: ConvSettings) -> Iterator[_Plan]:
    for inside, out, side in settings.shapes:
        options = {
            name: getattr(settings, name) for name in ("kernel_size", "peers", "compiled", "seed")
        }
        layers = conv_layers_in_training((inside, out), side, settings.batch, **options)
        sizes = {"in": inside, "out": out, "side": side, "batch": settings.batch}
        title = f"{inside} x {side} x {side}"
        yield _trained(layers, title=title, kind="conv", sizes=sizes, baseline=PLAIN_CONV)


def _distance_plans(settings: DistanceSettings) -> Iterator[_Plan]:
    sizes = {"batch": settings.batch, "width": settings.width}
    exponents = (*settings.exponents, math.inf)
    seconds = compile_kernels(settings.batch, settings.width, settings.seed)
    functions = timed_distances(settings.batch, settings.width, exponents, seed=settings.seed)
    sizes["seconds"] = round(seconds)
    yield _Plan("distances", "distances", sizes, DENSE, functions)


def _layer_plans(settings: LayerSettings) -> Iterator[_Plan]:
    for width, batch, rate in product(settings.widths, settings.batches, settings.rates):
        data = image_batches(settings.data, batch, settings.data_dir, seed=settings.seed)
        networks = networks_in_training(
            width, rate, data, peers=settings.peers, compiled=settings.compiled
        )
        sizes = {"width": width, "batch": batch, "rate": rate}
        title = ", ".join(f"{name} {size:g}" for name, size in sizes.items())
        yield _trained(networks, title=title, kind="networks", sizes=sizes, baseline=PLAIN)
    size = settings.activation_size
    functions = timed_activations(size, size, peers=settings.peers, seed=settings.seed)
    # A run takes a millisecond, so more of them cost little.
    limits: dict[str, Any] = {"rounds": 3 * settings.rounds}
    sizes = {"batch": size, "width": size}
    yield _Plan("activations", "activations", sizes, RELU, functions, limits=limits)
    size, iterations = settings.bjorck_size, settings.bjorck_iterations
    functions = timed_bjorck(size, iterations, seed=settings.seed)
    # Ten runs as in the paper, fewer where one takes ten seconds.
    limits = {"rounds": 10, "min_rounds": min(settings.min_rounds, 2)}
    limits["budget"] = 2 * settings.budget
    baseline = full_name(iterations[0])
    yield _Plan("Björck", "bjorck", {"size": size}, baseline, functions, limits=limits)
