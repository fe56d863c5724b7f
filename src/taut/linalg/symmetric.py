"""Products that are known to be symmetric, and estimates of their extreme eigenvalues."""

import torch
from torch import Tensor

# Below this many columns one product is as fast as several smaller ones.
_BLOCK = 128


def gram(a: Tensor) -> Tensor:
    r"""The Gram matrix $A^\top A$ of `(..., m, n)`, symmetric to the bit.

    Example:
        >>> gram(torch.tensor([[3.0], [4.0]]))
        tensor([[25.]])
    """
    return symmetric_product(a.mT, a)


def symmetric_product(a: Tensor, b: Tensor) -> Tensor:
    r"""The product $AB$ of matrices for which it is known to be symmetric, symmetric to the bit.

    That holds for $B = A^\top$ and for symmetric matrices that commute, such as two polynomials
    of one matrix. Only the blocks on and above the diagonal are multiplied, the rest is mirrored:
    about 0.6 of the work of a full product for wide matrices.

    Args:
        a: `(..., n, m)`.
        b: `(..., m, n)`.

    Example:
        >>> a = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
        >>> symmetric_product(a, a)
        tensor([[5., 4.],
                [4., 5.]])
    """
    n = a.shape[-2]
    in_graph = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if a.ndim > 2 or in_graph or n < 2 * _BLOCK:
        return _mirrored(a @ b)
    product = a.new_empty(n, n)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        strip = a[start:stop] @ b[:, start:]
        product[start:stop, start:] = strip
        product[start:, start:stop] = strip.mT
        corner = product[start:stop, start:stop]
        corner.copy_(_mirrored(corner))
    return product


def _mirrored(square: Tensor) -> Tensor:
    return square.triu() + square.triu(1).mT


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny


def even_vector(n: int, like: Tensor) -> Tensor:
    """A fixed unit vector of `n` entries to start iterations from.

    The fractional parts of multiples of the golden ratio are spread evenly and follow no pattern
    that a weight matrix would have.

    Example:
        >>> even_vector(2, torch.empty(0))
        tensor([ 0.4082, -0.9129])
    """
    ramp = torch.arange(1, n + 1, dtype=torch.float64, device=like.device)
    vector = torch.frac(ramp * 0.6180339887498949).sub_(0.5)
    return (vector / vector.norm()).to(like.dtype)


def estimate_extreme_eigenvalues(symmetric: Tensor, num_steps: int = 8) -> tuple[float, float]:
    r"""Estimates the smallest and largest eigenvalue by a short Lanczos run.

    Both lie inside the true spectrum, $\lambda_{\min} \le \hat\lambda_{\min} \le \hat\lambda_{\max}
    \le \lambda_{\max}$ up to rounding: good for choosing a step, never a certificate. The start
    vector is fixed, so that equal matrices give equal answers.

    Args:
        symmetric: `(n, n)`.
        num_steps: products with the matrix.

    Returns:
        `(smallest, largest)`; NaN where the matrix is not finite.

    Example:
        >>> low, high = estimate_extreme_eigenvalues(torch.diag(torch.tensor([-1.0, 0.5, 3.0])))
        >>> round(low, 4), round(high, 4)
        (-1.0, 3.0)
    """
    small = symmetric if len(symmetric) <= num_steps else _lanczos(symmetric, num_steps)
    if not torch.isfinite(small).all():
        return float("nan"), float("nan")
    values = torch.linalg.eigvalsh(small)
    return values[0].item(), values[-1].item()


def _lanczos(symmetric: Tensor, num_steps: int) -> Tensor:
    """The matrix `(num_steps, num_steps)` on the span of some of its powers times a vector."""
    n = len(symmetric)
    # The largest column holds a part of whatever stands out, wherever it points.
    column = symmetric[symmetric.square().sum(-1).argmax()]
    start = even_vector(n, symmetric) + column / column.norm().clamp_min(_tiny(column))
    basis, image = symmetric.new_empty(2, num_steps, n)
    basis[0] = start / start.norm()
    for step in range(num_steps):
        image[step] = symmetric @ basis[step]
        if step + 1 < num_steps:
            rest = image[step]
            for _ in range(3):
                rest = rest - basis[: step + 1].mT @ (basis[: step + 1] @ rest)
                # A trace of another vector, so that an invariant subspace does not end the run.
                rest = rest / rest.norm().clamp_min(_tiny(rest)) + 1e-6 * start.roll(step + 1)
            rest = rest - basis[: step + 1].mT @ (basis[: step + 1] @ rest)
            basis[step + 1] = rest / rest.norm()
    projected = (basis @ image.mT).double().cpu()
    return (projected + projected.mT) / 2


def estimate_eigenvectors(symmetric: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Estimates the eigenvectors whose values are largest in magnitude, by subspace iteration.

    Looks at no values, and always starts from the same vectors. The vectors are orthonormal, and
    the matrix is diagonal on their span.

    Args:
        symmetric: `(n, n)`.
        count: number of vectors; all, as exact as rounding allows, if `n` is at most twice that.

    Returns:
        Values `(count,)`, vectors `(n, count)`, and the images of the vectors, `(n, count)`.

    Example:
        >>> values, _, _ = estimate_eigenvectors(torch.diag(torch.tensor([-1.0, 0.5, 3.0])), 2)
        >>> values
        tensor([-1.0000,  0.5000,  3.0000])
    """
    if len(symmetric) <= 2 * count:
        values, vectors = torch.linalg.eigh(symmetric)
        return values, vectors, vectors * values
    basis = symmetric @ _start_block(symmetric, count)
    for _ in range(2):
        basis = torch.linalg.qr(basis).Q
        images = symmetric @ basis
        last, basis = basis, images
    small = last.mT @ images
    values, turn = torch.linalg.eigh((small + small.mT) / 2)
    return values, last @ turn, images @ turn


def estimate_radius(symmetric: Tensor) -> Tensor:
    """Estimates the largest magnitude of an eigenvalue from below, without looking at values.

    Example:
        >>> estimate_radius(torch.diag(torch.tensor([-1.0, 0.5, 0.5])))
        tensor(0.9...)
    """
    block = _start_block(symmetric, 8)
    for _ in range(3):
        block = block / block.norm(dim=0).clamp_min(_tiny(block))
        block = symmetric @ block
    return block.norm(dim=0).amax()


def _start_block(like: Tensor, count: int) -> Tensor:
    return even_vector(count * len(like), like).view(count, len(like)).mT
