"""`taut bench conv`: a training step of convolutions, and how orthogonal it leaves them."""

from dataclasses import replace
from pathlib import Path

import click

from taut.cli.bench_tables import measure, print_record

__all__ = ["conv"]


@click.command()
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Images of each input.",
)
@click.option(
    "--peers/--no-peers",
    default=True,
    show_default=True,
    help="Whether deel-torchlip and orthogonium take part.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=30,
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
def conv(
    batch: int,
    peers: bool,
    rounds: int,
    clock: str,
    seed: int,
    out: Path | None,
    show: Path | None,
    quick: bool,
) -> None:
    """Time convolutions at 3 x 32 x 32 and 64 x 16 x 16.

    Contestants take turns in one process, on one thread; figures are medians, and ratios to the
    plain layer. The error is that of all singular values on a circle. About two minutes.

    \b
    Example:
      taut bench conv --out record.json
      taut bench conv --show record.json
    """
    from rich.console import Console

    from taut.bench.conv import ConvSettings, run_conv
    from taut.bench.record import Record

    console = Console()
    if show is not None:
        print_record(console, Record.read(show))
        return
    settings = ConvSettings(batch=batch, peers=peers, rounds=rounds, clock=clock, seed=seed)
    if quick:
        small = {"rounds": 2, "least_rounds": 1, "warmup": 1, "batch": 2}
        settings = replace(settings, shapes=((2, 4, 5),), **small)
    record = measure(console, lambda on_turn: run_conv(settings, on_turn))
    if out is not None:
        record.write(out)
    print_record(console, record)
    if out is not None:
        console.print(f"The record: {out}", soft_wrap=True)
