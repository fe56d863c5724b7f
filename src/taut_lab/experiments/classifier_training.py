"""Training of classifiers in memory, for the experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

from taut.data import LabelledData
from taut.training import TrainConfig, TrainedRun, train

__all__ = ["PLAIN", "percent", "train_classifier", "training_curve"]

# Plain cross-entropy, without margin and temperature. With a negligible radius, the best epoch is
# selected by accuracy alone, as in the paper.
PLAIN: dict[str, Any] = {
    "loss": "cross_entropy",
    "margin": 1e-6,
    "temperature": 1.0,
    "radius": 1e-6,
}


def train_classifier(settings: Mapping[str, Any], data: LabelledData | None = None) -> TrainedRun:
    """Trains in memory with fields of `TrainConfig`, on their dataset or on `data`."""
    return train(TrainConfig(**settings), data=data)


def training_curve(run: TrainedRun) -> list[dict[str, float]]:
    """The history of a run, without missing values and times."""
    kept = ("epoch", "loss", "accuracy", "clean", "certified", "lipschitz")
    return [
        {name: float(row[name]) for name in kept if row.get(name) is not None}
        for row in run.history
    ]


def percent(values: Sequence[float]) -> list[float]:
    """Fractions as percentages, rounded.

    Example:
        >>> percent([0.0125])
        [1.25]
    """
    return [round(100 * value, 6) for value in values]
