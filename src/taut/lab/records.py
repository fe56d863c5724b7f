"""What a cell found and where it was computed: one JSON file for each, complete or not there."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from taut.errors import ArgumentError, DamagedFileError
from taut.export.files import write_atomically
from taut.lab.experiment import PRESETS, Cell, Experiment, Outcome, Result

__all__ = ["Record", "Records", "from_plain", "to_plain"]

_FORMAT = 1
_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_plain(value: Any, name: str = "value") -> Any:
    """The value as JSON knows it; numbers that JSON does not know become "nan", "inf", "-inf".

    Args:
        value: numbers, strings, None, and mappings and sequences of such.
        name: what an error calls it.

    Raises:
        ArgumentError: something else is in it, such as a tensor.

    Example:
        >>> to_plain({"a": (1, 0.5, math.inf), "b": math.nan})
        {'a': [1, 0.5, 'inf'], 'b': 'nan'}
        >>> from_plain(to_plain([math.inf, -math.inf, 1]))
        [inf, -inf, 1]
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, Mapping):
        return {str(key): to_plain(held, f"{name}[{key!r}]") for key, held in value.items()}
    if isinstance(value, Sequence):
        return [to_plain(held, f"{name}[{place}]") for place, held in enumerate(value)]
    raise ArgumentError(
        f"Outcome: `{name}` must be plain data, that is numbers, strings, None, and lists and "
        f"mappings of them; got a {type(value).__name__}. Use .item() or .tolist()."
    )


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`: the strings "nan", "inf" and "-inf" become numbers again."""
    if isinstance(value, str):
        return _NAMES.get(value, value)
    if isinstance(value, dict):
        return {key: from_plain(held) for key, held in value.items()}
    if isinstance(value, list):
        return [from_plain(held) for held in value]
    return value


@dataclass(frozen=True)
class Record:
    """A cell that was run.

    Attributes:
        cell: what decided it.
        outcome: what it found.
        wall, cpu: the seconds that it took, and those of the processor.
        code: the version of taut, its commit, and whether the files differed from that.
        versions: of Python and of the packages that compute.
        machine: where it was run.
        date: when it was finished, in UTC.
    """

    cell: Cell
    outcome: Outcome
    wall: float
    cpu: float
    code: Mapping[str, Any]
    versions: Mapping[str, str | None]
    machine: Mapping[str, Any]
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def result(self) -> Result:
        """What an experiment's `show` takes."""
        return Result(self.cell.config, self.outcome)

    def to_json(self) -> dict[str, Any]:
        """The content of the file."""
        numbers = to_plain(self.outcome.numbers, "numbers")
        for name, value in numbers.items():
            if not isinstance(from_plain(value), Real):
                raise ArgumentError(
                    f"Outcome: `numbers[{name!r}]` must be a number; got {value!r}. "
                    "Put what is none into series."
                )
        return {
            "format": _FORMAT,
            "experiment": self.cell.experiment,
            "version": self.cell.version,
            "key": self.cell.key,
            "seed": self.cell.config["seed"],
            "config": self.cell.config,
            "numbers": numbers,
            "curve": to_plain(self.outcome.curve, "curve"),
            "series": to_plain(self.outcome.series, "series"),
            "wall_seconds": self.wall,
            "cpu_seconds": self.cpu,
            "code": self.code,
            "versions": self.versions,
            "machine": self.machine,
            "date": self.date,
        }

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> "Record":
        """The record of which `to_json` made this.

        Raises:
            KeyError, TypeError, ValueError: `to_json` made something else.
        """
        if held["format"] != _FORMAT:
            raise ValueError(f"it has format {held['format']!r}, and {_FORMAT} is known")
        cell = Cell(held["experiment"], held["version"], held["config"])
        if cell.key != held["key"]:
            raise ValueError("its key is not that of its configuration")
        numbers, curve, series = (from_plain(held[n]) for n in ("numbers", "curve", "series"))
        if not all(isinstance(value, Real) for value in numbers.values()):
            raise ValueError("its numbers are none")
        return cls(
            cell=cell,
            outcome=Outcome(dict(numbers), list(curve), dict(series)),
            wall=float(held["wall_seconds"]),
            cpu=float(held["cpu_seconds"]),
            code=held["code"],
            versions=held["versions"],
            machine=held["machine"],
            date=held["date"],
        )


class Records:
    """The records in a folder: that of a cell is `<folder>/<experiment>/<key>.json`.

    Args:
        folder: made when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def path(self, cell: Cell) -> Path:
        """Where the record of a cell is, or will be."""
        return self.folder / cell.experiment / f"{cell.key}.json"

    def error_path(self, cell: Cell) -> Path:
        """Where it is told why a cell could not be computed."""
        return self.folder / cell.experiment / f"{cell.key}.error.txt"

    def write(self, record: Record) -> Path:
        """Writes a record in one step; what was told of an earlier failure is removed."""
        path = self.path(record.cell)
        held = record.to_json().items()
        # A field a line: records are committed, and a number a line would drown what changed.
        lines = (f' "{name}": {json.dumps(value, allow_nan=False)}' for name, value in held)
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        self.error_path(record.cell).unlink(missing_ok=True)
        return path

    def write_error(self, cell: Cell, story: str) -> Path:
        """Writes why a cell could not be computed."""
        path = self.error_path(cell)
        told = f"{cell.experiment} {json.dumps(cell.config)}\n\n{story.rstrip()}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, told.encode())
        return path

    def read(self, cell: Cell) -> Record | None:
        """The record of a cell, or None if it has none.

        Raises:
            DamagedFileError: the file is cut short, altered, or of another cell.
        """
        path = self.path(cell)
        try:
            record = Record.from_json(json.loads(path.read_bytes()))
            if record.cell.key != cell.key:
                raise ValueError("it is the record of another cell")
            return record
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DamagedFileError(f"{path} is no whole record ({reason}).") from error

    def load(self, cells: Iterable[Cell]) -> tuple[dict[str, Record], list[str]]:
        """The records of those cells that are finished.

        Returns:
            The records by the keys of their cells, in the order of the cells; and a sentence for
            each file that is damaged. Its cell counts as not finished.
        """
        found: dict[str, Record] = {}
        damaged: list[str] = []
        for cell in cells:
            try:
                record = self.read(cell)
            except DamagedFileError as error:
                damaged.append(str(error))
                continue
            if record is not None:
                found[cell.key] = record
        return found, damaged

    def of(self, experiment: Experiment, preset: str) -> list[Record]:
        """The finished cells of a preset, in order; damaged files are passed over."""
        return list(self.load(experiment.cells(preset))[0].values())

    def largest_preset(self, experiment: Experiment) -> str | None:
        """The preset nearest to the paper of which a cell is finished, or None."""
        return next((p for p in reversed(PRESETS) if self.of(experiment, p)), None)
