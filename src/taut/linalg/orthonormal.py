r"""The Stiefel manifold: nearest point, tangent space, and the way back after a step.

A matrix is *orthonormal* here when all its singular values are 1: $W^\top W = I$ if tall,
$W W^\top = I$ if wide, both if square.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from taut.errors import NonFiniteError, check_positive
from taut.linalg.symmetric import estimate_extreme_eigenvalues, gram, symmetric_product

__all__ = ["follow_tangent", "polar", "project_tangent", "retract", "rounding_margin"]

# A Lanczos run of eight steps sees about 0.95 of the spread of a matrix without outliers.
_UNSEEN = 1.15
_MOST_ROUNDS = 6


def polar(weight: Tensor) -> Tensor:
    r"""The nearest orthonormal matrix.

    $$\arg\min_Q \|Q - W\|_F \quad\text{subject to}\quad Q^\top Q = I$$

    (or $Q Q^\top = I$ if wide), by a singular value decomposition in float64: $Q = U V^\top$. It
    always has an outcome: where the nearest point is not unique (rank-deficient weights) one of
    the nearest is taken, the same one each time; entries of any finite size are scaled first.
    Differentiable once; directions in which the map jumps get derivative 0.

    Args:
        weight: `(..., out, in)`.

    Raises:
        NonFiniteError: the weight holds NaN or infinity.

    Example:
        >>> polar(torch.tensor([[0.0, -3.0], [5.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """
    return _Polar.apply(weight)[0]  # type: ignore[index]


class _Polar(torch.autograd.Function):
    @staticmethod
    def forward(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = weight.shape[-2] < weight.shape[-1]
        tall = (weight.mT if wide else weight).double()
        largest = tall.abs().amax((-2, -1), keepdim=True)
        if not torch.isfinite(largest).all():
            raise NonFiniteError(
                f"polar: `weight` must be finite; got NaN or infinity in a {tuple(weight.shape)} "
                "matrix. Lower the learning rate, clip gradients, or restore a checkpoint."
            )
        scale = torch.where(largest > 0, largest, 1.0)
        u, s, vh = torch.linalg.svd(tall / scale, full_matrices=False)
        q = (u @ vh).to(weight.dtype)
        # Adding zero turns -0. into 0.
        return (q.mT if wide else q) + 0.0, u, s * scale.squeeze(-1), vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        _, u, s, vh = output
        ctx.mark_non_differentiable(u, s, vh)
        ctx.save_for_backward(u, s, vh)
        ctx.save_for_forward(u, s, vh)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int], weight: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _Polar.apply(weight.movedim(in_dims[0], 0)), (0, 0, 0, 0)  # type: ignore[return-value]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Tensor:
        u, s, vh = ctx.saved_tensors
        return _derive_polar(u, s, vh, grad)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, None, None, None]:
        # The polar factor is the gradient of the nuclear norm: its derivative is symmetric.
        u, s, vh = ctx.saved_tensors
        return _derive_polar(u, s, vh, tangent), None, None, None


def _derive_polar(u: Tensor, s: Tensor, vh: Tensor, direction: Tensor) -> Tensor:
    """The derivative of `polar` at `u diag(s) vh` (tall) in a direction, and its own adjoint."""
    wide = direction.shape[-2] < direction.shape[-1]
    g = (direction.mT if wide else direction).double()
    core = u.mT @ g @ vh.mT
    sums = s.unsqueeze(-1) + s.unsqueeze(-2)
    least = torch.finfo(s.dtype).eps * s.amax(-1, keepdim=True).unsqueeze(-1)
    inside = torch.where(sums > least, (core - core.mT) / sums, 0.0) @ vh
    outside = g @ vh.mT - u @ core
    inverse = torch.where(s > least.squeeze(-1), 1 / s, 0.0).unsqueeze(-2)
    result = (u @ inside + (outside * inverse) @ vh).to(direction.dtype)
    return result.mT if wide else result


def project_tangent(point: Tensor, direction: Tensor) -> Tensor:
    r"""The nearest direction that keeps an orthonormal matrix orthonormal to first order.

    $$\arg\min_T \|T - G\|_F \quad\text{subject to}\quad Q^\top T + T^\top Q = 0,
      \qquad T = G - Q\,\mathrm{sym}(Q^\top G)$$

    for tall $Q$, and the transposed formula for wide ones. It is also the derivative of `polar`
    at $Q$ in the direction $G$. Both arguments are `(..., out, in)`.

    Example:
        >>> project_tangent(torch.eye(2), torch.tensor([[5.0, 1.0], [0.0, 7.0]]))
        tensor([[ 0.0000,  0.5000],
                [-0.5000,  0.0000]])
    """
    if point.shape[-2] < point.shape[-1]:
        return project_tangent(point.mT, direction.mT).mT
    inner = point.mT @ direction
    return direction - point @ ((inner + inner.mT) / 2)


def follow_tangent(point: Tensor, weight: Tensor) -> Tensor:
    """The constant `point`, with the derivative of `polar` at `point` for `weight`.

    Example:
        >>> weight = torch.eye(2).requires_grad_()
        >>> follow_tangent(torch.eye(2), weight)[0, 1].backward()
        >>> weight.grad
        tensor([[ 0.0000,  0.5000],
                [-0.5000,  0.0000]])
    """
    return point + project_tangent(point, weight - weight.detach())


@torch.no_grad()
def retract(weight: Tensor, tol: float = 9e-4) -> Tensor:
    r"""Pulls a matrix back to the Stiefel manifold, as cheaply as its distance allows.

    With $A^\top A = I + E$, one step $A\,p(E)$ where $p$ is the shortest series for
    $(1 + e)^{-1/2}$ whose remainder is below `tol`:

    - order 1, $1 - \tfrac e2$: remainder $\tfrac38 e^2$;
    - order 2, $1 - \tfrac e2 + (\tfrac38 - \tfrac5{16} r) e^2$ with $r \ge \|E\|_2$: remainder at most
      $\tfrac5{16} e^2 (r + |e|)$;
    - order 3, $1 - \tfrac e2 + \tfrac38 e^2 - \tfrac5{16} e^3$: remainder $\tfrac{35}{128} e^4$.

    Each of them lies *below* $(1 + e)^{-1/2}$ (the alternating series for $e > 0$, positive terms
    for $e < 0$, the lowered coefficient at order 2), so no singular value passes 1, as long as
    $e \le 2$ at order 1 and $e \le 1.8$ at order 3, below which the series does not turn past -1
    either. That much is proven before a step, from norms of $E$ and $E^2$, and scaled for where it
    does not hold; only the choice between the orders rests on an estimate. Matrices far away are
    stepped again; those too close to rank-deficient go through `polar`. The result is shrunk by a
    few units of rounding, so that its norm is below 1 and not only near.

    Args:
        weight: `(out, in)`.
        tol: how far below 1 a singular value may stay.

    Returns:
        `(out, in)`, singular values within `[1 - tol, 1)`, rounding included; the argument itself
        when it is there already.

    Raises:
        NonFiniteError: the weight holds NaN or infinity.

    Example:
        >>> q = retract(torch.tensor([[1.0, 0.1], [0.0, 1.0]]))
        >>> bool(((torch.linalg.svdvals(q) - 1).abs() < 1e-3).all())
        True
    """
    check_positive("retract", "tol", tol)
    if weight.shape[0] < weight.shape[1]:
        tall = weight.mT
        pulled = retract(tall, tol)
        return weight if pulled is tall else pulled.mT.contiguous()
    margin = rounding_margin(weight.dtype)
    a = weight
    for _ in range(_MOST_ROUNDS):
        e = gram(a)
        e.diagonal().sub_(1)
        low, high = estimate_extreme_eigenvalues(e)
        if not -0.99 < low:  # also when NaN: an overflow, or a weight that is not finite
            break
        # The estimate from inside the spectrum may miss its top; a Cholesky factor cannot.
        near = -2 * tol <= low and high <= -margin / 2
        if near and _is_definite(-e, margin / 2):
            return a
        scale, series, remainder = _inverse_root(e, low, high, tol)
        a = a @ series.mul_(scale * (1 - margin))
        if remainder <= tol:
            return a
    return polar(weight) * (1 - margin)


def rounding_margin(dtype: torch.dtype) -> float:
    """How much is taken off an orthonormal matrix for its norm to be at most 1 as stored.

    More than the rounding of a product or a decomposition leaves, for any size that fits a machine.
    """
    return {torch.float32: 1e-6}.get(dtype, 1e-13)


def _is_definite(symmetric: Tensor, margin: float) -> bool:
    """Whether all eigenvalues lie above `margin`, up to rounding."""
    shifted = symmetric.clone()
    shifted.diagonal().sub_(margin)
    return not torch.linalg.cholesky_ex(shifted).info


def _inverse_root(e: Tensor, low: float, high: float, tol: float) -> tuple[float, Tensor, float]:
    """The factor, the series and the remainder of the step that `retract` takes."""
    spread = _UNSEEN * max(-low, high)
    remainder = 3 / 8 * spread**2
    if remainder <= tol and _ceiling(e) <= 2:
        return 1.0, (-0.5 * e).diagonal_scatter(1 - 0.5 * e.diagonal()), remainder
    square = symmetric_product(e, e)
    ceiling = min(_ceiling(e), _ceiling(square) ** 0.5)
    scale = 1.0
    if ceiling > 1.8:
        # (1 + e) -> s (1 + e): no eigenvalue is above 0 now, and E^2 follows without a product.
        shrink = 1 / (1 + ceiling)
        square = (
            square.mul_(shrink**2)
            .add_(e, alpha=2 * shrink * (shrink - 1))
            .add_(_eye(e, (shrink - 1) ** 2))
        )
        e = (shrink * e).add_(_eye(e, shrink - 1))
        scale, ceiling = shrink**0.5, 1.0
        spread = _UNSEEN * max(1 - shrink * (1 + low), 0.0)
    remainder = 5 / 16 * spread**2 * (ceiling + spread)
    if remainder <= tol:
        series = (-0.5 * e).add_(square, alpha=3 / 8 - 5 / 16 * ceiling)
    else:
        remainder = 35 / 128 * spread**4
        series = (-0.5 * e).add_(square, alpha=3 / 8)
        series.sub_(symmetric_product(square, e), alpha=5 / 16)
    series.diagonal().add_(1)
    return scale, series, remainder


def _ceiling(symmetric: Tensor) -> float:
    """A number that is not below the largest magnitude of an eigenvalue."""
    rows = symmetric.abs().sum(-1).amax()
    return torch.minimum(rows, torch.linalg.matrix_norm(symmetric)).item()


def _eye(like: Tensor, value: float) -> Tensor:
    return torch.diag(like.new_full((len(like),), value))
