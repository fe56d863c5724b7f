"""Training of classifiers in memory, for the experiments."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from taut.data import LabelledData
from taut.training import TrainConfig, TrainedRun, train
from taut_lab.framework.experiment import Result
from taut_lab.framework.selection import percent, select

__all__ = ["PLAIN", "best_errors", "train_classifier", "training_curve"]

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


def best_errors(results: Sequence[Result], least: int = 1, **wanted: Any) -> list[float]:
    """Test error in percent for each seed, with the setting that is best on validation rows.

    Args:
        results: results with the numbers "error" and "validation_error".
        least: number of finished settings that a seed needs to count: an unfinished search says
            nothing about the method.
        **wanted: values of their configurations, or of the training settings inside.
    """
    flat = [replace(r, config={**r.config["training"], **r.config}) for r in results]
    scored: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for result in select(flat, **wanted):
        numbers = result.outcome.numbers
        scored[result.config["seed"]].append((numbers["validation_error"], numbers["error"]))
    return percent([min(pairs)[1] for pairs in scored.values() if len(pairs) >= least])
