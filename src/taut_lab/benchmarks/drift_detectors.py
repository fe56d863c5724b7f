"""Two-sample tests side by side: false alarms, power, answer, time and memory on the same pairs."""

import math
import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch

from taut.errors import require
from taut.transport import two_sample_p_value, wasserstein
from taut_lab.benchmarks.peer_imports import import_peer
from taut_lab.benchmarks.timing_records import BenchmarkRecord
from taut_lab.framework.provenance import describe_versions

_LEVEL = 0.05

# The distance that is found, in standard deviations, or NaN, and a p-value; 0 and 1 are a bare decision.
Detector = Callable[[np.ndarray, np.ndarray, int], tuple[float, float]]


@dataclass(frozen=True)
class DriftSettings:
    """Settings of the comparison."""

    pairs: int = 200  # number of pairs without a shift, and of pairs with one
    rows: int = 200  # rows of each sample
    dim: int = 5  # number of columns, standard normal
    shift: float = 0.4  # shift of one column, in standard deviations: the true distance
    large_rows: int = 1000  # rows of each sample of the pair on which time and memory are measured
    seed: int = 0  # random seed


@dataclass(frozen=True)
class DetectorResult:
    """Results of one detector."""

    name: str  # name of the detector
    false_alarms: int  # number of pairs without a shift that it calls different, at the level 0.05
    found: int  # number of shifted pairs that it calls different
    answers: tuple[float | None, float | None]  # mean distance without and with a shift
    seconds: float  # CPU time of a pair, mean
    large_answer: float | None  # distance that it gives for the large pair
    large_seconds: float  # CPU time of the large pair
    large_megabytes: float  # additional memory for the large pair


@dataclass(frozen=True)
class DriftRecord(BenchmarkRecord):
    """Results of all detectors, with settings."""

    settings: DriftSettings
    results: tuple[DetectorResult, ...]

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        results = tuple(
            DetectorResult(**one | {"answers": tuple(one["answers"])}) for one in plain["results"]
        )
        settings = DriftSettings(**plain["settings"])
        return super().from_json({**plain, "settings": settings, "results": results})


