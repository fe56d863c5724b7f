"""`taut wasserstein`: how far apart two datasets are, with a guarantee."""

import shlex
import time
from typing import Any

import click

from taut.cli.alarm_exit_command import AlarmExitCommand
from taut.cli.column_encoding_options import COLUMN_OPTIONS, column_options
from taut.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    FILE,
    NOT_NEGATIVE,
    POSITIVE,
    Finite,
    json_option,
    refuse_options,
    seed_option,
    threads_option,
    typed_options,
    typed_words,
)
from taut.cli.torchrun_processes import processes

_TRAINING = ("finite", "scaling", "diameter", "num_steps", *COLUMN_OPTIONS)
_STAGES = {"cones": "cone critic", "network": "network critic", "transport": "exact transport"}


@click.command(cls=AlarmExitCommand)
@click.argument("a", required=False, type=click.Path())
@click.argument("b", required=False, type=click.Path())
@column_options
@click.option(
    "--finite",
    is_flag=True,
    help="Compare the two finite sets of rows themselves, not the populations they were sampled from. "
    "Both bounds are then proven, without a confidence level.",
)
@click.option(
    "--scaling",
    type=click.Choice(["none", "standard", "robust"]),
    help="Scaling of the features: none (the units of the data), standard (mean and standard "
    "deviation) or robust (median and quartiles).  [default: standard for tables with categories, "
    "dates or missing values, else none]",
)
@click.option(
    "--confidence",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="Joint confidence level of both bounds.",
)
@click.option(
    "--method",
    type=click.Choice(["betting", "bernstein", "hoeffding"]),
    default="betting",
    help="Type of confidence bound for the critic's mean values; betting is the tightest.",
)
@click.option(
    "--diameter",
    type=POSITIVE,
    help="Largest possible distance between two rows of the same population, in scaled units, for the "
    "upper bound. By default, twice the largest distance of a row from the mean; the upper bound is then "
    "valid only if the population is no wider.",
)
@click.option(
    "--num-steps",
    type=COUNT,
    default=1000,
    help="Maximum number of training steps for each critic.",
)
@seed_option
@threads_option
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Stream the files in batches instead of loading them into memory.  [default: stream if a "
    "file needs more than 256 MiB]",
)
@click.option("--report", type=FILE, metavar="PAGE.html", help="Write an HTML report.")
@click.option("--save", type=FILE, metavar="CRITIC", help="Save the trained critic.")
@click.option(
    "--critic", type=EXISTING_FILE, metavar="CRITIC", help="Saved critic to use with --score."
)
@click.option(
    "--score",
    metavar="NEW",
    help="File of new rows to score with --critic; given instead of A and B.",
)
@click.option(
    "--scores-out", type=FILE, metavar="CSV", help="Write the score of each new row to a CSV file."
)
@click.option(
    "--fail-above",
    type=NOT_NEGATIVE,
    metavar="TOL",
    help="Tolerated distance; exit with status 1 if the LOWER bound exceeds it.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Also print the methods, the guarantees and how each column is used.",
)
@json_option
def wasserstein(a: str | None, b: str | None, **options: Any) -> None:
    """Measure the Wasserstein distance between two datasets, with confidence bounds.

    A and B are files with the same columns, one observation per row: .csv, .tsv (also .gz or .zip),
    .parquet, .npy, .npz (archive.npz:key selects one of several arrays), IDX files such as those of MNIST
    (train-images-idx3-ubyte.gz:3 selects the rows with label 3), or folders of images. The result is
    the Wasserstein-1 distance: the smallest average distance that the rows of A have to travel to
    become the rows of B. With --finite, its lower and upper bounds are proven. Otherwise, they hold at a
    confidence level, and the upper bound needs an assumption (see --diameter).

    Datasets with two or more columns need the extra ot: pip install 'taut[ot]'.

    Tables need no preparation. Before scaling, dates are counted in days and times in hours. The
    distance between two different categories is 1, and scaling does not change it; free text is left
    out. A missing category is a category of its own; a missing number is placed at distance 1 from the
    centre of its column. --category-distance and --missing-distance change these distances, and
    --explain lists how each column was used. The distance between two rows is the L2 norm of their
    difference over all columns.

    --save stores the critic, the function that separates A from B best; --critic and --score use it
    to score new rows.

    Exit status: 0 success; 1 the lower bound on the distance exceeds --fail-above; 2 invalid file or
    option; 70 internal error; 130 interrupted. With --score, --fail-above applies to the distance between
    the new rows and A, the first of the two datasets that the critic was trained on.

    \b
    Examples:
      taut wasserstein january.csv june.csv
      taut wasserstein a.parquet b.parquet --scaling standard --report page.html
      taut wasserstein a.csv b.csv --drop id --categorical month --encode "size=S<M<L"
      taut wasserstein cats/ dogs/ --finite --json
      taut wasserstein train.csv live.csv --fail-above 0.2 --save drift.safetensors
      taut wasserstein --critic drift.safetensors --score today.csv --fail-above 0.2
      torchrun --nproc-per-node 2 -m taut wasserstein big.parquet other.parquet
    """
    scoring = options["score"] is not None
    if scoring and (a is not None or options["critic"] is None):
        raise click.UsageError("--score NEW needs --critic CRITIC, and neither A nor B.")
    if not scoring and b is None:
        raise click.UsageError("two datasets are needed: taut wasserstein A B.")
    if not scoring:
        refuse_options("can be used only with --score", "critic", "scores_out")
    else:
        refuse_options("cannot be used with --score", "explain", "report", "save", *_TRAINING)
    if options["finite"]:
        refuse_options("cannot be used with --finite", "confidence", "method", "diameter")

    options["encode"] = dict(options["encode"])
    options["names"] = [str(name) for name in options["names"] or ()]

    import torch

    torch.set_num_threads(options["threads"])
    with processes() as first:
        alarm = _score(first, options) if scoring else _compare(str(a), str(b), first, options)
    if alarm:
        raise SystemExit(1)


