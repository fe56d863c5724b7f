"""`taut bench`: speed on this machine, side by side with peers."""

from dataclasses import replace
from pathlib import Path

import click

from taut.cli.bench_conv import conv
from taut.cli.bench_tables import measure, print_record
from taut.cli.bench_wasserstein import wasserstein

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """Measure speed, and the distances that critics find, on this machine."""


bench.add_command(conv)
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
    help="Rows of each input of the dense layers; repeatable.",
)
@click.option(
    "--peers/--no-peers",
    default=True,
    show_default=True,
    help="Whether deel-torchlip, orthogonium and torch's parametrisations take part.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Turns of each contestant; slow ones get fewer.",
)
@click.option(
    "--clock",
    type=click.Choice(["cpu", "wall"]),
    default="cpu",
    show_default=True,
    help="Time this process had the processor, or time on the wall.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides data and weights.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the record to this JSON file.",
)
@click.option(
    "--show",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing; print the tables of a record written before.",
)
@click.option("--quick", is_flag=True, hidden=True, help="Tiny sizes, to try the machinery.")
def layers(
    widths: tuple[int, ...],
    batches: tuple[int, ...],
    peers: bool,
    rounds: int,
    clock: str,
    seed: int,
    out: Path | None,
    show: Path | None,
    quick: bool,
) -> None:
    """Time dense layers, activations and Björck's iteration.

    Contestants take turns in one process, on one thread; figures are medians, and ratios to the
    plain layer. All of it takes about ten minutes; one width and one batch, a quarter of that.

    \b
    Example:
      taut bench layers --width 1024 --batch 128 --out record.json
      taut bench layers --show record.json
    """
    from rich.console import Console

    from taut.bench import LayerSettings, Record, run_layers

    console = Console()
    if show is not None:
        print_record(console, Record.read(show))
        return
    settings = LayerSettings(widths, batches, peers=peers, rounds=rounds, clock=clock, seed=seed)
    if quick:
        settings = replace(
            settings,
            widths=(8,),
            batches=(4,),
            activation_size=8,
            bjorck_size=8,
            bjorck_iterations=(1, 2),
            rounds=2,
            least_rounds=1,
            warmup=1,
        )
    record = measure(console, lambda on_turn: run_layers(settings, on_turn))
    if out is not None:
        record.write(out)
    print_record(console, record)
    if out is not None:
        console.print(f"The record: {out}", soft_wrap=True)
