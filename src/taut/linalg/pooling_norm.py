r"""Lipschitz constants of pooling: how many windows read one input, and with what weight?

The first question decides L1, the second LINF. Everything here is per dimension; the constants of
several dimensions multiply, for windows and weights are products.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from taut.bounds import Bound
from taut.errors import ArgumentError, check_choice, check_count
from taut.linalg.convolution_axis import per_dimension
from taut.linalg.matrix_norm import bound_operator_norm
from taut.linalg.padding_norm import norm_of_copies
from taut.linalg.rounding import float_up, sqrt_up, unit_roundoff
from taut.norms import L1, L2, LINF, Norm, NormLike, as_norm

_KINDS = ("average", "max", "lp")

# Beyond this a matrix of one dimension is no longer cheap; the bound for every size is used.
_LONGEST = 1024


def bound_pooling(
    kind: str,
    norm: NormLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    dims: int = 2,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    input_size: Sequence[int] | None = None,
) -> Bound:
    r"""A proven Lipschitz constant of average, max or L2 pooling, as torch computes them.

    Per dimension let $c_r$ be the number of window positions $j < k$ with $jd \equiv r$ modulo the
    stride: an input lies in at most $c = \max_r c_r = \lceil k/s \rceil$ windows (for $d = 1$).

    | kind | LINF | L2 | L1 |
    |---|---|---|---|
    | max | 1 | $\sqrt c$ | $c$ |
    | average | 1 | $\sqrt{\sum_r c_r^2} / k$ | $c/k$ |
    | lp (L2) | $\sqrt k$ | $\sqrt c$ | $c$ |

    *Max*: $|\Delta y_t| \le \max_{\text{window}} |\Delta x|$, at most the p-norm over the window,
    and each input is counted `c` times. *L2*: $|\Delta y_t|$ is at most the 2-norm over the window.
    *Average*: row and column sums; for L2 the symbol of the strided map is the row of the phases'
    Dirichlet sums, whose length is largest at frequency 0. All are least constants over all input
    sizes; so non-overlapping average pooling has the L2 constant $\prod k^{-1/2}$, exactly.

    Windows that torch divides by fewer than $k$ cells (`ceil_mode`, or a padding that is not
    counted) weigh more. For these the matrix of each dimension is built: of the known size, or,
    for column sums, of every size up to where the two borders no longer meet, with
    $\|A\|_2^2 \le \|A\|_1 \|A\|_\infty$. A known size also limits `c`, to
    the number of windows.

    Args:
        kind: "average", "max" or "lp" (with `norm_type` 2).
        norm: norm of input and output.
        kernel_size: cells of a window, per dimension.
        stride: step of the windows, by default `kernel_size`.
        padding: padding on each side; at most half a window.
        dims: number of pooled dimensions, 1 to 3.
        dilation: step between the cells of a window, for max pooling.
        ceil_mode: whether a last window that sticks out is kept.
        count_include_pad: whether average pooling counts the padding as cells.
        divisor_override: divisor of average pooling in place of the number of cells.
        input_size: size of the pooled dimensions; None for every size.

    Example:
        >>> bound_pooling("average", "l2", 2)
        Bound(<= 0.5, l2, proven)
        >>> bound_pooling("max", "l1", 3, 2)
        Bound(<= 4.0, l1, proven)
    """
    subject = "bound_pooling"
    p = as_norm(norm, subject)
    check_choice(subject, "kind", kind, _KINDS)
    check_count(subject, "dims", dims)
    k = per_dimension(subject, "kernel_size", kernel_size, dims)
    s = k if stride is None else per_dimension(subject, "stride", stride, dims)
    pads = per_dimension(subject, "padding", padding, dims, minimum=0)
    d = per_dimension(subject, "dilation", dilation, dims)
    n: Sequence[int | None] = [None] * dims
    if input_size is not None:
        n = per_dimension(subject, "input_size", input_size, dims)
    if (kind != "max" and max(d) > 1) or (kind == "lp" and max(pads) > 0):
        rule = f"must be what torch has for kind={kind!r}"
        got, remedy = f"dilation={dilation}, padding={padding}", "Leave it out."
        raise ArgumentError(subject, "dilation" if max(d) > 1 else "padding", rule, got, remedy)
    each = zip(k, s, pads, d, n, strict=True)
    windows = [_Windows(*numbers, ceil_mode, count_include_pad) for numbers in each]
    if kind == "max":
        return _by_counting(p, _product(w.overlap for w in windows), Fraction(1))
    if kind == "average" and divisor_override is not None:
        if divisor_override == 0:
            raise ArgumentError(subject, "divisor_override", "must not be 0", "0")
        scale = Fraction(math.prod(k), abs(divisor_override))
        return _by_weight(p, (w.uniform(p) for w in windows), scale)
    if kind == "average":
        return _by_weight(p, (w.average(p) for w in windows))
    reads = _product(w.k * w.average(L1) for w in windows)
    return _by_counting(p, reads, Fraction(sqrt_up(Fraction(math.prod(k)))))


def bound_adaptive_pooling(
    kind: str, norm: NormLike, output_size: Sequence[int], input_size: Sequence[int]
) -> Bound:
    r"""A proven Lipschitz constant of adaptive "average", "max" or "lp" pooling, one size per dimension.

    Window `i` of `m` reads the inputs from $\lfloor in/m \rfloor$ to
    $\lceil (i + 1)n/m \rceil - 1$. Max and L2 pooling have the constants of `bound_pooling` with the
    largest number of windows over one input; average pooling has a matrix per dimension, bounded
    by `bound_operator_norm`. Where `m` divides `n` it is plain pooling, with its exact constants.

    Example:
        >>> bound_adaptive_pooling("average", "l2", (1, 1), (4, 4))
        Bound(<= 0.25, l2, proven)
    """
    subject = "bound_adaptive_pooling"
    p = as_norm(norm, subject)
    check_choice(subject, "kind", kind, _KINDS)
    if len(output_size) != len(input_size):
        got = f"{len(output_size)} and {len(input_size)}"
        raise ArgumentError(subject, "output_size", "must have the length of `input_size`", got)
    counts, norms = Fraction(1), []
    for m, n in zip(output_size, input_size, strict=True):
        check_count(subject, "output_size", m)
        check_count(subject, "input_size", n)
        if n % m == 0:
            norms.append(_Windows(n // m, n // m, 0, 1, None, False, True).uniform(p))
            continue
        window = torch.arange(m)[:, None]
        start, stop = window * n // m, -(-(window + 1) * n // m)
        cells = torch.arange(n)
        inside = ((start <= cells) & (cells < stop)).double()
        counts *= int(inside.sum(0).amax())
        norms.append(_weighted(inside, stop - start, p))
    if kind != "average":
        # No window holds more entries than this.
        cells = math.prod(
            -(-n // m) + (n % m > 0) for m, n in zip(output_size, input_size, strict=True)
        )
        return _by_counting(p, counts, Fraction(sqrt_up(Fraction(cells if kind == "lp" else 1))))
    return _by_weight(p, norms)


class _Windows:
    """The windows of one dimension; the weights of average pooling in them."""

    def __init__(
        self, k: int, s: int, pad: int, d: int, n: int | None, ceil_mode: bool, counts_pad: bool
    ) -> None:
        if 2 * pad > d * (k - 1) + 1:
            rule, got = "must be at most half a window", f"padding={pad} for kernel_size={k}"
            raise ArgumentError("bound_pooling", "padding", rule, got, "torch refuses it too.")
        self.k, self.s, self.pad, self.d, self.n = k, s, pad, d, n
        self.ceil_mode, self.counts_pad = ceil_mode, counts_pad
        residues = [d * j % s for j in range(k)]
        self.per_residue = [residues.count(r) for r in set(residues)]

    @property
    def overlap(self) -> int:
        most = max(self.per_residue)
        return most if self.n is None else max(1, min(most, self.outputs(self.n)))

    def outputs(self, n: int) -> int:
        spare = n + 2 * self.pad - self.d * (self.k - 1) - 1
        count = (spare + (self.s - 1 if self.ceil_mode else 0)) // self.s + 1
        return count - (self.ceil_mode and (count - 1) * self.s >= n + self.pad)

    def uniform(self, norm: Norm) -> Fraction:
        """The norm with every weight 1/k; for L2 its square, which is rational."""
        if norm == LINF:
            return Fraction(1)
        if norm == L1:
            return Fraction(max(self.per_residue), self.k)
        return Fraction(sum(c * c for c in self.per_residue), self.k**2)

    def average(self, norm: Norm) -> Fraction:
        """The norm with the weights of torch; for L2 its square."""
        if norm == LINF or not (self.ceil_mode or (self.pad and not self.counts_pad)):
            return self.uniform(norm)
        if self.n is not None and self.n <= _LONGEST:
            return self.matrix_norm(self.n, norm)
        # Columns see windows within k cells; the right border depends on the size modulo s alone.
        sizes = range(1, 2 * (self.k + self.s + self.pad) + 2)
        # For L2 the largest column sum is Schur's bound of the square, for row sums are at most 1.
        return max(self.matrix_norm(n, L1) for n in sizes if self.outputs(n) > 0)

    def matrix_norm(self, n: int, norm: Norm) -> Fraction:
        start = torch.arange(self.outputs(n))[:, None] * self.s - self.pad
        cells = torch.arange(n)
        inside = ((start <= cells) & (cells < start + self.k)).double()
        stop = (start + self.k).clamp(max=n + self.pad)
        divisor = stop - start if self.counts_pad else inside.sum(1, keepdim=True)
        return _weighted(inside, divisor, norm)


def _weighted(inside: Tensor, divisor: Tensor, norm: Norm) -> Fraction:
    """The norm of the matrix of averages, for L2 its square; rows sum to at most 1."""
    if norm == LINF:
        return Fraction(1)
    # Quotients are off by a factor 1 + u at most, and norms of non-negative matrices are monotone.
    rounding = 1 + 2 * Fraction(unit_roundoff())
    value = Fraction(bound_operator_norm(inside / divisor.clamp(min=1), norm).value) * rounding
    return value**2 if norm == L2 else value


def _by_counting(norm: Norm, reads: Fraction, per_window: Fraction) -> Bound:
    """LINF: the constant of one window; L1 and L2: how often one input is read."""
    value = float_up(per_window) if norm == LINF else norm_of_copies(reads, norm)
    return Bound(value, norm, method="count of windows over one input")


def _by_weight(norm: Norm, norms: Iterable[Fraction], scale: Fraction = Fraction(1)) -> Bound:
    product = _product(norms)
    value = sqrt_up(product * scale**2) if norm == L2 else float_up(product * scale)
    return Bound(value, norm, method="weights of windows")


def _product(factors: Iterable[int | Fraction]) -> Fraction:
    return math.prod((Fraction(factor) for factor in factors), start=Fraction(1))
