"""A record that grows cell by cell, so that a run which was stopped goes on where it was."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from taut.bench.cells import Cell
from taut.bench.record import TIMED
from taut.errors import ArgumentError
from taut.lab.provenance import describe_machine, describe_versions

__all__ = ["Ledger"]

_FORMAT = 1
_KIND = "taut bench wasserstein"


class Ledger:
    """Cells by name, on disk after each of them.

    The file is replaced in one step: whoever stops the run, or reads the file meanwhile, finds all
    cells so far, never half of one.

    Args:
        path: the JSON file, read first if it is there; None keeps everything in memory.
        settings: what decides the cells. A file made with other settings is refused, lest one
            table mix two runs.

    Example:
        >>> ledger = Ledger(None, {"seed": 0})
        >>> ledger.add("a", Cell("part", "problem", "critic", truth=1.0))
        >>> "a" in ledger, ledger.cells["a"].truth
        (True, 1.0)
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.cells: dict[str, Cell] = {}
        self.head: dict[str, Any] = {
            "format": _FORMAT,
            "kind": _KIND,
            "settings": json.loads(json.dumps(settings)),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": describe_versions(*TIMED),
            "machine": describe_machine(),
        }
        if path is not None and path.exists():
            found = Ledger.read(path)
            if found.head["settings"] != self.head["settings"]:
                raise ArgumentError(
                    f"Ledger: `path` must be a record with the settings {self.head['settings']}; "
                    f"got {str(path)!r}, made with {found.head['settings']}. "
                    "Use the same settings, or another file."
                )
            self.head, self.cells = found.head, found.cells

    def __contains__(self, name: str) -> bool:
        return name in self.cells

    def add(self, name: str, cell: Cell) -> None:
        """Keeps a cell, and writes the file anew."""
        self.cells[name] = cell
        if self.path is None:
            return
        plain = {key: kept.to_plain() for key, kept in self.cells.items()}
        text = json.dumps({**self.head, "cells": plain}, indent=1, allow_nan=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        draft.write_text(text + "\n", encoding="utf-8")
        os.replace(draft, self.path)

    @classmethod
    def read(cls, path: Path) -> "Ledger":
        """Reads what a run has written."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if (content["format"], content["kind"]) != (_FORMAT, _KIND):
                raise KeyError("kind")
            cells = {name: Cell.from_plain(cell) for name, cell in content.pop("cells").items()}
            found = cls(None, content["settings"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(
                f"Ledger.read: `path` must be a record of {_KIND} in format {_FORMAT}; "
                f"got {str(path)!r}. Write one with {_KIND} --out record.json."
            ) from error
        found.path, found.head, found.cells = path, content, cells
        return found
