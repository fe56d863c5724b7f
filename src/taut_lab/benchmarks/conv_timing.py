"""The timing benchmark `taut bench conv`: a training step, and the error of orthogonality."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle

import torch
from torch import Tensor, nn

from taut.errors import check_choice, check_count
from taut.nn import ConstrainedConv, OrthonormalConv2d, SpectralConv2d
from taut_lab.benchmarks.peers import import_peer
from taut_lab.benchmarks.timing_records import Comparison, TimingEntry, TimingRecord
from taut_lab.framework.provenance import describe_machine
from taut_lab.framework.timing import CLOCKS, TimedFunction, one_thread, time_in_turn

__all__ = ["PLAIN_CONV", "ConvSettings", "circle_errors", "conv_makers", "run_conv"]

PLAIN_CONV = "torch Conv2d"

# Distribution, module and name of layers of other libraries.
_PEERS = (
    ("deel-torchlip", "deel.torchlip", "SpectralConv2d"),
    ("orthogonium", "orthogonium.layers.conv.AOC", "AdaptiveOrthoConv2d"),
    ("orthogonium", "orthogonium.layers.conv.AOL", "AOLConv2D"),
)

Maker = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class ConvSettings:
    """Settings of the benchmark.

    Attributes:
        shapes: input channels, output channels and image side of each comparison.
        batch: batch size.
        kernel_size: kernel size of all layers.
        peers: whether to include other libraries.
        rounds: number of runs of each layer.
        min_rounds: smallest number of runs of a slow layer.
        warmup: number of warm-up runs.
        budget: seconds for each layer; a slower one gets fewer runs.
        clock: `"cpu"` for CPU time, or `"wall"`.
        seed: random seed.
    """

    shapes: tuple[tuple[int, int, int], ...] = ((3, 32, 32), (64, 64, 16))
    batch: int = 64
    kernel_size: int = 3
    peers: bool = True
    rounds: int = 30
    min_rounds: int = 5
    warmup: int = 3
    budget: float = 10.0
    clock: str = "cpu"
    seed: int = 0


def conv_makers(kernel_size: int, peers: bool = True) -> dict[str, Maker]:
    """Name -> a function of input and output channels, the baseline first.

    All use circular padding, with which orthogonality is possible.
    """
    half = kernel_size // 2

    def maker(layer: Callable[..., nn.Module]) -> Maker:
        return lambda a, b: layer(a, b, kernel_size, padding=half, padding_mode="circular")

    makers = {
        PLAIN_CONV: maker(nn.Conv2d),
        "taut OrthonormalConv2d": maker(OrthonormalConv2d),
        "taut SpectralConv2d": maker(SpectralConv2d),
    }
    for peer, module, name in _PEERS if peers else ():
        layer = getattr(import_peer(module), name, None)
        if layer is not None:
            makers[f"{peer} {name}"] = maker(layer)
    return makers


def run_conv(
    settings: ConvSettings = ConvSettings(),  # noqa: B008 (frozen)
    on_run: Callable[[str, str, float], None] = lambda comparison, name, done: None,
) -> TimingRecord:
    """Runs a comparison for each shape on one thread.

    A run is one training step: forward, backward (also for the input) and Adam with lr 1e-3, on
    batches drawn beforehand. The target rotates the channels and shifts by one pixel, with 10 %
    noise: an orthogonal convolution, which every layer can approach.

    Args:
        settings: settings of the benchmark.
        on_run: called before each run with the names of the comparison and of the layer, and the
            fraction done.
    """
    check_count("run_conv", "batch", settings.batch)
    check_count("run_conv", "kernel_size", settings.kernel_size)
    check_choice("run_conv", "clock", settings.clock, tuple(CLOCKS))
    start, machine, comparisons = time.perf_counter(), describe_machine(), []
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for number, (inside, out, side) in enumerate(settings.shapes):
            data = _data(inside, out, side, settings)
            modules: dict[str, nn.Module] = {}
            functions = []
            for name, make in conv_makers(settings.kernel_size, settings.peers).items():
                modules[name] = make(inside, out)
                functions.append(_timed_step(name, modules[name], data))
            title = f"{inside} x {side} x {side}"
            timings = time_in_turn(
                functions,
                rounds=settings.rounds,
                min_rounds=settings.min_rounds,
                warmup=settings.warmup,
                budget=settings.budget,
                clock=CLOCKS[settings.clock],
                on_run=lambda name, done, title=title, number=number: on_run(
                    title, name, (number + done) / len(settings.shapes)
                ),
            )
            entries = []
            for timing in timings:
                kernel = _kernel(modules[timing.name])
                errors = (None, None) if timing.failure else circle_errors(kernel, side)
                entries.append(TimingEntry(timing, *errors))
            sizes = {"in": inside, "out": out, "side": side, "batch": settings.batch}
            comparisons.append(Comparison("conv", sizes, PLAIN_CONV, tuple(entries)))
    missing = {peer for peer, module, _ in _PEERS if import_peer(module) is None}
    return TimingRecord(
        settings=asdict(settings),
        comparisons=tuple(comparisons),
        missing=tuple(
            f"{peer}: not installed (pip install 'src/taut_lab[peers]')" for peer in missing
        )
        if settings.peers
        else (),
        seconds=round(time.perf_counter() - start, 1),
        machine=machine,
    )


def _data(inside: int, out: int, side: int, settings: ConvSettings) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(settings.seed)
    square = torch.randn(max(inside, out), min(inside, out), generator=generator)
    rotation = torch.linalg.qr(square).Q
    rotation = rotation if out >= inside else rotation.mT
    data = []
    for _ in range(4):
        x = torch.randn(settings.batch, inside, side, side, generator=generator)
        clean = torch.einsum("oi,bihw->bohw", rotation, x.roll(1, 2))
        data.append((x, clean + 0.1 * torch.randn(clean.shape, generator=generator)))
    return data


def _timed_step(name: str, module: nn.Module, data: list[tuple[Tensor, Tensor]]) -> TimedFunction:
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    batches = cycle(data)

    def step() -> None:
        x, y = next(batches)
        x = x.detach().requires_grad_()
        optimiser.zero_grad()
        nn.functional.mse_loss(module(x), y).backward()
        optimiser.step()

    return TimedFunction(name, step)


@torch.no_grad()
def _kernel(module: nn.Module) -> Tensor:
    """The kernel that the next forward in training would use."""
    kernel = module.effective_weight() if isinstance(module, ConstrainedConv) else module.weight
    assert isinstance(kernel, Tensor)
    return kernel.detach()


def circle_errors(kernel: Tensor, side: int) -> tuple[float | None, float | None]:
    r"""The largest $|\sigma - 1|$ and the largest $\sigma - 1$ of the map with circular padding.

    The singular values of all transfer matrices at the frequencies of an image of `side` by `side`
    points, in float64.

    Args:
        kernel: `(out, in, height, width)`.
        side: at least the size of the kernel.

    Returns:
        `(error, excess)`; None for both if the kernel is not finite.

    Example:
        >>> kernel = torch.zeros(1, 1, 3, 3)
        >>> kernel[0, 0, 1, 2] = 1.5
        >>> circle_errors(kernel, 4)
        (0.5, 0.5)
    """
    if not torch.isfinite(kernel).all():
        return None, None
    transfer = torch.fft.fft2(kernel.double(), s=(side, side)).movedim((2, 3), (0, 1))
    deviation = torch.linalg.svdvals(transfer.flatten(0, 1)) - 1
    return deviation.abs().amax().item(), deviation.amax().item()
