"""The result of `taut.wasserstein`."""

import os
from dataclasses import dataclass, field
from typing import Any

from torch import Generator, Tensor, nn

from taut.bounds import Bound, Estimate, Interval
from taut.transport.lower_bound import Scores, bound_mean_score
from taut.transport.saved_critic import SavedCritic, subsample
from taut.transport.scaling import FeatureScaling

__all__ = ["WassersteinResult"]


@dataclass(frozen=True, eq=False)
class WassersteinResult:
    """The distance between two finite sets, or between the populations behind two samples.

    Attributes:
        estimate: value of the best critic on held-out rows, or the middle of the proven interval
            for finite sets. On no proven side of the truth.
        lower: lower bound of the distance, with its confidence.
        upper: upper bound of the distance, with its confidence.
        confidence: joint confidence level of both bounds.
        critic: 1-Lipschitz function behind the lower bound, on scaled features.
        kind: kind of the critic.
        lipschitz: proven constant of the critic.
        p_value: p-value of the hypothesis that both samples have one distribution, by permuting
            held-out scores; None for finite sets.
        history: dual value of the selected critic at each training step.
        scaling: scaling of the features; distances are in these units.
        columns: names of the features, where the data had some.
        finite: whether the bounds speak of the two finite sets or of populations.
        scores: scores of the held-out rows of x and of y in their order, float64; of all rows for
            finite sets.
        errors: proven bounds of the rounding errors of these scores.
        rows: number of rows of x and of y.
        limits: range to which scores are clamped for the lower bound; from training rows alone.
        diameter: diameter of the supports that was stated; None where it was assumed.
        image_shape: shape of one row, where rows are images.
        notes: what was done to the data or assumed of them; often empty.
    """

    estimate: Estimate
    lower: Bound
    upper: Bound
    critic: nn.Module = field(repr=False)
    kind: str
    lipschitz: Bound
    p_value: float | None
    history: tuple[float, ...] = field(repr=False)
    scaling: FeatureScaling = field(repr=False)
    columns: tuple[str, ...] | None = field(repr=False)
    finite: bool
    scores: tuple[Tensor, Tensor] = field(repr=False)
    errors: tuple[Tensor, Tensor] = field(repr=False)
    rows: tuple[int, int]
    limits: tuple[float, float] = field(repr=False)
    diameter: float | None = field(default=None, repr=False)
    image_shape: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def interval(self) -> Interval:
        """Both bounds together."""
        return Interval(self.lower, self.upper)

    @property
    def confidence(self) -> float:
        """At least this probability that both bounds hold."""
        return self.interval.confidence

    @property
    def gap(self) -> float:
        """Distance between the two bounds."""
        return self.upper.value - self.lower.value

    @property
    def saved(self) -> SavedCritic:
        """What `save` writes: all that is needed to evaluate later rows."""
        generator = Generator().manual_seed(0)
        sides = [Scores(*side) for side in zip(self.scores, self.errors, strict=True)]
        kept = [subsample(side, generator) for side in sides]
        return SavedCritic(
            critic=self.critic,
            kind=self.kind,
            lipschitz=self.lipschitz,
            scaling=self.scaling,
            columns=self.columns,
            image_shape=self.image_shape,
            limits=self.limits,
            scores=(kept[0].values, kept[1].values),
            errors=(kept[0].errors, kept[1].errors),
            means=(bound_mean_score(sides[0]), bound_mean_score(sides[1])),
            finite=self.finite,
        )

    def score(self, data: Any) -> Tensor:
        """The critic's value for every row of `data`: high where it looks like x, low like y."""
        return self.saved.score(data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the critic with what it needs to evaluate later rows; `load_critic` reads it."""
        self.saved.save(path)

    def __str__(self) -> str:
        low, high = self.lower.value, self.upper.value
        known = "proven" if self.confidence == 1 else f"at {100 * self.confidence:g} %"
        return f"{self.estimate.value:.4g}, in [{low:.4g}, {high:.4g}] {known}"
