"""Details of the runs of an experiment: settings, seeds, code, machine and time."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from taut_lab.framework.experiment import Config, Experiment
from taut_lab.framework.records import Record

_MANY = 8
_LONG = 48


def command(experiment: Experiment, preset: str) -> str:
    """The command line that computes an experiment.

    Example:
        >>> from taut_lab.experiments.registry import find_experiment
        >>> command(find_experiment("three-cones"), "cpu")
        'taut reproduce three-cones --preset cpu'
    """
    data = " --data-dir DATA" if experiment.datasets(preset) else ""
    return f"taut reproduce {shlex.quote(experiment.name)} --preset {preset}{data}"


def duration(seconds: float) -> str:
    """A duration for readers.

    Example:
        >>> duration(0.31), duration(41.6), duration(600), duration(9000)
        ('0.3 s', '42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def settings(configs: Sequence[Config]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The settings that all configurations share, and the values of the others, without seeds.

    Example:
        >>> settings([{"seed": 0, "lr": 0.1, "net": {"act": a}} for a in ("relu", "maxmin")])
        ({'lr': '0.1'}, {'net.act': ['relu', 'maxmin']})
    """
    flat = [dict(_flatten(config)) for config in configs]
    names = [name for name in dict.fromkeys(n for one in flat for n in one) if name != "seed"]
    same: dict[str, str] = {}
    varied: dict[str, list[str]] = {}
    for name in names:
        values = list(dict.fromkeys(one[name] for one in flat if name in one))
        if len(values) == 1 and all(name in one for one in flat):
            same[name] = values[0]
        else:
            varied[name] = values
    return same, varied


def run_details(
    experiment: Experiment, preset: str, records: Sequence[Record], counts: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Names and texts that describe the records of a preset; `counts` has texts on all presets."""
    same, varied = settings([record.cell.config for record in records])
    seeds = sorted({record.cell.config["seed"] for record in records})
    dates = sorted(record.date[:16].replace("T", " ") for record in records)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    cpu, wall = sum(r.cpu for r in records), sum(r.wall for r in records)
    rows = [
        ("Command", command(experiment, preset)),
        ("In the paper", experiment.label if experiment.in_paper else "no"),
        ("Finished cells", "; ".join(f"{name}: {count}" for name, count in counts.items())),
        ("Seeds", ", ".join(map(str, seeds))),
        ("Common settings", ", ".join(f"{name} {_brief(value)}" for name, value in same.items())),
        (
            "Varied settings",
            "; ".join(f"{name}: {_some(values)}" for name, values in varied.items()),
        ),
        ("Code", _tally(_code(record.code) for record in records)),
        ("Versions", _tally(_pairs(record.versions) for record in records)),
        ("Machine", _tally(_machine(record.machine) for record in records)),
        ("Load average", _load([record.machine for record in records])),
        ("Finished", f"{span} UTC"),
        (
            "Time",
            f"{duration(cpu)} of CPU time, {duration(wall)} wall-clock time, summed over cells",
        ),
    ]
    return [(name, text) for name, text in rows if text]


def _flatten(config: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{before}{name}.")
        else:
            yield before + name, value if isinstance(value, str) else json.dumps(value)


def _some(values: Sequence[str]) -> str:
    more = len(values) - _MANY
    return ", ".join(map(_brief, values[:_MANY])) + (f" and {more} more" if more > 0 else "")


def _brief(value: str) -> str:
    """Long values are abbreviated; the records hold them in full."""
    return value if len(value) <= _LONG else f"{value[:20]} ... {value[-12:]}"


def _tally(texts: Iterable[str]) -> str:
    """Each distinct text; with the number of its cells if there are several."""
    counts = Counter(filter(None, texts))
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{text} ({n} {'cell' if n == 1 else 'cells'})" for text, n in counts.items())


def _code(code: Mapping[str, Any]) -> str:
    parts = [f"taut {code.get('taut') or 'of unknown version'}"]
    commit = code.get("commit")
    parts.append(f"commit {commit[:12]}" if commit else "commit unknown")
    if code.get("dirty"):
        parts.append("with uncommitted changes")
    return ", ".join(parts)


def _pairs(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items() if number)


def _machine(machine: Mapping[str, Any]) -> str:
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    return ", ".join(filter(None, (machine.get("processor"), cores, machine.get("system"))))


def _load(machines: Sequence[Mapping[str, Any]]) -> str:
    """The range of load averages over the last minute of each cell."""
    loads = [machine["load"][0] for machine in machines if machine.get("load")]
    if not loads:
        return ""
    low, high = min(loads), max(loads)
    return f"{low:g}" if low == high else f"between {low:g} and {high:g}"
