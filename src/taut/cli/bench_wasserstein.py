"""`taut bench wasserstein`: critics against known distances, cell by cell."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from taut.bench.cells import Cell

__all__ = ["wasserstein"]

_PARTS = ("table1", "funnels", "coverage", "real")


@click.command()
@click.option(
    "--part",
    "parts",
    type=click.Choice(_PARTS),
    multiple=True,
    help="Which tables; repeatable. Default: all.",
)
@click.option(
    "--dims",
    type=click.IntRange(min=1),
    multiple=True,
    default=(2, 4, 8, 16, 32, 64, 128),
    show_default=True,
    help="Dimensions of the funnels; repeatable.",
)
@click.option(
    "--counts",
    type=click.IntRange(min=1),
    multiple=True,
    default=(4, 16, 64, 256),
    show_default=True,
    help="Numbers of funnels; repeatable.",
)
@click.option(
    "--budget-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=12.0,
    show_default=True,
    help="Processor time of each critic of the funnels, but for the patient cones.",
)
@click.option(
    "--peers/--no-peers",
    default=True,
    show_default=True,
    help="Whether WGAN-GP, WGAN-LP and spectral-norm critics take part.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where MNIST and the tables of wine quality are; without it only small sets are used.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every draw.")
@click.option(
    "--threads",
    type=click.IntRange(1, 1),
    default=1,
    show_default=True,
    help="Always one: times are compared.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The record, a JSON file that grows with every cell. Run again, go on where it stopped.",
)
@click.option(
    "--show",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing; print the tables of a record written before.",
)
@click.option("--quick", is_flag=True, hidden=True, help="Tiny sizes, to try the machinery.")
def wasserstein(
    parts: tuple[str, ...],
    dims: tuple[int, ...],
    counts: tuple[int, ...],
    budget_seconds: float,
    peers: bool,
    data_dir: Path | None,
    seed: int,
    threads: int,
    out: Path | None,
    show: Path | None,
    quick: bool,
) -> None:
    """Measure distances that are known, with critics and bounds.

    The paper's first table, the funnels grid, the coverage of the bounds, and real data against
    exact transport. All of it takes some hours of one core; every cell is kept when it is done.

    \b
    Example:
      taut bench wasserstein --part table1 --out record.json
      taut bench wasserstein --part funnels --dims 16 --counts 64 --no-peers
      taut bench wasserstein --show record.json
    """
    from rich.console import Console

    from taut.bench.ledger import Ledger
    from taut.bench.wasserstein import PARTS, WassersteinSettings

    console = Console()
    if show is not None:
        ledger = Ledger.read(show)
    else:
        settings = WassersteinSettings(
            parts=parts or PARTS,
            dims=dims,
            counts=counts,
            peers=peers,
            budget_seconds=budget_seconds,
            seed=seed,
            data_dir=data_dir,
            quick=quick,
        )
        ledger = _measure(console, settings, out)
    from taut.cli.bench_wasserstein_tables import print_ledger

    print_ledger(console, ledger)
    if out is not None:
        console.print(f"The record: {out}", soft_wrap=True)


def _measure(console: "Console", settings, out: Path | None):
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from taut.bench.wasserstein import run_wasserstein

    columns = (
        BarColumn(20),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting", total=1.0)

        def before(name: str, done: float, left: float) -> None:
            text = f"{name}; {_minutes(left)} left"
            progress.update(bar, completed=done, description=text)

        def after(name: str, cell: "Cell") -> None:
            progress.console.print(_line(name, cell), soft_wrap=True, highlight=False)

        return run_wasserstein(settings, out, before=before, after=after)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _line(name: str, cell: "Cell") -> str:
    text = f"{name}: truth {cell.truth:.4g}"
    if cell.estimate is not None:
        text += f", estimate {cell.estimate:.4g}"
    if cell.relative_error is not None:
        text += f" ({cell.relative_error:+.1%})"
    if cell.lower is not None:
        text += f", lower {cell.lower:.4g}"
    if cell.upper is not None:
        text += f", upper {cell.upper:.4g}"
    return text + f", {cell.cpu:.0f} s of processor, {cell.wall:.0f} s of wall"
