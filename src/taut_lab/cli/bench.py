"""`taut bench`: run times and distances on this machine, side by side with other libraries."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import COUNT, POSITIVE, Whole

if TYPE_CHECKING:
    from taut_lab.benchmarks.critic_records import CriticResult

__all__ = ["bench"]

Command = Callable[..., Any]

_OUTPUT = (
    click.option("--seed", type=int, default=0, show_default=True, help="Random seed."),
    click.option(
        "--out",
        type=click.Path(dir_okay=False, path_type=Path),
        help="JSON file for the results.",
    ),
    click.option(
        "--show",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Print the tables of an existing JSON file without measuring anything.",
    ),
    click.option("--quick", is_flag=True, hidden=True, help="Use tiny sizes, for tests."),
)
_TIMING = (
    click.option(
        "--peers/--no-peers",
        default=True,
        show_default=True,
        help="Include layers from deel-torchlip, orthogonium and torch.",
    ),
    click.option(
        "--rounds",
        type=COUNT,
        default=40,
        show_default=True,
        help="Number of timed runs per layer; slow layers get fewer.",
    ),
    click.option(
        "--clock",
        type=click.Choice(["cpu", "wall"]),
        default="cpu",
        show_default=True,
        help="Clock to measure with: CPU time of the process, or wall-clock time.",
    ),
    *_OUTPUT,
)


def _options(shared: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(shared):
            command = option(command)
        return command

    return add


def _several(name: str, to: str, default: tuple[int, ...], help: str, least: int = 1) -> Any:
    """An option with several values, each at least `least`."""
    return click.option(
        name,
        to,
        type=Whole(min=least),
        multiple=True,
        default=default,
        show_default=True,
        help=f"{help}; repeatable.",
    )


@click.group()
def bench() -> None:
    """Benchmark layers and critics against other libraries on this machine."""


@bench.command()
@_several("--width", "widths", (256, 512, 1024), "Width of the dense layers", least=2)
@_several("--batch-size", "batches", (128, 512), "Batch size of the dense layers")
@_options(_TIMING)
def layers(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time dense layers, activations and the Björck iteration.

    Layers are timed in turn in one process, on one thread; the tables show median times and their
    ratios to the unconstrained layer. The full benchmark takes about ten minutes; a single width
    and batch size takes a quarter of that.

    \b
    Example:
      taut bench layers --width 1024 --batch-size 128 --out record.json
      taut bench layers --show record.json
    """
    from taut_lab.benchmarks import LayerSettings, run_layers

    chosen = LayerSettings(**settings)
    if quick:
        small = {"widths": (8,), "batches": (4,), "activation_size": 8, "bjorck_size": 8}
        fast = {"bjorck_iterations": (1, 2), "rounds": 2, "min_rounds": 1, "warmup": 1}
        chosen = replace(chosen, **small, **fast)
    _measure_or_show(lambda on_run: run_layers(chosen, on_run), out, show)


