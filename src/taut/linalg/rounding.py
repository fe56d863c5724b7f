r"""Arithmetic that errs on a known side: $\gamma_k$, outward rounding, exact scaling.

The model is the standard one. Each operation returns the exact result times $1 + \delta$ with
$|\delta| \le u$, plus an error of at most the smallest normal number when it underflows (which
also covers hardware that flushes to zero; with `torch.set_flush_denormal(True)`, denormal *inputs*
are read as zeros here as everywhere). A sum of products of `k` terms is then off by at most
$\gamma_k = ku/(1 - ku)$ times the sum of magnitudes, in any order of summation, with or without
fused multiply-add (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
"""

import math
from fractions import Fraction
from typing import TypeVar

import torch
from torch import Tensor

from taut.errors import ArgumentError, DtypeError, NonFiniteError

_Number = TypeVar("_Number", float, Tensor)


def check_arithmetic(subject: str) -> None:
    """Raises unless this thread rounds to nearest and keeps numbers below the normal range.

    Every proof here is a computation in float64 that assumes both.

    Raises:
        ArgumentError: after `torch.set_flush_denormal(True)`, or in another rounding mode.
    """
    for dtype, least in ((torch.float64, 2.0**-1074), (torch.float32, 2.0**-149)):
        one = torch.ones(4, dtype=dtype)
        half = torch.finfo(dtype).eps / 4
        if not bool(((one + half == 1) & (-one - half == -1) & (one - half / 4 == 1)).all()):
            rule = "this thread must round to nearest; another rounding mode is set"
            remedy = "Restore the usual one before proving anything."
            raise ArgumentError(subject, rule=rule, remedy=remedy)
        if not bool((torch.full((4,), least, dtype=dtype) * one > 0).all()):
            rule = "numbers below the normal range must be kept; they are flushed to zero"
            remedy = "Call torch.set_flush_denormal(False) before proving anything."
            raise ArgumentError(subject, rule=rule, remedy=remedy)


def unit_roundoff(dtype: torch.dtype = torch.float64) -> float:
    r"""The largest relative error $u$ of one rounding to nearest in `dtype`.

    Example:
        >>> unit_roundoff(torch.float32) == 2.0**-24
        True
    """
    if not dtype.is_floating_point:
        rule, got = "must be a real floating-point type", f"dtype={dtype}"
        raise DtypeError("unit_roundoff", "dtype", rule, got, "Use torch.float32 or torch.float64.")
    return torch.finfo(dtype).eps / 2


def gamma(k: int, dtype: torch.dtype = torch.float64) -> float:
    r"""The error constant $\gamma_k = ku / (1 - ku)$ of `k` roundings, itself rounded up.

    Raises:
        ArgumentError: when $ku \ge 1$, where the constant proves nothing.

    Example:
        >>> gamma(0), gamma(1) >= 2.0**-53
        (0.0, True)
    """
    accumulated = k * Fraction(unit_roundoff(dtype))
    if not 0 <= accumulated < 1:
        rule = "must satisfy 0 <= k * u < 1"
        raise ArgumentError("gamma", "k", rule, f"k={k} in {dtype}", "Accumulate in a wider dtype.")
    return float_up(accumulated / (1 - accumulated))


def round_up(x: _Number) -> _Number:
    """The next number above `x` in its dtype: above the truth that `x` is the nearest to.

    Example:
        >>> round_up(1.0) - 1.0 == 2.0**-52
        True
    """
    return _step(x, math.inf)


def round_down(x: _Number) -> _Number:
    """The next number below `x` in its dtype: below the truth that `x` is the nearest to.

    Example:
        >>> 1.0 - round_down(1.0) == 2.0**-53
        True
    """
    return _step(x, -math.inf)


def _step(x: _Number, towards: float) -> _Number:
    if isinstance(x, Tensor):
        return torch.nextafter(x, torch.full_like(x, towards))
    return math.nextafter(x, towards)


def float_up(x: Fraction) -> float:
    """The smallest float64 that is at least the rational `x`; infinity beyond the largest.

    Example:
        >>> Fraction(float_up(Fraction(1, 3))) >= Fraction(1, 3)
        True
    """
    try:
        nearest = float(x)
    except OverflowError:
        return math.inf if x > 0 else -torch.finfo(torch.float64).max
    if math.isinf(nearest) or Fraction(nearest) >= x:
        return nearest
    return math.nextafter(nearest, math.inf)


def sqrt_up(x: Fraction) -> float:
    """The root of the rational `x >= 0`, never below the truth and at most two roundings above it.

    Example:
        >>> sqrt_up(Fraction(4)), Fraction(sqrt_up(Fraction(2))) ** 2 >= 2
        (2.0, True)
    """
    above = float_up(x)
    root = math.sqrt(above)
    if math.isinf(root) or Fraction(root) ** 2 >= x:
        return root
    return math.nextafter(root, math.inf)


