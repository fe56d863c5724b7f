r"""Operator norms of matrices: power iteration from below, and bounds that are theorems.

Power iteration approaches the largest singular value from below and is never a certificate.
The bounds hold for the stored matrix as a matrix of real numbers, every rounding included.
"""

from fractions import Fraction

import torch
from torch import Tensor

from taut.bounds import Bound
from taut.errors import ArgumentError, check_count
from taut.linalg.rounding import (
    exact_double,
    float_up,
    gamma,
    scale_to_unit,
    sqrt_up,
    sum_up,
    unit_roundoff,
)
from taut.linalg.symmetric import estimate_extreme_eigenvalues, symmetric_product
from taut.norms import L1, L2, LINF, Norm, NormLike, as_norm

# Matrices here have a largest entry near 1, and an operation that underflows is off by at most
# 2^-1022. So a sum of fewer than 2^100 such errors, even under a root, stays below this number.
UNDERFLOW = Fraction(1, 2**400)

_LARGE = 256


def power_iteration(
    weight: Tensor, vector: Tensor, num_steps: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Steps $u \leftarrow Wv/\|Wv\|$, $v \leftarrow W'u/\|W'u\|$ towards the top singular triple.

    For training: keep `v` and pass it back in, one step per update follows a slowly moving weight.
    The vectors are constants for autograd, so the derivative of $\sigma = u'Wv$ is $uv'$, that of
    the norm itself once converged. At most the norm in exact arithmetic: never a certificate.

    Args:
        weight: `(out, in)`.
        vector: `(in,)`, the start.
        num_steps: at least 1.

    Returns:
        `sigma` `()`, `u` `(out,)` and `v` `(in,)`.

    Example:
        >>> sigma, u, v = power_iteration(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 0.0]))
        >>> sigma
        tensor(5.)
    """
    _check_matrix("power_iteration", weight)
    check_count("power_iteration", "num_steps", num_steps)
    if vector.shape != weight.shape[1:]:
        rule = "must have one entry per column of `weight`"
        got = f"{tuple(vector.shape)} for a weight of {tuple(weight.shape)}"
        raise ArgumentError("power_iteration", "vector", rule, got)
    v = vector.detach()
    u = weight.new_zeros(weight.shape[0])
    constant = weight.detach()  # torch.no_grad would not keep forward-mode derivatives out
    for _ in range(num_steps):
        u = _normalize(constant @ v)
        v = _normalize(u @ constant)
    return torch.dot(u, weight @ v), u, v


def _normalize(x: Tensor) -> Tensor:
    """`x / |x|`, and zero for zero, without overflow or underflow of the squares."""
    x = x / x.abs().amax().clamp(min=torch.finfo(x.dtype).tiny) if x.numel() else x
    return x / torch.linalg.vector_norm(x).clamp(min=torch.finfo(x.dtype).tiny)


def bound_spectral_norm(weight: Tensor) -> Bound:
    r"""A proven upper bound of $\|W\|_2$, for any matrix, within about 1e-8 of the truth.

    **Theorem.** For real matrices $A$ (`(m, n)`), $L$ (`(n, n)`) and any number $c$,
    $\|A\|_2^2 \le c + \|A'A + LL' - cI\|_2$.
    *Proof.* $A'A = cI + (A'A + LL' - cI) - LL'$ and $LL'$ is positive semidefinite. $\square$

    Take for $A$ the weight (transposed if wide, scaled by a power of two), for $c$ a little more
    than the largest eigenvalue of $A'A$, and for $L$ the Cholesky factor of $cI - A'A$: the
    residual is then nothing but rounding. The theorem holds for any `c` and `L`, so it does not
    matter how they were computed; only the residual must be bounded. With
    $\hat G = \mathrm{fl}(A'A)$, $\hat P = \mathrm{fl}(LL')$ and
    $\hat E = \mathrm{fl}(\hat G + \hat P - cI)$:

    - $|\hat G - A'A| \le \gamma_m |A|'|A|$ entry by entry, and the 2-norm of the right side is at
      most $\gamma_m \|A\|_F^2$; likewise $\|\hat P - LL'\|_2 \le \gamma_n \|L\|_F^2$;
    - the sum and the shift add at most $3u|\hat E|$ per entry, and $uc$ on the diagonal;

    $$\|A\|_2^2 \le c(1 + u) + (1 + 3u)\|\hat E\|_F + \gamma_m \|A\|_F^2 + \gamma_n \|L\|_F^2.$$

    Underflow is below $2^{-400}$ and is added. The Frobenius norms are sums of `k` squares,
    divided by $1 - \gamma_k$; the last operations are rational, and the root is rounded up. The
    idea of proving definiteness by a floating-point Cholesky is Rump's (2006).

    Args:
        weight: `(out, in)`, any shape (0 when empty), any real floating-point dtype.

    Raises:
        NonFiniteError: when the weight holds NaN or infinity.

    Example:
        >>> bound = bound_spectral_norm(torch.tensor([[3.0], [4.0]]))
        >>> 5 <= bound.value <= 5 * (1 + 1e-14)
        True
    """
    a, exponent, exact = _scaled_matrix("bound_spectral_norm", weight)
    method = "Cholesky residual"
    if not a.any():
        return Bound(0.0, L2, method=method)
    a = a if a.shape[0] >= a.shape[1] else a.T
    m, n = a.shape
    u = unit_roundoff()
    gram = symmetric_product(a.T, a)
    c, factor = _complete(gram)
    residual = symmetric_product(factor, factor.T).add_(gram)
    residual.diagonal().sub_(c)
    squared = (
        Fraction(c) * (1 + Fraction(u))
        + (1 + 3 * Fraction(u)) * Fraction(sqrt_up(largest_square_up(residual[None])))
        + Fraction(gamma(m)) * largest_square_up(a[None])
        + Fraction(gamma(n)) * largest_square_up(factor[None])
        + UNDERFLOW
    )
    return Bound(_unscale_up(sqrt_up(squared), exponent, exact), L2, method=method)


def _complete(gram: Tensor) -> tuple[float, Tensor]:
    """A number `c` close above the largest eigenvalue, and a factor `L` with `LL' ~ cI - gram`."""
    if len(gram) > _LARGE:
        # A Lanczos run is much cheaper than all eigenvalues, and nearly always close enough.
        _, seen = estimate_extreme_eigenvalues(gram, num_steps=64)
        c = seen * (1 + 1e-8)
        factor, failed = shifted_factor(gram, c)
        if not failed:
            return c, factor
    largest = float(torch.linalg.eigvalsh(gram)[-1])
    slack = 4 * len(gram) * unit_roundoff()
    while True:
        c = largest * (1 + slack)
        factor, failed = shifted_factor(gram, c)
        if not failed:
            return c, factor
        slack *= 10


def shifted_factor(gram: Tensor, shift: float | Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factors of `shift * I - gram`, and for which matrices there is none."""
    shifted = -gram
    shifted.diagonal(dim1=-2, dim2=-1).add_(shift)
    factor, failed_at = torch.linalg.cholesky_ex(shifted)
    return factor, failed_at > 0


