"""What `taut.wasserstein` answers."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from taut.bounds import Bound, Estimate, Interval
from taut.wasserstein.samples import as_samples

__all__ = ["FeatureScaling", "WassersteinResult"]


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


@dataclass(frozen=True)
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

    @torch.no_grad()
    def score(self, data: Any) -> Tensor:
        """The critic's value for every row of `data`: high where it looks like x, low like y."""
        points, _ = as_samples("WassersteinResult.score", "data", data)
        parameter = next(self.critic.parameters())
        return self.critic(self.scaling(points).to(parameter.dtype)).flatten().double()

    def __str__(self) -> str:
        low, high = self.lower.value, self.upper.value
        known = "proven" if self.confidence == 1 else f"at {100 * self.confidence:g} %"
        return f"{self.estimate.value:.4g}, in [{low:.4g}, {high:.4g}] {known}"
