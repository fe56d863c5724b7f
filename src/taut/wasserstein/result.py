"""What `taut.wasserstein` answers."""

import os
from dataclasses import dataclass, field
from typing import Any

from torch import Generator, Tensor, nn

from taut.bounds import Bound, Estimate, Interval
from taut.wasserstein.saved import SavedCritic, thin
from taut.wasserstein.scaling import FeatureScaling

__all__ = ["WassersteinResult"]


@dataclass(frozen=True, eq=False)
class WassersteinResult:
    """The distance between two data sets, or between the populations behind them.

    Attributes:
        estimate: the value of the best critic on samples it has not seen (`population=True`), or
            the middle of the proven interval (`population=False`). On no proven side of the truth.
        lower: at most the distance, with its confidence.
        upper: at least the distance, with its confidence.
        confidence: that both bounds hold.
        critic: the 1-Lipschitz function behind the lower bound, on scaled features.
        kind: which kind of critic it is.
        lipschitz: its proven constant.
        p_value: of the hypothesis that both samples have one law, by permuting held-out scores;
            None without populations.
        history: the dual value of the chosen critic along its training.
        scaling: how features were scaled; distances are in these units.
        columns: names of the features, where the data had some.
        population: whether the bounds speak of populations or of the two sets as they are.
        scores: the critic's values, float64, of the held-out rows of x and of y in the order they
            came in (`population=True`), or of all rows.
        rows: how many rows x and y have.
        limits: the scores are clamped to these for the lower bound; from training rows alone.
        image_shape: the shape of one row, where rows are images.
        notes: sentences about what was done to the data or assumed of them; often none.
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
    population: bool
    scores: tuple[Tensor, Tensor] = field(repr=False)
    rows: tuple[int, int]
    limits: tuple[float, float] = field(repr=False)
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
        """How far apart the bounds are."""
        return self.upper.value - self.lower.value

    @property
    def saved(self) -> SavedCritic:
        """What `save` keeps: all that later rows are judged with."""
        generator = Generator().manual_seed(0)
        x, y = self.scores
        return SavedCritic(
            critic=self.critic,
            kind=self.kind,
            lipschitz=self.lipschitz,
            scaling=self.scaling,
            columns=self.columns,
            image_shape=self.image_shape,
            limits=self.limits,
            scores=(thin(x, generator), thin(y, generator)),
            means=(x.mean().item(), y.mean().item()),
            population=self.population,
        )

    def score(self, data: Any) -> Tensor:
        """The critic's value for every row of `data`: high where it looks like x, low like y."""
        return self.saved.score(data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the critic with what later rows are judged by; `load_critic` reads it."""
        self.saved.save(path)

    def __str__(self) -> str:
        low, high = self.lower.value, self.upper.value
        known = "proven" if self.confidence == 1 else f"at {100 * self.confidence:g} %"
        return f"{self.estimate.value:.4g}, in [{low:.4g}, {high:.4g}] {known}"