def check_floating(subject: str, argument: str, tensor: Tensor) -> None:
    """Raises for tensors of integers or complex numbers."""
    if not tensor.dtype.is_floating_point:
        rule, got = "must be a real floating-point tensor", f"dtype={tensor.dtype}"
        raise DtypeError(subject, argument, rule, got, "Convert it with .float().")


def exact_double(subject: str, tensor: Tensor) -> Tensor:
    """`tensor` in float64 on the CPU, detached: narrower floating-point types convert exactly.

    Raises:
        DtypeError: for integers and complex numbers.
        NonFiniteError: for NaN and infinity.
    """
    check_floating(subject, "weight", tensor)
    double = tensor.detach().to("cpu", torch.float64)
    if not math.isfinite(_largest_magnitude(double)):
        remedy = "Reload the weight, and look for the step that broke it."
        raise NonFiniteError(subject, "weight", "must be finite", "NaN or infinity", remedy)
    return double


def _largest_magnitude(x: Tensor) -> float:
    """The largest magnitude, 0 when empty, NaN where there is one; one pass, no copy."""
    if x.numel() == 0:
        return 0.0
    lowest, highest = torch.aminmax(x)
    return float(torch.maximum(-lowest, highest))


def multiply_by_power_of_two(x: Tensor, exponent: int) -> Tensor:
    r"""$2^e x$ in float64, exact for every entry that neither overflows nor underflows.

    An entry that underflows is off by at most the smallest normal number. Two factors, because
    $2^e$ itself may lie outside the range of float64.
    """
    half = exponent // 2
    return (x * math.ldexp(1.0, half)).mul_(math.ldexp(1.0, exponent - half))


def scale_to_unit(x: Tensor) -> tuple[Tensor, int, bool]:
    r"""The tensor $y = 2^{-e} x$ with largest magnitude in $[1/2, 1)$, `e`, and if it is exact.

    Squares and products of $y$ neither overflow nor lose the largest entries to underflow, however
    large or small `x` is. An entry more than $2^{1021}$ times below the largest one may underflow:
    then $|x - 2^e y| \le 2^e 2^{-1022}$ there, and the third result is False. Zeros and an
    empty tensor come back as they are, with exponent 0.

    Example:
        >>> scale_to_unit(torch.tensor([3.0, -8.0], dtype=torch.float64))
        (tensor([ 0.1875, -0.5000], dtype=torch.float64), 4, True)
    """
    exponent = math.frexp(_largest_magnitude(x))[1]
    scaled = multiply_by_power_of_two(x, -exponent)
    if exponent <= 0:
        return scaled, exponent, True
    least = math.ldexp(1.0, exponent - 1022)
    exact = not bool(((x != 0) & (x < least) & (x > -least)).any())
    return scaled, exponent, exact


def sum_up(x: Tensor) -> Tensor:
    r"""Sums of non-negative numbers over the last dimension, never below the truth.

    Each row is split against a power of two $\sigma \ge n \max_i x_i$ into
    $q_i = \mathrm{fl}(\mathrm{fl}(\sigma + x_i) - \sigma)$, a multiple of $2u\sigma$, and the rest
    $x_i - q_i$, which is exact and at most $u\sigma$. The $q_i$ add up without error in any order,
    for their partial sums are multiples of $2u\sigma$ below $2\sigma$; the rests are so small that
    the error of their sum hardly matters (Rump, Ogita and Oishi 2008).

    Args:
        x: `(..., n)`, float64, finite and non-negative.

    Returns:
        `(...)`: at most one unit in the last place above the exact sum for $n \le 2^{16}$ and
        rows between 1e-250 and 1e250; where no rest is left, as for short fractions, the exact sum.

    Example:
        >>> sum_up(torch.full((4,), 0.25, dtype=torch.float64))
        tensor(1., dtype=torch.float64)
    """
    n = x.shape[-1]
    if x.numel() == 0:
        return x.sum(-1)
    largest = x.amax(-1, keepdim=True).clamp(min=2.0**-900)
    if float(largest.max()) * n > 2.0**1020:
        return round_up(x.sum(-1) * (1 + 2 * gamma(n + 2)))
    # Dividing by the mantissa leaves the power of two exactly; exp2 may be off by a rounding.
    sigma = largest / torch.frexp(largest).mantissa * 2.0 ** (n - 1).bit_length()
    high = (x + sigma).sub_(sigma)
    rest = x - high
    a, b = high.sum(-1), rest.sum(-1)
    error = rest.abs_().sum(-1) * gamma(2 * n + 4)
    total = a + b
    part = total - a
    remainder = (a - (total - part)) + (b - part)
    missing = round_up(remainder + error)
    above = round_up(total)
    above = torch.where(above - total >= missing, above, round_up(total + missing))
    return torch.where(error > -remainder, above, total)
