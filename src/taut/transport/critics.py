"""Fitting a critic that is 1-Lipschitz by construction: nothing to clip, nothing to penalise."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from taut import parallel
from taut.bounds import Estimate
from taut.errors import ArgumentError, NonFiniteError, check_count, check_positive
from taut.transport.problems import Problem

__all__ = ["CriticFit", "Sampler", "ascend", "dual_value", "fit_critic"]

Sampler = Callable[[int, Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class CriticFit:
    """A fitted critic's history and estimate.

    Attributes:
        history: dual value on the batch of each step, before that step's update.
        estimate: dual value of the final critic on fresh samples.
    """

    history: tuple[float, ...]
    estimate: Estimate


def dual_value(critic: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    r"""The Kantorovich dual objective, $\frac1n \sum_i f(x_i) - \frac1m \sum_j f(y_j)$.

    For a 1-Lipschitz critic its expectation is at most $W_1(P, Q)$, and equal for the best one.

    Args:
        critic: `(n, ...) -> (n, 1)` or `(n,)`.
        x: samples of P, `(n, ...)`.
        y: samples of Q, `(m, ...)`.

    Returns:
        A scalar.

    Example:
        >>> dual_value(torch.abs, torch.tensor([[-1.0], [1.0]]), torch.zeros(3, 1))
        tensor(1.)
    """
    # One pass over both samples halves the number of layer calls.
    value = critic(torch.cat([x, y]))
    if value.numel() != len(x) + len(y):
        raise ArgumentError(
            subject="dual_value",
            argument="critic",
            rule="must give one number per point",
            got=f"output of shape {tuple(value.shape)} for {len(x) + len(y)} points",
        )
    value = value.flatten()
    return value[: len(x)].mean() - value[len(x) :].mean()


def fit_critic(
    net: nn.Module,
    source: Problem | Sampler,
    *,
    num_steps: int,
    generator: Generator,
    batch_size: int = 64,
    optimizer: Optimizer | None = None,
    lr: float = 3e-3,
    num_fresh: int = 4096,
    on_step: Callable[[int, float], None] | None = None,
) -> CriticFit:
    r"""Trains `net` in place to maximise $\mathbb{E}_P f - \mathbb{E}_Q f$.

    The value bounds $W_1$ only if `net` is 1-Lipschitz, whatever its weights, as those of
    `taut.nn.mlp` are. Under `torchrun` (see
    `taut.parallel`) all processes draw the same batches and share them out.

    Args:
        net: `(n, dim) -> (n, 1)`.
        source: a `Problem`, or a sampler `(n, generator) -> (x, y)`.
        num_steps: number of training steps.
        generator: source of all randomness.
        batch_size: number of points of P, and of Q, per step.
        optimizer: used as it is, with a constant rate; by default Adam, whose rate falls from
            `lr` to zero along a half cosine.
        lr: initial learning rate of the default optimiser.
        num_fresh: number of points of P, and of Q, behind the final estimate.
        on_step: called after each step with the number of steps done and the dual value.

    Returns:
        The history and the final estimate. The estimate is a sample mean: it may lie above the
        truth by chance. No point of the estimate was seen in training, unless P or Q repeats it.

    Raises:
        NonFiniteError: the dual value became NaN or infinite.
    """
    check_count("fit_critic", "num_steps", num_steps)
    check_count("fit_critic", "batch_size", batch_size)
    check_count("fit_critic", "num_fresh", num_fresh)
    check_positive("fit_critic", "lr", lr)
    sample = source.sample if isinstance(source, Problem) else source
    schedule = None
    if optimizer is None:
        optimizer = Adam(net.parameters(), lr=lr)
        schedule = CosineAnnealingLR(optimizer, T_max=num_steps)

    history = []
    for step in range(1, num_steps + 1):
        optimizer.zero_grad()
        dual = ascend(net, *sample(batch_size, generator))
        optimizer.step()
        if schedule is not None:
            schedule.step()
        history.append(_finite(dual, step))
        if on_step is not None:
            on_step(step, history[-1])

    return CriticFit(tuple(history), _estimate(net, sample, num_fresh, generator))


def ascend(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Leaves in `net` the gradient of minus its dual value on a batch, and returns that value.

    Several processes each compute a share of the batch, and all are left with the same gradient.
    """
    mine_x, mine_y = parallel.share(x), parallel.share(y)
    # Both sides have as many rows, so one weight serves both.
    dual = dual_value(net, mine_x, mine_y) * parallel.share_weight(len(x))
    (-dual).backward()
    parallel.average_gradients(net.parameters())
    return parallel.gather(dual.detach().reshape(1)).mean()


def _estimate(net: nn.Module, sample: Sampler, n: int, generator: Generator) -> Estimate:
    was_training = net.training
    net.eval()
    with torch.no_grad():
        dual = dual_value(net, *sample(n, generator))
    net.train(was_training)
    return Estimate(_finite(dual, None), method=f"critic on {n} fresh pairs")


def _finite(dual: Tensor, step: int | None) -> float:
    value = dual.item()
    if not math.isfinite(value):
        when = "on the fresh samples" if step is None else f"at step {step}"
        raise NonFiniteError(
            subject="fit_critic",
            rule="the dual value must stay finite",
            got=f"{value} {when}",
            remedy="Lower the learning rate, or look for non-finite samples.",
        )
    return value
