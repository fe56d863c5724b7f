r"""The symbol of a convolution, and a proven bound of its largest spectral norm.

On a circle of $N$ points the Fourier transform turns $y_t = \sum_q K_q x_{t+q}$ into one matrix
per frequency, $T(\omega) = \sum_q K_q e^{i\omega q}$ with $\omega \in 2\pi\mathbb{Z}/N$, and the
operator norm is the largest $\|T(\omega)\|_2$. On all of $\mathbb{Z}$ it is the supremum over all
$\omega$. Several dimensions have a frequency each.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from taut.linalg.matrix_norm import UNDERFLOW, largest_square_up, shifted_factor
from taut.linalg.rounding import float_up, gamma, scale_to_unit, sqrt_up, sum_up, unit_roundoff

# Numbers per batch of transfer matrices: some ten megabytes with the working copies.
_BATCH = 2**17

# Above sqrt(2), for matrices whose real and imaginary parts are bounded one by one.
ROOT2 = Fraction(99, 70)


def widen_grid(degree: int, points: int) -> Fraction:
    r"""A factor from the largest $\|T\|_2$ on a grid to the supremum over all frequencies.

    **Theorem.** If $T$ has exponents from 0 to `m` and the grid $N \ge m$ points on the circle,
    $\sup_\omega \|T(\omega)\|_2 \le \max_{\text{grid}} \|T\|_2 / \cos(\pi m / 2N)$.

    *Proof.* Let $M = \sup \|T\|_2^2 = \|T(\omega_*)v\|^2$ with $\|v\| = 1$. Then
    $f(\omega) = \|T(\omega)v\|^2$ is a real trigonometric polynomial of degree at most `m` with
    values in $[0, M]$, so $g = f - M/2$ has its maximum modulus $M/2$ at $\omega_*$. A real
    trigonometric polynomial does not fall from there faster than the cosine (M. Riesz):
    $g(\omega) \ge \tfrac M2 \cos m(\omega - \omega_*)$ for $m|\omega - \omega_*| \le \pi$. A grid
    point lies within $\pi/N$, and $f \ge \tfrac M2 (1 + \cos\tfrac{\pi m}{N}) =
    M\cos^2\tfrac{\pi m}{2N}$ there. $\square$

    In several dimensions the factors multiply, one frequency after the other.

    Returns:
        The factor, rational, not below the truth.

    Example:
        >>> float(widen_grid(2, 64))
        1.0012...
    """
    x = Fraction(355, 113) * degree / (2 * points)  # 355/113 > pi
    cosine = 1 - x**2 / 2 + x**4 / 24 - x**6 / 720  # below, where the terms alternate and shrink
    return 1 / cosine


def grid_angles(offsets: Sequence[Sequence[int]], points: Sequence[int]) -> Tensor:
    r"""The angles $\omega \cdot q$ of one of each pair of conjugate frequencies, `(frequencies, taps)`."""
    frequencies, places, turn = _lattices(offsets, points)
    return _angles(frequencies @ places, turn)


def bound_symbol(
    taps: Tensor,
    offsets: Sequence[Sequence[int]],
    points: Sequence[int],
    guess: float = 0.0,
) -> float:
    r"""A proven upper bound of $\max_\omega \|\sum_q K_q e^{i\omega\cdot q}\|_2$ over a grid.

    For each frequency, $A = T(\omega)$ or its transpose, whichever is wide, satisfies
    $\|A\|_2^2 \le c + \|AA^* + LL^* - cI\|_2$ for any `c` and `L`, as in `bound_spectral_norm`;
    `L` is a Cholesky factor, `c` a little above the largest eigenvalue met so far, so that most
    frequencies need no eigenvalues. Complex products are sums of $2n$ real ones, and real and
    imaginary part of the residual are off by at most $\gamma_{2n}$ times the square of the
    Frobenius norm each.

    The transfer matrices themselves are one real product for the cosines and one for the sines.
    Angles are reduced exactly, as whole numbers, to $[-\pi, \pi]$; with three roundings and a
    cosine within two units in the last place each factor is off by less than $16u$, and so the
    matrices by at most $(16u + 2\gamma) \sum_q |K_q|$, entry by entry, in each part.

    Args:
        taps: `(groups, out, in, *number of offsets per dimension)`, float64.
        offsets: per dimension the exponents `q`.
        points: per dimension the number of frequencies $2\pi j/N$.
        guess: a number near the norm, if one is known; it saves time.

    Example:
        >>> taps = torch.tensor([[[[1.0, -1.0]]]], dtype=torch.float64)
        >>> 2 <= bound_symbol(taps, [[0, 1]], [8]) <= 2 + 1e-8
        True
    """
    scaled, exponent, _ = scale_to_unit(taps)
    if not scaled.any():
        return 0.0
    groups, rows, columns = scaled.shape[:3]
    flat = scaled.reshape(groups * rows * columns, -1).T.contiguous()
    frequencies, places, turn = _lattices(offsets, points)
    num_batches = min(len(frequencies), -(-len(frequencies) * flat.shape[1] // _BATCH))
    squared, c = Fraction(0), math.ldexp(guess, -exponent) ** 2
    for batch in range(num_batches):
        # Every batch is spread over all frequencies: the first meets nearly the largest norm.
        angles = _angles(frequencies[batch::num_batches] @ places, turn)
        parts = [(wave @ flat).reshape(-1, rows, columns) for wave in (angles.cos(), angles.sin())]
        bound, c = _bound_batch(parts[0], parts[1], c)
        squared = max(squared, bound)
    reach = sum_up(flat.T.abs())
    factor_error = 16 * Fraction(unit_roundoff()) + 2 * Fraction(gamma(len(flat)))
    error = ROOT2 * factor_error * Fraction(sqrt_up(largest_square_up(reach[None, None])))
    value = Fraction(sqrt_up(squared)) + error + UNDERFLOW
    return float_up(value * Fraction(2) ** exponent)


def _lattices(
    offsets: Sequence[Sequence[int]], points: Sequence[int]
) -> tuple[Tensor, Tensor, int]:
    """Whole numbers `f` `(frequencies, dims)` and `q` `(dims, taps)`, and the units of a full turn.

    The angle of frequency `f` at offset `q` is `f @ q` units. Frequencies come in conjugate pairs
    of equal norm; there is one of each pair.
    """
    turn = math.prod(points)
    frequencies = _pairs([torch.arange(n) * (turn // n) for n in points])
    ranks = torch.tensor([turn**dim for dim in range(len(points))])
    frequencies = frequencies[frequencies @ ranks <= (-frequencies % turn) @ ranks]
    places = [torch.tensor(list(each)) for each in offsets]
    return frequencies, _pairs(places).T.contiguous(), turn


def _pairs(axes: list[Tensor]) -> Tensor:
    return torch.stack([x.reshape(-1) for x in torch.meshgrid(*axes, indexing="ij")], -1)


def _angles(units: Tensor, turn: int) -> Tensor:
    units = units % turn
    units = torch.where(2 * units > turn, units - turn, units)
    return units.double() * (2 * math.pi / turn)


def _bound_batch(real: Tensor, imaginary: Tensor, c: float) -> tuple[Fraction, float]:
    """A bound of the squared norms of a batch of complex matrices, and the largest `c` so far."""
    if real.shape[-2] > real.shape[-1]:
        real, imaginary = real.mT, imaginary.mT
    m, n = real.shape[-2:]
    gram = torch.complex(*_square(real, imaginary))
    shifts, factor = complete_squares(gram, c)
    square = _square(factor.real, factor.imag)
    residual = torch.stack([square[0].add_(gram.real), square[1].add_(gram.imag)], 1)
    residual[:, 0].diagonal(dim1=-2, dim2=-1).sub_(shifts[:, None])
    c = float(shifts.amax())
    u = Fraction(unit_roundoff())
    return (
        Fraction(c) * (1 + u)
        + (1 + 3 * u) * Fraction(sqrt_up(largest_square_up(residual)))
        + ROOT2 * Fraction(gamma(2 * n)) * largest_square_up(torch.stack([real, imaginary], 1))
        + ROOT2 * Fraction(gamma(2 * m)) * largest_square_up(torch.view_as_real(factor))
        + UNDERFLOW
    ), c


def _square(real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of `A A*`, as products of real matrices."""
    both = torch.cat([real, imaginary], -1)
    return both @ both.mT, torch.cat([imaginary, -real], -1) @ both.mT


def complete_squares(gram: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """Numbers `c` above the eigenvalues of each matrix, and factors with `LL* ~ cI - gram`."""
    shifts = gram.real.new_full(gram.shape[:1], c)
    factor, failed = shifted_factor(gram, shifts[:, None])
    slack = 1e-9 if shifts.dtype == torch.float64 else 1e-5
    while failed.any():
        largest = float(torch.linalg.eigvalsh(gram[failed])[:, -1].amax())
        shifts[failed] = max(largest, c) * (1 + slack) + 1e-300
        factor[failed], still = shifted_factor(gram[failed], shifts[failed, None])
        failed[failed.clone()] = still
        slack *= 10
    return shifts, factor
