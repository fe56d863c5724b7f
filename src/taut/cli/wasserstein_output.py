"""What `taut wasserstein` prints and writes."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import TaskProgressColumn
from torch import Tensor

from taut.bounds import Bound
from taut.cli.output import plain_table, progress_bars, say
from taut.report import UNITS, distance_guarantees, distance_headline, format_bound
from taut.transport import SavedCritic, WassersteinResult

__all__ = [
    "comparison_record",
    "facts",
    "print_comparison",
    "print_score",
    "progress",
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
    with progress_bars("{task.description:<16}", TaskProgressColumn(), quiet=quiet) as bars:
        tasks: dict[str, Any] = {}

        def finish() -> None:
            """Stages follow each other; one that stopped early is complete."""
            for task in bars.tasks:
                bars.update(task.id, total=task.completed)

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                finish()
                tasks[stage] = bars.add_task(_STAGES.get(stage, stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield on_progress
        finish()


def comparison_record(
    result: WassersteinResult,
    paths: tuple[str, str],
    notes: Sequence[str],
    options: dict[str, Any],
    alarm: bool,
    seconds: float,
) -> dict[str, Any]:
    """The result for JSON; infinite numbers are null."""
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
        "finite": result.finite,
        "p_value": result.p_value,
        "critic": {
            "kind": result.kind,
            "lipschitz": _number(result.lipschitz.value),
            "norm": "l2",
        },
        "scaling": result.scaling.method,
        "method": options["method"],
        "num_steps": options["num_steps"],
        "seed": options["seed"],
        "notes": list(notes),
        "guarantees": distance_guarantees(result, options["method"]),
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
    """Prints the result for people."""
    table = plain_table("", "value", "method")
    table.columns[2].justify = "left"
    table.add_row("estimate", f"{result.estimate.value:.4g}", result.estimate.method)
    table.add_row("at least", format_bound(result.lower.value, "lower"), result.lower.method)
    table.add_row("at most", format_bound(result.upper.value, "upper"), result.upper.method)
    table.add_row("gap", format_bound(result.gap, "upper"), "between the bounds")
    if result.p_value is not None:
        table.add_row(
            "p-value", f"{result.p_value:.3g}", "that both are one population, by permutation"
        )
    constant = format_bound(result.lipschitz.value, "upper", 7)
    table.add_row("critic", f"<= {constant}", f"{result.kind}; constant proven")
    for name, rows in zip(names, result.rows, strict=True):
        table.add_row("rows", f"{rows:,}", name)
    table.add_row("features", str(len(result.scaling.shift)), UNITS[result.scaling.method])
    console = Console()
    say(f"{distance_headline(result, names)}.", style="bold")
    console.print(table, highlight=False)
    for name, sentence in distance_guarantees(result, options["method"]).items():
        line = Padding(f"[bold]{name}.[/bold] {escape(sentence)}", (0, 0, 0, 2))
        console.print(line, highlight=False)
    for note in notes:
        console.print(Padding(f"[bold]Note.[/bold] {escape(note)}", (0, 0, 0, 2)), highlight=False)
    if options["save"]:
        say(f"Critic: {options['save']}")
    if options["report"]:
        say(f"Report: {options['report']}")
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
    """Metadata of the run, for the end of the report."""
    found = [("Command", command)]
    found += [
        (side, f"{path}, {rows:,} rows")
        for side, path, rows in zip("AB", paths, result.rows, strict=True)
    ]
    found.append(("Features", f"{len(result.scaling.shift)}, {UNITS[result.scaling.method]}"))
    found += [("Note", note) for note in notes]
    if result.history:
        found.append(("Training", f"at most {options['num_steps']} steps of each critic"))
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
    """The scores of new rows for JSON."""
    return {
        "critic": {
            "path": str(options["critic"]),
            "kind": critic.kind,
            "lipschitz": critic.lipschitz.value,
            "norm": "l2",
        },
        "new": {"path": options["score"], "rows": len(scores)},
        "mean_score": scores.mean().item(),
        "mean_scores_known": dict(zip("ab", _middles(critic), strict=True)),
        "lower_from_a": _bound(bounds[0]),
        "lower_from_b": _bound(bounds[1]),
        "scaling": critic.scaling.method,
        "finite": critic.finite,
        "method": options["method"],
        "seed": options["seed"],
        "fail_above": options["fail_above"],
        "alarm": alarm,
        "scores_out": _text(options["scores_out"]),
        "versions": _versions(),
    }


def _middles(critic: SavedCritic) -> list[float]:
    """The mean scores of both sides, each the middle of the interval that is known of it."""
    return [sum(ends) / 2 for ends in critic.means]


def print_score(
    critic: SavedCritic,
    scores: Tensor,
    bounds: Sequence[Bound],
    options: dict[str, Any],
    alarm: bool,
) -> None:
    """Prints the scores of new rows for people."""
    name = Path(options["score"]).name
    table = plain_table("", "mean score", f"lower bound of the distance to {name}")
    table.add_row(name, f"{scores.mean().item():.4g}", "")
    for side, mean, bound in zip("AB", _middles(critic), bounds, strict=True):
        table.add_row(side, f"{mean:.4g}", format_bound(bound.value, "lower"))
    Console().print(table, highlight=False)
    sure = f"{100 * options['confidence']:.4g} %"
    whose = "the rows of" if critic.finite else "the population of"
    console = Console()
    console.print(
        f"Each bound holds with probability {sure}: it bounds the distance of the population of "
        f"{escape(name)} from {whose} A, and of B, {UNITS[critic.scaling.method]}. The {critic.kind} "
        f"critic was trained before the {len(scores):,} new rows came, and its constant is proven "
        f"again to be at most {format_bound(critic.lipschitz.value, 'upper', 7)}. Assumption: the "
        "new rows are i.i.d. samples of one population.",
        highlight=False,
    )
    if options["scores_out"]:
        say(f"Scores: {options['scores_out']}")
    _print_alarm(bounds[0], "lower bound from A", options["fail_above"], alarm)


def write_scores(path: Path, scores: Tensor) -> None:
    """Writes one score per line below the header `score`, in the order of the rows."""
    lines = "".join(f"{score!r}\n" for score in scores.tolist())
    path.write_text(f"score\n{lines}", encoding="utf-8")


def _print_alarm(bound: Bound, name: str, limit: float | None, alarm: bool) -> None:
    if limit is None:
        return
    relation = "above" if alarm else "not above"
    value = format_bound(bound.value, "lower", 6)
    say(f"The {name}, {value}, is {relation} {limit:g}.", style="red" if alarm else "green")


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


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("taut", "torch", "numpy")}
