r"""Initialisation of cones in high dimensions: directions in which P is skewed and Q is not.

In 128 dimensions all data points are far apart, so a cone centred at one of them does not distinguish
P from Q. A funnel has a tail: in the direction of its apex, a few points of P lie further out than any
point of Q. Tails show in third moments, and the directions of the largest third moments are found by
the power method for tensors (Anandkumar et al. 2014).
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.optim import Adam

from taut.nn import ConeCritic
from taut.transport import Sampler, dual_value

__all__ = ["fit_cones_by_pursuit", "skewed_directions"]

_CHUNK = 8192


def skewed_directions(
    x: Tensor,
    y: Tensor,
    *,
    generator: Generator,
    num_starts: int = 256,
    num_rounds: int = 2,
    num_iterations: int = 10,
) -> Tensor:
    r"""Unit vectors along which the third updates of two samples differ most.

    Both samples are whitened, and

    $$u \mapsto \mathbb{E}\,(u \cdot x)^2 x - \mathbb{E}\,(u \cdot y)^2 y$$

    is iterated with normalisation from points of `x`. Directions found in one round are subtracted
    from the map in the next, so that it finds others.

    Args:
        x: `(n, dim)`.
        y: `(m, dim)`.
        generator: random generator of the starting points.
        num_starts: number of starting points of each round.
        num_rounds: number of rounds.
        num_iterations: number of iterations of the map.

    Returns:
        `(k, dim)` in the coordinates of the data, no two within 25 degrees; at most
        `num_starts * num_rounds` of them.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> y = torch.randn(4000, 3, generator=seeded)
        >>> x = y.clone()
        >>> x[:400, 0] += 3  # a tenth of P is shifted along the first axis
        >>> found = skewed_directions(x, y, num_starts=8, generator=seeded)
        >>> found[0].abs().argmax().item(), found[0, 0] > 0.9
        (0, tensor(True))
    """
    whiten_x, whiten_y = _whitening(x), _whitening(y)
    found, strength = x.new_zeros(0, x.shape[1]), x.new_zeros(0)

    def lean(u: Tensor, deflate: bool) -> Tensor:
        update = _third_moment(x, *whiten_x, u) - _third_moment(y, *whiten_y, u)
        if deflate and len(found):
            update = update - ((u @ found.T).square() * strength) @ found
        return update

    for _ in range(num_rounds):
        drawn = x[torch.randint(len(x), (num_starts,), generator=generator)]
        u = torch.nn.functional.normalize((drawn - whiten_x[0]) @ whiten_x[1], dim=-1)
        for step in range(num_iterations):
            # The last steps use the full map, since the subtraction is only approximate.
            u = torch.nn.functional.normalize(lean(u, step < num_iterations - 2), dim=-1)
        update = lean(u, False)
        found, strength = _distinct(
            torch.cat([found, u]), torch.cat([strength, (update * u).sum(-1)])
        )
    # Back from whitened coordinates to those of the data.
    back = torch.linalg.solve(whiten_x[1], found.T).T
    return torch.nn.functional.normalize(back, dim=-1)


def fit_cones_by_pursuit(
    sample: Sampler,
    *,
    generator: Generator,
    num_samples: int,
    num_starts: int = 256,
    num_rounds: int = 2,
    num_steps: int = 1000,
    batch_size: int = 512,
    lr: float = 0.1,
    hot: float = 0.25,
    cold: float = 0.01,
    on_step: Callable[[int, float], None] | None = None,
) -> ConeCritic:
    """Fits downward cones, initialised along `skewed_directions` at the radius of the data.

    Adam optimises centres and offsets as in `fit_cones`: lengths are multiples of the standard
    deviation of distances, the learning rate decays along a half cosine, and the temperature
    geometrically.

    Args:
        sample: `(n, generator) -> (x, y)`.
        generator: random generator.
        num_samples: samples of each side for the directions.
        num_starts: see `skewed_directions`.
        num_rounds: see `skewed_directions`.
        num_steps: number of Adam steps.
        batch_size: samples of each side per step.
        lr: initial learning rate, relative to the standard deviation of distances.
        hot: initial temperature, likewise.
        cold: final temperature, likewise.
        on_step: called after each step with the number of steps and the dual value of the batch.
    """
    x, y = sample(num_samples, generator)
    directions = skewed_directions(
        x, y, generator=generator, num_starts=num_starts, num_rounds=num_rounds
    )
    reach = y.std(0).norm()
    critic = ConeCritic(*directions.shape, sign=-1, generator=Generator().manual_seed(0))
    critic.centres.data.copy_(x.mean(0) + reach * directions)
    spread = torch.cdist(y[:256], critic.centres.detach()).std().item()
    del x, y

    rate = lr * spread / math.sqrt(directions.shape[1])
    optimizer = Adam(critic.parameters(), lr=rate)
    critic.train()
    for step in range(num_steps):
        done = step / num_steps
        critic.temperature = spread * hot * (cold / hot) ** done
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * done)) / 2
        optimizer.zero_grad()
        dual = dual_value(critic, *sample(batch_size, generator))
        (-dual).backward()
        optimizer.step()
        if on_step is not None:
            on_step(step + 1, dual.item())
    return critic.eval()


def _whitening(z: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and the symmetric matrix that makes the covariance the identity."""
    mean = z.mean(0)
    covariance = torch.zeros_like(mean.outer(mean))
    for part in z.split(_CHUNK):
        covariance += (part - mean).T @ (part - mean) / len(z)
    values, vectors = torch.linalg.eigh(covariance.double())
    # Directions without variance have no tail, and must not cause a division by zero.
    values = values.clamp(min=1e-6 * values.max())
    return mean, ((vectors * values.rsqrt()) @ vectors.T).to(z.dtype)


def _third_moment(z: Tensor, mean: Tensor, whiten: Tensor, u: Tensor) -> Tensor:
    total = torch.zeros_like(u)
    inner = u @ whiten
    for part in z.split(_CHUNK):
        part = part - mean
        total += (part @ inner.T).square_().T @ part
    return total @ whiten / len(z)


def _distinct(directions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
    """The strongest among directions within 25 degrees of each other."""
    order = strength.argsort(descending=True)
    directions, strength = directions[order], strength[order]
    near = directions @ directions.T > math.cos(math.radians(25))
    taken: list[int] = []
    for i in range(len(directions)):
        if strength[i] > 0 and not near[i, taken].any():
            taken.append(i)
    return directions[taken], strength[taken]
