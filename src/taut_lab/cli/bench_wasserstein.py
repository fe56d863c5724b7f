"""`taut bench wasserstein`: critics and bounds on problems of known distance."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from taut_lab.benchmarks.critic_records import CriticResult

__all__ = ["wasserstein"]

_PARTS = ("table1", "funnels", "coverage", "real")


@click.command()
@click.option(
    "--part",
    "parts",
    type=click.Choice(_PARTS),
    multiple=True,
    help="Table to compute; repeatable.  [default: all]",
)
@click.option(
    "--dims",
    type=click.IntRange(min=1),
    multiple=True,
    default=(2, 4, 8, 16, 32, 64, 128),
    show_default=True,
    help="Dimension of the funnel problems; repeatable.",
)
@click.option(
    "--counts",
    type=click.IntRange(min=1),
    multiple=True,
    default=(4, 16, 64, 256),
    show_default=True,
    help="Number of funnels; repeatable.",
)
@click.option(
    "--budget-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=12.0,
    show_default=True,
    help='CPU time for training each critic of the funnel problems; "cones, more steps" has no limit.',
)
@click.option(
    "--peers/--no-peers",
    default=True,
    show_default=True,
    help="Include WGAN-GP, WGAN-LP and spectral-norm critics.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of MNIST and the wine-quality tables; without it only small datasets are used.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file of the record, written after every result; an existing one is resumed.",
)
@click.option(
    "--show",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Print the tables of an existing record, and measure nothing.",
)
@click.option("--quick", is_flag=True, hidden=True, help="Use tiny sizes, for tests.")
def wasserstein(out: Path | None, show: Path | None, **settings: Any) -> None:
    """Measure known distances with critics and bounds.

    Computes the first table of the paper, the funnel problems, the coverage of the bounds, and
    real data against exact transport. The full benchmark takes some hours on one core; every
    result is recorded as soon as it is finished.

    \b
    Example:
      taut bench wasserstein --part table1 --out record.json
      taut bench wasserstein --part funnels --dims 16 --counts 64 --no-peers
      taut bench wasserstein --show record.json
    """
    from rich.console import Console

    from taut_lab.benchmarks.critic_records import CriticRecords
    from taut_lab.benchmarks.wasserstein import PARTS, WassersteinSettings

    console = Console()
    if show is not None:
        records = CriticRecords.read(show)
    else:
        settings["parts"] = settings["parts"] or PARTS
        records = _measure(console, WassersteinSettings(**settings), out)
    from taut_lab.cli.bench_wasserstein_tables import print_critic_records

    print_critic_records(console, records)
    if out is not None:
        console.print(f"Record: {out}", soft_wrap=True)


def _measure(console: "Console", settings, out: Path | None):
    from taut_lab.benchmarks.wasserstein import run_wasserstein
    from taut_lab.cli.bench_timing_tables import benchmark_bar
    from taut_lab.report.run_details import duration

    with benchmark_bar(console) as progress:
        bar = progress.add_task("starting", total=1.0)

        def before(name: str, done: float, left: float) -> None:
            progress.update(bar, completed=done, description=f"{name}; {duration(left)} left")

        def after(name: str, result: "CriticResult") -> None:
            progress.console.print(_line(name, result), soft_wrap=True, highlight=False)

        return run_wasserstein(settings, out, before=before, after=after)


def _line(name: str, result: "CriticResult") -> str:
    error = "" if result.relative_error is None else f" ({result.relative_error:+.1%})"
    found = (("truth", result.truth, ""), ("estimate", result.estimate, error))
    bounds = (("lower", result.lower, ""), ("upper", result.upper, ""))
    told = [f"{n} {v:.4g}{rest}" for n, v, rest in found + bounds if v is not None]
    times = f"{result.cpu:.0f} s of CPU time, {result.wall:.0f} s wall-clock time"
    return f"{name}: {', '.join(told)}, {times}"
