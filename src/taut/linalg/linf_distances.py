r"""Largest differences between points and rows of a weight, exact or smooth, with fast derivatives.

$$M_{bo} = \max_i |x_{bi} - w_{oi}|, \qquad
y_{bo} = M_{bo} \Bigl(\sum_i \max\Bigl(0, 1 + \tfrac p8
\Bigl(\tfrac{|x_{bi} - w_{oi}|^2}{M_{bo}^2} - 1\Bigr)\Bigr)^4\Bigr)^{1/p}.$$

The smooth distance is the $\ell_8$ norm for $p = 8$ and tends to the maximum as $p$ grows. Near the largest
difference its terms are those of the $\ell_p$ norm to first order, but cost three squarings for any $p$.

Forward and backward passes are reductions of the same cube `batch x out x in`, which is never stored:
large ones are fused by `torch.compile` (C++ on CPUs, Triton on GPUs), small ones, and all of them where no
compiler is found, go chunk by chunk.
"""

import logging
import math
from collections.abc import Callable
from functools import cache
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
_SMALLEST_EXPONENT = 8


def linf_distance(
    x: Tensor, weight: Tensor, p: float = math.inf, *, compiled: bool = True
) -> Tensor:
    r"""The distance of every point to every row, $\max_i |x_{bi} - w_{oi}|$, or a smooth distance above it.

    1-Lipschitz in each point from $\ell_\infty$ for $p = \infty$, where several coordinates that share the
    maximum each get its derivative. For finite $p$ it is $y$ above. Its derivative is taken with $M$ held
    constant; for $p = 8$, where $M$ cancels, it is that of the norm. Sums are scaled by $M$ and never
    overflow.

    Args:
        x: `(..., in)`.
        weight: `(out, in)`.
        p: at least 8; the maximum for infinity.
        compiled: whether large reductions are fused by `torch.compile`, where a compiler is found;
            the first then waits for it.

    Returns:
        `(..., out)`.

    Example:
        >>> linf_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, 1.0]]))
        tensor([[4., 1.]])
        >>> linf_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 3.0]]), 8) / 3
        tensor([[1.0905]])
    """
    if not p >= _SMALLEST_EXPONENT:
        rule = "must be infinity or at least 8"
        remedy = "Use 8 to about 1000 in training and math.inf in evaluation."
        raise ArgumentError("linf_distance", "p", rule, f"p={p!r}", remedy)
    points = x.reshape(-1, x.shape[-1])
    differentiated = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if torch.compiler.is_compiling() or in_transform():
        y = _distance(points, weight, p)[0]
    elif math.isinf(p) and not differentiated:
        # Half as fast as a fused kernel, but nothing waits for a compiler.
        y = _maxima(points, weight, compiled=False)
    else:
        y = _Distance.apply(points.contiguous(), weight.contiguous(), p, compiled)[0]  # type: ignore[index]
    return y.reshape(*x.shape[:-1], len(weight))


def _largest(x: Tensor, w: Tensor) -> Tensor:
    """The largest differences `(batch, out)`."""
    return (x.unsqueeze(1) - w).abs().amax(-1)


def _maxima(x: Tensor, w: Tensor, compiled: bool) -> Tensor:
    """The same by the fastest way; `torch.cdist` knows no narrower dtype than float32."""
    narrow = not {x.dtype, w.dtype} <= {torch.float32, torch.float64}
    if narrow or (compiled and _is_large(x, w.numel())):
        return _reduce(_largest, (x,), (w,), compiled)
    return torch.cdist(x, w, p=math.inf)


def _terms(scaled: Tensor, offset: Tensor | float) -> Tensor:
    """The fourth roots of the terms, from differences times `_scale`."""
    # Not from 0: products of small numbers would be subnormal, and slow. Its cube is below all roundoff.
    least = torch.finfo(scaled.dtype).eps ** (2 / 3)
    return (scaled * scaled + offset).clamp(min=least)


def _total(x: Tensor, scale: Tensor, w: Tensor, offset: Tensor | float) -> Tensor:
    """The sums of the terms `(batch, out)`."""
    term = _terms((x.unsqueeze(1) - w) * scale.unsqueeze(-1), offset)
    term = term * term
    return (term * term).sum(-1)


def _pulled_back(a: Tensor, scale: Tensor, grad: Tensor, b: Tensor, offset: Tensor) -> Tensor:
    r"""The gradient of points `(rows, in)`, from scales and weights of the derivatives `(rows, others)`.

    A distance is symmetric, so points and rows of the weight may change places. `b` is `(in, others)`:
    the sum runs over the last index of everything, which is contiguous.
    """
    scaled = (a.unsqueeze(-1) - b) * scale.unsqueeze(1)
    term = _terms(scaled, offset)
    return (term * term * (term * scaled) * grad.unsqueeze(1)).sum(-1)


