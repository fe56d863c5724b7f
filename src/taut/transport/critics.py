"""Critics that are 1-Lipschitz by construction, and their training: no clipping, no penalty."""

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
from taut.nn import ConstrainedLinear, Scale, mlp
from taut.transport.problems import Problem

Samples = tuple[Tensor, Tensor]
Sampler = Callable[[int, Generator], Samples]
OnStep = Callable[[int, float], None]
_CHUNK_ROWS = 8192


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
    r"""The Kantorovich dual objective, $\frac1n \sum_i f(x_i) - \frac1m \sum_j f(y_j)$, a scalar.

    For a 1-Lipschitz critic its expectation is at most $W_1(P, Q)$, and equal for the best one.

    Args:
        critic: `(n, ...) -> (n, 1)` or `(n,)`.
        x: samples of P, `(n, ...)`.
        y: samples of Q, `(m, ...)`.

    Example:
        >>> dual_value(torch.abs, torch.tensor([[-1.0], [1.0]]), torch.zeros(3, 1))
        tensor(1.)
    """
    # One pass over both samples halves the number of layer calls.
    value = critic(torch.cat([x, y]))
    if value.numel() != len(x) + len(y):
        got = f"output of shape {tuple(value.shape)} for {len(x) + len(y)} points"
        raise ArgumentError("dual_value", "critic", "must give one number per point", got)
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
    on_step: OnStep | None = None,
) -> CriticFit:
    r"""Trains `net` in place to maximise $\mathbb{E}_P f - \mathbb{E}_Q f$.

    The value bounds $W_1$ only if `net` is 1-Lipschitz, whatever its weights, as those of
    `taut.nn.mlp` are. Under `torchrun` (see `taut.parallel`) all processes draw the same batches and
    share them out.

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
    counts = {"num_steps": num_steps, "batch_size": batch_size, "num_fresh": num_fresh}
    for argument, count in counts.items():
        check_count("fit_critic", argument, count)
    check_positive("fit_critic", "lr", lr)
    sample = source.sample if isinstance(source, Problem) else source
    schedule = None
    if optimizer is None:
        optimizer = Adam(net.parameters(), lr=lr)
        schedule = CosineAnnealingLR(optimizer, T_max=num_steps)
    history = []
    for step in range(1, num_steps + 1):
        dual = train_step(net, optimizer, sample(batch_size, generator))
        if schedule is not None:
            schedule.step()
        history.append(check_finite("fit_critic", dual, f"at step {step}"))
        if on_step is not None:
            on_step(step, history[-1])
    value = fresh_value("fit_critic", net, sample(num_fresh, generator))
    return CriticFit(tuple(history), Estimate(value, method=f"critic on {num_fresh} fresh pairs"))


def train_step(net: nn.Module, optimizer: Optimizer, samples: Samples) -> Tensor:
    """One step of ascent; returns the dual value of the batch before it.

    Several processes each compute a share of the batch, and all take the same step.
    """
    x, y = samples
    optimizer.zero_grad()
    # Both samples have the same number of rows, so one weight serves both.
    dual = dual_value(net, parallel.share(x), parallel.share(y)) * parallel.share_weight(len(x))
    (-dual).backward()
    parallel.average_gradients(net.parameters())
    optimizer.step()
    return parallel.gather(dual.detach().reshape(1)).mean()


@torch.no_grad()
def fresh_value(subject: str, net: nn.Module, samples: Samples) -> float:
    """The dual value in evaluation mode, on samples that took part in no step."""
    was_training = net.training
    dual = dual_value(net.eval(), *samples)
    net.train(was_training)
    return check_finite(subject, dual, "on fresh samples")


def check_finite(subject: str, number: Tensor, when: str) -> float:
    """Returns the number; raises if training has diverged."""
    value = number.item()
    if not math.isfinite(value):
        rule = "distances and the dual value must stay finite"
        remedy = "Lower the learning rate, or look for non-finite samples."
        raise NonFiniteError(subject, rule=rule, got=f"{value} {when}", remedy=remedy)
    return value


def name_critic(kind: str) -> str:
    """The kind of a critic in words.

    Example:
        >>> name_critic("cones"), name_critic("network"), name_critic("transport potential")
        ('cone critic', 'network critic', 'transport potential')
    """
    return kind if kind.endswith("potential") else f"{kind.removesuffix('s')} critic"


def resampler(x: Tensor, y: Tensor) -> Sampler:
    """A sampler that draws rows of `x` and of `y` with replacement."""

    def sample(n: int, generator: Generator) -> Samples:
        device = generator.device
        i, j = (torch.randint(len(z), (n,), generator=generator, device=device) for z in (x, y))
        return x[i.to(x.device)], y[j.to(y.device)]

    return sample


@torch.no_grad()
def score_points(critic: nn.Module, points: Tensor) -> Tensor:
    """Evaluates the critic at `(n, dim)` points in chunks; returns `(n,)`."""
    return torch.cat([critic(part).flatten() for part in points.split(_CHUNK_ROWS)])


def network_critic(
    dim: int, width: int, generator: Generator, *, centre: Tensor | None = None, length: float = 1.0
) -> nn.Sequential:
    """A 1-Lipschitz network of two hidden layers for data around `centre`, of typical size `length`.

    Args:
        dim: number of features.
        width: units of each hidden layer, a multiple of 8.
        generator: source of the initial weights.
        centre: `(dim,)`, subtracted from the inputs; None for the origin.
        length: divisor of the inputs and factor of the outputs.

    Example:
        >>> net = network_critic(3, 16, torch.Generator().manual_seed(0), length=10.0)
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 1])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        # In float32 under any default dtype, as the rows that it is trained on.
        net = mlp([dim, width, width, 1], activation="groupsort8").float()
    return rescale_network(net, centre, length)


@torch.no_grad()
def rescale_network(
    network: nn.Sequential,
    centre: Tensor | None,
    length: float,
    lipschitz: float = 1.0,
    offset: float = 0.0,
) -> nn.Sequential:
    r"""$f(x) = b + K s\, g\big((x - c)/s\big)$, of constant $K$ wherever $g$ has constant 1.

    Data far from the origin or of odd size train badly, so $g$ is trained on $u = (x - c)/s$ with
    one centre and one length for all features: shift and scale cancel, which no scaling of single
    features would. The shift goes into the first bias and $b$ into the last, so $f$ is a plain
    sequence of constrained layers, which `taut.certify` can prove.

    Args:
        network: $g$, a sequence that begins and ends with constrained linear layers with biases;
            its layers, biases changed, become those of the result.
        centre: $c$, or None for zero.
        length: $s > 0$.
        lipschitz: $K > 0$.
        offset: $b$.
    """
    first, last = network[0], network[-1]
    assert isinstance(first, ConstrainedLinear) and isinstance(last, ConstrainedLinear)
    assert first.bias is not None and last.bias is not None
    if centre is not None:
        weight = first.effective_weight() if first.training else first.evaluation_weight()
        first.bias.sub_(weight @ (centre / length))
    if offset:
        last.bias.add_(offset / (lipschitz * length))
    return nn.Sequential(Scale(1 / length), *network, Scale(lipschitz * length))
