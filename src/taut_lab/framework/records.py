"""Records of finished cells: outcome and provenance, one JSON file for each cell."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from taut.errors import ArgumentError, DamagedFileError
from taut.export import write_atomically
from taut_lab.framework.experiment import Cell, Experiment, Outcome, Result

__all__ = [
    "Record",
    "Records",
    "current_date",
    "from_json",
    "read_record_file",
    "to_json",
    "write_record_file",
]

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_FORMAT = 1
_PROVENANCE = ("code", "versions", "machine", "date")

T = TypeVar("T")


def current_date() -> str:
    """The current time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def to_json(value: Any, name: str = "value") -> Any:
    """The value in the types of JSON; non-finite numbers become "nan", "inf", "-inf".

    Args:
        value: numbers, strings, None, and mappings and sequences of these.
        name: name of the value in errors.

    Raises:
        ArgumentError: the value holds something else, such as a tensor.

    Example:
        >>> to_json({"a": (1, 0.5, math.inf), "b": math.nan})
        {'a': [1, 0.5, 'inf'], 'b': 'nan'}
        >>> from_json(to_json([math.inf, -math.inf, 1]))
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
        return {str(key): to_json(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item, f"{name}[{index}]") for index, item in enumerate(value)]
    rule = "must be plain data, that is numbers, strings, None, and lists and mappings of these"
    got = f"a {type(value).__name__}"
    raise ArgumentError("Outcome", name, rule, got, "Use .item() or .tolist().")


def from_json(value: Any) -> Any:
    """The inverse of `to_json`: the strings "nan", "inf" and "-inf" become numbers again."""
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def write_record_file(path: Path, fields: Mapping[str, Any]) -> None:
    """Writes a record in one step: whoever reads the file finds all of it, or the old one."""
    content = {"format": _FORMAT, **fields}.items()
    # One field per line: records are committed, and one number per line would hide what changed.
    lines = (f' "{name}": {json.dumps(value, allow_nan=False)}' for name, value in content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_record_file(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> T:
    """What `parse` makes of the fields of a record file.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: the file is truncated, altered, or of another kind; `parse` says so by
            a KeyError, TypeError, ValueError or AttributeError.
    """
    try:
        fields = json.loads(path.read_bytes())
        if fields["format"] != _FORMAT:
            raise ValueError(f"its format is {fields['format']!r}, not {_FORMAT}")
        return parse(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DamagedFileError(rule=f"{path} is not a complete record ({reason})") from error


@dataclass(frozen=True)
class Record:
    """A finished cell.

    Attributes:
        cell: the cell.
        outcome: its results.
        wall: wall-clock time in seconds.
        cpu: CPU time in seconds.
        code: version and commit of taut, and whether files differed from the commit.
        versions: versions of Python and of the numerical packages.
        machine: description of the machine.
        date: time at which it was finished, in UTC.
    """

    cell: Cell
    outcome: Outcome
    wall: float
    cpu: float
    code: Mapping[str, Any]
    versions: Mapping[str, str | None]
    machine: Mapping[str, Any]
    date: str = field(default_factory=current_date)

    @property
    def result(self) -> Result:
        """The argument of an experiment's `show`."""
        return Result(self.cell.config, self.outcome)

    def to_json(self) -> dict[str, Any]:
        """The fields of the file."""
        numbers = to_json(self.outcome.numbers, "numbers")
        for name, value in numbers.items():
            if not isinstance(from_json(value), Real):
                rule = f"`numbers[{name!r}]` must be a number"
                remedy = "Put other data into series."
                raise ArgumentError("Outcome", rule=rule, got=repr(value), remedy=remedy)
        cell = self.cell
        return {
            **{"experiment": cell.experiment, "version": cell.version, "key": cell.key},
            **{"seed": cell.config["seed"], "config": cell.config, "numbers": numbers},
            "curve": to_json(self.outcome.curve, "curve"),
            "series": to_json(self.outcome.series, "series"),
            **{"wall_seconds": self.wall, "cpu_seconds": self.cpu},
            **{name: getattr(self, name) for name in _PROVENANCE},
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Record":
        """The inverse of `to_json`; for other fields a KeyError, TypeError or ValueError."""
        cell = Cell(fields["experiment"], fields["version"], fields["config"])
        if cell.key != fields["key"]:
            raise ValueError("its key does not match its configuration")
        numbers, curve, series = (from_json(fields[n]) for n in ("numbers", "curve", "series"))
        if not all(isinstance(value, Real) for value in numbers.values()):
            raise ValueError("its numbers are not all numbers")
        return cls(
            cell=cell,
            outcome=Outcome(dict(numbers), list(curve), dict(series)),
            wall=float(fields["wall_seconds"]),
            cpu=float(fields["cpu_seconds"]),
            **{name: fields[name] for name in _PROVENANCE},
        )


class Records:
    """The records in a folder; the record of a cell is `<folder>/<experiment>/<key>.json`.

    Args:
        folder: created when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def path(self, cell: Cell) -> Path:
        """The path of the record of a cell."""
        return self.folder / cell.experiment / f"{cell.key}.json"

    def error_path(self, cell: Cell) -> Path:
        """The path of the error report of a cell that failed."""
        return self.folder / cell.experiment / f"{cell.key}.error.txt"

    def write(self, record: Record) -> Path:
        """Writes a record in one step, and removes the error report of an earlier failure."""
        path = self.path(record.cell)
        write_record_file(path, record.to_json())
        self.error_path(record.cell).unlink(missing_ok=True)
        return path

    def write_error(self, cell: Cell, reason: str) -> Path:
        """Writes the error report of a cell."""
        path = self.error_path(cell)
        text = f"{cell.experiment} {json.dumps(cell.config)}\n\n{reason.rstrip()}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        return path

    def read(self, cell: Cell) -> Record | None:
        """The record of a cell, or None if it has none.

        Raises:
            DamagedFileError: the file is truncated, altered, or of another cell.
        """

        def parse(fields: Mapping[str, Any]) -> Record:
            record = Record.from_json(fields)
            if record.cell.key != cell.key:
                raise ValueError("it belongs to another cell")
            return record

        try:
            return read_record_file(self.path(cell), parse)
        except FileNotFoundError:
            return None

    def load(self, cells: Iterable[Cell]) -> tuple[dict[str, Record], list[str]]:
        """The records of the finished cells among `cells`.

        Returns:
            The records by the keys of their cells, in the order of the cells; and a sentence for
            each damaged file, whose cell counts as not finished.
        """
        loaded: dict[str, Record] = {}
        damaged: list[str] = []
        for cell in cells:
            try:
                record = self.read(cell)
            except DamagedFileError as error:
                damaged.append(str(error))
                continue
            if record is not None:
                loaded[cell.key] = record
        return loaded, damaged

    def of(self, experiment: Experiment, preset: str) -> list[Record]:
        """The records of a preset, in the order of its cells; damaged files are ignored."""
        return list(self.load(experiment.cells(preset))[0].values())
