r"""Where to start cones in many dimensions: along the directions in which P leans and Q does not.

In 128 dimensions every data point is far from every other, so a cone that starts at one sees no more
of P than of Q. What tells a funnel from afar is a tail: along the direction of its apex a few points
of P lie further out than any of Q would. Tails show in third moments, and the directions of the
largest are found by the power method for tensors (Anandkumar et al. 2014).
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.optim import Adam

from taut.wasserstein import ConeCritic, Sampler, dual_value

__all__ = ["fit_pursued_cones", "leaning_directions"]

_CHUNK = 8192


def leaning_directions(
    x: Tensor,
    y: Tensor,
    *,
    generator: Generator,
    num_starts: int = 256,
    num_rounds: int = 2,
    num_iterations: int = 10,
) -> Tensor:
    r"""Unit vectors along which the third moments of two samples differ most.

    Both samples are whitened, and

    $$u \mapsto \mathbb{E}\,(u \cdot x)^2 x - \mathbb{E}\,(u \cdot y)^2 y$$

    is iterated with normalisation from points of `x`. What a round has found is subtracted from the
    map in the next one, which so finds others.

    Args:
        x: `(n, dim)`.
        y: `(m, dim)`.
        generator: chooses the starts.
        num_starts: of each round.
        num_rounds: of starts.
        num_iterations: of the map.

    Returns:
        `(k, dim)` in the coordinates of the data, no two within 25 degrees; at most
        `num_starts * num_rounds` of them.

    Example:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> y = torch.randn(4000, 3, generator=seeded)
        >>> x = y.clone()
        >>> x[:400, 0] += 3  # a tenth of P lies further out along the first axis
        >>> found = leaning_directions(x, y, num_starts=8, generator=seeded)
        >>> found[0].abs().argmax().item(), found[0, 0] > 0.9
        (0, tensor(True))
    """
    whiten_x, whiten_y = _whitening(x), _whitening(y)
    found, strength = x.new_zeros(0, x.shape[1]), x.new_zeros(0)

    def lean(u: Tensor, deflate: bool) -> Tensor:
        moment = _third_moment(x, *whiten_x, u) - _third_moment(y, *whiten_y, u)
        if deflate and len(found):
            moment = moment - ((u @ found.T).square() * strength) @ found
        return moment

    for _ in range(num_rounds):
        drawn = x[torch.randint(len(x), (num_starts,), generator=generator)]
        u = torch.nn.functional.normalize((drawn - whiten_x[0]) @ whiten_x[1], dim=-1)
        for step in range(num_iterations):
            # The last steps use the whole map: what was subtracted is only nearly a part of it.
            u = torch.nn.functional.normalize(lean(u, step < num_iterations - 2), dim=-1)
        moment = lean(u, False)
        found, strength = _distinct(
            torch.cat([found, u]), torch.cat([strength, (moment * u).sum(-1)])
        )
    # A direction that separates whitened points belongs to the inverse root's other side.
    back = torch.linalg.solve(whiten_x[1], found.T).T
    return torch.nn.functional.normalize(back, dim=-1)


def fit_pursued_cones(
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
    """Fits hanging cones that start as far out as the data reach, along `leaning_directions`.

    Adam moves centres and offsets as in `fit_cones`: lengths are multiples of the spread of
    distances, rates fall along a half cosine and temperatures geometrically.

    Args:
        sample: `(n, generator) -> (x, y)`.
        generator: the source of every draw.
        num_samples: of each side behind the directions.
        num_starts: see `leaning_directions`.
        num_rounds: likewise.
        num_steps: of Adam.
        batch_size: points of each side and step.
        lr: the first step of a centre over the spread of distances.
        hot: the first temperature, likewise.
        cold: the last.
        on_step: called after each step with the steps done and the dual value of its batch.
    """
    x, y = sample(num_samples, generator)
    directions = leaning_directions(
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
    # A direction without spread carries no tail, and must not be divided by.
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
    """The strongest of each bundle of directions within 25 degrees."""
    order = strength.argsort(descending=True)
    directions, strength = directions[order], strength[order]
    near = directions @ directions.T > math.cos(math.radians(25))
    taken: list[int] = []
    for i in range(len(directions)):
        if strength[i] > 0 and not near[i, taken].any():
            taken.append(i)
    return directions[taken], strength[taken]
