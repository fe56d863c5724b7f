r"""The L2 norm of a kernel as a divisor: proven for every size of input, and quick enough for training.

As in `bound_symbol`, $\|A\|_2^2 \le c + \|AA^* + LL^* - cI\|_2$ for the transfer matrix $A = T(\omega)$ of
each frequency of a grid, and `widen_grid` covers what lies between them. Two things save time. A few power
iterations on all frequencies at once tell which matter for $c$; a bad one would cost time but no proof. And
single precision is enough where matrices are small: its rounding is bounded like everything else. The
gradient is that of the largest norm: with $T(\omega) v = \sigma u$ at its
frequency, $\sigma = \mathrm{Re}\, u^* T(\omega) v$ is linear in the kernel.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from taut.linalg.convolution_axis import ConvAxis
from taut.linalg.convolution_norm import ConvGrid, coarse_grid, split_phases
from taut.linalg.convolution_symbol import ROOT2, complete_squares, grid_angles
from taut.linalg.matrix_norm import largest_square_up
from taut.linalg.rounding import (
    exact_double,
    float_up,
    gamma,
    scale_to_unit,
    sqrt_up,
    unit_roundoff,
)
from taut.linalg.symmetric import even_vector

# The largest matrices for which single precision proves enough, and the numbers that are held at once.
_SMALL, _BATCH = 256, 2**22
# Power iterations for all frequencies, and how many of them are looked at closely: what is a little above
# the largest eigenvalue of these is nearly always above all.
_STEPS, _LEADERS, _ABOVE = 3, 6, 5e-3
# More than what underflow adds to numbers near 1, in either precision.
_UNDERFLOW = Fraction(1, 2**100)


def bound_kernel_norm(
    kernel: Tensor, *, stride: Sequence[int], dilation: Sequence[int], groups: int = 1
) -> tuple[float, Tensor]:
    """A proven bound of the L2 norm, for every size of input, and the gradient of the norm.

    The bound is the largest norm on a grid of frequencies, times a factor for what lies between them: at
    most a tenth above the norm for kernels in two dimensions.

    Args:
        kernel: `(out, in / groups, *taps)`, or what a transposed convolution holds.
        stride: one number for each dimension.
        dilation: one number for each dimension.
        groups: number of independent blocks of channels.

    Returns:
        The bound, and the gradient in the shape of the kernel, float64: an estimate, scaled such that
        its inner product with the kernel is the bound. Zeros have bound 0 and gradient 0.

    Example:
        >>> bound, gradient = bound_kernel_norm(torch.ones(1, 1, 3), stride=(1,), dilation=(1,))
        >>> 3 <= bound < 3.2
        True
        >>> (gradient * (3 / bound)).round(decimals=3)
        tensor([[[1., 1., 1.]]], dtype=torch.float64)
    """
    scaled, exponent, _ = scale_to_unit(exact_double("bound_kernel_norm", kernel))
    if not scaled.any():
        return 0.0, scaled
    taps, grid = _on_grid(scaled.unflatten(0, (groups, -1)), stride, dilation)
    _, rows, inside, phases = taps.shape[:4]
    quick = kernel.dtype == torch.float32 and min(rows, inside * phases) <= _SMALL
    taps = taps.to(torch.float32 if quick else torch.float64)
    angles = grid_angles(grid.offsets, grid.points)
    num_parts = -(-len(angles) * taps[..., 0].numel() // _BATCH)
    found = [
        (_prove(*_transfer_matrices(taps, part)), part) for part in angles.tensor_split(num_parts)
    ]
    squared = max(proof.squared for proof, _ in found)
    leader, part = max(found, key=lambda each: each[0].estimate)
    # Each part of a transfer matrix is off by this much of the sum of the magnitudes of its taps.
    unit, terms = Fraction(unit_roundoff(taps.dtype)), angles.shape[1]
    error = 16 * unit + 2 * Fraction(gamma(terms, taps.dtype))
    reach = taps.double().abs().flatten(4).sum(-1)
    error *= ROOT2 * Fraction(sqrt_up(largest_square_up(reach))) * (1 + Fraction(1, 2**20))
    bound = (Fraction(sqrt_up(squared)) + error + _UNDERFLOW) * grid.factor
    frequency, block = divmod(leader.place, groups)
    # Of u* T v, the real part of the coefficient of each tap.
    wave = torch.polar(torch.ones_like(part[frequency]), part[frequency])
    outer = leader.left.conj()[:, None] * leader.right
    derivative = (outer[..., None] * wave).real.reshape(rows, inside, -1)
    numbers = torch.arange(1, scaled[0, 0].numel() + 1).view(1, 1, 1, *kernel.shape[2:])
    place = _on_grid(numbers, stride, dilation)[0].flatten()
    gradient = torch.zeros_like(scaled).unflatten(0, (groups, -1)).flatten(3)
    gradient[block][..., place[place > 0] - 1] = derivative[..., place > 0]
    gradient = gradient.view_as(scaled)
    gradient *= float(bound) / float((gradient * scaled).sum())
    return float_up(bound * Fraction(2) ** exponent), gradient


def norm_on_grid(
    kernel: Tensor, *, stride: Sequence[int], dilation: Sequence[int], groups: int = 1
) -> Tensor:
    """What `bound_kernel_norm` bounds, as torch computes it: differentiable, and it looks at no values.

    Example:
        >>> norm_on_grid(torch.ones(1, 1, 3), stride=(1,), dilation=(1,)) < 3.2
        tensor(True)
    """
    taps, grid = _on_grid(kernel.unflatten(0, (groups, -1)), stride, dilation)
    angles = grid_angles(grid.offsets, grid.points).to(kernel.device)
    largest = torch.linalg.eigvalsh(torch.complex(*_square(*_transfer_matrices(taps, angles))))
    return largest[:, -1].amax().clamp_min(0).sqrt() * float_up(grid.factor)


class _Proof(NamedTuple):
    """A bound of the squared norms of some matrices, and where the largest seems to be."""

    squared: Fraction
    estimate: float
    place: int
    left: Tensor
    right: Tensor


def _prove(real: Tensor, imaginary: Tensor) -> _Proof:
    square = _square(real, imaginary)
    gram = torch.complex(*square)
    estimate, place = _look(gram)
    shifts, factor = complete_squares(gram, estimate * (1 + _ABOVE))
    top = float(shifts.amax())
    if top > estimate * (1 + _ABOVE + 1e-6):  # a norm that did not seem to be the largest
        estimate, place = top, int(shifts.argmax())
    vector = torch.linalg.eigh(gram[place].to(torch.complex128)).eigenvectors[:, -1]
    product = _square(factor.real, factor.imag)
    # Traces are squares of Frobenius norms, which bound the rounding of the products.
    gammas = [Fraction(gamma(2 * n + 2, real.dtype)) for n in (max(real.shape[1:]), len(vector))]
    traces = [
        _largest_trace(each) / (1 - g)
        for each, g in zip((square[0], product[0]), gammas, strict=True)
    ]
    residual = [ours.add_(theirs) for ours, theirs in zip(product, square, strict=True)]
    residual[0].diagonal(dim1=-2, dim2=-1).sub_(shifts[:, None])
    unit = Fraction(unit_roundoff(real.dtype))
    squared = (
        Fraction(top) * (1 + unit)
        + (1 + 4 * unit)
        * Fraction(
            sqrt_up(sum((largest_square_up(part.double()) for part in residual), Fraction(0)))
        )
        + ROOT2 * (gammas[0] * traces[0] + gammas[1] * traces[1])
        + _UNDERFLOW
    )
    matrix = torch.complex(real[place], imaginary[place]).to(torch.complex128)
    if real.shape[1] > real.shape[2]:
        right = vector.conj()
        return _Proof(squared, estimate, place, matrix @ right, right)
    return _Proof(squared, estimate, place, vector, matrix.mH @ vector)


def _largest_trace(square: Tensor) -> Fraction:
    sums = square.diagonal(dim1=-2, dim2=-1).double().sum(-1)
    return Fraction(float(sums.amax())) * (1 + Fraction(1, 2**20))


def _look(gram: Tensor) -> tuple[float, int]:
    """The largest eigenvalue of those that seem large after a few power iterations, and its place."""
    n = gram.shape[-1]
    vectors = even_vector(2 * n, gram.real).view(n, 2).to(gram.dtype)
    for _ in range(_STEPS):
        vectors = gram @ vectors
        lengths = torch.linalg.vector_norm(vectors, dim=-2, keepdim=True)
        vectors = vectors / torch.where(lengths > 0, lengths, 1.0)
    seen = lengths.flatten(1).amax(1)
    leaders = seen.topk(min(_LEADERS, len(seen))).indices
    values = torch.linalg.eigvalsh(gram[leaders])[:, -1]
    return float(values.amax()), int(leaders[values.argmax()])


def _on_grid(
    blocks: Tensor, stride: Sequence[int], dilation: Sequence[int]
) -> tuple[Tensor, ConvGrid]:
    """The kernel `(groups, out, in, phases, *offsets)`, and the frequencies at which it is looked at."""
    arguments = zip(blocks.shape[3:], stride, dilation, strict=True)
    axes = [ConvAxis(k, s, d, (0, 0), None).blocks() for k, s, d in arguments]
    taps, offsets = split_phases(blocks, axes)
    return taps, coarse_grid(offsets)


def _transfer_matrices(taps: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts, `(frequencies * groups, out, in * phases)`."""
    _, rows, inside, phases = taps.shape[:4]
    flat = taps.reshape(-1, angles.shape[1]).mT
    waves = (angles.cos(), angles.sin())
    real, imaginary = ((w.to(taps.dtype) @ flat).reshape(-1, rows, inside * phases) for w in waves)
    return real, imaginary


def _square(real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of `A A*`, A the matrices or their transposes, whichever are wide."""
    if real.shape[-2] > real.shape[-1]:
        real, imaginary = real.mT, imaginary.mT
    both = torch.cat([real, imaginary], -1)
    real, imaginary = both.chunk(2, -1)
    mixed = imaginary @ real.mT
    return both @ both.mT, mixed - mixed.mT