@bench.command()
@click.option(
    "--batch-size",
    "batch",
    type=COUNT,
    default=64,
    show_default=True,
    help="Batch size.",
)
@_options(_TIMING)
def conv(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time convolutional layers.

    Inputs have shape 3 x 32 x 32 and 64 x 16 x 16. Layers are timed in turn in one process, on one
    thread; the tables show median times and their ratios to the unconstrained layer. The error
    column shows how far the convolution's singular values are from 1, at most; all layers use
    circular padding. Takes about two minutes.

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


@bench.command()
@click.option(
    "--batch-size",
    "batch",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Batch size.",
)
@click.option(
    "--width",
    type=click.IntRange(min=2),
    default=512,
    show_default=True,
    help="Number of stored points, and length of each.",
)
@_options(_TIMING[1:])
def distances(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time distances to stored points.

    Forward and backward passes of fused kernels, of chunks without a compiler and of torch.cdist, for
    several exponents, beside a dense layer of the same size. Takes about three minutes.

    \b
    Example:
      taut bench distances --out record.json
      taut bench distances --show record.json
    """
    from taut_lab.benchmarks import DistanceSettings, run_distances

    chosen = DistanceSettings(**settings)
    if quick:
        small = {"batch": 6, "width": 8, "exponents": (8,)}
        chosen = replace(chosen, **small, rounds=2, min_rounds=1, warmup=1)
    _measure_or_show(lambda on_run: run_distances(chosen, on_run), out, show)


@bench.command()
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Number of pairs without a shift, and of pairs with one.",
)
@click.option(
    "--rows", type=click.IntRange(min=20), default=200, show_default=True, help="Rows of a sample."
)
@_options(_OUTPUT)
def drift(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Compare two-sample tests: false alarms, power, time and memory.

    Every detector judges the same pairs of normal samples, half of them with one of five columns shifted
    by 0.4 standard deviations. evidently, alibi-detect and river take part where they are installed.
    Takes about ten minutes.

    \b
    Example:
      taut bench drift --out record.json
      taut bench drift --show record.json
    """
    from rich.console import Console

    from taut_lab.benchmarks.drift_detectors import (
        DriftRecord,
        DriftSettings,
        installed_detectors,
        run_drift,
    )
    from taut_lab.cli.bench_tables import benchmark_bar, print_drift_record

    console = Console()
    if show is not None:
        record = DriftRecord.read(show)
    else:
        chosen = DriftSettings(**settings)
        if quick:
            chosen = replace(chosen, pairs=2, rows=30, dim=2, large_rows=60)
        with benchmark_bar(console) as progress:
            bar = progress.add_task("starting", total=2 * chosen.pairs * len(installed_detectors()))
            record = run_drift(
                chosen, lambda name: progress.update(bar, advance=1, description=name)
            )
        if out is not None:
            record.write(out)
    print_drift_record(console, record)
    if out is not None:
        console.print(f"Record: {out}", soft_wrap=True)


@bench.command()
@click.option(
    "--part",
    "parts",
    type=click.Choice(["table1", "funnels", "grid", "coverage", "real"]),
    multiple=True,
    help="Benchmark to run; repeatable.  [default: all]",
)
@_several(
    "--dim",
    "dims",
    (2, 4, 8, 16, 32, 64, 128),
    "Dimension of the data in the parts funnels and grid",
)
@_several(
    "--num-funnels",
    "counts",
    (4, 16, 64, 256),
    "Number of cones in the optimal critic of the parts funnels and grid",
)
@click.option(
    "--budget-seconds",
    type=POSITIVE,
    default=12.0,
    show_default=True,
    help="Training time of each critic in the funnels part, in CPU seconds; the row called "
    '"cones, more steps" has no time limit.',
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
    help="Folder of MNIST and the wine-quality tables; without it, only small datasets are used.",
)
@_options(_OUTPUT)
def wasserstein(out: Path | None, show: Path | None, **settings: Any) -> None:
    """Evaluate critics and bounds where the distance is known.

    table1 is Table 1 of the paper (Anil, Lucas and Grosse, 2019); funnels has synthetic pairs of
    distributions in up to 128 dimensions, whose optimal critic is a minimum of cones; grid gives
    taut.wasserstein 100,000 rows a side of each of these pairs; coverage counts how often the bounds
    contain the true distance; real compares the bounds on real data with exact optimal transport. The
    full benchmark takes several hours on one core. Each result is saved to OUT as soon as it is
    finished; if OUT exists, the benchmark resumes from it.

    \b
    Example:
      taut bench wasserstein --part table1 --out record.json
      taut bench wasserstein --part funnels --dim 16 --num-funnels 64 --no-peers
      taut bench wasserstein --show record.json
    """
    from rich.console import Console

    from taut_lab.benchmarks.critic_records import CriticRecords
    from taut_lab.benchmarks.wasserstein import PARTS, WassersteinSettings, run_wasserstein
    from taut_lab.cli.bench_tables import benchmark_bar, print_critic_records
    from taut_lab.report.run_details import duration

    console = Console()
    if show is not None:
        records = CriticRecords.read(show)
    else:
        settings["parts"] = settings["parts"] or PARTS
        with benchmark_bar(console) as progress:
            bar = progress.add_task("starting", total=1.0)

            def before(name: str, done: float, left: float) -> None:
                progress.update(bar, completed=done, description=f"{name}; {duration(left)} left")

            def after(name: str, result: "CriticResult") -> None:
                progress.console.print(_line(name, result), soft_wrap=True, highlight=False)

            chosen = WassersteinSettings(**settings)
            records = run_wasserstein(chosen, out, before=before, after=after)
    print_critic_records(console, records)
    if out is not None:
        console.print(f"Record: {out}", soft_wrap=True)


@bench.command()
@click.option(
    "--data",
    type=click.Choice(["cifar10-25k", "cifar10", "mnist"]),
    default="cifar10-25k",
    show_default=True,
    help="Dataset; cifar10-25k is a part of CIFAR-10 with 20,000 training and 5,000 test images.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the downloaded datasets.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    help="Training time of each layer, in minutes of CPU time on one thread.",
)
@click.option(
    "--rate",
    "rates",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    default=(1e-3, 3e-3, 1e-2),
    show_default=True,
    help="Learning rate to choose from by validation loss, in trials of 8 % of the training time; "
    "repeatable.",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    help="Layer to run, or part of its name; repeatable.  [default: all]",
)
@click.option(
    "--peers/--no-peers",
    default=True,
    show_default=True,
    help="Include layers from deel-torchlip and orthogonium.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("zoo"),
    show_default=True,
    help="Folder for the results, one JSON file per layer.",
)
@click.option(
    "--show",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Print the table of an existing folder without training anything.",
)
@click.option(
    "--figure",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Image file (.svg, .png or .pdf) for a chart of the results.",
)
def zoo(
    layers: tuple[str, ...],
    peers: bool,
    data_dir: str | None,
    out: Path,
    show: Path | None,
    figure: Path | None,
    **settings: Any,
) -> None:
    """Compare 1-Lipschitz convolutions in one network, at equal training time.

    Every layer is trained in a network of the same shape, for the same CPU time on one thread, and
    certified at L2 radius 36/255 (CIFAR-10) or 1.58 (MNIST) with a proven Lipschitz constant. Each
    result is saved to OUT as soon as it is finished; running the command again resumes.

    \b
    Example:
      taut bench zoo --minutes 5 --out zoo
      taut bench zoo --layer Orthonormal --layer SLL
      taut bench zoo --show benchmarks/zoo --figure zoo.svg
    """
    import torch
    from rich.console import Console

    from taut_lab.benchmarks.zoo import ZooSettings, read_zoo, run_zoo
    from taut_lab.cli.zoo_output import draw_zoo, print_zoo, summary

    console = Console()
    if show is not None:
        records = read_zoo(show)
    else:
        torch.set_num_threads(1)
        records = run_zoo(
            ZooSettings(**settings),
            out,
            data_dir=data_dir,
            layers=layers,
            peers=peers,
            on_layer=lambda name: console.print(f"Training {name} ...", highlight=False),
            on_record=lambda record: console.print(summary(record), highlight=False),
        )
    print_zoo(console, records)
    if figure is not None:
        figure.write_bytes(draw_zoo(records).render(figure.suffix.removeprefix(".") or "svg"))
        console.print(f"Figure: {figure}", soft_wrap=True)


def _line(name: str, result: "CriticResult") -> str:
    error = "" if result.relative_error is None else f" ({result.relative_error:+.1%})"
    found = (("truth", result.truth, ""), ("estimate", result.estimate, error))
    bounds = (("lower", result.lower, ""), ("upper", result.upper, ""))
    told = [f"{n} {v:.4g}{rest}" for n, v, rest in found + bounds if v is not None]
    times = f"{result.cpu:.0f} s of CPU time, {result.wall:.0f} s wall-clock time"
    return f"{name}: {', '.join(told)}, {times}"


def _measure_or_show(run: Callable[..., Any], out: Path | None, show: Path | None) -> None:
    from rich.console import Console

    from taut_lab.benchmarks import TimingRecord
    from taut_lab.cli.bench_tables import benchmark_bar, print_timing_record

    console = Console()
    if show is not None:
        record = TimingRecord.read(show)
    else:
        with benchmark_bar(console) as progress:
            bar = progress.add_task("starting", total=1.0)

            def on_run(comparison: str, name: str, done: float) -> None:
                progress.update(bar, completed=done, description=f"{comparison}: {name}")

            record = run(on_run)
        if out is not None:
            record.write(out)
    print_timing_record(console, record)
    if out is not None and show is None:
        console.print(f"Record: {out}", soft_wrap=True)
