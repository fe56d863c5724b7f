r"""Sums, products and roots of non-negative float64 tensors, never below the truth.

Each result is the nearest float, or the one above it where the nearest lies below the exact value.
The error of a sum and of a product is itself a float (Knuth's TwoSum, Dekker's TwoProduct), so its
sign tells which; exact results stay exact.
"""

import math

import torch
from torch import Tensor

_SPLIT = 2.0**27 + 1
# Within these limits neither the splitting of a factor nor the error of a product leaves the range.
_LEAST, _MOST = 2.0**-400, 2.0**400


def add_up(a: Tensor, b: Tensor) -> Tensor:
    """The least float that is not below `a + b`, entry by entry; infinity stays infinity.

    Example:
        >>> one, bit = torch.ones((), dtype=torch.float64), torch.tensor(2.0**-60).double()
        >>> add_up(one, one).item(), add_up(one, bit).item() > 1
        (2.0, True)
    """
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    return torch.where((error > 0) & total.isfinite(), _above(total), total)


def multiply_up(a: Tensor, b: Tensor) -> Tensor:
    """A float that is not below `a * b`, the least one for usual sizes; 0 wins over infinity.

    Example:
        >>> third = torch.tensor(1 / 3).double()
        >>> multiply_up(third, 3 * third).item() >= 1 / 3
        True
    """
    zero = (a == 0) | (b == 0)
    product = torch.where(zero, 0.0, a * b)
    usual = (a >= _LEAST) & (a <= _MOST) & (b >= _LEAST) & (b <= _MOST)
    error = _product_error(torch.where(usual, a, 1.0), torch.where(usual, b, 1.0))
    exact = zero | product.isinf() | (usual & (error <= 0))
    return torch.where(exact, product, _above(product))


def sqrt_up(a: Tensor) -> Tensor:
    """A float that is not below the root of `a`, at most one unit above the nearest.

    Example:
        >>> sqrt_up(torch.tensor([9.0, 2.0]).double()).tolist()[0]
        3.0
    """
    root = a.sqrt()
    usual = (root >= _LEAST) & (root <= _MOST)
    tame = torch.where(usual, root, 1.0)
    square = tame * tame
    enough = (square > a) | ((square == a) & (_product_error(tame, tame) >= 0))
    exact = (a == 0) | a.isinf() | (usual & enough)
    return torch.where(exact, root, _above(root))


def _product_error(a: Tensor, b: Tensor) -> Tensor:
    """The exact value of `a * b` minus the rounded one."""
    product = a * b
    a_high, b_high = a * _SPLIT, b * _SPLIT
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _above(x: Tensor) -> Tensor:
    return torch.nextafter(x, torch.full_like(x, math.inf))