def _pulled_back_exactly(a: Tensor, y: Tensor, grad: Tensor, b: Tensor) -> Tensor:
    """The gradient of points as in `_pulled_back`, from maxima `y`."""
    difference, y, grad = a.unsqueeze(-1) - b, y.unsqueeze(1), grad.unsqueeze(1)
    return (grad.where(difference >= y, 0.0) - grad.where(difference <= -y, 0.0)).sum(-1)


def _steepness(p: float) -> float:
    return p / _SMALLEST_EXPONENT


def _scale(largest: Tensor, p: float) -> Tensor:
    return math.sqrt(_steepness(p)) / largest.clamp(min=p * _tiny(largest))


def _offset(x: Tensor, p: float) -> Tensor:
    """A tensor, or each value would be compiled."""
    return x.new_tensor(1 - _steepness(p))


def _distance(x: Tensor, w: Tensor, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Distances, scales and sums `(batch, out)` from plain operations, which may be traced."""
    largest = _largest(x, w)
    if math.isinf(p):
        return largest, largest, largest
    largest = largest.detach()
    scale = _scale(largest, p)
    total = _total(x, scale, w, 1 - _steepness(p))
    return largest * total.pow(1 / p), scale, total


class _Distance(torch.autograd.Function):
    """Distances, and what their derivatives need: scales and sums."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, p: float, compiled: bool) -> tuple[Tensor, Tensor, Tensor]:
        largest = _maxima(x, w, compiled)
        if math.isinf(p):
            return largest, largest.new_empty(0), largest.new_empty(0)
        scale = _scale(largest, p)
        total = _reduce(_total, (x, scale), (w, _offset(x, p)), compiled)
        return largest * total.pow(1 / p), scale, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, w, ctx.p, ctx.compiled = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, w, *output)

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor, *unused: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, w, y, scale, total = ctx.saved_tensors
        differentiated = torch.is_grad_enabled()
        if differentiated:  # derivatives of derivatives, from plain operations
            y, scale, total = _distance(x, w, ctx.p)
        if math.isinf(ctx.p):
            kernel, offset, rest = _pulled_back_exactly, (), y
        else:
            kernel, offset, rest = _pulled_back, (_offset(x, ctx.p),), scale
            # Below 1 only where all differences are 0, and there the derivative is taken to be 0.
            share = total.clamp(min=0.5).pow(1 / ctx.p - 1)
            grad = grad * share / math.sqrt(_steepness(ctx.p))
        if differentiated:
            of_x = kernel(x, rest, grad, w.T, *offset)
            return of_x, kernel(w, rest.T, grad.T, x.T, *offset), None, None
        of_x = of_w = None
        # Below the roundoff of all sums; products with smaller ones would be subnormal numbers, and slow.
        if grad.numel():
            lost = torch.finfo(grad.dtype).eps ** 2 * grad.abs().amax()
            grad = grad.where(grad.abs() > lost, 0.0)
        if ctx.needs_input_grad[0]:
            whole = (w.T.contiguous(), *offset)
            of_x = _reduce(kernel, (x, rest, grad), whole, ctx.compiled)
        if ctx.needs_input_grad[1]:
            rows = (w, rest.T.contiguous(), grad.T.contiguous())
            of_w = _reduce(kernel, rows, (x.T.contiguous(), *offset), ctx.compiled)
        return of_x, of_w, None, None


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny


def _is_large(rows: Tensor, row_entries: int) -> bool:
    # The compiler specialises on sizes of 1, and gives up on a function that it compiled too often.
    least = _WORTH_IN_WIDE if rows.shape[1] >= _WIDE else _WORTH_COMPILING
    return min(rows.shape) > 1 and len(rows) * row_entries >= least


def _reduce(
    kernel: Callable[..., Tensor],
    rows: tuple[Tensor, ...],
    whole: tuple[Tensor, ...],
    compiled: bool,
) -> Tensor:
    """A reduction of the cube: fused if that is worth a compilation, else chunk by chunk of rows."""
    worth = compiled and _is_large(rows[0], whole[0].numel())
    fused = _fused(kernel) if worth else None
    if fused is not None:
        return fused(*(part.detach() for part in (*rows, *whole)))
    size = max(1, _CHUNK // max(1, whole[0].numel()))
    parts = zip(*(part.split(size) for part in rows), strict=True)
    return torch.cat([kernel(*part, *whole) for part in parts])


@cache
def _fused(kernel: Callable[..., Tensor]) -> Callable[..., Tensor] | None:
    """The kernel as one loop by the compiler, tried on a small case; None without a compiler."""
    compiled = torch.compile(kernel, dynamic=True, fullgraph=True)
    sizes = {
        _largest: [(3, 5), (4, 5)],
        _total: [(3, 5), (3, 4), (4, 5), ()],
        _pulled_back: [(3, 5), (3, 4), (3, 4), (5, 4), ()],
        _pulled_back_exactly: [(3, 5), (3, 4), (3, 4), (5, 4)],
    }[kernel]
    try:
        with torch.no_grad():
            compiled(*(torch.ones(size) for size in sizes))
    except Exception as error:  # whatever a compiler raises that is absent or broken
        _LOG.info("distances are computed without a compiler: %s", error)
        return None
    return compiled