def _taut(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    result = wasserstein(x, y, num_steps=30, critics=("linear", "cones"), seed=seed)
    assert result.p_value is not None
    return result.estimate.value, result.p_value


def _taut_test(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.from_numpy(x), torch.from_numpy(y)
    return math.nan, two_sample_p_value(*rows, generator=generator)


def _exact(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    ot = require("ot", "ot", "this benchmark")
    distance = lambda a, b: ot.emd2([], [], ot.dist(a, b, metric="euclidean"))  # noqa: E731
    return _permute(distance, x, y, 19, seed)


def _sliced(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    sliced = require("ot", "ot", "this benchmark").sliced_wasserstein_distance
    return _permute(partial(sliced, n_projections=50, p=1, seed=seed), x, y, 99, seed)


def _columns(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    stats = require("scipy.stats", "sklearn", "this benchmark")
    pairs = list(zip(x.T, y.T, strict=True))
    p_value = min(stats.ks_2samp(a, b).pvalue for a, b in pairs) * len(pairs)
    return max(stats.wasserstein_distance(a, b) for a, b in pairs), min(1.0, float(p_value))


def _permute(
    distance: Callable[[np.ndarray, np.ndarray], float],
    x: np.ndarray,
    y: np.ndarray,
    count: int,
    seed: int,
) -> tuple[float, float]:
    """A distance, and its p-value by permutations."""
    observed, rng, pooled = distance(x, y), np.random.default_rng(seed), np.concatenate([x, y])
    shuffled = (np.split(rng.permutation(pooled), [len(x)]) for _ in range(count))
    above = sum(distance(a, b) >= observed for a, b in shuffled)
    return float(observed), float((1 + above) / (1 + count))


def _kernel(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    alibi = require("alibi_detect.cd", "alibi-detect", "this benchmark")
    torch.manual_seed(seed)
    detector = alibi.MMDDrift(x.astype(np.float32), backend="pytorch", n_permutations=100)
    return math.nan, float(detector.predict(y.astype(np.float32))["data"]["p_val"])


def _drifted_columns(x: np.ndarray, y: np.ndarray, seed: int, least: float) -> tuple[float, float]:
    evidently = require("evidently", "evidently", "this benchmark")
    metrics = require("evidently.metrics", "evidently", "this benchmark")
    pandas = require("pandas", "evidently", "this benchmark")
    new, old = (pandas.DataFrame(side).rename(columns=str) for side in (y, x))
    report = evidently.Report([metrics.DriftedColumnsCount()]).run(new, old)
    return math.nan, float(report.dict()["metrics"][0]["value"]["share"] < least)


def _windows(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    drift = require("river.drift", "river", "this benchmark")
    for column in np.concatenate([x, y]).T.tolist():
        detector = drift.ADWIN(delta=_LEVEL / x.shape[1])
        for value in column:
            detector.update(value)
            if detector.drift_detected:
                return math.nan, 0.0
    return math.nan, 1.0


DETECTORS: dict[str, Detector] = {
    "taut wasserstein": _taut,
    "taut two_sample_p_value": _taut_test,
    "POT emd2": _exact,
    "POT sliced": _sliced,
    "scipy ks_2samp": _columns,
    "alibi-detect MMDDrift": _kernel,
    "evidently, half of the columns": partial(_drifted_columns, least=0.5),
    "evidently, any column": partial(_drifted_columns, least=1e-9),
    "river ADWIN": _windows,
}
_PEERS = {
    "alibi-detect": "alibi_detect.cd",
    "evidently": "evidently.metrics",
    "river": "river.drift",
}


def installed_detectors() -> list[str]:
    """Names of the detectors whose libraries can be imported."""
    missing = [peer for peer, module in _PEERS.items() if import_peer(module) is None]
    return [name for name in DETECTORS if not any(name.startswith(peer) for peer in missing)]


def run_drift(
    settings: DriftSettings, on_run: Callable[[str, float], None] = lambda name, done: None
) -> DriftRecord:
    """Runs every installed detector on the same pairs; `on_run` gets its name and the fraction done."""
    rng = np.random.default_rng(settings.seed)
    pairs = [
        (shift, *_pair(rng, settings.rows, settings.dim, shift))
        for _ in range(settings.pairs)
        for shift in (0.0, settings.shift)
    ]
    large = _pair(rng, settings.large_rows, settings.dim, settings.shift)
    results = []
    detectors = installed_detectors()
    for position, name in enumerate(detectors):
        start, answers, alarms = time.process_time(), {}, {}
        for number, (shift, x, y) in enumerate(pairs):
            on_run(name, (position + number / len(pairs)) / len(detectors))
            answer, p_value = DETECTORS[name](x, y, number)
            answers.setdefault(shift, []).append(answer)
            alarms[shift] = alarms.get(shift, 0) + (p_value <= _LEVEL)
        seconds = (time.process_time() - start) / len(pairs)
        means = [_finite_or_none(np.mean(answers[shift])) for shift in (0.0, settings.shift)]
        large_answer, large_seconds, large_megabytes = _measure(name, *large)
        results.append(
            DetectorResult(
                name=name,
                false_alarms=alarms[0.0],
                found=alarms[settings.shift],
                answers=(means[0], means[1]),
                seconds=seconds,
                large_answer=_finite_or_none(large_answer),
                large_seconds=large_seconds,
                large_megabytes=large_megabytes,
            )
        )
    versions = describe_versions("taut", "torch", "scipy", "POT", *_PEERS)
    return DriftRecord(settings, tuple(results), versions=versions)


def _finite_or_none(answer: float) -> float | None:
    return None if math.isnan(answer) else float(answer)


def _pair(
    rng: np.random.Generator, rows: int, dim: int, shift: float
) -> tuple[np.ndarray, np.ndarray]:
    x, y = rng.normal(size=(rows, dim)), rng.normal(size=(rows, dim))
    y[:, 0] += shift
    return x, y


def _measure(name: str, x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Answer, seconds and megabytes of one call, in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_here, args=(name, x, y, sender))
    process.start()
    measured = receiver.recv()
    process.join()
    return measured


def _measure_here(name: str, x: np.ndarray, y: np.ndarray, sender: Any) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    answer, _ = DETECTORS[name](x, y, 0)
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sender.send((answer, seconds, (after - before) / 1024))
