"""Activations to be timed: forward and backward on one matrix."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from taut.nn import FullSort, GroupSort, MaxMin, Maxout
from taut_lab.benchmarks.peers import PEERS, import_peer
from taut_lab.framework.timing import TimedFunction

__all__ = ["RELU", "activation_makers", "timed_activations"]

RELU = "torch ReLU"

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
    """Activations with a standard normal input `(batch, width)` and output gradient."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, width, generator=generator).requires_grad_()
    made = activation_makers(peers)
    return [_timed_step(name, function, x, generator) for name, function in made.items()]


def _timed_step(
    name: str, function: Activation, x: Tensor, generator: torch.Generator
) -> TimedFunction:
    with torch.no_grad():
        shape = function(x).shape
    grad = torch.randn(shape, generator=generator)
    return TimedFunction(name, lambda: torch.autograd.grad(function(x), x, grad))
