r"""Orthogonal convolutions as products of short ones.

For an orthogonal projection $P$ the convolution with the two taps $P$, $I - P$ is orthogonal: its
transfer matrix $P + (I - P) e^{i\omega}$ is unitary at every frequency. Products of such factors,
along each dimension, with one orthonormal matrix are orthogonal convolutions of any length; along
one dimension they are all there are (Xiao et al. 2018, Li et al. 2019). If the eigenvalues of $P$
are not 0 and 1 but anywhere in $[0, 1]$, the norm is still at most 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.linalg.stiefel import polar

_MOST_ROUNDS = 12


def block_convolution(
    start: Tensor, planes: Tensor, dims: Sequence[int], steps: Sequence[int]
) -> Tensor:
    r"""The kernel of a convolution after short orthogonal ones, one for each plane.

    $$K \leftarrow K * (P,\, I - P), \qquad P = U U^\top$$

    Args:
        start: `(groups, *taps, rows, channels)`, the kernel to begin with.
        planes: `(groups, number, channels, rank)`, each `U` orthonormal.
        dims: for each plane the dimension, 0, 1 or 2, along which its two taps lie.
        steps: for each dimension the distance of the two taps.

    Returns:
        `(groups, *longer taps, rows, channels)`: one step longer for each plane.

    Example:
        >>> plane = torch.tensor([[[[1.0], [0.0]]]])
        >>> block_convolution(torch.eye(2)[None, None], plane, [0], [1]).shape
        torch.Size([1, 2, 2, 2])
    """
    kernel = start
    num_dims = start.dim() - 3
    for plane, dim in zip(planes.unbind(1), dims, strict=True):
        plane = plane.view(len(plane), *(1,) * num_dims, *plane.shape[1:])
        inside = (kernel @ plane) @ plane.mT
        outside = kernel - inside
        front = [0] * (2 * start.dim() - 2)
        front[2 * (start.dim() - 2 - dim)] = steps[dim]
        behind = [0] * len(front)
        behind[2 * (start.dim() - 2 - dim) + 1] = steps[dim]
        kernel = F.pad(inside, behind) + F.pad(outside, front)
    return kernel


@torch.no_grad()
def retract_stack(weights: Tensor) -> Tensor:
    r"""Orthonormal matrices near those of a stack, to rounding, all at once.

    With $A^\top A = I + E$ each round takes
    $A \leftarrow A (I - \tfrac12 E + \tfrac38 E^2 - \tfrac5{16} E^3)$, which leaves
    $\tfrac{35}{64} E^4$; matrices too far from orthonormal go through `polar`. In float64 inside.

    Args:
        weights: `(number, rows, columns)`, finite.

    Returns:
        The argument itself where $\|E\|_2$ is some units of rounding already, else a stack with
        singular values 1 to rounding.

    Example:
        >>> stack = torch.tensor([[[1.0, 0.1], [0.0, 1.0]]])
        >>> q = retract_stack(stack)
        >>> torch.allclose(q.mT @ q, torch.eye(2), atol=1e-6)
        True
    """
    if weights.numel() == 0:
        return weights
    if weights.shape[-2] < weights.shape[-1]:
        pulled = retract_stack(weights.mT)
        return weights if pulled.data_ptr() == weights.data_ptr() else pulled.mT
    tol = max(64, weights.shape[-1]) * torch.finfo(weights.dtype).eps
    a = weights.double()
    for round_ in range(_MOST_ROUNDS):
        e = a.mT @ a
        e.diagonal(dim1=-2, dim2=-1).sub_(1)
        rows, frobenius = e.abs().sum(-1).amax(-1), torch.linalg.matrix_norm(e)
        size = torch.minimum(rows, frobenius).amax().item()
        if size <= tol:
            return weights if round_ == 0 else a.to(weights.dtype)
        if not size < 1.5:  # also for NaN, after an overflow
            break
        square = e @ e
        series = torch.baddbmm(-0.5 * e + 0.375 * square, square, e, alpha=-0.3125)
        series.diagonal(dim1=-2, dim2=-1).add_(1)
        a = a @ series
        if size < 1e-4:  # what is left, the fourth power, is below the rounding of float64
            return a.to(weights.dtype)
    return polar(weights)
