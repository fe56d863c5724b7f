r"""Four classical maps from free matrices to orthonormal ones, to be differentiated through.

All compute in float64, for a tall $W$ of shape $(m, n)$; a wide one is transposed before and after. They
are defined for every finite matrix. `polar` gives the nearest orthonormal matrix instead.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

# Frobenius norm beyond which rounding would spoil the exponential of a matrix.
_LONGEST = 64.0
# Ratio of diagonal entries of a triangular factor below which the columns count as dependent.
_DEPENDENT = 1e-6


def _largest(tall: Tensor) -> Tensor:
    largest = tall.detach().abs().amax((-2, -1), keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


def _applied(function: Callable[[Tensor], Tensor], weight: Tensor) -> Tensor:
    wide = weight.shape[-2] < weight.shape[-1]
    made = function((weight.mT if wide else weight).double()).to(weight.dtype)
    return made.mT if wide else made


def cayley(weight: Tensor) -> Tensor:
    r"""The Cayley transform of a matrix.

    $$Q = \begin{pmatrix} (I + A)^{-1} (I - A) \\ -2 V (I + A)^{-1} \end{pmatrix}, \qquad
      A = U - U^\top + V^\top V, \quad W = \begin{pmatrix} U \\ V \end{pmatrix}$$

    with a square $U$. $A + A^\top = 2 V^\top V \ge 0$, so the inverse exists, and $Q^\top Q = I$. Square
    matrices become rotations without the eigenvalue $-1$. A matrix with a Frobenius norm above 64 is
    divided down to that norm first.

    Args:
        weight: `(..., out, in)`; so is the result.

    Example:
        >>> cayley(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """

    def transform(tall: Tensor) -> Tensor:
        u, v = _shortened(tall).split([tall.shape[-1], tall.shape[-2] - tall.shape[-1]], -2)
        a = u - u.mT + v.mT @ v
        eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        return torch.linalg.solve(eye + a, torch.cat([eye - a, -2 * v], -2), left=False)

    return _applied(transform, weight)


def exponential(weight: Tensor) -> Tensor:
    r"""The first columns of the exponential of a skew-symmetric matrix.

    $$Q = \exp\begin{pmatrix} U - U^\top & -V^\top \\ V & 0 \end{pmatrix}
          \begin{pmatrix} I \\ 0 \end{pmatrix}, \qquad W = \begin{pmatrix} U \\ V \end{pmatrix}$$

    with a square $U$. Square matrices become rotations, and every rotation is one. A matrix with a
    Frobenius norm above 64 is divided down to that norm first.

    Args:
        weight: `(..., out, in)`; so is the result.

    Example:
        >>> exponential(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[ 0.5403,  0.8415],
                [-0.8415,  0.5403]])
    """

    def transform(tall: Tensor) -> Tensor:
        square = F.pad(_shortened(tall), (0, tall.shape[-2] - tall.shape[-1]))
        return torch.linalg.matrix_exp(square - square.mT)[..., : tall.shape[-1]]

    return _applied(transform, weight)


def qr_orthonormal(weight: Tensor) -> Tensor:
    r"""The factor $Q$ of $W = QR$ whose triangular $R$ has a positive diagonal.

    That is Gram-Schmidt on the columns. Where they are dependent, some columns of $Q$ are arbitrary
    and the derivative is 0.

    Args:
        weight: `(..., out, in)`; so is the result.

    Example:
        >>> qr_orthonormal(torch.tensor([[3.0, 1.0], [4.0, 0.0]]))
        tensor([[ 0.6000,  0.8000],
                [ 0.8000, -0.6000]])
    """
    return _applied(lambda tall: _gram_schmidt(tall, _positive_qr), weight)


def cholesky_orthonormal(weight: Tensor) -> Tensor:
    r"""The same as `qr_orthonormal`, by products: $Q = W L^{-\top}$ with $W^\top W = L L^\top$.

    Twice, since once loses the square of the condition number in rounding.

    Args:
        weight: `(..., out, in)`; so is the result.

    Example:
        >>> cholesky_orthonormal(torch.tensor([[3.0, 1.0], [4.0, 0.0]]))
        tensor([[ 0.6000,  0.8000],
                [ 0.8000, -0.6000]])
    """

    def divided(tall: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(tall.mT @ tall)
        return torch.linalg.solve_triangular(factor.mT, tall, upper=True, left=False)

    return _applied(lambda tall: _gram_schmidt(tall, lambda w: divided(divided(w))), weight)


ORTHONORMALISATIONS = {
    "cayley": cayley,
    "exponential": exponential,
    "qr": qr_orthonormal,
    "cholesky": cholesky_orthonormal,
}


def _shortened(tall: Tensor) -> Tensor:
    """The matrix, divided where its Frobenius norm is above the longest."""
    largest = _largest(tall)
    # Entries of at most 1 do not overflow as squares, and zeros have a derivative.
    length = ((tall / largest).square().sum((-2, -1), keepdim=True) + 1e-30).sqrt()
    long = length * largest > _LONGEST
    return torch.where(long, tall / largest * (_LONGEST / length), tall)


def _positive_qr(tall: Tensor) -> Tensor:
    q, r = torch.linalg.qr(tall)
    signs = torch.where(r.detach().diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    return q * signs.unsqueeze(-2)


def _gram_schmidt(tall: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """`function`, which is not changed by a factor, and a constant for dependent columns."""
    tall = tall / _largest(tall)
    diagonal = torch.linalg.qr(tall.detach()).R.diagonal(dim1=-2, dim2=-1).abs()
    dependent = diagonal.amin(-1) <= _DEPENDENT * diagonal.amax(-1)
    dependent = dependent[..., None, None]
    eye = torch.eye(*tall.shape[-2:], dtype=tall.dtype, device=tall.device)
    made = function(torch.where(dependent, eye, tall))
    return torch.where(dependent, _positive_qr(tall.detach()), made)
