"""Records of `taut bench wasserstein`: one file that grows by a result at a time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.errors import ArgumentError
from taut_lab.benchmarks.critic_result import CriticResult
from taut_lab.benchmarks.timing_records import BENCHMARKED
from taut_lab.framework.provenance import describe_machine, describe_versions
from taut_lab.framework.record_files import (
    current_date,
    read_record_file,
    to_json,
    write_record_file,
)

__all__ = ["CriticRecords"]

_KIND = "taut bench wasserstein"


class CriticRecords:
    """Results by name, written to the file after each of them, so that a run can be resumed.

    Args:
        path: JSON file, read first if it exists; None keeps everything in memory.
        settings: settings that determine the results. A file with other settings is refused, so
            that no table mixes two runs.

    Example:
        >>> records = CriticRecords(None, {"seed": 0})
        >>> records.add("a", CriticResult("part", "problem", "critic", truth=1.0))
        >>> "a" in records, records.results["a"].truth
        (True, 1.0)
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
            found = CriticRecords.read(path)
            if found.header["settings"] != self.header["settings"]:
                raise ArgumentError(
                    "CriticRecords: `path` must be a record with the settings "
                    f"{self.header['settings']}; got {str(path)!r}, with "
                    f"{found.header['settings']}. Use the same settings, or another file."
                )
            self.header, self.results = found.header, found.results

    def __contains__(self, name: str) -> bool:
        return name in self.results

    def add(self, name: str, result: CriticResult) -> None:
        """Adds a result, and writes the file."""
        self.results[name] = result
        if self.path is not None:
            results = {key: added.to_json() for key, added in self.results.items()}
            write_record_file(self.path, {**self.header, "results": results})

    @classmethod
    def read(cls, path: Path) -> "CriticRecords":
        """Reads the file of a run.

        Raises:
            DamagedFileError: it is not one.
        """
        found = read_record_file(path, cls._parse)
        found.path = path
        return found

    @classmethod
    def _parse(cls, fields: Mapping[str, Any]) -> "CriticRecords":
        if fields["kind"] != _KIND:
            raise ValueError(f"its kind is {fields['kind']!r}, not {_KIND!r}")
        found = cls(None, fields["settings"])
        found.results = {
            name: CriticResult.from_json(plain) for name, plain in fields["results"].items()
        }
        found.header = {name: fields[name] for name in found.header}
        return found
