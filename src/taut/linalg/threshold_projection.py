r"""Projection of rows by a threshold, $v_i = \max(|w_i| - \tau, 0)$ with signs: Newton's method."""

import math
from typing import Any

import torch
from torch import Tensor

from taut.linalg.rounding import gamma, sum_up, unit_roundoff

# Entries per block of rows: a block with its working copies stays in the processor's cache, which
# makes the passes over it several times faster than passes over a whole large matrix.
_BLOCK = 2**18


def project_by_threshold(w: Tensor, radius: float) -> Tensor:
    """`project_l1_ball` for each row of `w`."""
    return _Threshold.apply(w, radius)[0]  # type: ignore[index]


class _Threshold(torch.autograd.Function):
    @staticmethod
    def forward(w: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        rows = w.reshape(math.prod(w.shape[:-1]), w.shape[-1])
        projected = rows.clone(memory_format=torch.contiguous_format)
        moved = torch.zeros(len(rows), dtype=torch.bool, device=w.device)
        if rows.numel():
            size = max(1, _BLOCK // rows.shape[-1])
            for block, outside in zip(projected.split(size), moved.split(size), strict=True):
                outside.copy_(_project_block(block, radius))
        return projected.view(w.shape), moved.view(*w.shape[:-1], 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None], w: Tensor, radius: float
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return _Threshold.apply(w.movedim(in_dims[0], 0), radius), (0, 0)  # type: ignore[return-value]

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        return _project_on_face(ctx.saved_tensors, grad), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        # A projection is the gradient of a convex function: its derivative is symmetric.
        return _project_on_face(ctx.saved_tensors, tangent), None


def _project_on_face(output: tuple[Tensor, Tensor], direction: Tensor) -> Tensor:
    """The derivative of the threshold in a direction: rows that have moved stay on their face."""
    projected, moved = output
    face = projected.sign() * moved
    active = face.abs().sum(-1, keepdim=True).clamp(min=1)
    shared = (face * direction).sum(-1, keepdim=True) / active
    return torch.where(moved, face * (face * direction - shared), direction)


def _project_block(block: Tensor, radius: float) -> Tensor:
    """Projects the rows of `block` in place and says which have moved."""
    exact = block.double().abs()
    outside = _l1_norm_up(exact, radius) > radius
    if outside.all():
        moved = slice(None)
    elif outside.any():
        moved = outside.nonzero().squeeze(-1)
        exact = exact[moved]
    else:
        return outside
    inside = _round_inside(_shrink(exact, radius), block.dtype, radius).copysign_(block[moved])
    block[moved] = inside.add_(0.0)  # turns -0 into 0
    return outside


def _shrink(a: Tensor, radius: float) -> Tensor:
    """`max(a - tau, 0)` with sum `radius` in each row, up to rounding; overwrites `a`.

    Entries are taken relative to the largest of the row. Only those within `radius` of it can be
    active, so the numbers at work are of the size of `radius` even if the entries are huge.
    """
    below = a.sub_(a.amax(-1, keepdim=True))
    tau = ((below.sum(-1, keepdim=True) - radius) / below.shape[-1]).clamp(min=-radius)
    count = torch.full_like(tau, below.shape[-1] + 1)
    work = torch.empty_like(below)
    tol = radius * gamma(below.shape[-1])
    while True:
        torch.sub(below, tau, out=work).relu_()
        excess = work.sum(-1, keepdim=True).sub_(radius)
        if bool((excess.abs() <= tol).all()):
            return work
        active = work.sign_().sum(-1, keepdim=True)
        # Each pass drops an entry in some row or is the last, whatever rounding does.
        if bool((active >= count).all()):
            return torch.sub(below, tau, out=work).relu_()
        count = torch.minimum(active, count)
        tau.add_(excess.div_(active.clamp_(min=1)))


def _l1_norm_up(magnitude: Tensor, radius: float) -> Tensor:
    """Row sums that are never below the truth, and as sharp as can be where `radius` is near."""
    slack = 2 * gamma(magnitude.shape[-1] + 2)
    total = magnitude.sum(-1)
    near = ((total - radius).abs() <= slack * radius).nonzero().squeeze(-1)
    total *= 1 + slack
    if len(near):
        total[near] = sum_up(magnitude[near])
    return total


def _round_inside(v: Tensor, dtype: torch.dtype, radius: float) -> Tensor:
    """The rows `v >= 0` in `dtype`, a few roundings smaller where the sum is over `radius`."""
    slack = 2 * unit_roundoff(dtype)
    rounded = v.to(dtype, copy=True)
    while True:
        norm = _l1_norm_up(v.copy_(rounded), radius)
        outside = norm > radius
        if not outside.any():
            return rounded
        factor = torch.where(outside, radius / norm * (1 - slack), 1.0).clamp_(min=0)
        rounded.copy_(v.mul_(factor.unsqueeze(-1)))
        slack *= 2
