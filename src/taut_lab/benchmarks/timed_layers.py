"""Layers and activations to be timed: a training step, and the error of orthogonality."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrizations

from taut.nn import (
    AOLConv2d,
    ConstrainedConv,
    ConstrainedLinear,
    FullSort,
    GroupSort,
    MaxMin,
    Maxout,
    OrthonormalConv2d,
    OrthonormalLinear,
    SpectralConv2d,
    SpectralLinear,
)
from taut_lab.benchmarks.peers import CONVOLUTIONS, PEERS, import_peer
from taut_lab.framework.timing import TimedFunction

__all__ = [
    "PLAIN",
    "PLAIN_CONV",
    "RELU",
    "TrainedLayer",
    "activation_makers",
    "circle_errors",
    "conv_layers_in_training",
    "dense_layers_in_training",
    "dense_makers",
    "timed_activations",
    "weight_errors",
]

PLAIN = "torch Linear"
PLAIN_CONV = "torch Conv2d"
RELU = "torch ReLU"


def dense_makers(peers: bool = True) -> dict[str, Callable[[int], nn.Module]]:
    """Name -> a function that makes a square layer of a given width, the baseline first.

    Args:
        peers: whether to include other libraries, if they are installed.
    """
    makers: dict[str, Callable[[int], nn.Module]] = {
        PLAIN: lambda n: nn.Linear(n, n),
        "taut OrthonormalLinear": lambda n: OrthonormalLinear(n, n, method="retract"),
        "taut OrthonormalLinear, bjorck": lambda n: OrthonormalLinear(n, n, method="bjorck"),
        "taut SpectralLinear": lambda n: SpectralLinear(n, n),
    }
    for way in ("cayley", "matrix_exp", "householder") if peers else ():
        makers[f"torch orthogonal, {way}"] = lambda n, way=way: parametrizations.orthogonal(
            nn.Linear(n, n), orthogonal_map=way
        )
    named = (("deel-torchlip", "SpectralLinear"), ("orthogonium", "OrthoLinear"))
    for peer, name in named if peers else ():
        if (layer := getattr(import_peer(PEERS[peer][0]), name, None)) is not None:
            makers[f"{peer} {name}"] = lambda n, layer=layer: layer(n, n)
    return makers


def _conv_types(peers: bool) -> dict[str, Callable[..., nn.Module]]:
    types: dict[str, Callable[..., nn.Module]] = {
        PLAIN_CONV: nn.Conv2d,
        "taut OrthonormalConv2d": OrthonormalConv2d,
        "taut SpectralConv2d": SpectralConv2d,
        "taut AOLConv2d": AOLConv2d,
    }
    for peer, module, name in CONVOLUTIONS if peers else ():
        if (layer := getattr(import_peer(module), name, None)) is not None:
            types[f"{peer} {name}"] = layer
    return types


@dataclass(frozen=True)
class TrainedLayer:
    """A layer in training; each run of the function is one step."""

    function: TimedFunction
    module: nn.Module

    @torch.no_grad()
    def weight(self) -> Tensor:
        """The weight that the next forward in training would use."""
        module = self.module
        if isinstance(module, (ConstrainedLinear, ConstrainedConv)):
            return module.effective_weight().detach()
        weight = module.weight
        assert isinstance(weight, Tensor)
        return weight.detach()


def dense_layers_in_training(
    width: int, batch: int, *, peers: bool = True, num_batches: int = 8, seed: int = 0
) -> list[TrainedLayer]:
    r"""Layers that learn a rotation: forward, backward and a step of Adam with lr 1e-3.

    The target is $y = x R^\top$ plus 10 % noise, with $R$ orthonormal: every layer can learn it, so
    the weights change in every step, as they do in training.

    Args:
        width: input and output features.
        batch: batch size.
        peers: whether to include other libraries.
        num_batches: number of batches, drawn beforehand and used in turn.
        seed: random seed of the data, which all layers share.
    """
    generator = Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    shape = (batch, width)
    data = _data(lambda x: x @ rotation.mT, shape, num_batches, generator)
    return _in_training({n: make(width) for n, make in dense_makers(peers).items()}, data)


def conv_layers_in_training(
    channels: tuple[int, int], side: int, batch: int, *, kernel_size: int, peers: bool, seed: int
) -> list[TrainedLayer]:
    """Convolutions that learn to rotate the channels and to shift by one pixel, likewise.

    That is an orthogonal convolution, which every layer can approach: all use circular padding,
    with which orthogonality is possible.
    """
    generator = Generator().manual_seed(seed)
    inside, out = channels
    square = torch.randn(max(channels), min(channels), generator=generator)
    rotation = torch.linalg.qr(square).Q
    rotation = rotation if out >= inside else rotation.mT
    data = _data(
        lambda x: torch.einsum("oi,bihw->bohw", rotation, x.roll(1, 2)),
        (batch, inside, side, side),
        4,
        generator,
    )
    look = {"padding": kernel_size // 2, "padding_mode": "circular"}
    types = _conv_types(peers)
    return _in_training({n: t(inside, out, kernel_size, **look) for n, t in types.items()}, data)


Batches = list[tuple[Tensor, Tensor]]


def _data(
    target: Callable[[Tensor], Tensor], shape: tuple[int, ...], count: int, generator: Generator
) -> Batches:
    data = []
    for _ in range(count):
        x = torch.randn(shape, generator=generator)
        clean = target(x)
        data.append((x, clean + 0.1 * torch.randn(clean.shape, generator=generator)))
    return data


def _in_training(modules: Mapping[str, nn.Module], data: Batches) -> list[TrainedLayer]:
    def step_of(module: nn.Module) -> Callable[[], None]:
        optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
        batches = cycle(data)

        def step() -> None:
            x, y = next(batches)
            # The input needs a gradient too, as inside a network.
            x = x.detach().requires_grad_()
            optimiser.zero_grad()
            nn.functional.mse_loss(module(x), y).backward()
            optimiser.step()

        return step

    return [TrainedLayer(TimedFunction(n, step_of(m)), m) for n, m in modules.items()]


Errors = tuple[float | None, float | None]


def weight_errors(weight: Tensor) -> Errors:
    r"""The largest $|\sigma - 1|$ and the largest $\sigma - 1$, by a float64 decomposition.

    Returns:
        `(error, excess)`; None for both if the weight is not finite.

    Example:
        >>> weight_errors(torch.diag(torch.tensor([1.5, 0.25])))
        (0.75, 0.5)
    """
    if not torch.isfinite(weight).all():
        return None, None
    precise = weight.to(torch.complex128 if weight.is_complex() else torch.float64)
    deviation = torch.linalg.svdvals(precise) - 1
    return deviation.abs().amax().item(), deviation.amax().item()


def circle_errors(kernel: Tensor, side: int) -> Errors:
    r"""`weight_errors` of the map with circular padding.

    The singular values of all transfer matrices at the frequencies of an image of `side` by `side`
    points, in float64.

    Args:
        kernel: `(out, in, height, width)`.
        side: at least the size of the kernel.

    Example:
        >>> kernel = torch.zeros(1, 1, 3, 3)
        >>> kernel[0, 0, 1, 2] = 1.5
        >>> circle_errors(kernel, 4)
        (0.5, 0.5)
    """
    transfer = torch.fft.fft2(kernel.double(), s=(side, side)).movedim((2, 3), (0, 1))
    return weight_errors(transfer.flatten(0, 1))


Activation = Callable[[Tensor], Tensor]


def activation_makers(peers: bool = True) -> dict[str, Activation]:
    """Name -> an activation on the last of two dimensions, the baseline first."""
    found: dict[str, Activation] = {
        RELU: nn.ReLU(),
        "taut MaxMin": MaxMin(),
        "taut GroupSort(4)": GroupSort(4),
        "taut FullSort": FullSort(),
        "taut Maxout(2)": Maxout(2),
        "torch maximum and minimum": _naive_max_min,
    }
    deel = import_peer(PEERS["deel-torchlip"][1]) if peers else None
    if deel is not None:
        found |= {
            # Not MaxMin as defined here: it returns the positive and negative part of each channel.
            "deel-torchlip MaxMin, doubling": deel.MaxMin(),
            "deel-torchlip GroupSort2": deel.GroupSort2(),
            "deel-torchlip FullSort": deel.FullSort(),
        }
    orthogonium = import_peer(PEERS["orthogonium"][1]) if peers else None
    if orthogonium is not None:
        found["orthogonium MaxMin"] = orthogonium.MaxMin(axis=1)
    return found


def _naive_max_min(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], -1)


def timed_activations(
    batch: int, width: int, *, peers: bool = True, seed: int = 0
) -> list[TimedFunction]:
    """Forward and backward of activations, with a standard normal input `(batch, width)`."""
    generator = Generator().manual_seed(seed)
    x = torch.randn(batch, width, generator=generator).requires_grad_()
    timed = []
    for name, function in activation_makers(peers).items():
        grad = torch.randn(function(x.detach()).shape, generator=generator)
        step = partial(lambda f, g: torch.autograd.grad(f(x), x, g), function, grad)
        timed.append(TimedFunction(name, step))
    return timed
