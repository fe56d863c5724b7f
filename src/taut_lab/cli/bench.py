"""`taut bench`: run times and distances on this machine, side by side with other libraries."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    FILE,
    FOLDER,
    POSITIVE,
    Whole,
    option_group,
    seed_option,
)

if TYPE_CHECKING:
    from taut_lab.benchmarks.critic_records import CriticResult

# Called with a text and the fraction done.
OnRun = Callable[[str, float], None]


def _several(name: str, to: str, default: tuple[int, ...], help: str, least: int = 1) -> Any:
    """An option with several values, each at least `least`."""
    kind = Whole(min=least)
    return click.option(
        name, to, type=kind, multiple=True, default=default, help=f"{help}; repeatable."
    )


def _peers(what: str) -> Any:
    return click.option("--peers/--no-peers", default=True, help=f"Include {what}.")


def _batch_size(default: int) -> Any:
    return click.option("--batch-size", "batch", type=COUNT, default=default, help="Batch size.")


_output = option_group(
    seed_option,
    click.option("--out", type=FILE, help="JSON file for the results."),
    click.option(
        "--show",
        type=EXISTING_FILE,
        help="Print the tables of an existing JSON file without measuring anything.",
    ),
    click.option("--quick", is_flag=True, hidden=True, help="Use tiny sizes, for tests."),
)
_timing = option_group(
    click.option(
        "--rounds",
        type=COUNT,
        default=40,
        help="Number of timed runs per layer; slow layers get fewer.",
    ),
    click.option(
        "--clock",
        type=click.Choice(["cpu", "wall"]),
        default="cpu",
        help="Measured time: CPU time of the process, or wall-clock time.",
    ),
    _output,
)
_trained_layers = option_group(
    _peers("layers from deel-torchlip, orthogonium and torch"),
    click.option(
        "--compile",
        "compiled",
        is_flag=True,
        help="Also time the layers of torch and taut under torch.compile(fullgraph=True).",
    ),
)


@click.group()
def bench() -> None:
    """Benchmark layers and critics against other libraries on this machine."""


@bench.command()
@click.option(
    "--data",
    type=click.Choice(["digits", "mnist"]),
    default="digits",
    help="Images to train on: digits, enlarged to 28 x 28 pixels, or mnist.",
)
@click.option("--data-dir", help="Folder of the downloaded datasets.")
@_several("--width", "widths", (1024,), "Width of the three hidden layers", least=2)
@_several("--batch-size", "batches", (128, 512), "Batch size of the networks")
@_trained_layers
@_timing
def layers(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time dense layers, activations and the Björck iteration.

    A dense network with three hidden layers and MaxMin is trained to classify images, with the margin
    cross-entropy loss for L2 radius 1.58 and Adam at learning rates 0.001 and 0.003; the first training
    steps are timed. The Björck iteration, which orthonormalises weights, is timed for 1 to 10 steps.
    Networks are timed in turn in one process, on one thread; the tables show the median time of a step
    and its ratio to that of unconstrained layers. The benchmark takes about fifteen minutes, or half of
    that with one batch size.

    \b
    Examples:
      taut bench layers --data mnist --batch-size 128 --out record.json
      taut bench layers --show record.json
    """
    from taut_lab.benchmarks import LayerSettings, run_layers

    config = LayerSettings(**settings)
    if quick:
        small = {
            "widths": (8,),
            "batches": (4,),
            "activation_size": 8,
            "bjorck_size": 8,
            "rates": (1e-3,),
        }
        fast = {"bjorck_iterations": (1, 2), "rounds": 2, "min_rounds": 1, "warmup": 1}
        config = replace(config, **small, **fast)
    _time(lambda on_run: run_layers(config, on_run), out, show)


