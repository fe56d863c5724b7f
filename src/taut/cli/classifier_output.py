"""What `taut train`, `taut certify` and `taut attack` print."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from taut.certificates import Certificates
from taut.cli.wasserstein_output import say
from taut.lab.robustness import Attacked
from taut.report.classifier_words import ATTACK_NAMES, NORMS, guarantees, headline, percent
from taut.report.wasserstein_words import rounded
from taut.training import InputSpec, TrainedRun
from taut.training import Progress as Moment

__all__ = [
    "attack_progress",
    "nice_radius",
    "print_attacked",
    "print_certified",
    "print_run",
    "run_record",
    "train_progress",
    "write_radii",
]


@contextmanager
def train_progress(quiet: bool) -> Iterator[Callable[[Moment], None]]:
    """A bar on standard error, with what is proven on validation rows so far."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4g}{task.fields[proven]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True, quiet=quiet)) as bars:
        bar = bars.add_task("", total=None, visible=False, epoch="", loss=0.0, proven="")

        def on_progress(now: Moment) -> None:
            proven = ""
            if now.row is not None and now.row["certified"] is not None:
                clean, held = percent(now.row["clean"]), percent(now.row["certified"])
                proven = f"  right {clean}  proven {held}"
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
    """A bar on standard error that moves with each attack at each radius."""
    columns = (TextColumn("{task.description:<22}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, quiet=quiet)) as bars:
        bar = bars.add_task("proving", total=total)

        def on_attack(name: str, radius: float) -> None:
            words = f"{ATTACK_NAMES[name]} at {radius:.4g}" if radius else "closest examples"
            bars.update(bar, advance=1, description=words)

        yield on_attack


def nice_radius(certificates: Certificates) -> float:
    """The median radius in one digit, for who did not say how far; 0 if nothing is proven."""
    return float(f"{float(certificates.radius.median()):.1g}")


def print_run(run: TrainedRun, page: Path | None) -> None:
    """What a training gave, as people read it."""
    result = run.result
    norm = NORMS[result["norm"]]
    table = _table("", "test examples")
    table.add_row("right", percent(result["clean"]))
    table.add_row(f"proven within {norm} {result['radius']:.4g}", percent(result["certified"]))
    table.add_row("median radius", rounded(result["median_radius"], "lower", 3))
    table.add_row("constant, proven", f"<= {rounded(result['lipschitz'], 'upper', 7)}")
    table.add_row("examples", f"{result['test_rows']:,}")
    console = Console()
    console.print(table, highlight=False)
    epochs = f"{result['epochs']} epochs, the network of epoch {result['best_epoch']}"
    say(f"{epochs}, {result['seconds']:.0f} s.")
    if result["epochs"] < (run.config.epochs or 0):
        say(
            f"Stopped before epoch {run.config.epochs}: none of the last {run.config.patience} "
            "proved more on validation examples."
        )
    if run.folder is not None:
        say(f"The run: {run.folder}")
    if page is not None:
        say(f"The page: {page}")
    if run.folder is not None:
        if (events := run.folder / "tensorboard").exists():
            say(f"The curves: tensorboard --logdir {events}")
        say(f"Next: taut certify {run.folder}; taut attack {run.folder}")


def run_record(run: TrainedRun, page: Path | None) -> dict[str, Any]:
    """What a training gave, as JSON knows it."""
    return {
        **run.result,
        "run": None if run.folder is None else str(run.folder),
        "report": None if page is None else str(page),
        "config": run.config.to_dict(),
    }


def print_certified(
    certificates: Certificates, spec: InputSpec, radii: Sequence[float], radius: float
) -> None:
    """Proven accuracy against the radius."""
    norm = NORMS[certificates.norm.name]
    table = _table(f"radius, {norm}", "proven")
    table.add_row("0 (clean)", percent(float(certificates.certified_accuracy())))
    for each in radii:
        table.add_row(f"{each:.4g}", percent(float(certificates.certified_accuracy(each))))
    say(f"{headline(certificates, radius)}, of {len(certificates):,} examples.", style="bold")
    Console().print(table, highlight=False)
    say(f"Median radius {rounded(float(certificates.radius.median()), 'lower', 4)}.")
    for name, sentence in guarantees(certificates, spec).items():
        say(f"{name}: {sentence}")


def print_attacked(attacked: Attacked) -> None:
    """Proven and attacked accuracy side by side."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(f"radius, {NORMS[attacked.subject.norm.name]}")
    for name in ("proven", *(f"left by {ATTACK_NAMES[name]}" for name in attacked.distances)):
        table.add_column(name, justify="right")
    clean = percent(attacked.clean)
    table.add_row("0 (clean)", *[clean] * (1 + len(attacked.distances)))
    for radius in attacked.radii:
        left = [percent(attacked.accuracy(radius, name)) for name in attacked.distances]
        table.add_row(f"{radius:.4g}", percent(attacked.certified(radius)), *left)
    Console().print(table, highlight=False)
    count = f"{len(attacked.certificates):,} examples"
    if not attacked.violations:
        say(f"{count}; no attack changed a prediction inside its proven radius.", style="green")


def write_radii(path: Path, certificates: Certificates, spec: InputSpec) -> None:
    """One line for each example, in the order of the rows."""
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


def _table(first: str, second: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first)
    table.add_column(second, justify="right")
    return table
