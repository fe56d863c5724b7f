"""What the experiments with classifiers share: training in memory, and shares in percent."""

from collections.abc import Mapping, Sequence
from typing import Any

from taut.data import LabelledData
from taut.training import TrainConfig, TrainedRun, train

__all__ = ["PLAIN", "percent", "train_classifier", "training_curve"]

# Cross-entropy as everyone has it: no lead to reach, no temperature. A radius of next to nothing
# lets the best epoch be chosen by accuracy alone, as in the paper.
PLAIN: dict[str, Any] = {
    "loss": "cross_entropy",
    "margin": 1e-6,
    "temperature": 1.0,
    "radius": 1e-6,
}


def train_classifier(settings: Mapping[str, Any], data: LabelledData | None = None) -> TrainedRun:
    """Trains in memory by fields of `TrainConfig`, on what they name or on `data`."""
    return train(TrainConfig(**settings), data=data)


def training_curve(run: TrainedRun) -> list[dict[str, float]]:
    """The history of a run without what was not measured and without times."""
    kept = ("epoch", "loss", "accuracy", "clean", "certified", "lipschitz")
    return [
        {name: float(row[name]) for name in kept if row.get(name) is not None}
        for row in run.history
    ]


def percent(values: Sequence[float]) -> list[float]:
    """Shares as percentages, without the digits that only binary fractions have.

    Example:
        >>> percent([0.0125])
        [1.25]
    """
    return [round(100 * value, 6) for value in values]
