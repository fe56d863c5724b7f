"""What `taut train`, `taut certify` and `taut attack` print."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from taut.certificates import Certificates
from taut.cli.output import plain_table, progress_bars, say
from taut.evaluation import RobustnessResult
from taut.report import (
    ATTACK_NAMES,
    NORM_NAMES,
    certified_guarantees,
    certified_headline,
    format_bound,
    percent,
)
from taut.training import InputSpec, Progress, TrainedRun

__all__ = [
    "attack_progress",
    "default_radius",
    "print_attacked",
    "print_certified",
    "print_run",
    "run_record",
    "train_progress",
    "write_radii",
]


@contextmanager
def train_progress(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A progress bar with the loss and the accuracy on validation rows."""
    after = "loss {task.fields[loss]:.4g}{task.fields[proven]}"
    with progress_bars("epoch {task.fields[epoch]}", after, quiet=quiet) as bars:
        bar = bars.add_task("", total=None, visible=False, epoch="", loss=0.0, proven="")

        def on_progress(now: Progress) -> None:
            proven = ""
            if now.row is not None and now.row["certified"] is not None:
                clean, held = percent(now.row["clean"]), percent(now.row["certified"])
                proven = f"  clean {clean}  certified {held}"
            bars.update(
                bar,
                visible=True,
                completed=(now.epoch - 1) * now.steps + now.step,
                total=now.epochs * now.steps,
                epoch=f"{now.epoch}/{now.epochs}",
                loss=now.loss,
                proven=proven,
            )

        yield on_progress


@contextmanager
def attack_progress(total: int, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A progress bar over attacks and radii."""
    with progress_bars("{task.description:<22}", quiet=quiet) as bars:
        bar = bars.add_task("certifying", total=total)

        def on_attack(name: str, radius: float) -> None:
            words = f"{ATTACK_NAMES[name]} at {radius:.4g}" if radius else "minimal perturbations"
            bars.update(bar, advance=1, description=words)

        yield on_attack


def default_radius(certificates: Certificates) -> float:
    """The median radius rounded to one digit; 0 if most are 0."""
    return float(f"{float(certificates.radius.median()):.1g}")


def print_run(run: TrainedRun, page: Path | None) -> None:
    """Prints the result of a training run for people."""
    result = run.result
    norm = NORM_NAMES[result["norm"]]
    table = plain_table("", "test examples")
    table.add_row("clean accuracy", percent(result["clean"]))
    table.add_row(f"certified within {norm} {result['radius']:.4g}", percent(result["certified"]))
    table.add_row("median radius", format_bound(result["median_radius"], "lower", 3))
    table.add_row(
        "Lipschitz constant, proven", f"<= {format_bound(result['lipschitz'], 'upper', 7)}"
    )
    table.add_row("examples", f"{result['test_rows']:,}")
    console = Console()
    console.print(table, highlight=False)
    epochs = f"{result['epochs']} epochs, weights of epoch {result['best_epoch']}"
    say(f"{epochs}, {result['seconds']:.0f} s.")
    if result["epochs"] < (run.config.epochs or 0):
        say(
            f"Stopped before epoch {run.config.epochs}: no better certified validation accuracy in "
            f"the last {run.config.patience} epochs."
        )
    if run.folder is not None:
        say(f"Run: {run.folder}")
    if page is not None:
        say(f"Report: {page}")
    if run.folder is not None:
        if (events := run.folder / "tensorboard").exists():
            say(f"Curves: tensorboard --logdir {events}")
        say(f"Next: taut certify {run.folder}; taut attack {run.folder}")


def run_record(run: TrainedRun, page: Path | None) -> dict[str, Any]:
    """The result of a training run for JSON."""
    return {
        **run.result,
        "run": None if run.folder is None else str(run.folder),
        "report": None if page is None else str(page),
        "config": run.config.to_dict(),
    }


def print_certified(
    certificates: Certificates, spec: InputSpec, radii: Sequence[float], radius: float
) -> None:
    """Prints certified accuracy against the radius."""
    norm = NORM_NAMES[certificates.norm.name]
    table = plain_table(f"radius, {norm}", "certified")
    table.add_row("0 (clean)", percent(float(certificates.certified_accuracy())))
    for each in radii:
        table.add_row(f"{each:.4g}", percent(float(certificates.certified_accuracy(each))))
    say(
        f"{certified_headline(certificates, radius)}, of {len(certificates):,} examples.",
        style="bold",
    )
    Console().print(table, highlight=False)
    say(f"Median radius {format_bound(float(certificates.radius.median()), 'lower', 4)}.")
    for name, sentence in certified_guarantees(certificates, spec).items():
        say(f"{name}: {sentence}")


def print_attacked(attacked: RobustnessResult) -> None:
    """Prints certified and attacked accuracy side by side."""
    names = [f"under {ATTACK_NAMES[name]}" for name in attacked.distances]
    table = plain_table(f"radius, {NORM_NAMES[attacked.classifier.norm.name]}", "certified", *names)
    clean = percent(attacked.clean)
    table.add_row("0 (clean)", *[clean] * (1 + len(attacked.distances)))
    for radius in attacked.radii:
        left = [percent(attacked.accuracy(radius, name)) for name in attacked.distances]
        table.add_row(f"{radius:.4g}", percent(attacked.certified(radius)), *left)
    Console().print(table, highlight=False)
    count = f"{len(attacked.certificates):,} examples"
    if not attacked.violations:
        say(f"{count}; no attack changed a prediction inside its certified radius.", style="green")


def write_radii(path: Path, certificates: Certificates, spec: InputSpec) -> None:
    """Writes one line for each example, in the order of the rows."""
    assert certificates.correct is not None
    import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "prediction", "correct", "radius"])
        parts = (certificates.prediction, certificates.correct, certificates.radius)
        for row, (number, right, radius) in enumerate(
            zip(*(p.tolist() for p in parts), strict=True)
        ):
            writer.writerow([row, spec.classes[number], int(right), repr(radius)])
