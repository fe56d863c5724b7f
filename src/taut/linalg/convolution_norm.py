r"""Operator norms of convolutions, proven.

A strided convolution is a plain one between blocks: with $u = sb + r$ the input becomes blocks `b`
of `s` phases `r`, the kernel a matrix over the phases per block offset, and the stride 1. All
bounds below speak of that form, on an infinite lattice or on circles. Groups are blocks on a
diagonal: the largest counts. A transposed convolution is the adjoint of a plain one: its norm is
the dual norm of that.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from torch import Tensor

from taut.bounds import Bound
from taut.errors import ArgumentError, check_choice, check_count
from taut.linalg.autocorrelation import bound_autocorrelation
from taut.linalg.convolution_axis import Blocks, ConvAxis, padding_sides, per_dimension
from taut.linalg.convolution_symbol import bound_symbol, widen_grid
from taut.linalg.matrix_norm import bound_operator_norm, bound_spectral_norm
from taut.linalg.padding_norm import PADDING_MODES, bound_padding, norm_of_copies
from taut.linalg.rounding import exact_double, float_up, scale_to_unit, sqrt_up
from taut.norms import L1, L2, LINF, Norm, NormLike, as_norm

# Multiplications: what takes a few seconds on one core chooses the grid of frequencies, and what
# takes longer than a minute leaves the proof to the flattened kernel.
_QUICK, _MOST = 3 * 10**9, 2 * 10**10

# Frequencies for each degree of the symbol, at least: the factor for what lies between them is
# 1.09 for kernels of 3 x 3.
_COARSEST = 5.5

# How far a quick bound may be above the norm for slower ones not to be tried.
_NEARLY = 1e-5


def bound_convolution(
    kernel: Tensor,
    norm: NormLike,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    padding_mode: str = "zeros",
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
    input_size: Sequence[int] | None = None,
) -> Bound:
    r"""A proven upper bound of the norm of the linear map that torch's convolutions compute.

    - LINF: the largest $\sum |K|$ of an output channel. L1: the largest $\sum |K|$ of an input
      channel and phase of the stride. Both are attained as soon as one window lies inside the
      input; for kernels that wrap around a circle they are upper bounds.
    - L2: the smaller of $\sqrt{\|\cdot\|_1 \|\cdot\|_\infty}$ (Schur) and the largest spectral norm
      of a transfer matrix (`bound_symbol`). With circular padding of a known size, the frequencies
      of that circle give the norm itself, within 1e-8. With zero padding the map is a block of the
      map on a longer circle, on which nothing wraps: its frequencies give an upper bound. For sizes
      unknown or large, a grid of frequencies bounds the supremum over all (`widen_grid`); dilation
      does not change that. Kernels that are orthonormal to rounding, or nearly, are recognised by
      their autocorrelation (`bound_autocorrelation`). A kernel too large for any grid is bounded by
      $\sqrt{|Q|}$ times the spectral norm of the kernel flattened either way, for $|Q|$ taps.
    - Reflect, replicate and symmetric padding copy inputs: the norm of the map without padding times
      `bound_padding`. Circular padding has the smaller of that and the circle's own bound, times
      $\mu^{1/p}$ if the padding repeats whole outputs $\mu$ times.

    Args:
        kernel: `(out, in / groups, *sizes)`, transposed `(in, out / groups, *sizes)`, with one to
            three spatial dimensions, any real floating-point dtype.
        norm: norm of input and output.
        stride: step of the windows.
        padding: padding per dimension, on both sides; or "same" or "valid".
        padding_mode: "zeros", "circular", "reflect", "replicate" or "symmetric".
        dilation: step between taps.
        groups: number of independent blocks of channels.
        transposed: whether the map is torch's `conv_transpose`.
        output_padding: extra size of the output of a transposed convolution.
        input_size: spatial size of the input; None for a bound that holds for every size.

    Raises:
        NonFiniteError: when the kernel holds NaN or infinity.

    Example:
        >>> kernel = torch.tensor([[[1.0, -2.0, 1.0]]])
        >>> bound_convolution(kernel, "linf", padding=1)
        Bound(<= 4.0, linf, proven)
        >>> bound_convolution(kernel, "l2", padding=1, input_size=(4,)).value < 4
        True
    """
    subject = "bound_convolution"
    p = as_norm(norm, subject)
    dims = kernel.dim() - 2
    if not 1 <= dims <= 3:
        rule = "must be (out, in / groups, *sizes) with one to three sizes"
        raise ArgumentError(subject, "kernel", rule, f"shape {tuple(kernel.shape)}")
    check_choice(subject, "padding_mode", padding_mode, PADDING_MODES)
    check_count(subject, "groups", groups)
    if kernel.shape[0] % groups:
        got = f"groups={groups}, shape {tuple(kernel.shape)}"
        raise ArgumentError(subject, "groups", "must divide the first size of `kernel`", got)
    if transposed and padding_mode != "zeros":
        rule, got = "must be 'zeros' for a transposed convolution", f"padding_mode={padding_mode!r}"
        raise ArgumentError(subject, "padding_mode", rule, got, "torch has no other.")
    if kernel.numel() == 0:
        return Bound(0.0, p, method="empty")
    blocks = exact_double(subject, kernel).unflatten(0, (groups, -1))
    strides = per_dimension(subject, "stride", stride, dims)
    steps = per_dimension(subject, "dilation", dilation, dims)
    extra = per_dimension(subject, "output_padding", output_padding, dims, minimum=0)
    pads = padding_sides(subject, padding, kernel.shape[2:], strides, steps)
    sizes: Sequence[int | None] = [None] * dims
    if input_size is not None:
        sizes = per_dimension(subject, "input_size", input_size, dims)
    arguments = zip(kernel.shape[2:], strides, steps, pads, sizes, strict=True)
    axes = [ConvAxis(*each) for each in arguments]
    near = None
    if p == L2:
        quick = bound_autocorrelation(kernel, stride=strides, dilation=steps, groups=groups)
        near = quick if quick <= _least(kernel, strides, groups) * (1 + _NEARLY) else None
    if transposed:
        adjoint = [axis.adjoint(more).blocks() for axis, more in zip(axes, extra, strict=True)]
        value, method = _bound_on_lattice(blocks, adjoint, p.dual, near)
        return Bound(value, p, method=f"adjoint: {method}")
    if padding_mode == "zeros":
        value, method = _bound_on_lattice(blocks, [axis.blocks() for axis in axes], p, near)
        return Bound(value, p, method=method)
    if near is not None and padding_mode == "circular" and _closes(axes):
        value, method = _bound_on_lattice(
            blocks, [axis.circular_blocks() for axis in axes], p, near
        )
        return Bound(value, p, method=f"circle: {method}")
    outward = [amount for pair in reversed(pads) for amount in pair]
    copies = bound_padding(outward, padding_mode, p, input_size).value
    value, method = _bound_on_lattice(blocks, [axis.padded().blocks() for axis in axes], p, near)
    found = [(_times_up(value, copies), f"padding times {method}")]
    if padding_mode == "circular":
        value, method = _bound_on_lattice(blocks, [axis.circular_blocks() for axis in axes], p)
        repeats = math.prod(axis.repeats() for axis in axes)
        found.append((_times_up(value, norm_of_copies(repeats, p)), f"circle: {method}"))
    value, method = min(found)
    return Bound(value, p, method=method)


def _least(kernel: Tensor, strides: Sequence[int], groups: int) -> float:
    """A number below the norm, on a lattice, up to rounding: the length of the longest filter."""
    scaled, exponent, _ = scale_to_unit(kernel.detach().double())
    energy = scaled.square()
    rows = float(energy.flatten(1).sum(1).amax())
    columns = float(energy.unflatten(0, (groups, -1)).sum(1).flatten(2).sum(2).amax())
    return math.ldexp(math.sqrt(max(rows, columns / math.prod(strides))), exponent)


def _closes(axes: list[ConvAxis]) -> bool:
    """Whether what holds on the whole lattice holds for inputs that are closed to circles as well."""
    closed = all(axis.size is not None and axis.size % axis.stride == 0 for axis in axes)
    return closed and all(axis.repeats() == 1 for axis in axes)


def _bound_on_lattice(
    blocks: Tensor, axes: list[Blocks], norm: Norm, near: float | None = None
) -> tuple[float, str]:
    """A bound of the map with kernel `(groups, out, in, *taps)`, and its proof in a few words.

    `near` is a bound of the L2 norm that is tight already, if there is one.
    """
    taps, offsets = split_phases(blocks, axes)
    columns = taps.movedim(1, -1).flatten(3)  # (groups, in, phases, taps * out)
    per_input = bound_operator_norm(columns.flatten(0, 2).T, L1)
    if norm == L1:
        return per_input.value, "sum over an input channel"
    per_output = bound_operator_norm(taps.flatten(2).flatten(0, 1), LINF)
    if norm == LINF:
        return per_output.value, "sum over an output channel"
    candidates = [] if near is None else [(near, "autocorrelation")]
    # A grid that must be widened cannot come as near as that.
    if near is None or all(axis.circle is not None for axis in axes):
        candidates.append(_bound_l2(taps.flatten(2, 3), offsets, axes))
    if math.isinf(per_input.value) or math.isinf(per_output.value):
        return min(candidates)
    schur = sqrt_up(Fraction(per_input.value) * Fraction(per_output.value))
    return min((schur, "Schur"), *candidates)


def split_phases(blocks: Tensor, axes: list[Blocks]) -> tuple[Tensor, list[list[int]]]:
    """The kernel `(groups, out, in, phases, *offsets)`, and the offsets, each once."""
    taps, offsets = blocks.unsqueeze(3), []
    for dim, axis in enumerate(axes):
        rows = sorted(set(axis.phases))
        columns = sorted(set(axis.offsets))
        moved = taps.movedim(4 + dim, -1)
        split = moved.new_zeros(*moved.shape[:-1], len(rows), len(columns))
        for j, (phase, offset) in enumerate(zip(axis.phases, axis.offsets, strict=True)):
            if axis.used[j]:
                split[..., rows.index(phase), columns.index(offset)] = moved[..., j]
        taps = split.movedim(-1, 4 + dim).movedim(-1, 4).flatten(3, 4)
        offsets.append(columns)
    return taps, offsets


def _bound_l2(taps: Tensor, offsets: list[list[int]], axes: list[Blocks]) -> tuple[float, str]:
    grids = list(_grids(offsets, [axis.circle for axis in axes]))
    budget = max(_QUICK, 2 * grids[-1].work(taps))  # the coarsest saves little on a small circle
    quick = [grid for grid in grids if grid.work(taps) <= budget]
    grid = quick[0]
    if grid.work(taps) > _MOST:
        return min(_bound_flattened(block) for block in (taps, taps.transpose(1, 2)))
    # The coarsest costs little more, and spectral convolutions are divided by its bound: none is proven
    # to be above 1 because a finer grid has other points.
    tried = [grid] if grid.factor == 1 or grid is grids[-1] else [grid, grids[-1]]
    found = []
    for each in tried:
        value = bound_symbol(taps, each.offsets, each.points, found[0][0] if found else 0.0)
        frequencies = " x ".join(map(str, each.points))
        found.append((_times_up(value, each.factor), f"{frequencies} frequencies"))
    return min(found)


@dataclass(frozen=True)
class ConvGrid:
    """A grid of frequencies, and the factor from the largest norm on it to the largest of all."""

    offsets: list[list[int]]
    points: list[int]
    factor: Fraction

    def work(self, taps: Tensor) -> int:
        """About the number of multiplications, with what else takes their time."""
        groups, *sides = taps.shape[:3]
        small, large = sorted(sides)
        each = groups * (small * large * (small + 60) + 300) + 30 * math.prod(taps.shape[3:])
        frequencies = math.prod(self.points[:-1]) * (self.points[-1] // 2 + 1)
        return frequencies * each


def _grids(offsets: list[list[int]], circles: list[int | None]) -> Iterator[ConvGrid]:
    """Grids of frequencies that prove the norm, from the finest to the coarsest."""
    if not any(circle is None for circle in circles):
        yield ConvGrid(offsets, [circle or 1 for circle in circles], Fraction(1))
    for density in (32, 16, 8, _COARSEST):
        yield _grid(offsets, circles, density)


def coarse_grid(offsets: list[list[int]]) -> ConvGrid:
    """The coarsest grid that `bound_convolution` uses, for every size of input."""
    return _grid(offsets, [None] * len(offsets), _COARSEST)


def _grid(offsets: list[list[int]], circles: list[int | None], density: float) -> ConvGrid:
    chosen, points, factor = [], [], Fraction(1)
    for places, circle in zip(offsets, circles, strict=True):
        # Frequencies that are multiplied, as by dilation, run through the same matrices.
        step = math.gcd(*(place - places[0] for place in places)) or 1
        shifted = [(place - places[0]) // step for place in places]
        wanted = max(1, math.ceil(density * shifted[-1]))
        exact = circle is not None and circle <= wanted
        chosen.append(places if exact else shifted)
        points.append(circle if exact else wanted)
        factor *= 1 if exact else widen_grid(shifted[-1], wanted)
    return ConvGrid(chosen, points, factor)


def _bound_flattened(taps: Tensor) -> tuple[float, str]:
    r"""$\sqrt{|Q|} \|(K_q)_q\|_2$, for every output adds up $|Q|$ images and no input enters more."""
    largest = max(bound_spectral_norm(block.flatten(1)).value for block in taps)
    return _times_up(largest, sqrt_up(Fraction(math.prod(taps.shape[3:])))), "flattened kernel"


def _times_up(value: float, factor: float | Fraction) -> float:
    return value if math.isinf(value) else float_up(Fraction(value) * Fraction(factor))
