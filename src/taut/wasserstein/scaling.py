"""Features brought to one unit before distances are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from taut.errors import DataError
from taut.wasserstein.sides import name_columns

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


def fit_scaling(
    method: str, points: Tensor, names: Sequence[str] | None = None
) -> tuple[FeatureScaling, list[str]]:
    """The scaling that `points` `(n, dim)` ask for, and notes on features it could not scale.

    A constant feature is divided by 1, and so is one that varies but has no spread, as where most
    rows have one value and the quartiles agree.

    Raises:
        DataError: a feature is so wide that its centre or spread is past the largest float64.

    Example:
        >>> few = torch.tensor([[0.0], [0.0], [0.0], [0.0], [9.0]])
        >>> fit_scaling("robust", few, ["a"])[1]
        ["not scaled, for most rows agree: column 'a'"]
    """
    points = points.double()
    low, high = points.amin(0), points.amax(0)
    # Squares of numbers below 2 neither overflow nor vanish, and powers of two divide exactly.
    largest = torch.maximum(low.abs(), high.abs())
    unit = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1)
    small, one = points / unit, torch.ones_like(largest)
    shift, spread = small.mean(0), one
    if method == "standard":
        spread = small.std(0)
    elif method == "robust":
        # As many values as torch.quantile takes, from all parts of the rows.
        some = small[:: -(-small.numel() // 2**23)]
        quarters = torch.tensor([0.25, 0.5, 0.75], dtype=points.dtype)
        lower, shift, upper = torch.quantile(some, quarters, dim=0)
        spread = upper - lower
    shift = shift * unit
    spread = one if method == "none" else spread * unit
    widths = torch.stack([shift, spread, low - shift, high - shift])
    if not bool(widths.isfinite().all()):
        at = int((~widths.isfinite()).any(0).nonzero()[0])
        raise DataError(
            "wasserstein: features must be narrow enough to be centred in float64; "
            f"{name_columns(names, [at])} goes from {low[at]:.3g} to {high[at]:.3g}. "
            "Divide it by a constant."
        )
    varies = low < high
    flat = (varies & (spread <= 0)).nonzero().flatten().tolist()
    notes = [f"not scaled, for most rows agree: {name_columns(names, flat)}"] if flat else []
    scale = torch.where(varies & (spread > 0), spread, one)
    return FeatureScaling(method, shift, scale), notes