def bound_operator_norm(weight: Tensor, norm: NormLike, output: NormLike | None = None) -> Bound:
    r"""A proven upper bound of $\sup_{\|x\|_p \le 1} \|Wx\|_q$, the norm of `W` from `p` to `q`.

    - $q = \infty$: the largest dual norm of a row, so the largest row sum of magnitudes for
      $p = \infty$, the longest row for $p = 2$, the largest entry (exact) for $p = 1$;
    - $p = 1$: the largest q-norm of a column;
    - $p = q = 2$: `bound_spectral_norm`.

    Sums of magnitudes are within one unit in the last place of the truth (`sum_up`), so a weight
    of `project_l1_ball` with radius `r` is proven to have norm at most `r`, not `r (1 + 1e-13)`.
    Sums of `n` squares are divided by $1 - \gamma_n$.

    Args:
        weight: `(out, in)`.
        norm: norm `p` of the input, and of the bound.
        output: norm `q` of the output, by default `p`.

    Raises:
        ArgumentError: for the pairs without a closed form (2 to 1, infinity to 1 or 2).

    Example:
        >>> bound_operator_norm(torch.tensor([[1.0, -2.0], [0.5, 0.5]]), "linf")
        Bound(<= 3.0, linf, proven)
    """
    subject = "bound_operator_norm"
    p = as_norm(norm, subject)
    q = p if output is None else as_norm(output, subject)
    if p == q == L2:
        return bound_spectral_norm(weight)
    if q != LINF and p != L1:
        rule = "the pair of norms must have a closed form"
        got = f"{p!r} -> {q!r}, which is hard to compute"
        remedy = "Use equal norms, an output norm of LINF or an input norm of L1."
        raise ArgumentError(subject, rule=rule, got=got, remedy=remedy)
    scaled, exponent, exact = _scaled_matrix(subject, weight)
    of_rows = q == LINF
    vectors, vector_norm = (scaled, p.dual) if of_rows else (scaled.T, q)
    method = f"largest {vector_norm} norm of a {'row' if of_rows else 'column'}"
    if not scaled.any():
        return Bound(0.0, p, method=method)
    value = _largest_norm_up(vectors, vector_norm)
    return Bound(_unscale_up(value, exponent, exact), p, method=method)


def _largest_norm_up(vectors: Tensor, norm: Norm) -> float:
    """The largest norm of a row of `vectors`, whose largest entry lies in [1/2, 1)."""
    if norm == LINF:
        return float(vectors.abs().amax())
    if norm == L1:
        return float(sum_up(vectors.abs()).amax())
    return sqrt_up(largest_square_up(vectors))


def largest_square_up(batch: Tensor) -> Fraction:
    """The largest sum of squares of a tensor of a batch, not below the truth."""
    flat = batch.flatten(1)
    squares = Fraction(float(flat.square().sum(1).amax()))
    return squares / (1 - Fraction(gamma(flat.shape[1]))) + UNDERFLOW**2


def _unscale_up(value: float, exponent: int, exact: bool) -> float:
    dropped = 0 if exact else UNDERFLOW
    return float_up((Fraction(value) + dropped) * Fraction(2) ** exponent)


def _scaled_matrix(subject: str, weight: Tensor) -> tuple[Tensor, int, bool]:
    _check_matrix(subject, weight)
    return scale_to_unit(exact_double(subject, weight))


def _check_matrix(subject: str, weight: Tensor) -> None:
    if weight.dim() != 2:
        rule = "must be a matrix (out, in)"
        remedy = (
            "Flatten a convolution with taut.linalg.convolution_norm, or bound the matrices "
            "one by one."
        )
        raise ArgumentError(subject, "weight", rule, f"shape {tuple(weight.shape)}", remedy)
