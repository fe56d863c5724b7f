"""Records of benchmarks: measurements, versions and machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from taut_lab.benchmarks.peer_imports import PEERS
from taut_lab.framework.provenance import describe_machine, describe_versions
from taut_lab.framework.records import current_date, read_record_file, to_json, write_record_file
from taut_lab.framework.timing import Timing

BENCHMARKED = ("taut", "torch", *PEERS)


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord:
    """A result with its provenance, one JSON file."""

    date: str = field(default_factory=current_date)
    versions: Mapping[str, str | None] = field(
        default_factory=lambda: describe_versions(*BENCHMARKED)
    )
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    def to_json(self) -> dict[str, Any]:
        """The fields of the file."""
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**{name: plain[name] for name in cls.__dataclass_fields__})

    def write(self, path: Path) -> None:
        """Writes the record as JSON."""
        write_record_file(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file that `write` has written.

        Raises:
            DamagedFileError: it is not such a file.
        """
        return read_record_file(path, cls.from_json)


def check_kind(plain: Mapping[str, Any], kind: str) -> None:
    """Raises a ValueError for the record of another benchmark."""
    if plain["kind"] != kind:
        raise ValueError(f"its kind is {plain['kind']!r}, not {kind!r}")


@dataclass(frozen=True)
class TimingEntry:
    """One function of a comparison.

    Attributes:
        timing: statistics of its run times.
        error: largest `|sigma - 1|` of the weight after the last step; None where that has no
            meaning or the weight is not finite.
        excess: largest `sigma - 1` of the same weight: above 0 the layer is not 1-Lipschitz.
    """

    timing: Timing
    error: float | None = None
    excess: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Functions that were timed in turn, with a baseline.

    Attributes:
        kind: `"networks"`, `"conv"`, `"activations"`, `"distances"` or `"bjorck"`.
        sizes: sizes that all functions share, such as width and batch.
        baseline: name of the function with ratio 1.
        entries: entries in the order in which they took turns.
    """

    kind: str
    sizes: Mapping[str, float]
    baseline: str
    entries: tuple[TimingEntry, ...]

    def median(self, name: str) -> float | None:
        """Median time of a function in seconds, or None."""
        medians = (e.timing.median for e in self.entries if e.timing.name == name)
        return next(medians, None)

    def ratio(self, name: str) -> float | None:
        """Median time of a function divided by that of the baseline."""
        own, base = self.median(name), self.median(self.baseline)
        return None if own is None or not base else own / base


@dataclass(frozen=True)
class TimingRecord(BenchmarkRecord):
    """All comparisons of a benchmark, with settings."""

    settings: Mapping[str, Any]
    comparisons: tuple[Comparison, ...]
    missing: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields of the file; ratios are added for readers, and ignored by `from_json`."""
        plain = super().to_json()
        for comparison, each in zip(self.comparisons, plain["comparisons"], strict=True):
            for entry in each["entries"]:
                entry["ratio"] = comparison.ratio(entry["timing"]["name"])
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""

        def entry(timing: Mapping[str, Any], error: Any, excess: Any, **_: Any) -> TimingEntry:
            return TimingEntry(Timing(**timing), error, excess)

        comparisons = tuple(
            Comparison(**{**each, "entries": tuple(entry(**one) for one in each["entries"])})
            for each in plain["comparisons"]
        )
        missing = tuple(plain["missing"])
        return super().from_json({**plain, "comparisons": comparisons, "missing": missing})
