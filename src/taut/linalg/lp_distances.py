r"""Distances between points and rows of a weight, in $\ell_p$ and $\ell_\infty$, with fast derivatives.

$$y_{bo} = \Bigl(\sum_i |x_{bi} - w_{oi}|^p\Bigr)^{1/p}, \qquad y_{bo} = \max_i |x_{bi} - w_{oi}|.$$

Forward and backward passes are three reductions of the same cube `batch x out x in`, which is never
stored: large ones are fused by `torch.compile` (C++ on CPUs, Triton on GPUs), small ones, and all of
them where no compiler is found, go chunk by chunk.
"""

import logging
import math
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from taut.errors import ArgumentError
from taut.linalg.func_transforms import in_transform

_LOG = logging.getLogger("taut")
_CHUNK = 2**17  # entries of the cube at once, without a compiler: what a cache holds
_WORTH_COMPILING = 2**22
# The last layer of a wide network is smaller, but its other layers have the same kernels.
_WIDE, _WORTH_IN_WIDE = 256, 2**18
_SMALL = 18  # exponents of which powers seldom vanish, so that one scale suits a whole row


def lp_distance(x: Tensor, weight: Tensor, p: float = math.inf, *, compiled: bool = True) -> Tensor:
    r"""The distance of every point to every row, $\|x_b - w_o\|_p$.

    1-Lipschitz in each point from $\ell_p$, hence from $\ell_\infty$ for $p = \infty$. Finite exponents
    are even, so that powers are products; they are scaled by the largest difference and never
    overflow. Where several coordinates share the maximum, each gets its derivative.

    Args:
        x: `(..., in)`.
        weight: `(out, in)`.
        p: infinity, or an even whole number.
        compiled: whether large reductions are fused by `torch.compile`, where a compiler is found;
            the first of each exponent then waits for it.

    Returns:
        `(..., out)`.

    Example:
        >>> lp_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, 1.0]]))
        tensor([[4., 1.]])
        >>> lp_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]), 2)
        tensor([[5.]])
    """
    if not math.isinf(p) and (p != int(p) or p < 2 or p % 2):
        rule = "must be infinity or an even whole number"
        remedy = "Use 8, 16, ..., 1024 in training and math.inf in evaluation."
        raise ArgumentError("lp_distance", "p", rule, f"p={p!r}", remedy)
    points = x.reshape(-1, x.shape[-1])
    differentiated = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if torch.compiler.is_compiling() or in_transform():
        y = _distance(points, weight, p)
    elif math.isinf(p) and not differentiated:
        # Half as fast as a fused kernel, but exact in any dtype, and nothing waits for a compiler.
        y = torch.cdist(points, weight, p=p)
    else:
        y = _Distance.apply(points.contiguous(), weight.contiguous(), p, compiled)
    return y.reshape(*x.shape[:-1], len(weight))  # type: ignore[union-attr]


_Bits = tuple[bool, ...]


def _bits(p: float) -> _Bits:
    """Half of a finite exponent in binary, lowest bit first: constants to the compiler."""
    half = 0 if math.isinf(p) else int(p) // 2
    return tuple(bool(half >> k & 1) for k in range(half.bit_length()))


def _power(square: Tensor, bits: _Bits, least: float) -> Tensor:
    """A power by repeated squaring, at least `least`: subnormal numbers are slow."""
    exponent = sum(bit << k for k, bit in enumerate(bits))
    square = square.clamp(min=least ** (1 / max(1, exponent)))
    result = None
    for place, bit in enumerate(bits):
        square = square * square if place else square
        if bit:
            result = square if result is None else result * square
    return torch.ones_like(square) if result is None else result


def _largest(x: Tensor, w: Tensor, *, bits: _Bits = ()) -> Tensor:
    """The largest differences `(batch, out)`."""
    return (x.unsqueeze(1) - w).abs().amax(-1)


def _powers(x: Tensor, scale: Tensor, w: Tensor, *, bits: _Bits) -> Tensor:
    """The sums of powers of all differences, times a scale `(batch, out)` or `(batch, 1)`."""
    ratio = (x.unsqueeze(1) - w) * scale.unsqueeze(-1)
    return _power(ratio * ratio, bits, 4 * _tiny(x)).sum(-1)


def _root(total: Tensor, scale: Tensor, p: float) -> Tensor:
    """The distances; where all differences are 0, their derivative is taken to be 0."""
    return total.clamp(min=_tiny(total)).pow(1 / p) / scale


def _distance(x: Tensor, w: Tensor, p: float) -> Tensor:
    """The distances `(batch, out)` from plain operations, which may be traced and differentiated."""
    largest = _largest(x, w)
    if math.isinf(p):
        return largest
    scale = 1 / largest.detach().clamp(min=_tiny(x))
    return _root(_powers(x, scale, w, bits=_bits(p)), scale, p)


def _pulled_back(a: Tensor, y: Tensor, grad: Tensor, b: Tensor, *, bits: _Bits) -> Tensor:
    r"""The gradient of points `(rows, in)`, from distances and gradients `(rows, others)`.

    A distance is symmetric, so points and rows of the weight may change places. `b` is `(in, others)`:
    the sum runs over the last index of everything, which is contiguous. For finite exponents `y` holds
    the reciprocals of the distances: a division for each entry of the cube would cost most of the time.
    """
    difference = a.unsqueeze(-1) - b
    y, grad = y.unsqueeze(1), grad.unsqueeze(1)
    if bits:
        ratio = difference * y
        # One factor less than the power has: the derivative is of odd degree p - 1.
        share = ratio * _power(ratio * ratio, _less_one(bits), torch.finfo(a.dtype).eps ** 2)
    else:
        return (grad.where(difference >= y, 0.0) - grad.where(difference <= -y, 0.0)).sum(-1)
    return (share * grad).sum(-1)


