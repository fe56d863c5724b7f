r"""Critics without a proven constant: gradient penalties and spectral normalisation, in plain torch.

Penalised critics (WGAN-GP: Gulrajani et al. 2017, WGAN-LP: Petzka et al. 2018) are trained towards slope 1
without a guarantee, so their value may lie on either side of the distance: it is an estimate, not a
bound. Spectral normalisation (Miyato et al. 2018) divides by an estimate of the norm from below.
"""

import math
import time
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim import Adam

from taut.nn import Scale
from taut.transport import Sampler, dual_value

UNCONSTRAINED_CRITICS = ("WGAN-GP", "WGAN-LP", "spectral norm")
_WEIGHT = 10.0


def fit_unconstrained_critic(
    kind: str,
    sample: Sampler,
    dim: int,
    *,
    seconds: float,
    generator: Generator,
    width: int = 256,
    batch_size: int = 512,
    lr: float = 1e-3,
    length: float = 1.0,
    clock: Callable[[], float] = time.process_time,
) -> tuple[nn.Module, int]:
    r"""Trains a ReLU critic with two hidden layers for a given time.

    Maximises $\mathbb{E}_P f - \mathbb{E}_Q f$ less, for the penalised kinds,

    $$10\,\mathbb{E} (\|\nabla f(z)\| - 1)^2 \quad\text{or}\quad
      10\,\mathbb{E} \max(0, \|\nabla f(z)\| - 1)^2$$

    at points $z$ between a sample of P and one of Q, with Adam and a learning rate that decays to
    zero along a half cosine.

    Args:
        kind: one of `UNCONSTRAINED_CRITICS`.
        sample: `(n, generator) -> (x, y)`.
        dim: dimension of the points.
        seconds: training time, measured by `clock`.
        generator: random generator of samples and initial weights.
        width: width of the hidden layers.
        batch_size: samples of each distribution per step.
        lr: initial learning rate.
        length: length scale of the data; inputs are divided by it, and outputs multiplied.
        clock: clock in seconds.

    Returns:
        The critic in evaluation mode, and the number of steps.
    """
    norm = spectral_norm if kind == "spectral norm" else nn.Identity()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        sizes = ((dim, width), (width, width), (width, 1))
        first, second, last = (norm(nn.Linear(*size)) for size in sizes)
    net = (first, nn.ReLU(), second, nn.ReLU(), last)
    critic = nn.Sequential(Scale(1 / length), *net, Scale(length))
    optimizer = Adam(critic.parameters(), lr=lr)
    start, steps = clock(), 0
    critic.train()
    while (spent := clock() - start) < seconds or steps == 0:
        optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * spent / seconds)) / 2
        optimizer.zero_grad()
        x, y = sample(batch_size, generator)
        loss = -dual_value(critic, x, y)
        if kind != "spectral norm":
            loss = loss + _WEIGHT * _excess(critic, x, y, kind, generator)
        loss.backward()
        optimizer.step()
        steps += 1
    return critic.eval(), steps


def _excess(critic: nn.Module, x: Tensor, y: Tensor, kind: str, generator: Generator) -> Tensor:
    weight = torch.rand(len(x), 1, generator=generator)
    between = (weight * x + (1 - weight) * y).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    over = slope.norm(dim=-1) - 1
    return (over.clamp(min=0) if kind == "WGAN-LP" else over).square().mean()
