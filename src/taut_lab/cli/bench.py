"""`taut bench`: run times and distances on this machine, side by side with other libraries."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from taut_lab.cli.bench_timing_tables import print_record, run_with_progress
from taut_lab.cli.bench_wasserstein import wasserstein

__all__ = ["bench"]

show_option = click.option(
    "--show",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Print the tables of an existing record, and measure nothing.",
)
_OPTIONS = (
    click.option(
        "--peers/--no-peers",
        default=True,
        show_default=True,
        help="Include layers of deel-torchlip, orthogonium and torch.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(min=1),
        default=40,
        show_default=True,
        help="Number of runs of each layer; slow layers get fewer.",
    ),
    click.option(
        "--clock",
        type=click.Choice(["cpu", "wall"]),
        default="cpu",
        show_default=True,
        help="CPU time of the process, or wall-clock time.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Random seed."),
    click.option(
        "--out",
        type=click.Path(dir_okay=False, path_type=Path),
        help="JSON file to write the record to.",
    ),
    show_option,
    click.option("--quick", is_flag=True, hidden=True, help="Use tiny sizes, for tests."),
)


def _timing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that `layers` and `conv` share."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group()
def bench() -> None:
    """Benchmark layers and critics against other libraries on this machine."""


bench.add_command(wasserstein)


@bench.command()
@click.option(
    "--width",
    "widths",
    type=click.IntRange(min=2),
    multiple=True,
    default=(256, 512, 1024),
    show_default=True,
    help="Width of the dense layers; repeatable.",
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    default=(128, 512),
    show_default=True,
    help="Batch size of the dense layers; repeatable.",
)
@_timing_options
def layers(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time dense layers, activations and Björck's iteration.

    Layers are timed in turn in one process, on one thread; tables show medians, and ratios to the
    unconstrained layer. The full benchmark takes about ten minutes, one width and one batch size
    a quarter of that.

    \b
    Example:
      taut bench layers --width 1024 --batch 128 --out record.json
      taut bench layers --show record.json
    """
    from taut_lab.benchmarks import LayerSettings, run_layers

    chosen = LayerSettings(**settings)
    if quick:
        chosen = replace(
            chosen,
            widths=(8,),
            batches=(4,),
            activation_size=8,
            bjorck_size=8,
            bjorck_iterations=(1, 2),
            rounds=2,
            min_rounds=1,
            warmup=1,
        )
    _measure_or_show(lambda on_run: run_layers(chosen, on_run), out, show)


@bench.command()
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Batch size.",
)
@_timing_options
def conv(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time convolutions on images of 3 x 32 x 32 and 64 x 16 x 16.

    Layers are timed in turn in one process, on one thread; tables show medians, and ratios to the
    unconstrained layer. The error is that of all singular values with circular padding. Takes
    about two minutes.

    \b
    Example:
      taut bench conv --out record.json
      taut bench conv --show record.json
    """
    from taut_lab.benchmarks import ConvSettings, run_conv

    chosen = ConvSettings(**settings)
    if quick:
        chosen = replace(chosen, shapes=((2, 4, 5),), rounds=2, min_rounds=1, warmup=1, batch=2)
    _measure_or_show(lambda on_run: run_conv(chosen, on_run), out, show)


def _measure_or_show(run: Callable[..., Any], out: Path | None, show: Path | None) -> None:
    from rich.console import Console

    from taut_lab.benchmarks import TimingRecord

    console = Console()
    if show is not None:
        print_record(console, TimingRecord.read(show))
        return
    record = run_with_progress(console, run)
    if out is not None:
        record.write(out)
    print_record(console, record)
    if out is not None:
        console.print(f"Record: {out}", soft_wrap=True)
