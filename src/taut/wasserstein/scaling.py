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
        shift: what was subtracted from each feature. With "none" it is the mean, which changes no
            distance, so that critics in few digits see data about the origin.
        scale: what each was divided by; constant features have 1.
    """

    method: str
    shift: Tensor
    scale: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Points in the common unit, about the common origin."""
        return (points.double() - self.shift) / self.scale


def fit_scaling(method: str, points: Tensor) -> FeatureScaling:
    """The scaling that `points` `(n, dim)` ask for; a constant feature is divided by 1."""
    points = points.double()
    shift, one = points.mean(0), torch.ones_like(points[0])
    spread = one
    if method == "standard":
        spread = points.std(0)
    elif method == "robust":
        # As many values as torch.quantile takes, from all parts of the rows.
        some = points[:: -(-points.numel() // 2**23)]
        quarters = torch.tensor([0.25, 0.5, 0.75], dtype=points.dtype)
        low, shift, high = torch.quantile(some, quarters, dim=0)
        spread = high - low
    return FeatureScaling(method, shift, torch.where(spread > 0, spread, one))
