"""What a table or figure of the paper is made of: cells to compute, and what to show of them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taut.errors import ArgumentError, check_choice
from taut.lab.exhibit import Exhibit

__all__ = ["PRESETS", "Cell", "Config", "Experiment", "Outcome", "Result"]

PRESETS = ("smoke", "cpu", "paper")

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a cell found. All of it is plain data, for it is written as JSON.

    Attributes:
        numbers: by name; what tables show.
        curve: of training, a row of numbers for each point in time.
        series: by name, nested lists of numbers: what figures show. Keep it small (kilobytes):
            records are committed.
    """

    numbers: Mapping[str, float]
    curve: Sequence[Mapping[str, float]] = ()
    series: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A cell that was run: what decided it, and what it found."""

    config: Config
    outcome: Outcome


@dataclass(frozen=True)
class Cell:
    """One computation: the name of its experiment and the configuration that decides it.

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
        """A name that equal contents share and others do not: 16 hexadecimal digits."""
        content = {"experiment": self.experiment, "version": self.version, "config": self.config}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper: what it claims, how it is computed, how it is drawn.

    Attributes:
        name: what the command line calls it, like "three-cones".
        label: what the paper calls it: the label in its source, or "Figure: ..." without one;
            "ours: ..." for what the paper does not have.
        title: a line for people.
        claim: what the paper says that it shows, in our words.
        configs: preset -> the configurations of its cells, plain data with a "seed" in each.
            Cells with equal configurations are one cell, whatever preset asks for them. `run` and
            `show` get them as JSON gives them back: a tuple has become a list.
        run: configuration -> outcome. A pure function: it draws from the configuration's seed
            alone, leaves torch's global generator as it was, writes nothing but scratch files.
            It stands at the top of a module, where other processes find it by name.
        show: results, of any subset of the cells -> tables and figures. It computes nothing.
        version: raised when `run` comes to mean something else, so that old records are not used.
        needs: the data sets by name, like "mnist", that the presets "cpu" and "paper" read.
    """

    name: str
    label: str
    title: str
    claim: str
    configs: Callable[[str], Iterable[Config]]
    run: Callable[[Config], Outcome]
    show: Callable[[Sequence[Result]], Exhibit]
    version: int = 1
    needs: tuple[str, ...] = ()

    @property
    def in_paper(self) -> bool:
        """Whether the paper has it; our own say so in their label."""
        return not self.label.startswith("ours")

    def cells(self, preset: str) -> list[Cell]:
        """The cells of a preset, each once, in the order in which they are run."""
        check_choice("Experiment.cells", "preset", preset, PRESETS)
        cells = {}
        for config in self.configs(preset):
            if not isinstance(config.get("seed"), int):
                raise ArgumentError(
                    f"{self.name}: every configuration must hold a whole number as its seed; "
                    f"got {dict(config)!r}."
                )
            cell = Cell(self.name, self.version, json.loads(json.dumps(dict(config))))
            cells[cell.key] = cell
        return list(cells.values())
