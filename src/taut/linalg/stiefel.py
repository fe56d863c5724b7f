r"""The Stiefel manifold: nearest point, tangent space, and the way back after a step.

A matrix is *orthonormal* here when all its singular values are 1: $W^\top W = I$ if tall,
$W W^\top = I$ if wide, both if square.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from taut.errors import NonFiniteError, check_positive
from taut.linalg.symmetric import estimate_eigenvectors, estimate_radius, gram

# Three products with a few vectors see at least two thirds of the spread that is left.
_UNSEEN = 1.5
_MOST_ROUNDS = 6
# How many directions are treated one by one, and the squared norm from which all is scaled first.
_DEFLATED, _FAR = 24, 9.0
# A matrix so close, in the Frobenius norm, needs neither move if it is small: rounds cost it little.
_CLOSE, _SMALL = 0.9, 192
# Squares of larger numbers may leave the range of float32.
_LARGEST_SQUARED = 1e16


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
            got = f"NaN or infinity in a {tuple(weight.shape)} matrix"
            remedy = "Lower the learning rate, clip gradients, or restore a checkpoint."
            raise NonFiniteError("polar", "weight", "must be finite", got, remedy)
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

    With $A^\top A = I + E$, a round takes $A \leftarrow A D\,\tfrac c2 (3I - c^2 (I + E'))$, in two
    moves:

    - An optimiser step leaves the manifold by much in a few directions only. Approximate eigenvectors
      $v_i$ of $E$ with values $\theta_i$ give $D = I + \sum_i ((1 + \theta_i)^{-1/2} - 1) v_i v_i^\top$,
      and $I + E' = D (I + E) D$ needs no product of large matrices.
    - Björck's step on $AD$, scaled by $c \le 1$: singular values become $f(c\sigma)$ with
      $f(t) = \tfrac12 t (3 - t^2)$, and $|f| \le 1$ on $[0, 2]$.

    Where the Frobenius norm of $E$ is small, $D = I$ and $c = 1$ do as well, and are cheaper.

    So no singular value passes 1 as long as $c^2 (1 + \|E'\|_2) \le 4$, whatever the $v_i$ are: $c$ is
    chosen for that from a proven bound of the norm of $E'$. Only the number of rounds rests on an
    estimate. Matrices too close to rank-deficient go through `polar`. The result is shrunk by a
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
        longest = e.diagonal().amax().item()
        if not longest < _LARGEST_SQUARED:  # also when NaN: a weight that is not finite
            break
        least = 1 - (1 - tol) ** 2
        if longest <= -margin / 2 and _exceeds(-e, margin / 2) and _exceeds(e, -least):
            return a
        spread = torch.linalg.vector_norm(e).item()
        rest = _rest_of_plain_step(spread) if spread < _CLOSE else 1.0
        if rest <= tol or (rest < 1 and len(e) <= _SMALL):
            step = e.mul_(-0.5 * (1 - margin))
            step.diagonal().add_(1 - margin)
            a = a @ step
        else:
            factor, remainder = _round_factor(e)
            a, rest = a @ factor, remainder.item()
        if rest <= tol:
            return a
        if rest > 0.95:
            break
    return polar(weight) * (1 - margin)


@torch.no_grad()
def retract_once(weight: Tensor) -> Tensor:
    r"""One round of `retract`, which looks at no values: for compiled training.

    Args:
        weight: `(out, in)`, finite.

    Returns:
        `(out, in)` of norm below 1; singular values within a few percent of 1 where `weight` is a
        usual optimiser step away from orthonormal.

    Example:
        >>> q = retract_once(torch.tensor([[1.0, 0.1], [0.0, 1.0]]))
        >>> bool(((torch.linalg.svdvals(q) - 1).abs() < 1e-3).all())
        True
    """
    if weight.shape[0] < weight.shape[1]:
        return retract_once(weight.mT).mT.contiguous()
    e = gram(weight)
    e = e - torch.eye(len(e), dtype=e.dtype, device=e.device)
    factor, _ = _round_factor(e)
    return weight @ factor


def rounding_margin(dtype: torch.dtype) -> float:
    """How much is taken off an orthonormal matrix for its norm to be at most 1 as stored.

    More than the rounding of a product or a decomposition leaves, for any size that fits a machine.
    """
    return {torch.float32: 1e-6}.get(dtype, 1e-13)


def _exceeds(symmetric: Tensor, number: float) -> bool:
    """Whether all eigenvalues lie above a number, up to rounding, by a Cholesky factor."""
    shifted = symmetric.clone()
    shifted.diagonal().sub_(number)
    return not torch.linalg.cholesky_ex(shifted).info


def _rest_of_plain_step(spread: float) -> float:
    r"""How far below 1 Björck's step leaves singular values with $\|A^\top A - I\|_2 \le$ `spread` < 1."""
    return 1 - math.sqrt(1 - spread) * (1 + spread / 2)


def _round_factor(e: Tensor) -> tuple[Tensor, Tensor]:
    """What a round of `retract` multiplies by, and about how far below 1 a singular value stays."""
    eye = torch.eye(len(e), dtype=e.dtype, device=e.device)
    top = 1 + _ceiling(e)
    # Far outliers would drown the rest in their rounding: all is scaled below 1 first.
    scale = torch.where(top > _FAR, 1 / top, 1.0)
    e = scale * e + (scale - 1) * eye
    values, vectors, images = estimate_eigenvectors(e, _DEFLATED)
    # Directions that nearly vanish grow in several rounds, so that their rounding does not.
    gain = (1 + values).clamp_min(0.25).rsqrt() - 1
    half = images * gain + vectors * (gain * (1 + (gain * (1 + values)) / 2))
    e = e.addmm(torch.cat([vectors, half], 1), torch.cat([half, vectors], 1).mT)
    square = (4 / (1 + _ceiling(e))).clamp_max(1.0)
    # Outliers leave their rounding behind when they are taken out of E.
    below_one = 1 - rounding_margin(e.dtype) * (top * scale)
    step = 0.5 * (scale * square).sqrt() * below_one * ((3 - square) * eye - square * e)
    factor = step.addmm(vectors * gain, vectors.mT @ step)
    spread = (_UNSEEN * estimate_radius(e)).clamp_max(1.0)
    ends = (square * torch.stack([1 - spread, 1 + spread])).sqrt()
    return factor, 1 - (0.5 * ends * (3 - ends.square())).amin()


def _ceiling(symmetric: Tensor) -> Tensor:
    """A number that is not below the largest magnitude of an eigenvalue."""
    rows = symmetric.abs().sum(-1).amax()
    return torch.minimum(rows, torch.linalg.matrix_norm(symmetric))
