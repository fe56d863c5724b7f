"""What `taut wasserstein` prints: a comparison of two datasets, or the scores of new rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from torch import Tensor

from taut.bounds import Bound, format_number
from taut.cli.output import print_table, say
from taut.report import (
    UNITS,
    as_sentence,
    distance_assumption,
    distance_guarantees,
    distance_headline,
    distance_rows,
    format_bound,
)
from taut.transport import SavedCritic, WassersteinResult, name_critic


@dataclass(frozen=True, eq=False)
class ComparisonOutput:
    """A result of `taut.wasserstein`, and how it was computed."""

    result: WassersteinResult
    paths: tuple[str, str]
    names: tuple[str, str]
    notes: Sequence[str]
    options: dict[str, Any]
    seconds: float

    @property
    def alarm(self) -> bool:
        """Whether the lower bound exceeds --fail-above."""
        return _is_above(self.result.lower, self.options)

    def record(self, page: Path | None) -> dict[str, Any]:
        """The result for JSON, and where its report is; infinite numbers are null."""
        result, options = self.result, self.options
        sides = zip("ab", self.paths, result.rows, strict=True)
        return {
            **{side: {"path": path, "rows": rows} for side, path, rows in sides},
            "features": len(result.scaling.shift),
            "columns": None if result.columns is None else list(result.columns),
            "encoding": None if result.encoding is None else result.encoding.accounts,
            "estimate": _number(result.estimate.value),
            "lower": _bound(result.lower),
            "upper": _bound(result.upper),
            "gap": _number(result.gap),
            "confidence": result.confidence,
            "p_value": result.p_value,
            "critic": _critic(result),
            "num_steps": options["num_steps"],
            "notes": list(self.notes),
            "guarantees": distance_guarantees(result, options["method"]),
            "report": page,
            "saved": options["save"],
            "seconds": round(self.seconds, 3),
            **_settings(result, options, self.alarm),
        }

    def show(self, page: Path | None) -> None:
        """Prints the result and its assumptions, and with --explain also methods and guarantees."""
        result, options = self.result, self.options
        say(f"{distance_headline(result, self.names)}.", style="bold")
        if options["explain"]:
            self._explain()
        else:
            rows = " and ".join(f"{count:,}" for count in result.rows)
            estimate = (
                f"Estimate {format_number(result.estimate.value)}, {UNITS[result.scaling.method]}"
            )
            features = len(result.scaling.shift)
            say(f"{estimate}; {rows} rows of {features} feature{'s' * (features > 1)}.")
            say(distance_assumption(result))
            for note in self.notes:
                say(f"Note: {as_sentence(note)}")
            say("Methods, guarantees and the use of each column: --explain.", style="dim")
        for name, path in (("Critic", options["save"]), ("Report", page)):
            if path is not None:
                say(f"{name}: {path}")
        say(f"{self.seconds:.0f} s.")
        _print_alarm(result.lower, "lower bound", options)

    def _explain(self) -> None:
        result = self.result
        rows = distance_rows(result)
        counts = zip(self.names, result.rows, strict=True)
        rows += [["rows", f"{count:,}", name] for name, count in counts]
        rows.append(["features", str(len(result.scaling.shift)), UNITS[result.scaling.method]])
        print_table(["", "value", "method"], rows, left=(0, 2))
        if result.encoding is not None and (result.encoding.mixed or result.encoding.left_out):
            accounts = result.encoding.accounts.items()
            print_table(["column", "use"], [list(account) for account in accounts], left=(0, 1))
        guarantees = list(distance_guarantees(result, self.options["method"]).items())
        for name, sentence in [*guarantees, *(("Note", as_sentence(note)) for note in self.notes)]:
            line = Text.assemble((f"{name}.", "bold"), f" {sentence}")
            Console().print(Padding(line, (0, 0, 0, 2)))

    def metadata(self, command: str) -> list[tuple[str, str]]:
        """Metadata of the run, for the end of the report."""
        result, threads = self.result, self.options["threads"]
        sides = zip("AB", self.paths, result.rows, strict=True)
        metadata = [("Command", command)]
        metadata += [(side, f"{path}, {rows:,} rows") for side, path, rows in sides]
        metadata.append(
            ("Features", f"{len(result.scaling.shift)}, {UNITS[result.scaling.method]}")
        )
        metadata += [("Note", note) for note in self.notes]
        if result.history:
            steps = self.options["num_steps"]
            metadata.append(("Training", f"at most {steps} steps of each critic"))
        metadata.append(("Seed", str(self.options["seed"])))
        metadata.append(("Time", f"{self.seconds:.0f} s, {threads} thread{'s' * (threads > 1)}"))
        metadata.append(("Versions", ", ".join(f"{k} {v}" for k, v in _versions().items())))
        return metadata


@dataclass(frozen=True, eq=False)
class ScoreOutput:
    """The scores of new rows by a saved critic, and lower bounds of their distances from A and B."""

    critic: SavedCritic
    scores: Tensor
    bounds: Sequence[Bound]
    options: dict[str, Any]

    @property
    def alarm(self) -> bool:
        """Whether the lower bound of the distance from A exceeds --fail-above."""
        return _is_above(self.bounds[0], self.options)

    @property
    def reference_means(self) -> list[float]:
        """Mean scores of A and B: the midpoints of their confidence intervals."""
        return [sum(ends) / 2 for ends in self.critic.means]

    def record(self) -> dict[str, Any]:
        """The scores for JSON."""
        options = self.options
        return {
            "critic": {"path": options["critic"], **_critic(self.critic)},
            "new": {"path": options["score"], "rows": len(self.scores)},
            "mean_score": self.scores.mean().item(),
            "mean_scores_known": dict(zip("ab", self.reference_means, strict=True)),
            "lower_from_a": _bound(self.bounds[0]),
            "lower_from_b": _bound(self.bounds[1]),
            "scores_out": options["scores_out"],
            "notes": list(self.bounds[0].hypotheses.statements),
            **_settings(self.critic, options, self.alarm),
        }

    def show(self) -> None:
        """Prints the scores as a table."""
        critic, options, name = self.critic, self.options, Path(self.options["score"]).name
        rows = [[name, format_number(self.scores.mean().item()), ""]]
        for side, mean, bound in zip("AB", self.reference_means, self.bounds, strict=True):
            rows.append([side, format_number(mean), format_bound(bound.value, "lower")])
        print_table(["", "mean score", f"lower bound of the distance to {name}"], rows)
        reference = "the rows of" if critic.finite else "the population of"
        sentence = (
            f"Each bound holds with probability {100 * options['confidence']:.4g} %: it bounds from "
            f"below the distance between the population of {name} and {reference} A (or B), "
            f"{UNITS[critic.scaling.method]}. The {name_critic(critic.kind)} was trained before it saw the "
            f"{len(self.scores):,} new rows, and its Lipschitz constant was verified again: at most "
            f"{format_bound(critic.lipschitz.value, 'upper', 7)}. Assumption: the new rows are "
            "i.i.d. samples of one population."
        )
        notes = map(as_sentence, self.bounds[0].hypotheses.statements)
        sentence = " ".join([sentence, *notes])
        Console().print(sentence, highlight=False, markup=False)
        if options["scores_out"]:
            say(f"Scores: {options['scores_out']}")
        _print_alarm(self.bounds[0], "lower bound from A", options)

    def write(self, path: Path) -> None:
        """Writes one score per line below the header `score`, in the order of the rows."""
        lines = "".join(f"{score!r}\n" for score in self.scores.tolist())
        path.write_text(f"score\n{lines}", encoding="utf-8")


def _is_above(bound: Bound, options: dict[str, Any]) -> bool:
    return options["fail_above"] is not None and bound.value > options["fail_above"]


def _print_alarm(bound: Bound, name: str, options: dict[str, Any]) -> None:
    if options["fail_above"] is None:
        return
    above = _is_above(bound, options)
    relation, style = ("above", "red") if above else ("not above", "green")
    value = format_bound(bound.value, "lower", 6)
    say(f"The {name}, {value}, is {relation} {options['fail_above']:g}.", style=style)


def _critic(source: WassersteinResult | SavedCritic) -> dict[str, Any]:
    return {"kind": source.kind, "lipschitz": _number(source.lipschitz.value), "norm": "l2"}


def _settings(
    source: WassersteinResult | SavedCritic, options: dict[str, Any], alarm: bool
) -> dict[str, Any]:
    return {
        "scaling": source.scaling.method,
        "finite": source.finite,
        **{name: options[name] for name in ("method", "seed", "fail_above")},
        "alarm": alarm,
        "versions": _versions(),
    }


def _bound(bound: Bound) -> dict[str, Any]:
    value = _number(bound.value)
    return {"value": value, "confidence": bound.confidence, "method": bound.method}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("taut", "torch", "numpy")}
