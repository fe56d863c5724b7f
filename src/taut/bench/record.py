"""What was measured, where and with what: a file that can be read again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from taut.bench.peers import PEERS
from taut.errors import ArgumentError
from taut.lab.provenance import describe_machine, describe_versions
from taut.lab.timing import Timing

__all__ = ["TIMED", "Entry", "Race", "Record"]

TIMED = ("taut", "torch", *PEERS)

_FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """One contestant of a race.

    Attributes:
        timing: how long its turns took.
        error: largest `|sigma - 1|` of the weight that it is left with; None where that has no
            meaning or the weight is not finite.
        excess: largest `sigma - 1` of the same weight: above 0 the layer is not 1-Lipschitz.
    """

    timing: Timing
    error: float | None = None
    excess: float | None = None


@dataclass(frozen=True)
class Race:
    """Contestants that took turns, and the one they are measured by.

    Attributes:
        kind: `"dense"`, `"activations"` or `"bjorck"`.
        sizes: what was given to all of them, such as width and batch.
        baseline: the name of the contestant with ratio 1.
        entries: in the order of their turns.
    """

    kind: str
    sizes: Mapping[str, int]
    baseline: str
    entries: tuple[Entry, ...]

    def median(self, name: str) -> float | None:
        """The median turn of a contestant in seconds, None if it has none."""
        found = (e.timing.median for e in self.entries if e.timing.name == name)
        return next(found, None)

    def ratio(self, name: str) -> float | None:
        """The median of a contestant over that of the baseline."""
        own, base = self.median(name), self.median(self.baseline)
        return None if own is None or not base else own / base


@dataclass(frozen=True)
class Record:
    """All races of a run, with what is needed to judge or repeat them."""

    settings: Mapping[str, Any]
    races: tuple[Race, ...]
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str | None] = field(default_factory=lambda: describe_versions(*TIMED))
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    def write(self, path: Path) -> None:
        """Writes the record as JSON; ratios are added for people, and are made anew when read."""
        content = {"format": _FORMAT, **asdict(self)}
        for race, plain in zip(self.races, content["races"], strict=True):
            for entry in plain["entries"]:
                entry["ratio"] = race.ratio(entry["timing"]["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Reads what `write` has written."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("format") != _FORMAT:
                raise KeyError("format")
            races = tuple(
                Race(
                    race["kind"],
                    race["sizes"],
                    race["baseline"],
                    tuple(
                        Entry(Timing(**entry["timing"]), entry["error"], entry["excess"])
                        for entry in race["entries"]
                    ),
                )
                for race in content.pop("races")
            )
            missing = tuple(content.pop("missing"))
            return cls(races=races, missing=missing, **content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(
                f"Record.read: `path` must be a record of taut bench in format {_FORMAT}; "
                f"got {str(path)!r}. Write one with taut bench layers --out record.json."
            ) from error
