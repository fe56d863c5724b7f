"""Results of `taut bench wasserstein`, in a file that is written after each result."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from taut.errors import ArgumentError
from taut.transport import WassersteinResult
from taut_lab.benchmarks.timing_records import BENCHMARKED, check_kind
from taut_lab.framework.provenance import describe_machine, describe_versions
from taut_lab.framework.records import current_date, read_record_file, to_json, write_record_file


@dataclass(frozen=True)
class CriticResult:
    """What one critic found on one problem.

    Example:
        >>> CriticResult("funnels", "d 2", "cones", truth=2.0, estimate=1.9).relative_error
        -0.05...
    """

    part: str  # the table that it belongs to
    problem: str  # description of the problem
    critic: str  # name of the critic
    truth: float  # the true distance
    estimate: float | None = (
        None  # the critic's estimate, from samples that were not used in training
    )
    truth_error: float = 0.0  # standard error of `truth`, where that is a sample mean
    lower: float | None = (
        None  # proven lower bound of the distance; None for a critic that has none
    )
    upper: float | None = None  # proven upper bound, likewise
    confidence: float | None = (
        None  # confidence level of each bound; 1 where no statistics are involved
    )
    steps: int | None = None  # number of training steps
    fit_cpu: float = 0.0  # CPU time of training, in seconds
    cpu: float = 0.0  # CPU time in all, including sampling and evaluation
    wall: float = 0.0  # wall-clock time in all
    sizes: Mapping[str, Any] = field(default_factory=dict)  # such as the dimension

    @property
    def relative_error(self) -> float | None:
        """`estimate / truth - 1`; None without an estimate or where the truth is zero."""
        if self.estimate is None or self.truth == 0:
            return None
        return self.estimate / self.truth - 1

    @property
    def lower_holds(self) -> bool | None:
        """Whether the lower bound is at most the truth; None without a bound."""
        return None if self.lower is None else self.lower <= self.truth

    @property
    def upper_holds(self) -> bool | None:
        """Whether the upper bound is at least the truth; None without a bound."""
        return None if self.upper is None else self.upper >= self.truth

    def to_json(self) -> dict[str, Any]:
        """The fields, and for readers also the properties."""
        derived = ("relative_error", "lower_holds", "upper_holds")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "CriticResult":
        """The inverse of `to_json`."""
        names = cls.__dataclass_fields__
        return cls(**{name: value for name, value in plain.items() if name in names})


@dataclass(frozen=True)
class BenchmarkJob:
    """A result that is still to be computed."""

    name: str  # unique name, under which the result is recorded
    seconds: float  # expected time, to estimate the time left
    run: Callable[[], CriticResult]  # computes the result


class Stopwatch:
    """CPU and wall-clock time since its creation, in seconds."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        """Wall-clock time."""
        return round(time.perf_counter() - self._wall, 3)

    @property
    def cpu(self) -> float:
        """CPU time of this process."""
        return round(time.process_time() - self._cpu, 3)

    def result(
        self, part: str, problem: str, critic: str, *, fit_cpu: float | None = None, **values: Any
    ) -> CriticResult:
        """A result with these times; without another, the time of the fit is all of it."""
        cpu = self.cpu
        fit_cpu = cpu if fit_cpu is None else fit_cpu
        return CriticResult(
            part, problem, critic, **values, fit_cpu=fit_cpu, cpu=cpu, wall=self.wall
        )


def estimated(result: WassersteinResult) -> dict[str, Any]:
    """The estimate and the bounds of `taut.wasserstein`, as fields of a `CriticResult`."""
    return {
        "estimate": result.estimate.value,
        "lower": result.lower.value,
        "upper": result.upper.value,
        "confidence": result.lower.confidence,
    }


_KIND = "taut bench wasserstein"


class CriticRecords:
    """Results by name, written to the file after each of them, so that a run can be resumed.

    Args:
        path: JSON file, read first if it exists; None keeps everything in memory.
        settings: settings that determine the results. A file with other settings is refused, so
            that no table mixes two runs.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.results: dict[str, CriticResult] = {}
        self.header: dict[str, Any] = {
            "kind": _KIND,
            "settings": to_json(settings, "settings"),
            "date": current_date(),
            "versions": describe_versions(*BENCHMARKED),
            "machine": describe_machine(),
        }
        if path is not None and path.exists():
            stored = CriticRecords.read(path)
            if stored.header["settings"] != self.header["settings"]:
                rule = f"must be a record with the settings {self.header['settings']}"
                got = f"{str(path)!r}, with {stored.header['settings']}"
                remedy = "Use the same settings, or another file."
                raise ArgumentError("CriticRecords", "path", rule, got, remedy)
            self.header, self.results = stored.header, stored.results

    def add(self, name: str, result: CriticResult) -> None:
        """Adds a result, and writes the file."""
        self.results[name] = result
        if self.path is not None:
            self.write(self.path)

    def write(self, path: Path) -> None:
        """Writes all results as JSON."""
        results = {key: added.to_json() for key, added in self.results.items()}
        write_record_file(path, {**self.header, "results": results})

    @classmethod
    def read(cls, path: Path) -> "CriticRecords":
        """Reads the file of a run; raises `DamagedFileError` for any other."""
        records = read_record_file(path, cls._parse)
        records.path = path
        return records

    @classmethod
    def _parse(cls, fields: Mapping[str, Any]) -> "CriticRecords":
        check_kind(fields, _KIND)
        records = cls(None, fields["settings"])
        records.results = {
            name: CriticResult.from_json(plain) for name, plain in fields["results"].items()
        }
        records.header = {name: fields[name] for name in records.header}
        return records
