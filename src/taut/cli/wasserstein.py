"""`taut wasserstein`: how far apart two data sets are, with a guarantee."""

import math
import shlex
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from taut.cli.processes import processes
from taut.cli.wasserstein_status import AlarmCommand

__all__ = ["wasserstein"]


class Finite(click.FloatRange):
    """A number inside a range; neither NaN nor infinite."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """From text such as `0.5`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Columns(click.ParamType):
    """Names and positions with commas between them; a name with a comma stands in quotes."""

    name = "columns"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str | int]:
        """From text such as `age,income,3`."""
        if isinstance(value, list):
            return value
        import csv

        cells = [cell.strip() for cell in next(csv.reader([value], skipinitialspace=True), [])]
        if not cells or "" in cells:
            self.fail(f"{value!r} is no list of columns; write it like age,income,3.", param, ctx)
        return [int(cell) if cell.isdecimal() else cell for cell in cells]


_TRAINING = ("as_they_are", "scaling", "diameter", "steps")
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=AlarmCommand)
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.option(
    "--columns", type=Columns(), help="Which columns to compare: names, or positions from 0."
)
@click.option(
    "--as-they-are",
    is_flag=True,
    help="Compare the rows themselves, not the populations that they were drawn from: no "
    "statistics, both bounds proven.",
)
@click.option(
    "--scaling",
    type=click.Choice(["none", "standard", "robust"]),
    default="none",
    show_default=True,
    help="How features become comparable: not at all (the data's units), by mean and deviation, by "
    "median and quartiles.",
)
@click.option(
    "--confidence",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="That both bounds hold.",
)
@click.option(
    "--method",
    type=click.Choice(["betting", "bernstein", "hoeffding"]),
    default="betting",
    show_default=True,
    help="How means are bounded; betting is the tightest.",
)
@click.option(
    "--diameter",
    type=Finite(0, min_open=True),
    help="No two rows of one population are further apart, in scaled units; then the upper bound "
    "assumes no width.  [default: the width of the data]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Training steps of each critic.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    help="Decides every draw.  [default: 0]",
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads."
)
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Read files in parts, never whole.  [default: where one needs more than 256 MiB]",
)
@click.option("--report", type=_FILE, metavar="PAGE.html", help="Write a page that shows why.")
@click.option("--save", type=_FILE, metavar="CRITIC", help="Keep the critic, to judge later rows.")
@click.option(
    "--critic", type=_FILE, metavar="CRITIC", help="A critic that --save kept, for --score."
)
@click.option("--score", metavar="NEW", help="Judge new rows by a kept critic; without A and B.")
@click.option(
    "--scores-out", type=_FILE, metavar="CSV", help="Write the value of each new row, for --score."
)
@click.option(
    "--fail-above",
    type=Finite(min=0),
    metavar="TOL",
    help="Exit with status 1 if the distance is proven to be above this: if the LOWER bound is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def wasserstein(a: str | None, b: str | None, **options: Any) -> None:
    """Measure how far apart two data sets are, with a guarantee.

    A and B are files with the same columns, one row a sample: .csv, .tsv, .parquet, .npy, .npz
    (archive.npz:key for one array of several), idx as MNIST's (train-images-idx3-ubyte.gz:3 for the
    rows of label 3), or folders of images. The answer is the Wasserstein-1 distance: how far a row
    of A must move in the mean to become a row of B. It comes with a lower and an upper bound.

    With --save the critic that tells A from B is kept; --critic and --score judge later rows by it.

    Exit status: 0 measured; 1 the lower bound is above --fail-above (of --score: the bound of the
    distance from A); 2 a file or an option is wrong; 70 an error of the program; 130 interrupted.

    \b
    Examples:
      taut wasserstein january.csv june.csv
      taut wasserstein a.parquet b.parquet --scaling standard --report page.html
      taut wasserstein cats/ dogs/ --as-they-are --json
      taut wasserstein train.csv live.csv --fail-above 0.2 --save drift.safetensors
      taut wasserstein --critic drift.safetensors --score today.csv --fail-above 0.2
      torchrun --nproc-per-node 2 -m taut wasserstein big.parquet other.parquet
    """
    scoring = options["score"] is not None
    if scoring and (a is not None or options["critic"] is None):
        raise click.UsageError("--score NEW needs --critic CRITIC, and neither A nor B.")
    if not scoring and b is None:
        raise click.UsageError("two data sets are needed: taut wasserstein A B.")
    if not scoring:
        _refuse("can be used only with --score", "critic", "scores_out")
    else:
        _refuse("cannot be used with --score", "report", "save", *_TRAINING)
    if options["as_they_are"]:
        _refuse("cannot be used with --as-they-are", "confidence", "method", "diameter")

    import torch

    torch.set_num_threads(options["threads"])
    with processes() as first:
        alarm = _score(first, options) if scoring else _compare(str(a), str(b), first, options)
    if alarm:
        raise SystemExit(1)


def _refuse(when: str, *names: str) -> None:
    """A usage error if one of these options was typed: nothing that was asked for is ignored."""
    source = click.get_current_context().get_parameter_source
    for name in names:
        if source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} {when}.")


