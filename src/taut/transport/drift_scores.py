"""The scores of a drift monitor: 1-Lipschitz functions fitted to a reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from taut.nn import ConeCritic

_MOST_AXES = 16
_MOST_CENTRES = 256
_MOST_SPREADS = 64  # with more features, only principal components have a spread score
_TAIL = 0.01
# Less than this share of the largest number is roundoff.
_ROUNDOFF = 1e-9
_MARGIN = 0.25  # margin beyond each end of the range of the reference, as a share of it
# Below 1 by more than the rounding errors of an axis, so that a projection is 1-Lipschitz.
_UNIT = 1 - 1e-12
_MOST_CELLS = 2**21  # of a principal component analysis, and of quantiles


@dataclass(frozen=True, eq=False)
class DriftScores:
    """Scores of rows, each clamped to a range and rescaled to [0, 1].

    They are the value of every feature and principal component, its distance from the median, and the
    distance of the row from the reference. Each is 1-Lipschitz before it is divided by the width of its
    range. Each comes twice, as it is and as 1 less it, so that a rise and a fall are both a rise of some
    score.

    Attributes:
        critic: distance to the nearest of some rows of the reference.
        axes: principal axes, `(a, dim)`, of length 1 or just below.
        middles: medians of the features and components, `(dim + a,)`.
        low: lower ends of the ranges, `(k,)`.
        high: upper ends of the ranges, `(k,)`.
    """

    critic: ConeCritic
    axes: Tensor
    middles: Tensor
    low: Tensor
    high: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Scores of scaled rows: `(n, dim)` to `(n, 2 k)` in [0, 1]."""
        raw = _raw_scores(points, self.critic, self.axes, self.middles)
        units = (raw.clamp(self.low, self.high) - self.low) / self.widths
        return torch.cat([units, 1 - units], 1)

    @property
    def widths(self) -> Tensor:
        """The widths of the ranges, `(k,)`."""
        return self.high - self.low

    def names(self, features: Sequence[str], counted: Sequence[bool]) -> list[str]:
        """Describes a rise of each score, in `2 k` phrases.

        `counted` marks the features that indicate a category or a missing value. Their spread changes
        with their share, so its phrase is empty.
        """
        parts = [*features, *(f"principal component {i + 1}" for i in range(len(self.axes)))]
        often = [*counted, *(False for _ in self.axes)]
        spreads = [*zip(parts, often, strict=True)][_spreads(len(features)) :]
        words = (("higher", "more often", "more spread out", "farther from"),)
        words += (("lower", "less often", "less spread out", "closer to"),)
        return [
            phrase
            for level, share, spread, distance in words
            for phrase in (
                *(f"{p} {share if o else level}" for p, o in zip(parts, often, strict=True)),
                *("" if o else f"{p} {spread}" for p, o in spreads),
                f"rows {distance} the reference",
            )
        ]


def fit_scores(points: Tensor, generator: Generator) -> DriftScores:
    """Fits the scores to the scaled rows `(n, dim)` of a reference."""
    n, dim = points.shape
    drawn = torch.randperm(n, generator=generator)[:_MOST_CENTRES]
    critic = ConeCritic.from_points(points[drawn])
    axes = points.new_zeros(0, dim)
    if dim > 1:
        some = points[: max(512, _MOST_CELLS // dim)]
        _, sizes, axes = torch.linalg.svd(some - some.mean(0), full_matrices=False)
        # The features of a category are dependent: along some axes there is nothing but roundoff.
        axes = axes[sizes > _ROUNDOFF * sizes[0]][:_MOST_AXES]
        # Signs are arbitrary; fixing them gives equal data equal descriptions.
        signs = axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()
        axes = _UNIT * signs * axes / torch.linalg.vector_norm(axes, dim=1, keepdim=True)
        axes = axes.contiguous()
    middles = torch.cat([points, points @ axes.T], 1).median(0).values
    # The distance of a centre from the centres is 0, so the ranges are fitted to other rows.
    others = points if len(drawn) == n else points[~torch.isin(torch.arange(n), drawn)]
    others = others[: max(512, _MOST_CELLS // dim)]
    ends = torch.tensor([_TAIL, 1 - _TAIL], dtype=points.dtype)
    low, high = torch.quantile(_raw_scores(others, critic, axes, middles), ends, dim=0)
    width = high - low
    # Without spread, a fixed margin: any other value is detected.
    spread = width > _ROUNDOFF * others.abs().amax()
    margin = torch.where(spread, _MARGIN * width, torch.ones_like(width))
    return DriftScores(critic, axes, middles, low - margin, high + margin)


def _spreads(dim: int) -> int:
    return 0 if dim <= _MOST_SPREADS else dim


@torch.no_grad()
def _raw_scores(points: Tensor, critic: ConeCritic, axes: Tensor, middles: Tensor) -> Tensor:
    values = torch.cat([points, points @ axes.T], 1)
    spreads = (values - middles).abs()[:, _spreads(points.shape[1]) :]
    return torch.cat([values, spreads, critic(points)], 1)
