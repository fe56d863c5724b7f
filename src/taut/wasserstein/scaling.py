"""Features brought to one unit before distances are measured."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["FeatureScaling", "fit_scaling"]


@dataclass(frozen=True)
class FeatureScaling:
    """How features were brought to one unit before distances were measured.

    Attributes:
        method: "none", "standard" or "robust".
        shift: what was subtracted from each feature.
        scale: what each was divided by; constant features have 1.
    """

    method: str
    shift: Tensor
    scale: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Points in the common unit."""
        return points if self.method == "none" else (points - self.shift) / self.scale


def fit_scaling(method: str, points: Tensor) -> FeatureScaling:
    """The scaling that `points` `(n, dim)` ask for; a constant feature is divided by 1."""
    points = points.double()
    zero, one = torch.zeros_like(points[0]), torch.ones_like(points[0])
    if method == "none":
        return FeatureScaling(method, zero, one)
    if method == "standard":
        shift, spread = points.mean(0), points.std(0)
    else:
        quarters = torch.tensor([0.25, 0.5, 0.75], dtype=points.dtype)
        low, shift, high = torch.quantile(points[:100_000], quarters, dim=0)
        spread = high - low
    return FeatureScaling(method, shift, torch.where(spread > 0, spread, one))