def _compare(a: str, b: str, first: bool, options: dict[str, Any]) -> bool:
    """Compares two datasets and prints the result; whether to raise the alarm."""
    from taut.cli.output import check_outputs, make_folders, print_json, progress
    from taut.cli.wasserstein_input import names_of, open_data, rows_for_page
    from taut.cli.wasserstein_output import ComparisonOutput
    from taut.data import check_pair
    from taut.report import check_extras, column_records, wasserstein_page
    from taut.transport import wasserstein as measure

    if options["report"]:
        check_extras()
    check_outputs([options["report"], options["save"]], [a, b])
    start = time.perf_counter()
    arguments = ("confidence", "finite", "scaling", "method", "num_steps", "diameter", "seed")
    given = {name: options[name] for name in arguments}
    with progress(quiet=not first) as bar:

        def on_progress(stage: str, done: int, total: int) -> None:
            bar(_STAGES.get(stage, stage), done, total)

        samples = open_data((a, b), options, on_progress=on_progress)
        pair = check_pair(*samples.data)
        result = measure(pair.first, pair.second, on_progress=on_progress, **given)
    seconds = time.perf_counter() - start
    notes = tuple(dict.fromkeys((*samples.notes, *pair.notes, *result.notes)))
    output = ComparisonOutput(result, (a, b), names_of(a, b), notes, options, seconds)
    if not first:
        return output.alarm
    make_folders(options["save"], options["report"])
    # The critic is saved before anything else can fail, and the result is printed even if the
    # report cannot be written.
    if options["save"]:
        result.save(options["save"])
    page, compared = None, []
    try:
        if options["report"] or options["as_json"]:
            rows = rows_for_page(pair, a, b, options)
        if options["as_json"]:
            compared = column_records(result, *rows, seed=options["seed"])
        if options["report"]:
            about = {"names": output.names, "metadata": output.metadata(_command())}
            choices = {name: options[name] for name in ("method", "seed")}
            page = wasserstein_page(result, *rows, **about, **choices).write(options["report"])
    finally:
        if options["as_json"]:
            print_json(output.record(page) | {"column_comparisons": compared})
        else:
            output.show(page)
    return output.alarm


def _score(first: bool, options: dict[str, Any]) -> bool:
    """Scores new rows with a saved critic and prints the result; whether to raise the alarm."""
    from taut.cli.output import check_outputs, make_folders, print_json
    from taut.cli.wasserstein_input import open_data
    from taut.cli.wasserstein_output import ScoreOutput
    from taut.transport import load_critic

    path, new = options["critic"], options["score"]
    check_outputs([options["scores_out"]], [str(path), new])
    critic = load_critic(path)
    (data,) = open_data((new,), options, critic.encoding).data
    level, method, seed = options["confidence"], options["method"], options["seed"]
    scores, *bounds = critic.evaluate(data, level, method, seed=seed)
    output = ScoreOutput(critic, scores, bounds, options)
    if first and options["scores_out"]:
        make_folders(options["scores_out"])
        output.write(options["scores_out"])
    if first and options["as_json"]:
        print_json(output.record())
    elif first:
        output.show()
    return output.alarm


def _command() -> str:
    """The command that repeats this run: what was typed, and the seed."""
    seed = click.get_current_context().params["seed"]
    return shlex.join(
        ["taut", *typed_words(), *([] if typed_options("seed") else ["--seed", str(seed)])]
    )
