"""Networks, layers and activations to be timed: a training step, and the error of orthogonality."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrizations

from taut.data import load_labelled
from taut.losses import loss_for_radius
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
from taut_lab.benchmarks.peer_imports import CONVOLUTIONS, PEERS, import_peer
from taut_lab.framework.timing import TimedFunction

PLAIN = "torch Linear"
PLAIN_CONV = "torch Conv2d"
RELU = "torch ReLU"


def dense_makers(peers: bool = True) -> dict[str, Callable[[int, int], nn.Module]]:
    """Name -> a function that makes a layer with so many inputs and outputs, the baseline first."""
    makers: dict[str, Callable[[int, int], nn.Module]] = {
        PLAIN: nn.Linear,
        "taut OrthonormalLinear": OrthonormalLinear,
        "taut OrthonormalLinear, bjorck": partial(OrthonormalLinear, method="bjorck"),
        "taut SpectralLinear": SpectralLinear,
    }
    for way in ("cayley", "matrix_exp") if peers else ():
        makers[f"torch orthogonal, {way}"] = lambda n, m, way=way: parametrizations.orthogonal(
            nn.Linear(n, m), orthogonal_map=way
        )
    named = (("deel-torchlip", "SpectralLinear"), ("orthogonium", "OrthoLinear"))
    for peer, name in named if peers else ():
        if (layer := getattr(import_peer(PEERS[peer][0]), name, None)) is not None:
            makers[f"{peer} {name}"] = layer
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


Errors = tuple[float | None, float | None]


@dataclass(frozen=True)
class TrainedModel:
    """A layer or a network in training; each run of the function is one step."""

    function: TimedFunction  # the step
    layers: tuple[nn.Module, ...]  # the layers that have a weight
    weight_errors: Callable[[Tensor], Errors]  # how far a weight is from orthonormal

    @torch.no_grad()
    def weights(self) -> list[Tensor]:
        """The weights that the next forward in training would use."""
        weights: list[Tensor] = []
        for layer in self.layers:
            constrained = isinstance(layer, (ConstrainedLinear, ConstrainedConv))
            weight = layer.effective_weight() if constrained else layer.weight
            assert isinstance(weight, Tensor)
            weights.append(weight.detach())
        return weights

    def errors(self) -> Errors:
        """The largest errors of all weights; None for both if one is not finite."""
        errors, excesses = zip(*map(self.weight_errors, self.weights()), strict=True)
        return (None, None) if None in errors else (max(errors), max(excesses))


Batches = list[tuple[Tensor, Tensor]]
_RADIUS = 1.58


def image_batches(
    data: str, batch: int, data_dir: str | None = None, *, count: int = 64, seed: int = 0
) -> Batches:
    """Random batches of flattened 28 x 28 training images of MNIST, or of digits, which are enlarged."""
    train = load_labelled(data, data_dir=data_dir).train
    images = nn.functional.interpolate(torch.as_tensor(train.inputs).float(), (28, 28)).flatten(1)
    labels = torch.as_tensor(train.labels).long()
    rows = torch.randint(len(labels), (count, batch), generator=Generator().manual_seed(seed))
    return [(images[indices], labels[indices]) for indices in rows]


def networks_in_training(
    width: int, rate: float, data: Batches, *, peers: bool = True, compiled: bool = False
) -> list[TrainedModel]:
    """Networks with three hidden layers and `MaxMin` that learn to classify images.

    A step is forward, backward and Adam, with the offset cross-entropy for an L2 radius of 1.58: the first
    steps of real training, in which weights move most. Every network uses the batches in turn.
    `compiled` adds a twin of each network of torch and taut, by `torch.compile(fullgraph=True)`.
    """
    sizes = [data[0][0].shape[1], width, width, width]
    networks: dict[str, nn.Module] = {}
    for name, make in dense_makers(peers).items():
        hidden = [part for pair in pairwise(sizes) for part in (make(*pair), MaxMin())]
        networks[name] = nn.Sequential(*hidden, make(width, 10))
    loss = loss_for_radius(_RADIUS, lipschitz=1.0)
    return _in_training(networks, data, loss, rate, weight_errors, compiled=compiled)


def conv_layers_in_training(
    channels: tuple[int, int],
    side: int,
    batch: int,
    *,
    kernel_size: int,
    peers: bool,
    seed: int,
    compiled: bool = False,
) -> list[TrainedModel]:
    """Convolutions that learn to rotate the channels and to shift by one pixel, with Adam at 1e-3.

    That is an orthogonal convolution, which every layer can approach: all use circular padding,
    with which orthogonality is possible. The target has 10 % noise.
    """
    generator = Generator().manual_seed(seed)
    inside, out = channels
    square = torch.randn(max(channels), min(channels), generator=generator)
    rotation = torch.linalg.qr(square).Q
    rotation = rotation if out >= inside else rotation.mT
    data = []
    for _ in range(4):
        # The input needs a gradient too, as inside a network.
        x = torch.randn(batch, inside, side, side, generator=generator).requires_grad_()
        clean = torch.einsum("oi,bihw->bohw", rotation, x.detach().roll(1, 2))
        data.append((x, clean + 0.1 * torch.randn(clean.shape, generator=generator)))
    look = {"padding": kernel_size // 2, "padding_mode": "circular"}
    layers: dict[str, nn.Module] = {
        n: t(inside, out, kernel_size, **look) for n, t in _conv_types(peers).items()
    }
    errors = partial(circle_errors, side=side)
    return _in_training(layers, data, nn.MSELoss(), 1e-3, errors, compiled=compiled)


def _call(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)


def _in_training(
    modules: dict[str, nn.Module],
    data: Batches,
    loss: nn.Module,
    rate: float,
    errors: Callable[[Tensor], Errors],
    compiled: bool,
) -> list[TrainedModel]:
    if compiled:
        # Torch compiles one function for so many modules, and those of earlier comparisons are done.
        torch.compiler.reset()
    forwards: dict[str, Callable[[Tensor], Tensor]] = {**modules}
    for name, module in [*modules.items()] if compiled else []:
        if name.startswith(("taut", PLAIN, PLAIN_CONV)):
            twin = modules[f"{name}, compiled"] = copy.deepcopy(module)
            # A function around it: torch does not compile the forward of its own layers by itself.
            forward = partial(_call, twin)
            forwards[f"{name}, compiled"] = torch.compile(forward, fullgraph=True)

    def step_of(module: nn.Module, forward: Callable[[Tensor], Tensor]) -> Callable[[], float]:
        optimiser = torch.optim.Adam(module.parameters(), lr=rate)
        batches = cycle(data)

        def step() -> float:
            x, y = next(batches)
            x.grad = None
            optimiser.zero_grad()
            value = loss(forward(x), y)
            value.backward()
            optimiser.step()
            return value.item()

        return step

    def layers_of(module: nn.Module) -> tuple[nn.Module, ...]:
        inside = module.children() if type(module) is nn.Sequential else [module]
        return tuple(layer for layer in inside if hasattr(layer, "weight"))

    return [
        TrainedModel(
            TimedFunction(name, step_of(module, forwards[name])), layers_of(module), errors
        )
        for name, module in modules.items()
    ]


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
    makers: dict[str, Activation] = {
        RELU: nn.ReLU(),
        "taut MaxMin": MaxMin(),
        "taut GroupSort(4)": GroupSort(4),
        "taut FullSort": FullSort(),
        "taut Maxout(2)": Maxout(2),
        "torch maximum and minimum": _naive_max_min,
    }
    deel = import_peer(PEERS["deel-torchlip"][1]) if peers else None
    if deel is not None:
        makers |= {
            # Not MaxMin as defined here: it returns the positive and negative part of each channel.
            "deel-torchlip MaxMin, doubling": deel.MaxMin(),
            "deel-torchlip GroupSort2": deel.GroupSort2(),
            "deel-torchlip FullSort": deel.FullSort(),
        }
    orthogonium = import_peer(PEERS["orthogonium"][1]) if peers else None
    if orthogonium is not None:
        makers["orthogonium MaxMin"] = orthogonium.MaxMin(axis=1)
    return makers


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
