"""What `taut wasserstein` prints and writes."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from taut.bounds import Bound
from taut.report.wasserstein_words import UNITS, headline, promises, rounded
from taut.wasserstein import SavedCritic, WassersteinResult

__all__ = [
    "comparison_record",
    "facts",
    "print_comparison",
    "print_json",
    "print_score",
    "progress",
    "say",
    "score_record",
    "write_scores",
]

_STAGES = {
    "cones": "cone critic",
    "network": "network critic",
    "transport": "exact transport",
}


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Bars on standard error, one for each stage that reports."""
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True, quiet=quiet)) as bars:
        tasks: dict[str, Any] = {}

        def finish() -> None:
            """Stages follow each other; one that stopped early has nothing left to do."""
            for task in bars.tasks:
                bars.update(task.id, total=task.completed)

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                finish()
                tasks[stage] = bars.add_task(_STAGES.get(stage, stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield on_progress
        finish()


def say(sentence: str, style: str | None = None) -> None:
    """One line on standard output, broken where the terminal ends and nowhere else."""
    Console().print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def print_json(record: dict[str, Any]) -> None:
    """One object on standard output."""
    click.echo(json.dumps(record, allow_nan=False))


def comparison_record(
    result: WassersteinResult,
    paths: tuple[str, str],
    notes: Sequence[str],
    options: dict[str, Any],
    alarm: bool,
    seconds: float,
) -> dict[str, Any]:
    """The answer as JSON knows it; what is infinite is null."""
    x, y = ({"path": path, "rows": rows} for path, rows in zip(paths, result.rows, strict=True))
    return {
        "a": x,
        "b": y,
        "features": len(result.scaling.shift),
        "columns": None if result.columns is None else list(result.columns),
        "estimate": _number(result.estimate.value),
        "lower": _bound(result.lower),
        "upper": _bound(result.upper),
        "gap": _number(result.gap),
        "confidence": result.confidence,
        "population": result.population,
        "p_value": result.p_value,
        "critic": {
            "kind": result.kind,
            "lipschitz": _number(result.lipschitz.value),
            "norm": "l2",
        },
        "scaling": result.scaling.method,
        "method": options["method"],
        "steps": options["steps"],
        "seed": options["seed"],
        "notes": list(notes),
        "guarantees": promises(result, options["method"]),
        "fail_above": options["fail_above"],
        "alarm": alarm,
        "report": _text(options["report"]),
        "saved": _text(options["save"]),
        "seconds": round(seconds, 3),
        "versions": _versions(),
    }


def print_comparison(
    result: WassersteinResult,
    names: tuple[str, str],
    notes: Sequence[str],
    options: dict[str, Any],
    alarm: bool,
    seconds: float,
) -> None:
    """The answer as people read it."""
    table = _table("value", "how")
    table.add_row("estimate", f"{result.estimate.value:.4g}", result.estimate.method)
    table.add_row("at least", rounded(result.lower.value, "lower"), result.lower.method)
    table.add_row("at most", rounded(result.upper.value, "upper"), result.upper.method)
    table.add_row("gap", rounded(result.gap, "upper"), "between the bounds")
    if result.p_value is not None:
        table.add_row("p-value", f"{result.p_value:.3g}", "both are one population: permutation")
    constant = rounded(result.lipschitz.value, "upper", 7)
    table.add_row("critic", f"<= {constant}", f"{result.kind}; its constant is proven")
    for name, rows in zip(names, result.rows, strict=True):
        table.add_row("rows", f"{rows:,}", name)
    table.add_row("features", str(len(result.scaling.shift)), UNITS[result.scaling.method])
    console = Console()
    say(f"{headline(result, names)}.", style="bold")
    console.print(table, highlight=False)
    for name, sentence in promises(result, options["method"]).items():
        line = Padding(f"[bold]{name}.[/bold] {_plain(sentence)}", (0, 0, 0, 2))
        console.print(line, highlight=False)
    for note in notes:
        console.print(Padding(f"[bold]Note.[/bold] {_plain(note)}", (0, 0, 0, 2)), highlight=False)
    if options["save"]:
        say(f"The critic: {options['save']}")
    if options["report"]:
        say(f"The page: {options['report']}")
    say(f"{seconds:.0f} s.")
    _print_alarm(result.lower, "lower bound", options["fail_above"], alarm)


def facts(
    result: WassersteinResult,
    paths: tuple[str, str],
    notes: Sequence[str],
    options: dict[str, Any],
    command: str,
    seconds: float,
) -> list[tuple[str, str]]:
    """How it was run, for the foot of the page."""
    found = [("Command", command)]
    found += [
        (side, f"{path}, {rows:,} rows")
        for side, path, rows in zip("AB", paths, result.rows, strict=True)
    ]
    found.append(("Features", f"{len(result.scaling.shift)}, {UNITS[result.scaling.method]}"))
    found += [("Note", note) for note in notes]
    if result.history:
        found.append(("Training", f"at most {options['steps']} steps of each critic"))
    found.append(("Seed", str(options["seed"])))
    threads = options["threads"]
    found.append(("Time", f"{seconds:.0f} s, {threads} thread{'s' if threads > 1 else ''}"))
    found.append(("Versions", ", ".join(f"{k} {v}" for k, v in _versions().items())))
    return found


def score_record(
    critic: SavedCritic,
    scores: Tensor,
    bounds: Sequence[Bound],
    options: dict[str, Any],
    alarm: bool,
) -> dict[str, Any]:
    """The judgement of new rows as JSON knows it."""
    return {
        "critic": {
            "path": str(options["critic"]),
            "kind": critic.kind,
            "lipschitz": critic.lipschitz.value,
            "norm": "l2",
        },
        "new": {"path": options["score"], "rows": len(scores)},
        "mean_score": scores.mean().item(),
        "mean_scores_known": {"a": critic.means[0], "b": critic.means[1]},
        "lower_from_a": _bound(bounds[0]),
        "lower_from_b": _bound(bounds[1]),
        "scaling": critic.scaling.method,
        "population": critic.population,
        "method": options["method"],
        "seed": options["seed"],
        "fail_above": options["fail_above"],
        "alarm": alarm,
        "scores_out": _text(options["scores_out"]),
        "versions": _versions(),
    }


def print_score(
    critic: SavedCritic,
    scores: Tensor,
    bounds: Sequence[Bound],
    options: dict[str, Any],
    alarm: bool,
) -> None:
    """The judgement of new rows as people read it."""
    name = Path(options["score"]).name
    table = _table("mean score", f"{name} is at least this far away")
    table.add_row(name, f"{scores.mean().item():.4g}", "")
    for side, mean, bound in zip("AB", critic.means, bounds, strict=True):
        table.add_row(side, f"{mean:.4g}", rounded(bound.value, "lower"))
    Console().print(table, highlight=False)
    sure = f"{100 * options['confidence']:.4g} %"
    whose = "the population of" if critic.population else "the rows of"
    console = Console()
    console.print(
        f"Each bound holds with probability {sure}: the distance of what {_plain(name)} was drawn "
        f"from, from {whose} A and of B, {UNITS[critic.scaling.method]}. The {critic.kind} critic "
        f"is older than the {len(scores):,} new rows, and its constant is proven anew to be at most "
        f"{rounded(critic.lipschitz.value, 'upper', 7)}. Assumed: the new rows are independent "
        "draws of one population.",
        highlight=False,
    )
    if options["scores_out"]:
        say(f"The scores: {options['scores_out']}")
    _print_alarm(bounds[0], "lower bound from A", options["fail_above"], alarm)


def write_scores(path: Path, scores: Tensor) -> None:
    """One number a line below the word `score`, in the order of the rows."""
    lines = "".join(f"{score!r}\n" for score in scores.tolist())
    path.write_text(f"score\n{lines}", encoding="utf-8")


def _print_alarm(bound: Bound, name: str, limit: float | None, alarm: bool) -> None:
    if limit is None:
        return
    relation = "above" if alarm else "not above"
    value = rounded(bound.value, "lower", 6)
    say(f"The {name}, {value}, is {relation} {limit:g}.", style="red" if alarm else "green")


def _table(*headers: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column(headers[0], justify="right", no_wrap=True)
    table.add_column(headers[1])
    return table


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "value": _number(bound.value),
        "confidence": bound.confidence,
        "method": bound.method,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("taut", "torch", "numpy")}
