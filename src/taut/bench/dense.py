"""Dense layers: one training step, and how orthonormal it leaves the weight."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from taut.bench.peers import PEERS, import_peer
from taut.lab.timing import Contestant
from taut.nn import ConstrainedLinear, OrthonormalLinear, SpectralLinear

__all__ = ["PLAIN", "Trainee", "dense_makers", "dense_trainees", "weight_errors"]

PLAIN = "torch Linear"

Maker = Callable[[int], nn.Module]


def dense_makers(peers: bool = True) -> dict[str, Maker]:
    """Name -> a function that makes a square layer of a given width, the baseline first.

    Args:
        peers: whether other libraries take part, as far as they are installed.
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
class Trainee:
    """A layer in training; each turn of the contestant is one step."""

    contestant: Contestant
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


def dense_trainees(
    width: int, batch: int, *, peers: bool = True, num_batches: int = 8, seed: int = 0
) -> list[Trainee]:
    r"""Layers that learn one rotation: forward, backward and a step of Adam at 1e-3.

    The target is $y = x R^\top$ plus a tenth of noise, with $R$ orthonormal: a task on which all
    of them can move, so that the steps are those of training and not those of a weight at rest.

    Args:
        width: of input and output.
        batch: rows of each input.
        peers: whether other libraries take part.
        num_batches: different inputs, made beforehand and used in turn.
        seed: decides the data; all layers see the same.
    """
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    data = []
    for _ in range(num_batches):
        x = torch.randn(batch, width, generator=generator)
        noise = torch.randn(batch, width, generator=generator)
        data.append((x, x @ rotation.mT + 0.1 * noise))
    return [_trainee(name, make(width), data) for name, make in dense_makers(peers).items()]


def _trainee(name: str, module: nn.Module, data: list[tuple[Tensor, Tensor]]) -> Trainee:
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    batches = cycle(data)

    def step() -> None:
        x, y = next(batches)
        # An input asks for its gradient too, as it does inside a network.
        x = x.detach().requires_grad_()
        optimiser.zero_grad()
        nn.functional.mse_loss(module(x), y).backward()
        optimiser.step()

    return Trainee(Contestant(name, step), module)


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
