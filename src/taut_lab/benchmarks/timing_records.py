"""Records of timing benchmarks: what was measured, with which versions, on which machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from taut_lab.benchmarks.peers import PEERS
from taut_lab.framework.provenance import describe_machine, describe_versions
from taut_lab.framework.records import current_date, read_record_file, write_record_file
from taut_lab.framework.timing import Timing

BENCHMARKED = ("taut", "torch", *PEERS)


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
        found = (e.timing.median for e in self.entries if e.timing.name == name)
        return next(found, None)

    def ratio(self, name: str) -> float | None:
        """Median time of a function divided by that of the baseline."""
        own, base = self.median(name), self.median(self.baseline)
        return None if own is None or not base else own / base


@dataclass(frozen=True)
class TimingRecord:
    """All comparisons of a benchmark, with settings and provenance."""

    settings: Mapping[str, Any]
    comparisons: tuple[Comparison, ...]
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    date: str = field(default_factory=current_date)
    versions: Mapping[str, str | None] = field(
        default_factory=lambda: describe_versions(*BENCHMARKED)
    )
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    def write(self, path: Path) -> None:
        """Writes the record as JSON; ratios are added for readers, and ignored by `read`."""
        fields = asdict(self)
        for comparison, plain in zip(self.comparisons, fields["comparisons"], strict=True):
            for entry in plain["entries"]:
                entry["ratio"] = comparison.ratio(entry["timing"]["name"])
        write_record_file(path, fields)

    @classmethod
    def read(cls, path: Path) -> "TimingRecord":
        """Reads a file that `write` has written.

        Raises:
            DamagedFileError: it is not one.
        """
        return read_record_file(path, cls._parse)

    @classmethod
    def _parse(cls, fields: Mapping[str, Any]) -> "TimingRecord":
        comparisons = tuple(
            Comparison(
                plain["kind"],
                plain["sizes"],
                plain["baseline"],
                tuple(
                    TimingEntry(Timing(**entry["timing"]), entry["error"], entry["excess"])
                    for entry in plain["entries"]
                ),
            )
            for plain in fields["comparisons"]
        )
        names = ("settings", "seconds", "date", "versions", "machine")
        rest = {name: fields[name] for name in names}
        return cls(comparisons=comparisons, missing=tuple(fields["missing"]), **rest)
