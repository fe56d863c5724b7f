r"""Pairs of distributions whose Wasserstein distance and optimal critic are known exactly.

One sign convention throughout: `x` is drawn from P, `y` from Q, and a critic maximises
$\mathbb{E}_P f - \mathbb{E}_Q f$ over the functions with $|f(a) - f(b)| \le \|a - b\|_2$. The
largest value is $W_1(P, Q)$, and `Problem.potential` is an $f$ that attains it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from taut.errors import ArgumentError, check_count, check_positive

PointSampler = Callable[[int, Generator], Tensor]
PairSampler = Callable[[int, Generator], tuple[Tensor, Tensor]]
Centres = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Problem:
    r"""Two distributions P and Q, the distance between them, and the critic that shows it.

    Attributes:
        name: short name.
        dim: dimension of the space.
        distance: $W_1(P, Q)$ for the Euclidean cost, exactly but for `standard_error`.
        potential: a 1-Lipschitz function `(..., dim) -> (...)` with
            $\mathbb{E}_P f - \mathbb{E}_Q f = W_1(P, Q)$.
        draw_p: `(n, generator) -> (n, dim)`, samples from P.
        draw_q: `(n, generator) -> (n, dim)`, samples from Q.
        draw_paired: `(n, generator) -> (x, y)`, pairs of an optimal coupling: `x` has law P, `y`
            law Q, and the mean of $\|x - y\|$ is the distance. None where it is not implemented.
        standard_error: standard error of `distance` where it is a mean over samples, else 0.
    """

    name: str
    dim: int
    distance: float
    potential: Callable[[Tensor], Tensor] = field(repr=False)
    draw_p: PointSampler = field(repr=False)
    draw_q: PointSampler = field(repr=False)
    draw_paired: PairSampler | None = field(default=None, repr=False)
    standard_error: float = field(default=0.0, repr=False)

    def sample(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """`n` independent points of P and of Q, each `(n, dim)`, on the device of `generator`."""
        check_count("Problem.sample", "n", n)
        return self.draw_p(n, generator), self.draw_q(n, generator)


def absolute_value() -> Problem:
    r"""P half at -1 and half at 1, Q all at 0: the best critic is $|x|$, the distance 1.

    The paper's first problem, its two distributions named so that $|x|$ comes out and not $-|x|$.

    Example:
        >>> problem = absolute_value()
        >>> problem
        Problem(name='absolute value', dim=1, distance=1.0)
        >>> problem.potential(torch.tensor([[-1.0], [0.0], [0.5]]))
        tensor([1.0000, 0.0000, 0.5000])
    """
    return _around(((0.0,),), name="absolute value", inward=True)


def cone(dim: int) -> Problem:
    r"""P uniform on the unit sphere of $\mathbb{R}^d$, Q at its centre: $\|x\|$ and distance 1.

    The paper takes the dimensions 128, 256 and 512.
    """
    check_count("cone", "dim", dim)
    return _around(((0.0,) * dim,), name=f"cone in {dim} dimensions", inward=True)


def three_cones() -> Problem:
    r"""P at (-2, 0), (0, 0), (2, 0), Q uniform on the unit circles around them; distance 1.

    The best critic is three touching cones, $f(z) = 1 - \min_i \|z - c_i\|$: one on the centres,
    zero on the circles. Elsewhere it is free within its slope; this one is the natural choice.
    """
    return _around(((-2.0, 0.0), (0.0, 0.0), (2.0, 0.0)), name="three cones", inward=False)


def shifted_gaussians(dim: int, shift: float) -> Problem:
    r"""Q standard normal, P the same moved by `shift` along the diagonal: distance `|shift|`.

    A translation is optimal, and the best critic is linear: $f(z) = \pm\sum_i z_i / \sqrt d$.

    Example:
        >>> shifted_gaussians(dim=3, shift=-0.5).distance
        0.5
    """
    check_count("shifted_gaussians", "dim", dim)
    if not math.isfinite(shift):
        raise ArgumentError("shifted_gaussians", "shift", "must be finite", shift)
    return Problem(
        f"gaussians {shift:g} apart in {dim} dimensions",
        dim,
        abs(shift),
        partial(_diagonal, math.copysign(dim**-0.5, shift)),
        partial(_draw_gaussian, dim, shift),
        partial(_draw_gaussian, dim, 0.0),
        partial(_draw_shifted, dim, shift),
    )


def shells(dim: int, p_radius: float = 2.0, q_radius: float = 1.0) -> Problem:
    r"""P and Q uniform on concentric spheres: distance $|r_P - r_Q|$ by the critic $\pm\|x\|$.

    Example:
        >>> shells(dim=3, p_radius=0.5, q_radius=2.0).distance
        1.5
    """
    check_count("shells", "dim", dim)
    check_positive("shells", "p_radius", p_radius)
    check_positive("shells", "q_radius", q_radius)
    name = f"shells of radius {p_radius:g} and {q_radius:g} in {dim} dimensions"
    return _scaled(name, dim, p_radius, q_radius, partial(_draw_spheres, ((0.0,) * dim,)))


def laplaces(p_scale: float = 2.0, q_scale: float = 1.0) -> Problem:
    r"""Two Laplace distributions on the line: distance $|s_P - s_Q|$ by the critic $\pm|x|$.

    The scales $s$ are the means of $|x|$. Heavier tails than a normal distribution, and distribution
    functions that cross.
    """
    check_positive("laplaces", "p_scale", p_scale)
    check_positive("laplaces", "q_scale", q_scale)
    return _scaled(f"laplaces {p_scale:g} and {q_scale:g}", 1, p_scale, q_scale, _draw_laplace)


def _scaled(name: str, dim: int, p_scale: float, q_scale: float, draw: PointSampler) -> Problem:
    """P and Q are multiples of one law about 0 with mean norm 1: mass moves along its own ray."""
    up = math.copysign(1.0, p_scale - q_scale)
    return Problem(
        name,
        dim,
        abs(p_scale - q_scale),
        partial(_height, ((0.0,) * dim,), 0.0, up),
        partial(_draw_scaled, draw, p_scale),
        partial(_draw_scaled, draw, q_scale),
        partial(_draw_ray, draw, p_scale, q_scale),
    )


def _draw_scaled(draw: PointSampler, scale: float, n: int, generator: Generator) -> Tensor:
    return scale * draw(n, generator)


def _draw_ray(
    draw: PointSampler, p_scale: float, q_scale: float, n: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    unit = draw(n, generator)
    return p_scale * unit, q_scale * unit


def _draw_laplace(n: int, generator: Generator) -> Tensor:
    pair = torch.empty(2, n, 1, device=generator.device).exponential_(generator=generator)
    return pair[0] - pair[1]


def _draw_gaussian(dim: int, shift: float, n: int, generator: Generator) -> Tensor:
    normal = torch.randn(n, dim, generator=generator, device=generator.device)
    return normal + shift * dim**-0.5


def _draw_shifted(dim: int, shift: float, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    y = _draw_gaussian(dim, 0.0, n, generator)
    return y + shift * dim**-0.5, y


def _diagonal(weight: float, points: Tensor) -> Tensor:
    return weight * points.sum(-1)


def _around(centres: Centres, *, name: str, inward: bool) -> Problem:
    """Mass travels between centres at least 2 apart and the unit spheres around them.

    Spheres around such centres touch at most, so a point of a sphere has no centre nearer than its
    own: every unit of mass moves by exactly 1, and the distance to the nearest centre is optimal.
    """
    draw = partial(_draw_spheres, centres), partial(_draw_centres, centres)
    draw_p, draw_q = draw if inward else reversed(draw)
    potential = partial(_height, centres, *((0.0, 1.0) if inward else (1.0, -1.0)))
    return Problem(name, len(centres[0]), 1.0, potential, draw_p, draw_q)


def _draw_centres(centres: Centres, n: int, generator: Generator) -> Tensor:
    indices = torch.randint(len(centres), (n,), generator=generator, device=generator.device)
    return torch.tensor(centres, device=generator.device)[indices]


def _draw_spheres(centres: Centres, n: int, generator: Generator) -> Tensor:
    normal = torch.randn(n, len(centres[0]), generator=generator, device=generator.device)
    return _draw_centres(centres, n, generator) + normalize(normal, dim=-1)


def check_last_dimension(points: Tensor, dim: int) -> None:
    """Raises unless the points are of the problem's dimension."""
    if points.shape[-1:] != (dim,):
        rule = f"must have last dimension {dim}"
        raise ArgumentError("Problem.potential", "points", rule, f"shape {tuple(points.shape)}")


def _height(centres: Centres, base: float, slope: float, points: Tensor) -> Tensor:
    """`base + slope * (distance to the nearest centre)`, `(..., dim) -> (...)`."""
    check_last_dimension(points, len(centres[0]))
    gaps = points.unsqueeze(-2) - points.new_tensor(centres)
    return base + slope * torch.linalg.vector_norm(gaps, dim=-1).amin(-1)
