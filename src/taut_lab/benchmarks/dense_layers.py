"""Dense layers to be timed: a training step, and the error of orthonormality."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from taut.nn import ConstrainedLinear, OrthonormalLinear, SpectralLinear
from taut_lab.benchmarks.peers import PEERS, import_peer
from taut_lab.framework.timing import TimedFunction

__all__ = ["PLAIN", "TrainedLayer", "dense_layers_in_training", "dense_makers", "weight_errors"]

PLAIN = "torch Linear"

Maker = Callable[[int], nn.Module]


def dense_makers(peers: bool = True) -> dict[str, Maker]:
    """Name -> a function that makes a square layer of a given width, the baseline first.

    Args:
        peers: whether to include other libraries, if they are installed.
    """
    makers: dict[str, Maker] = {
        PLAIN: lambda n: nn.Linear(n, n),
        "taut OrthonormalLinear": lambda n: OrthonormalLinear(n, n, method="retract"),
        "taut OrthonormalLinear, bjorck": lambda n: OrthonormalLinear(n, n, method="bjorck"),
        "taut SpectralLinear": lambda n: SpectralLinear(n, n),
    }
    if not peers:
        return makers
    for way in ("cayley", "matrix_exp", "householder"):
        makers[f"torch orthogonal, {way}"] = _parametrised(way)
    for peer, name in (("deel-torchlip", "SpectralLinear"), ("orthogonium", "OrthoLinear")):
        module = import_peer(PEERS[peer][0])
        if module is not None:
            layer = getattr(module, name)
            makers[f"{peer} {name}"] = lambda n, layer=layer: layer(n, n)
    return makers


def _parametrised(way: str) -> Maker:
    return lambda n: parametrizations.orthogonal(nn.Linear(n, n), orthogonal_map=way)


@dataclass(frozen=True)
class TrainedLayer:
    """A layer in training; each run of the function is one step."""

    function: TimedFunction
    module: nn.Module

    def weight(self) -> Tensor:
        """The weight that the next forward in training would use."""
        with torch.no_grad():
            module = self.module
            weight = (
                module.effective_weight()
                if isinstance(module, ConstrainedLinear)
                else module.weight
            )
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
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    data = []
    for _ in range(num_batches):
        x = torch.randn(batch, width, generator=generator)
        noise = torch.randn(batch, width, generator=generator)
        data.append((x, x @ rotation.mT + 0.1 * noise))
    return [_trained_layer(name, make(width), data) for name, make in dense_makers(peers).items()]


def _trained_layer(name: str, module: nn.Module, data: list[tuple[Tensor, Tensor]]) -> TrainedLayer:
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    batches = cycle(data)

    def step() -> None:
        x, y = next(batches)
        # The input needs a gradient too, as inside a network.
        x = x.detach().requires_grad_()
        optimiser.zero_grad()
        nn.functional.mse_loss(module(x), y).backward()
        optimiser.step()

    return TrainedLayer(TimedFunction(name, step), module)


def weight_errors(weight: Tensor) -> tuple[float | None, float | None]:
    r"""The largest $|\sigma - 1|$ and the largest $\sigma - 1$, by a float64 decomposition.

    Returns:
        `(error, excess)`; None for both if the weight is not finite.

    Example:
        >>> weight_errors(torch.diag(torch.tensor([1.5, 0.25])))
        (0.75, 0.5)
    """
    if not torch.isfinite(weight).all():
        return None, None
    deviation = torch.linalg.svdvals(weight.double()) - 1
    return deviation.abs().amax().item(), deviation.amax().item()