def _compare(a: str, b: str, first: bool, options: dict[str, Any]) -> bool:
    """Runs a comparison and tells about it; whether the alarm goes off."""
    from taut.cli import wasserstein_output as output
    from taut.cli.wasserstein_input import check_outputs, names_of, open_sides, rows_for_page
    from taut.report import check_extras

    if options["report"]:
        check_extras()
    check_outputs([options["report"], options["save"]], [a, b])
    names = names_of(a, b)
    start = time.perf_counter()
    with output.progress(quiet=not first) as on_progress:
        pair = open_sides(a, b, options["columns"], options["stream"], on_progress)
        result = _measure(pair, options, on_progress)
    seconds = time.perf_counter() - start
    notes = tuple(dict.fromkeys((*pair.notes, *result.notes)))
    alarm = options["fail_above"] is not None and result.lower.value > options["fail_above"]
    if not first:
        return alarm
    # The critic is kept before anything else can go wrong, and the answer is told even if the page
    # cannot be written.
    if options["save"]:
        result.save(options["save"])
    try:
        if options["report"]:
            from taut.report.wasserstein import wasserstein_page

            page = wasserstein_page(
                result,
                *rows_for_page(pair, a, b, options["columns"]),
                names=names,
                method=options["method"],
                facts=output.facts(result, (a, b), notes, options, _command(), seconds),
                seed=options["seed"],
            )
            page.write(options["report"])
    except Exception:
        options = {**options, "report": None}  # so that nobody is sent to it
        raise
    finally:
        told = (notes, options, alarm, seconds)
        if options["as_json"]:
            output.print_json(output.comparison_record(result, (a, b), *told))
        else:
            output.print_comparison(result, names, *told)
    return alarm


def _measure(pair: Any, options: dict[str, Any], on_progress: Any) -> Any:
    from taut.wasserstein import wasserstein as measure

    return measure(
        pair.first,
        pair.second,
        confidence=options["confidence"],
        population=not options["as_they_are"],
        scaling=options["scaling"],
        method=options["method"],
        num_steps=options["steps"],
        diameter=options["diameter"],
        seed=options["seed"],
        on_progress=on_progress,
    )


def _score(first: bool, options: dict[str, Any]) -> bool:
    """Judges new rows by a kept critic and tells about it; whether the alarm goes off."""
    from taut.cli import wasserstein_output as output
    from taut.cli.wasserstein_input import check_outputs, open_side
    from taut.wasserstein import load_critic

    path, new = options["critic"], options["score"]
    check_outputs([options["scores_out"]], [str(path), new])
    critic = load_critic(path)
    data = open_side(new, options["columns"], options["stream"])
    level, method, seed = options["confidence"], options["method"], options["seed"]
    scores, *bounds = critic.judge(data, level, method, seed=seed)
    alarm = options["fail_above"] is not None and bounds[0].value > options["fail_above"]
    if not first:
        return alarm
    if options["scores_out"]:
        output.write_scores(options["scores_out"], scores)
    if options["as_json"]:
        output.print_json(output.score_record(critic, scores, bounds, options, alarm))
    else:
        output.print_score(critic, scores, bounds, options, alarm)
    return alarm


def _command() -> str:
    """What to type to have the same again: what was typed, and the seed."""
    context = click.get_current_context()
    words = ["taut", "wasserstein"]
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params[str(parameter.name)]
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Argument):
            words += [] if value is None else [value]
        elif name == "columns" and typed:
            quoted = (f'"{cell}"' if "," in str(cell) else str(cell) for cell in value)
            words += ["--columns", ",".join(quoted)]
        elif isinstance(value, bool) and typed:
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        elif typed or name == "seed":
            words += [parameter.opts[0], str(value)]
    return shlex.join(words)
