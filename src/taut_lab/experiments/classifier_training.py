"""Training of classifiers in memory, for the experiments."""

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from taut.data import LabelledData
from taut.training import TrainConfig, TrainedRun, train
from taut_lab.framework.datasets import load_dataset
from taut_lab.framework.experiment import Result
from taut_lab.framework.result_selection import percent, select

# Plain cross-entropy, without margin and temperature. With a negligible radius, the best epoch is
# selected by accuracy alone, as in the paper.
PLAIN: dict[str, Any] = {
    "loss": "cross_entropy",
    "margin": 1e-6,
    "temperature": 1.0,
    "radius": 1e-6,
}


def train_classifier(settings: Mapping[str, Any], data: LabelledData | None = None) -> TrainedRun:
    """Trains in memory with fields of `TrainConfig`, on their dataset or on `data`; dense networks."""
    config = TrainConfig(**{"arch": "dense", **settings})
    return train(config, data=data or load_dataset(settings["data"]))


def training_curve(run: TrainedRun) -> list[dict[str, float]]:
    """The history of a run, without missing values and times."""
    columns = ("epoch", "loss", "accuracy", "clean", "certified", "lipschitz")
    return [
        {name: float(row[name]) for name in columns if row.get(name) is not None}
        for row in run.history
    ]


def best_errors(results: Sequence[Result], least: int = 1, **wanted: Any) -> list[float]:
    """Test error in percent for each seed, with the setting that is best on validation rows.

    The setting with the smallest mean validation error, over the seeds that all settings have: a
    search may use the first seed alone, and the other seeds only its choice.

    Args:
        results: results with the numbers "error" and "validation_error".
        least: number of finished settings below which there is no answer: an unfinished search says
            nothing about the method.
        **wanted: values of their configurations, or of the training settings inside.
    """
    flat = [replace(r, config={**r.config["training"], **r.config}) for r in results]
    settings: defaultdict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)
    for result in select(flat, **wanted):
        setting = json.dumps(result.config["training"], sort_keys=True)
        settings[setting][result.config["seed"]] = result.outcome.numbers
    if len(settings) < max(least, 1):
        return []
    common = set.intersection(*(set(seeds) for seeds in settings.values()))
    if not common:
        return []

    def mean_validation(seeds: Mapping[int, Mapping[str, float]]) -> float:
        return statistics.fmean(seeds[seed]["validation_error"] for seed in common)

    best = min(settings.values(), key=mean_validation)
    return percent([best[seed]["error"] for seed in sorted(best)])