@bench.command()
@_batch_size(64)
@_trained_layers
@_timing
def conv(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time convolutional layers.

    Inputs have shape 3 x 32 x 32 and 64 x 16 x 16. Layers are timed in turn in one process, on one
    thread; the tables show median times and their ratios to that of the unconstrained layer. The column
    `error` is the largest deviation of a singular value from 1; all layers use circular padding. The
    benchmark takes about two minutes.

    \b
    Examples:
      taut bench conv --out record.json
      taut bench conv --show record.json
    """
    from taut_lab.benchmarks import ConvSettings, run_conv

    config = ConvSettings(**settings)
    if quick:
        config = replace(config, shapes=((2, 4, 5),), rounds=2, min_rounds=1, warmup=1, batch=2)
    _time(lambda on_run: run_conv(config, on_run), out, show)


@bench.command()
@_batch_size(256)
@click.option(
    "--width",
    type=Whole(min=2),
    default=512,
    help="Number of inputs, and number of outputs (each is the distance to one learned point).",
)
@_timing
def distances(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Time the L-inf distance layers of taut train.

    In training, the exponent p of the distance grows from 8 to infinity (the maximum of the absolute
    differences). Forward and backward passes are timed for several values of p. The fused kernels are
    compared with the fallback for machines without a compiler, with torch.cdist and with a dense layer
    of the same size. The benchmark takes about three minutes.

    \b
    Examples:
      taut bench distances --out record.json
      taut bench distances --show record.json
    """
    from taut_lab.benchmarks import DistanceSettings, run_distances

    config = DistanceSettings(**settings)
    if quick:
        small = {"batch": 6, "width": 8, "exponents": (8,)}
        config = replace(config, **small, rounds=2, min_rounds=1, warmup=1)
    _time(lambda on_run: run_distances(config, on_run), out, show)


@bench.command()
@click.option(
    "--pairs",
    type=COUNT,
    default=200,
    help="Number of pairs with a shift; an equal number has none.",
)
@click.option("--rows", type=Whole(min=20), default=200, help="Number of rows per sample.")
@_output
def drift(out: Path | None, show: Path | None, quick: bool, **settings: Any) -> None:
    """Compare tests for drift: false alarms, power and time.

    Every detector is tested on the same pairs of samples from a normal distribution; in half of the pairs,
    one of five columns is shifted by 0.4 standard deviations. The detectors of evidently, alibi-detect
    and river are included if installed. The benchmark takes about ten minutes.

    \b
    Examples:
      taut bench drift --out record.json
      taut bench drift --show record.json
    """
    from taut_lab.benchmarks.drift_detectors import DriftRecord, DriftSettings, run_drift
    from taut_lab.cli.bench_tables import print_drift_record

    config = DriftSettings(**settings)
    if quick:
        config = replace(config, pairs=2, rows=30, dim=2, large_rows=60)
    _run(out, show, DriftRecord.read, lambda on_run: run_drift(config, on_run), print_drift_record)


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
    "Number of cones in the optimal critic, in the parts funnels and grid",
)
@click.option(
    "--budget-seconds",
    type=POSITIVE,
    default=12.0,
    help="Training time of each critic in the funnels part, in CPU seconds; the row called "
    '"cones, more steps" has no time limit.',
)
@_peers("WGAN-GP, WGAN-LP and spectral-norm critics")
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with MNIST and the wine-quality tables; without it, only small datasets are used.",
)
@_output
def wasserstein(out: Path | None, show: Path | None, **settings: Any) -> None:
    """Evaluate critics and bounds against known distances.

    \b
    table1    Table 1 of the paper (Anil, Lucas and Grosse, 2019)
    funnels   synthetic pairs of distributions in up to 128 dimensions, whose
              optimal critic is a minimum of cones (the funnels)
    grid      the same pairs, 100,000 rows per sample, with taut.wasserstein
    coverage  how often the bounds contain the true distance
    real      bounds on real data, compared with exact optimal transport

    The full benchmark takes several hours on one core. Each result is saved to OUT as soon as it is
    finished; if OUT exists, the benchmark resumes from it.

    \b
    Examples:
      taut bench wasserstein --part table1 --out record.json
      taut bench wasserstein --part funnels --dim 16 --num-funnels 64 --no-peers
      taut bench wasserstein --show record.json
    """
    from taut.cli.output import say
    from taut_lab.benchmarks.critic_records import CriticRecords
    from taut_lab.benchmarks.wasserstein import PARTS, WassersteinSettings, run_wasserstein
    from taut_lab.cli.bench_tables import print_critic_records
    from taut_lab.report.run_details import duration

    def run(on_run: OnRun) -> CriticRecords:
        def before(name: str, done: float, left: float) -> None:
            on_run(f"{name}; {duration(left)} left", done)

        def after(name: str, result: "CriticResult") -> None:
            say(_line(name, result))

        settings["parts"] = settings["parts"] or PARTS
        return run_wasserstein(WassersteinSettings(**settings), out, before=before, after=after)

    _run(out, show, CriticRecords.read, run, print_critic_records)


