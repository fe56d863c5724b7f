"""Scaling of features to a common unit before distances are measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from taut.data import describe_columns
from taut.errors import DataError

Scaling = Literal["none", "standard", "robust"]
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)


@dataclass(frozen=True)
class FeatureScaling:
    """Scaling of features to a common unit.

    Attributes:
        method: "none", "standard" or "robust".
        shift: subtracted from each feature. With "none" it is the mean, which changes no
            distance, so that critics in float32 see data about the origin.
        scale: divisor of each feature; 1 for constant features and for those in a stated unit.
    """

    method: Scaling
    shift: Tensor
    scale: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Maps points to the common unit and origin; a missing number becomes 0."""
        scaled = (points.double() - self.shift) / self.scale
        return scaled.masked_fill_(scaled.isnan(), 0.0)


def fit_scaling(
    method: Scaling, points: Tensor, names: Sequence[str] = (), fixed: Tensor | None = None
) -> tuple[FeatureScaling, list[str]]:
    """Fits a scaling to `points` `(n, dim)`; also returns notes on features that it could not scale.

    The divisor is 1 for constant features, for features that vary but have no spread (equal quartiles,
    because most rows have one value), and for the `fixed` ones, whose unit is stated. Missing numbers,
    NaN, are ignored.

    Raises:
        DataError: a feature is so wide that its centre or spread is past the largest float64.

    Example:
        >>> few = torch.tensor([[0.0], [0.0], [0.0], [0.0], [9.0]])
        >>> fit_scaling("robust", few, ["a"])[1]
        ["not scaled, because most rows agree: column 'a'"]
    """
    points = points.double()
    gaps = points.isnan()
    missing = bool(gaps.any())
    # Where all are missing there is nothing to scale.
    points = points.masked_fill(gaps.all(0), 0.0) if missing else points
    low, high = column_ranges(points)
    # Squares of numbers below 2 neither overflow nor vanish, and powers of two divide exactly.
    largest = torch.maximum(low.abs(), high.abs())
    unit = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1)
    small, one = points / unit, torch.ones_like(largest)
    shift, spread = (small.nanmean(0) if missing else small.mean(0)), one
    if method == "standard":
        spread = _nanstd(small, shift) if missing else small.std(0)
    elif method == "robust":
        # As many values as torch.quantile takes, from all parts of the rows.
        some = small[:: -(-small.numel() // 2**23)]
        quarters = torch.tensor([0.25, 0.5, 0.75], dtype=points.dtype)
        lower, shift, upper = torch.nanquantile(some, quarters, dim=0)
        spread = upper - lower
    shift = shift * unit
    spread = one if method == "none" else spread * unit
    widths = torch.stack([shift, spread, low - shift, high - shift])
    if not bool(widths.isfinite().all()):
        at = int((~widths.isfinite()).any(0).nonzero()[0])
        rule = "features must be narrow enough to be centred in float64"
        got = f"{describe_columns(names, [at])} from {low[at]:.3g} to {high[at]:.3g}"
        raise DataError("wasserstein", rule=rule, got=got, remedy="Divide it by a constant.")
    varies = low < high
    if fixed is not None:
        varies &= ~fixed
    flat = (varies & (spread <= 0)).nonzero().flatten().tolist()
    notes = []
    if flat:
        notes.append(f"not scaled, because most rows agree: {describe_columns(names, flat)}")
    scale = torch.where(varies & (spread > 0), spread, one)
    return FeatureScaling(method, shift, scale), notes


def column_ranges(points: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest number of each column, ignoring NaN."""
    gaps = points.isnan()
    if not bool(gaps.any()):
        return points.amin(0), points.amax(0)
    infinity = float("inf")
    return points.masked_fill(gaps, infinity).amin(0), points.masked_fill(gaps, -infinity).amax(0)


def _nanstd(points: Tensor, mean: Tensor) -> Tensor:
    count = (~points.isnan()).sum(0)
    return ((points - mean).square().nansum(0) / (count - 1).clamp_min(1)).sqrt()