def _less_one(bits: _Bits) -> _Bits:
    lowest = bits.index(True)
    return (*(True for _ in range(lowest)), False, *bits[lowest + 1 :])


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, w: Tensor, p: float, compiled: bool) -> Tensor:
        if math.isinf(p):
            large = compiled and _is_large(x, w.numel())
            return _reduce(_largest, (x,), w, p, compiled) if large else torch.cdist(x, w, p=p)
        if p <= _SMALL:
            scale = _row_scales(x, w)
            total = _reduce(_powers, (x, scale), w, p, compiled)
            # What is lost below the smallest number is then below the roundoff of each sum.
            if total.numel() and total.amin() * torch.finfo(x.dtype).eps > _tiny(x) * x.shape[1]:
                return _root(total, scale, p)
        largest = _Distance.forward(x, w, math.inf, compiled)
        scale = 1 / largest.clamp(min=_tiny(x))
        return _root(_reduce(_powers, (x, scale), w, p, compiled), scale, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, w, ctx.p, ctx.compiled = inputs
        ctx.save_for_backward(x, w, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, w, y = ctx.saved_tensors
        differentiated = torch.is_grad_enabled()
        if differentiated:  # derivatives of derivatives, from plain operations
            y = _distance(x, w, ctx.p)
        if not math.isinf(ctx.p):
            y = 1 / y.clamp(min=_tiny(y))
        if differentiated:
            of_x = _pulled_back(x, y, grad, w.T, bits=_bits(ctx.p))
            return of_x, _pulled_back(w, y.T, grad.T, x.T, bits=_bits(ctx.p)), None, None
        of_x = of_w = None
        # Below the roundoff of all sums; products with smaller ones would be subnormal numbers, and slow.
        if grad.numel():
            lost = torch.finfo(grad.dtype).eps ** 2 * grad.abs().amax()
            grad = grad.where(grad.abs() > lost, 0.0)
        if ctx.needs_input_grad[0]:
            of_x = _reduce(_pulled_back, (x, y, grad), w.T.contiguous(), ctx.p, ctx.compiled)
        if ctx.needs_input_grad[1]:
            rows = (w, y.T.contiguous(), grad.T.contiguous())
            of_w = _reduce(_pulled_back, rows, x.T.contiguous(), ctx.p, ctx.compiled)
        return of_x, of_w, None, None


def _row_scales(x: Tensor, w: Tensor) -> Tensor:
    """Powers of 2 that bring all differences of a row below 1, `(batch, 1)`."""
    most = torch.maximum(x.abs().amax(1, keepdim=True), w.abs().amax()).clamp(min=_tiny(x))
    return torch.ldexp(torch.ones_like(most), -(torch.frexp(most).exponent + 1))


def _is_large(rows: Tensor, row_entries: int) -> bool:
    # The compiler specialises on sizes of 1, and gives up on a function that it compiled too often.
    least = _WORTH_IN_WIDE if rows.shape[1] >= _WIDE else _WORTH_COMPILING
    return min(rows.shape) > 1 and len(rows) * row_entries >= least


def _reduce(
    kernel: Callable[..., Tensor],
    rows: tuple[Tensor, ...],
    whole: Tensor,
    p: float,
    compiled: bool,
) -> Tensor:
    """A reduction of the cube: fused if that is worth a compilation, else chunk by chunk of rows."""
    worth = compiled and _is_large(rows[0], whole.numel())
    fused = _fused(kernel, _bits(p)) if worth else None
    if fused is not None:
        return fused(*(part.detach() for part in rows), whole.detach())
    size = max(1, _CHUNK // max(1, whole.numel()))
    parts = zip(*(part.split(size) for part in rows), strict=True)
    return torch.cat([kernel(*part, whole, bits=_bits(p)) for part in parts])


@cache
def _fused(kernel: Callable[..., Tensor], bits: _Bits) -> Callable[..., Tensor] | None:
    """The kernel as one loop by the compiler, tried on a small case; None without a compiler."""
    # The compiler gives up on a function that changes often, so each exponent has its own.
    name = f"{kernel.__name__}_{2 * sum(bit << k for k, bit in enumerate(bits))}"
    own = FunctionType(kernel.__code__.replace(co_name=name), kernel.__globals__, name)
    own.__kwdefaults__ = {"bits": bits}
    compiled = torch.compile(own, dynamic=True, fullgraph=True)
    sizes = {
        _largest: [(3, 5), (4, 5)],
        _powers: [(3, 5), (3, 4), (4, 5)],
        _pulled_back: [(3, 5), (3, 4), (3, 4), (5, 4)],
    }[kernel]
    try:
        with torch.no_grad():
            compiled(*(torch.ones(size) for size in sizes))
    except Exception as error:  # whatever a compiler raises that is absent or broken
        _LOG.info("distances are computed without a compiler: %s", error)
        return None
    return compiled