@bench.command()
@click.option(
    "--data",
    type=click.Choice(["cifar10-25k", "cifar10", "mnist"]),
    default="cifar10-25k",
    help="Dataset; cifar10-25k is a part of CIFAR-10 with 20,000 training and 5,000 test images.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the downloaded datasets.",
)
@click.option(
    "--minutes",
    type=POSITIVE,
    default=15.0,
    help="Training time of each layer, in minutes of CPU time on one thread.",
)
@click.option(
    "--lr",
    "rates",
    type=POSITIVE,
    multiple=True,
    default=(1e-3, 3e-3, 1e-2),
    help="Candidate learning rate; repeatable. The best is chosen by validation loss, in trials that "
    "take 8 % of the training time.",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    help="Name of a layer to run, or part of a name; repeatable.  [default: all]",
)
@_peers("layers from deel-torchlip and orthogonium")
@seed_option
@click.option(
    "--out",
    type=FOLDER,
    default=Path("zoo"),
    help="Folder for the results, one JSON file per layer.",
)
@click.option(
    "--show",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Print the table of an existing folder without training anything.",
)
@click.option(
    "--figure",
    type=FILE,
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
    """Compare 1-Lipschitz convolutions at equal training time.

    Every layer is trained in a network of the same shape, for the same CPU time on one thread, and
    certified at L2 radius 36/255 (CIFAR-10) or 1.58 (MNIST) with a proven Lipschitz constant. Each
    result is saved to OUT as soon as it is finished; running the command again resumes the
    benchmark.

    \b
    Examples:
      taut bench zoo --minutes 5 --out zoo
      taut bench zoo --layer Orthonormal --layer SLL
      taut bench zoo --show benchmarks/zoo --figure zoo.svg
    """
    import torch

    from taut.cli.output import say
    from taut_lab.benchmarks.layer_zoo import ZooSettings, read_zoo, run_zoo
    from taut_lab.cli.zoo_output import draw_zoo, print_zoo, summary

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
            on_layer=lambda name: say(f"Training {name} ..."),
            on_record=lambda record: say(summary(record)),
        )
    print_zoo(records)
    if figure is not None:
        figure.write_bytes(draw_zoo(records).render(figure.suffix.removeprefix(".") or "svg"))
        say(f"Figure: {figure}")


def _line(name: str, result: "CriticResult") -> str:
    from taut.bounds import format_bound

    error = "" if result.relative_error is None else f" ({result.relative_error:+.1%})"
    values = (("truth", result.truth, ""), ("estimate", result.estimate, error))
    parts = [f"{name} {value:.4g}{rest}" for name, value, rest in values if value is not None]
    bounds = (("lower", result.lower), ("upper", result.upper))
    parts += [f"{side} {format_bound(v, side)}" for side, v in bounds if v is not None]
    times = f"{result.cpu:.0f} s of CPU time, {result.wall:.0f} s wall-clock time"
    return f"{name}: {', '.join(parts)}, {times}"


def _time(run: Callable[..., Any], out: Path | None, show: Path | None) -> None:
    """Times layers by `run`, which reports a comparison, a name and the fraction done."""
    from taut_lab.benchmarks import TimingRecord
    from taut_lab.cli.bench_tables import print_timing_record

    def measure(on_run: OnRun) -> TimingRecord:
        return run(lambda kind, name, done: on_run(f"{kind}: {name}", done))

    _run(out, show, TimingRecord.read, measure, print_timing_record)


def _run(
    out: Path | None,
    show: Path | None,
    read: Callable[[Path], Any],
    run: Callable[[OnRun], Any],
    present: Callable[[Any], None],
) -> None:
    """Reads the record `show`, or measures one below a progress bar and writes it; prints its tables."""
    from taut.cli.output import progress, say

    if show is not None:
        return present(read(show))
    with progress() as bar:
        record = run(lambda text, done: bar("percent done", round(100 * done), 100, text))
    if out is not None:
        record.write(out)
    present(record)
    if out is not None:
        say(f"Record: {out}")
