"""Distances to be timed: fused kernels, chunks, `torch.cdist` and a dense layer of the same size."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from taut.linalg.linf_distances import linf_distance
from taut_lab.framework.timing import TimedFunction

DENSE = "torch linear"
Distance = Callable[[Tensor, Tensor], Tensor]


def _data(batch: int, width: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = Generator().manual_seed(seed)
    sizes = ((batch, width), (width, width), (batch, width))
    x, weight, grad = (torch.randn(size, generator=generator) for size in sizes)
    return x.requires_grad_(), weight.requires_grad_(), grad


def timed_distances(
    batch: int, width: int, exponents: Sequence[float], *, seed: int = 0
) -> list[TimedFunction]:
    """Forward and backward passes of `batch` points against `width` stored ones of that length."""
    x, weight, grad = _data(batch, width, seed)
    functions: dict[str, Distance] = {DENSE: F.linear}
    for p in exponents:
        functions |= {
            f"taut, compiled, p = {p:g}": partial(linf_distance, p=p),
            f"taut, in chunks, p = {p:g}": partial(linf_distance, p=p, compiled=False),
            f"torch cdist, p = {p:g}": partial(torch.cdist, p=p),
        }

    def step(function: Distance) -> None:
        torch.autograd.grad(function(x, weight), (x, weight), grad)

    return [TimedFunction(name, partial(step, f)) for name, f in functions.items()]


def compile_kernels(batch: int, width: int, seed: int = 0) -> float:
    """Wall-clock seconds to compile the kernels of all exponents, without files of earlier processes.

    Next to nothing where this process has compiled them before.
    """
    from torch._inductor.utils import fresh_cache

    x, weight, grad = _data(batch, width, seed)
    began = time.perf_counter()
    with fresh_cache():
        for p in (8, math.inf):
            torch.autograd.grad(linf_distance(x, weight, p), (x, weight), grad)
    return time.perf_counter() - began
