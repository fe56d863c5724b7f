"""Two-sample tests side by side: false alarms, power, answer, time and memory on the same pairs."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from taut.errors import require
from taut.transport import wasserstein
from taut_lab.framework.provenance import describe_machine, describe_versions
from taut_lab.framework.records import current_date, read_record_file, write_record_file

__all__ = ["DETECTORS", "DetectorResult", "DriftRecord", "DriftSettings", "run_drift"]

_LEVEL = 0.05

# The distance that is found, in standard deviations, and a p-value.
Detector = Callable[[np.ndarray, np.ndarray, int], tuple[float, float]]


@dataclass(frozen=True)
class DriftSettings:
    """What is compared.

    Attributes:
        pairs: number of pairs without a shift, and of pairs with one.
        rows: rows of each sample.
        dim: number of columns, standard normal.
        shift: shift of one column, in standard deviations: the true distance.
        large_rows: rows of each sample of the pair on which time and memory are measured.
        seed: random seed.
    """

    pairs: int = 200
    rows: int = 200
    dim: int = 5
    shift: float = 0.4
    large_rows: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class DetectorResult:
    """One detector.

    Attributes:
        name: name of the detector.
        false_alarms: number of pairs without a shift that it calls different, at the level 0.05.
        found: number of shifted pairs that it calls different.
        answers: mean distance that it gives for pairs without and with a shift.
        seconds: CPU time of a pair, mean.
        large_answer: distance that it gives for the large pair.
        large_seconds: CPU time of the large pair.
        large_megabytes: memory that it takes for the large pair, above what was in use before.
    """

    name: str
    false_alarms: int
    found: int
    answers: tuple[float, float]
    seconds: float
    large_answer: float
    large_seconds: float
    large_megabytes: float


@dataclass(frozen=True)
class DriftRecord:
    """Results of all detectors, with settings and provenance."""

    settings: DriftSettings
    results: tuple[DetectorResult, ...]
    date: str = field(default_factory=current_date)
    versions: Mapping[str, str | None] = field(
        default_factory=lambda: describe_versions("taut", "torch", "scipy", "POT")
    )
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    def write(self, path: Path) -> None:
        """Writes the record as JSON."""
        write_record_file(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "DriftRecord":
        """Reads what `write` wrote."""
        return read_record_file(path, cls._parse)

    @classmethod
    def _parse(cls, fields: Mapping[str, Any]) -> "DriftRecord":
        results = (
            DetectorResult(**one | {"answers": tuple(one["answers"])}) for one in fields["results"]
        )
        provenance = {name: fields[name] for name in ("date", "versions", "machine")}
        return cls(DriftSettings(**fields["settings"]), tuple(results), **provenance)


def _taut(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    found = wasserstein(x, y, num_steps=30, critics=("linear", "cones"), seed=seed)
    assert found.p_value is not None
    return found.estimate.value, found.p_value


def _exact(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    ot = require("ot", "ot", "this benchmark")

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(ot.emd2([], [], ot.dist(a, b, metric="euclidean")))

    return _permute(distance, x, y, 19, seed)


def _sliced(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    ot = require("ot", "ot", "this benchmark")

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(ot.sliced_wasserstein_distance(a, b, n_projections=50, p=1, seed=seed))

    return _permute(distance, x, y, 99, seed)


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
    found, rng, pooled = distance(x, y), np.random.default_rng(seed), np.concatenate([x, y])
    above = 0
    for _ in range(count):
        shuffled = rng.permutation(pooled)
        above += distance(shuffled[: len(x)], shuffled[len(x) :]) >= found
    return found, (1 + above) / (1 + count)


DETECTORS: dict[str, Detector] = {
    "taut": _taut,
    "POT emd2": _exact,
    "POT sliced": _sliced,
    "scipy ks_2samp": _columns,
}


def run_drift(
    settings: DriftSettings, on_run: Callable[[str, float], None] = lambda name, done: None
) -> DriftRecord:
    """Runs every detector on the same pairs; `on_run` gets its name and the fraction done."""
    rng = np.random.default_rng(settings.seed)
    pairs = [
        (shift, *_pair(rng, settings.rows, settings.dim, shift))
        for _ in range(settings.pairs)
        for shift in (0.0, settings.shift)
    ]
    large = _pair(rng, settings.large_rows, settings.dim, settings.shift)
    results = []
    for place, (name, detector) in enumerate(DETECTORS.items()):
        start, answers, alarms = time.process_time(), {}, {}
        for number, (shift, x, y) in enumerate(pairs):
            on_run(name, (place + number / len(pairs)) / len(DETECTORS))
            answer, p_value = detector(x, y, number)
            answers.setdefault(shift, []).append(answer)
            alarms[shift] = alarms.get(shift, 0) + (p_value <= _LEVEL)
        seconds = (time.process_time() - start) / len(pairs)
        means = [float(np.mean(answers[shift])) for shift in (0.0, settings.shift)]
        large_answer, large_seconds, large_megabytes = _measure(name, *large)
        results.append(
            DetectorResult(
                name=name,
                false_alarms=alarms[0.0],
                found=alarms[settings.shift],
                answers=(means[0], means[1]),
                seconds=seconds,
                large_answer=large_answer,
                large_seconds=large_seconds,
                large_megabytes=large_megabytes,
            )
        )
    return DriftRecord(settings, tuple(results))


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
    found = receiver.recv()
    process.join()
    return found


def _measure_here(name: str, x: np.ndarray, y: np.ndarray, sender: Any) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    answer, _ = DETECTORS[name](x, y, 0)
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sender.send((answer, seconds, (after - before) / 1024))
