"""Convolutions: one training step, and how orthogonal it leaves the map on a circle."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle

import torch
from torch import Tensor, nn

from taut.bench.peers import import_peer
from taut.bench.record import Entry, Race, Record
from taut.errors import check_choice, check_count
from taut.lab.provenance import describe_machine
from taut.lab.timing import CLOCKS, Contestant, one_thread, race
from taut.nn import ConstrainedConv, OrthonormalConv2d, SpectralConv2d

__all__ = ["PLAIN_CONV", "ConvSettings", "circle_errors", "conv_makers", "run_conv"]

PLAIN_CONV = "torch Conv2d"

# Distribution, module and name of the layers of others.
_PEERS = (
    ("deel-torchlip", "deel.torchlip", "SpectralConv2d"),
    ("orthogonium", "orthogonium.layers.conv.AOC", "AdaptiveOrthoConv2d"),
    ("orthogonium", "orthogonium.layers.conv.AOL", "AOLConv2D"),
)

Maker = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class ConvSettings:
    """What to time, and how patiently.

    Attributes:
        shapes: input channels, output channels and side of the square images of each race.
        batch: images of each input.
        kernel_size: of all layers.
        peers: whether other libraries take part.
        rounds: turns of a contestant that is fast enough.
        least_rounds: turns of the slowest.
        warmup: turns that count for nothing.
        budget: seconds a contestant, beyond which it gets fewer turns.
        clock: `"cpu"`, the time this process had the processor, or `"wall"`.
        seed: decides data and starting weights.
    """

    shapes: tuple[tuple[int, int, int], ...] = ((3, 32, 32), (64, 64, 16))
    batch: int = 64
    kernel_size: int = 3
    peers: bool = True
    rounds: int = 30
    least_rounds: int = 5
    warmup: int = 3
    budget: float = 10.0
    clock: str = "cpu"
    seed: int = 0


def conv_makers(kernel_size: int, peers: bool = True) -> dict[str, Maker]:
    """Name -> a function of input and output channels, the baseline first.

    All of them close the image to a circle, on which orthogonality is possible.
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
    on_turn: Callable[[str, str, float], None] = lambda race, name, done: None,
) -> Record:
    """Runs a race for each shape on one thread.

    A turn is one training step: forward, backward, also for the input, and Adam at 1e-3, on batches
    drawn beforehand, towards a rotation of the channels and a shift by one pixel, with a tenth of
    noise: an orthogonal convolution, which all of them can move to.

    Args:
        settings: what to time.
        on_turn: told before each turn which race is on, whose turn it is, and which part of the
            whole is over.
    """
    check_count("run_conv", "batch", settings.batch)
    check_count("run_conv", "kernel_size", settings.kernel_size)
    check_choice("run_conv", "clock", settings.clock, tuple(CLOCKS))
    start, machine, races = time.perf_counter(), describe_machine(), []
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for number, (inside, out, side) in enumerate(settings.shapes):
            data = _data(inside, out, side, settings)
            modules: dict[str, nn.Module] = {}
            contestants = []
            for name, make in conv_makers(settings.kernel_size, settings.peers).items():
                modules[name] = make(inside, out)
                contestants.append(_contestant(name, modules[name], data))
            title = f"{inside} x {side} x {side}"
            timings = race(
                contestants,
                rounds=settings.rounds,
                least_rounds=settings.least_rounds,
                warmup=settings.warmup,
                budget=settings.budget,
                clock=CLOCKS[settings.clock],
                on_turn=lambda name, done, title=title, number=number: on_turn(
                    title, name, (number + done) / len(settings.shapes)
                ),
            )
            entries = []
            for timing in timings:
                kernel = _kernel(modules[timing.name])
                judged = (None, None) if timing.failure else circle_errors(kernel, side)
                entries.append(Entry(timing, *judged))
            sizes = {"in": inside, "out": out, "side": side, "batch": settings.batch}
            races.append(Race("conv", sizes, PLAIN_CONV, tuple(entries)))
    missing = {peer for peer, module, _ in _PEERS if import_peer(module) is None}
    return Record(
        settings=asdict(settings),
        races=tuple(races),
        missing=tuple(f"{peer}: not installed (pip install 'taut[bench]')" for peer in missing)
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


def _contestant(name: str, module: nn.Module, data: list[tuple[Tensor, Tensor]]) -> Contestant:
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    batches = cycle(data)

    def step() -> None:
        x, y = next(batches)
        x = x.detach().requires_grad_()
        optimiser.zero_grad()
        nn.functional.mse_loss(module(x), y).backward()
        optimiser.step()

    return Contestant(name, step)


@torch.no_grad()
def _kernel(module: nn.Module) -> Tensor:
    """The kernel that the next forward in training would use."""
    kernel = module.effective_weight() if isinstance(module, ConstrainedConv) else module.weight
    assert isinstance(kernel, Tensor)
    return kernel.detach()


def circle_errors(kernel: Tensor, side: int) -> tuple[float | None, float | None]:
    r"""The largest $|\sigma - 1|$ and the largest $\sigma - 1$ of the map on a circle.

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
