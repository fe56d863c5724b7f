"""Definition of an experiment: the cells to compute, and how to present their results."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taut.errors import ArgumentError, check_choice
from taut_lab.framework.datasets import datasets_of
from taut_lab.framework.presentation import Presentation
from taut_lab.framework.verdict import Check, Verdict, budget

__all__ = ["PRESETS", "Cell", "Config", "Experiment", "Outcome", "Result"]

PRESETS = ("smoke", "cpu", "gpu", "paper")

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The results of a cell, as plain data that can be written as JSON.

    Attributes:
        numbers: numbers by name, for tables.
        curve: the training curve, one row of numbers for each point in time.
        series: nested lists of numbers by name, for figures. Keep them small (kilobytes): records
            are committed.
    """

    numbers: Mapping[str, float]
    curve: Sequence[Mapping[str, float]] = ()
    series: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A finished cell: its configuration and its outcome."""

    config: Config
    outcome: Outcome


@dataclass(frozen=True)
class Cell:
    """One computation: the name of an experiment, its version, and a configuration.

    Example:
        >>> cell = Cell("three-cones", 1, {"activation": "maxmin", "seed": 0})
        >>> cell.key == Cell("three-cones", 1, {"seed": 0, "activation": "maxmin"}).key
        True
        >>> cell.key == Cell("three-cones", 2, {"activation": "maxmin", "seed": 0}).key
        False
    """

    experiment: str
    version: int
    config: Config

    @property
    def key(self) -> str:
        """Hash of name, version and configuration: 16 hexadecimal digits. Records are named by it."""
        content = {"experiment": self.experiment, "version": self.version, "config": self.config}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper: its claim, its cells, and how to present them.

    Attributes:
        name: name on the command line, like "three-cones".
        label: the printed number in the paper, like "Table 2"; "ours" for an experiment that the
            paper does not have.
        title: title for readers.
        claim: the paper's claim, in our words.
        configs: preset -> configurations of its cells: plain data, each with a "seed". Equal
            configurations are one cell, whichever preset asks for them. `run` and `show` get them
            as JSON returns them, with lists for tuples. `configs` is never called with "gpu"; that
            preset is the first seed of "paper".
        run: configuration -> outcome. A pure function: it draws random numbers from the
            configuration's seed alone, leaves torch's global generator unchanged, and writes
            nothing but temporary files. It is at the top level of a module, so that other
            processes can import it.
        show: maps the results of any subset of the cells to tables and figures, without further
            computation.
        checks: maps results to the inequalities that the claim implies, which decide the verdict.
        version: raised when the meaning of `run` changes, so that old records are not used.
    """

    name: str
    label: str
    title: str
    claim: str
    configs: Callable[[str], Iterable[Config]]
    run: Callable[[Config], Outcome]
    show: Callable[[Sequence[Result]], Presentation]
    checks: Callable[[Sequence[Result]], Sequence[Check]] = lambda results: ()
    version: int = 1

    @property
    def in_paper(self) -> bool:
        """Whether the paper has this experiment."""
        return self.label != "ours"

    def cells(self, preset: str) -> list[Cell]:
        """The cells of a preset, each once, in the order in which they are run."""
        check_choice("Experiment.cells", "preset", preset, PRESETS)
        configs = self.configs("paper" if preset == "gpu" else preset)
        if preset == "gpu":
            configs = list(configs)
            configs = [config for config in configs if config["seed"] == configs[0]["seed"]]
        cells = {}
        for config in configs:
            if not isinstance(config.get("seed"), int):
                rule = "every configuration must have an integer as its seed"
                raise ArgumentError(self.name, rule=rule, got=repr(dict(config)))
            cell = Cell(self.name, self.version, json.loads(json.dumps(dict(config))))
            cells[cell.key] = cell
        return list(cells.values())

    def datasets(self, preset: str) -> list[str]:
        """The datasets that have to be downloaded for a preset."""
        return sorted(set().union(*(datasets_of(cell.config) for cell in self.cells(preset))))

    def departs_from_paper(self, cells: Iterable[Cell]) -> bool:
        """Whether any of these cells differs from the paper preset (usually by a smaller budget)."""
        return not {cell.key for cell in cells} <= {cell.key for cell in self.cells("paper")}

    def verdict(self, results: Sequence[Result], preset: str) -> Verdict:
        """Verdict on the claim, given the results of a preset."""
        ours = [result.config for result in results]
        spent = budget(ours, [cell.config for cell in self.cells("paper")]) if ours else ""
        departs = self.departs_from_paper(Cell(self.name, self.version, cfg) for cfg in ours)
        return Verdict(self.checks(results), spent, departs, conclusive=preset != "smoke")
