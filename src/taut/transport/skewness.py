r"""Directions in which one sample is skewed and another is not: where cones start in high dimension.

In 128 dimensions all data points are far apart, so a cone centred at one of them does not distinguish
P from Q. Where P has a tail, a few of its points lie further out in one direction than any point of Q.
Tails show in third moments, and the directions of the largest third moments are found by the power
method for tensors (Anandkumar et al. 2014).
"""

import math

import torch
from torch import Generator, Tensor

_CHUNK = 8192


def skewed_directions(
    x: Tensor,
    y: Tensor,
    *,
    generator: Generator,
    fresh: tuple[Tensor, Tensor] | None = None,
    num_starts: int = 256,
    num_rounds: int = 2,
    num_iterations: int = 10,
) -> Tensor:
    r"""Unit vectors along which the third moments of two samples differ most.

    Both samples are whitened, and

    $$u \mapsto \mathbb{E}\,(u \cdot x)^2 x - \mathbb{E}\,(u \cdot y)^2 y$$

    is iterated with normalisation from points of `x`. Directions found in one round are subtracted
    from the map in the next, so that it finds others.

    Args:
        x: `(n, dim)`.
        y: `(m, dim)`.
        generator: random generator of the starting points.
        fresh: other rows of both. A direction along which their third moments differ less than half as much
            is noise, and left out.
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
        >>> directions = skewed_directions(x, y, num_starts=8, generator=seeded)
        >>> directions[0].abs().argmax().item(), directions[0, 0] > 0.9
        (0, tensor(True))
    """
    whiten_x, whiten_y = _whitening(x), _whitening(y)
    directions, strength = x.new_zeros(0, x.shape[1]), x.new_zeros(0)

    def lean(u: Tensor, pair: tuple[Tensor, Tensor] = (x, y)) -> Tensor:
        return _third_moment(pair[0], *whiten_x, u) - _third_moment(pair[1], *whiten_y, u)

    for _ in range(num_rounds):
        drawn = x[torch.randint(len(x), (num_starts,), generator=generator)]
        u = torch.nn.functional.normalize((drawn - whiten_x[0]) @ whiten_x[1], dim=-1)
        for step in range(num_iterations):
            update = lean(u)
            # The last steps use the full map, since the subtraction is only approximate.
            if len(directions) and step < num_iterations - 2:
                update = update - ((u @ directions.T).square() * strength) @ directions
            u = torch.nn.functional.normalize(update, dim=-1)
        strengths = torch.cat([strength, (lean(u) * u).sum(-1)])
        directions, strength = _distinct(torch.cat([directions, u]), strengths)
    if fresh is not None:
        # About the means of x and y, and whitened as they are.
        directions = directions[(lean(directions, fresh) * directions).sum(-1) >= strength / 2]
    # Back from whitened coordinates to those of the data.
    back = torch.linalg.solve(whiten_x[1], directions.T).T
    return torch.nn.functional.normalize(back, dim=-1)


def pursue_centres(
    x: Tensor, y: Tensor, *, generator: Generator, fresh: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Centres `(k, dim)` for cones with their tips in `x`: along `skewed_directions`, at the data's radius.

    Falls back to points of `x` where no direction is skewed.
    """
    directions = skewed_directions(x, y, generator=generator, fresh=fresh)
    return x.mean(0) + y.std(0).norm() * directions if len(directions) else x[:1]


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
