"""Point sets as transport takes them: finite, of one dimension, with weights of sum 1."""

import math

import torch
from torch import Tensor

from taut.errors import ArgumentError, DtypeError, NonFiniteError

__all__ = ["check_memory", "check_point_pair", "check_points", "check_weights"]


def check_points(subject: str, name: str, points: Tensor) -> Tensor:
    """The points as `(n, d)` in float64 on the CPU; raises unless there are some, all finite."""
    if not points.dtype.is_floating_point:
        raise DtypeError(
            subject=subject,
            argument=name,
            rule="must be a floating-point tensor",
            got=f"dtype={points.dtype}",
            remedy="Convert it with .double().",
        )
    if points.dim() == 0 or points.numel() == 0:
        raise ArgumentError(
            subject=subject,
            argument=name,
            rule="must hold a point at least, shape (n, ...)",
            got=f"shape {tuple(points.shape)}",
        )
    flat = points.detach().to("cpu", torch.float64).reshape(len(points), -1)
    if not bool(flat.isfinite().all()):
        raise NonFiniteError(
            subject=subject,
            argument=name,
            rule="must be finite",
            got="NaN or infinity",
            remedy="Drop or repair those points.",
        )
    return flat.contiguous()


def check_point_pair(subject: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both sets as `check_points` gives them; raises unless they are of one dimension."""
    x, y = check_points(subject, "x", x), check_points(subject, "y", y)
    if x.shape[1] != y.shape[1]:
        raise ArgumentError(
            subject=subject,
            argument="x",
            rule="and `y` must have points of one dimension",
            got=f"{x.shape[1]} and {y.shape[1]} coordinates",
        )
    return x, y


def check_weights(subject: str, name: str, weights: Tensor | None, n: int) -> Tensor:
    """Weights of sum 1, each at most three roundings off."""
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64)
    if weights.shape != (n,):
        raise ArgumentError(
            subject=subject,
            argument=name,
            rule=f"must have shape ({n},), one for each point",
            got=f"shape {tuple(weights.shape)}",
        )
    weights = weights.detach().to("cpu", torch.float64)
    total = math.fsum(weights.tolist())
    if not (bool((weights >= 0).all()) and math.isfinite(total) and total > 0):
        raise ArgumentError(
            subject=subject,
            argument=name,
            rule="must be finite, non-negative and not all zero",
            got=f"values from {float(weights.min())} to {float(weights.max())}",
            remedy="Drop the points with none.",
        )
    return weights / total


def check_memory(subject: str, n: int, m: int, max_bytes: int) -> None:
    """Raises where a matrix of distances is larger than allowed."""
    if 8 * n * m > max_bytes:
        raise ArgumentError(
            f"{subject}: the {n} x {m} distances must fit into max_bytes={max_bytes}; they need "
            f"{8 * n * m}. Use coupling_upper_bound (an upper bound in O(n + m) memory), "
            "a subsample, or a larger max_bytes."
        )
