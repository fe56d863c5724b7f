"""`taut reproduce`: the tables and figures of the paper."""

import os
import secrets
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.cli.parameters import COUNT, FOLDER, data_dir_option, json_option
from taut.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    from taut_lab.framework.experiment import Cell, Experiment
    from taut_lab.framework.records import Records
    from taut_lab.framework.workers import Workers

_PRESETS = click.Choice(["smoke", "cpu", "gpu", "paper"])
_INTERRUPTED = 130


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from taut_lab.experiments.registry import EXPERIMENTS

    return [name for name in (*EXPERIMENTS, "all") if name.startswith(incomplete)]


_names = click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete
)


_records = click.option(
    "--records",
    "folder",
    type=FOLDER,
    default=Path("runs/lab"),
    help="Folder of the saved results (records), one JSON file per cell.",
)


class _NamesFirst(click.Group):
    """A group in which `taut reproduce NAME` is `taut reproduce run NAME`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_NamesFirst)
def reproduce() -> None:
    """Reproduce the tables and figures of "Sorting Out Lipschitz Function Approximation".

    Each experiment reproduces a table or figure. It consists of cells: single runs, each determined by
    its configuration and random seed. Every finished cell is saved to a file, so running the same
    command again resumes after an interruption. `taut reproduce NAME` is short for
    `taut reproduce run NAME`.

    \b
    Examples:
      taut reproduce list
      taut reproduce all --preset smoke
      taut reproduce three-cones --preset cpu --jobs 2 --data-dir data
      taut reproduce three-cones --preset paper --cluster tcp://host:8786
      taut reproduce show three-cones
      taut reproduce report --out report
    """


@reproduce.command("list")
@_records
@json_option
def list_experiments(folder: Path, as_json: bool) -> None:
    """List the experiments with their progress and verdicts.

    The verdict says whether the results so far support the paper's claim: confirmed, refuted or
    undecided.
    """
    from taut.cli.output import print_json
    from taut_lab.cli import reproduce_output as output
    from taut_lab.framework.records import Records
    from taut_lab.report.experiment_report import collect_report

    reports = [collect_report(experiment, Records(folder)) for experiment in _choose(("all",))]
    rows = [output.list_row(one) for one in reports]
    if as_json:
        print_json({"records": str(folder), "experiments": rows})
    else:
        output.print_list(rows, folder)


@reproduce.command()
@_names
@click.option(
    "--preset",
    type=_PRESETS,
    default="smoke",
    help="Scale of the experiment. smoke: seconds, to test the installation; cpu: minutes to hours; "
    "gpu: the paper's settings with one seed, about a day on a GPU; paper: the paper's settings, all "
    "seeds.",
)
@click.option(
    "--jobs",
    type=COUNT,
    default=1,
    help="Number of worker processes, with one thread each.",
)
@click.option(
    "--cluster",
    metavar="URL",
    help="Address of a Dask scheduler whose workers compute the cells, such as tcp://host:8786.",
)
@click.option(
    "--seed",
    "seeds",
    type=int,
    multiple=True,
    help="Random seed of the cells to compute; repeatable.  [default: all seeds]",
)
@_records
@data_dir_option
@json_option
def run(
    names: tuple[str, ...],
    preset: str,
    jobs: int,
    cluster: str | None,
    seeds: tuple[int, ...],
    folder: Path,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Compute the unfinished cells (single runs) of experiments. The word `run` may be omitted.

    NAME is an experiment from `taut reproduce list`, or all; the cells of several experiments are
    interleaved. An error in one cell does not stop the others: it is saved to a file next to the
    records, and the next run retries the cell. If a worker dies, only its cell is recomputed. The
    exit status is 1 if a cell failed.

    \b
    Examples:
      taut reproduce all --preset smoke
      taut reproduce three-cones --preset cpu --jobs 2 --data-dir data

    \b
    On several machines with access to the data:
      dask scheduler
      dask worker tcp://host:8786 --nthreads 1
      taut reproduce all --preset paper --cluster tcp://host:8786
    """
    from taut.cli.output import print_json
    from taut_lab.cli import reproduce_output as output
    from taut_lab.framework.records import Records
    from taut_lab.framework.sweep import sweep
    from taut_lab.framework.workers import open_workers

    data = data_dir or os.environ.get("TAUT_DATA")
    # Workers may have another working directory.
    data = None if not data else os.path.abspath(os.path.expanduser(data))
    records = Records(folder)
    selected = {
        experiment.name: (experiment, _cells(experiment, preset, seeds))
        for experiment in _choose(names)
    }
    try:
        with (
            output.sweep_progress(quiet=as_json) as (on_progress, say),
            open_workers(jobs, cluster) as workers,
        ):
            tasks, skipped = _skip_cells_without_data(selected, records, workers, data)
            for name, reasons in skipped.items():
                say(f"Cells of {name} are skipped. {' '.join(reasons)}")
            result = sweep(
                # Experiments take turns, so that each has its first results early.
                [task for turn in zip_longest(*tasks) for task in turn if task is not None],
                records,
                workers,
                data_dir=data,
                on_progress=on_progress,
                say=say,
            )
    except KeyboardInterrupt:
        click.echo("Interrupted. Finished cells are kept; the same command resumes.", err=True)
        raise SystemExit(_INTERRUPTED) from None
    summary = output.summarize(selected, result, skipped, records, preset)
    if as_json:
        print_json(summary)
    else:
        output.print_summary(summary)
    if result.failed or (skipped and "all" not in names):
        raise SystemExit(1)


@reproduce.command()
@_names
@click.option(
    "--preset",
    type=_PRESETS,
    help="Scale of the experiment.  [default: the largest finished preset]",
)
@_records
@json_option
def show(names: tuple[str, ...], preset: str | None, folder: Path, as_json: bool) -> None:
    """Print the results so far beside the paper's numbers.

    \b
    Example:
      taut reproduce show three-cones --preset cpu
    """
    from taut.cli.output import print_json
    from taut_lab.cli import reproduce_output as output
    from taut_lab.framework.records import Records
    from taut_lab.report.experiment_report import collect_report

    shown = []
    for experiment in _choose(names):
        one = collect_report(experiment, Records(folder), preset)
        if one.found and as_json:
            shown.append(output.presentation_json(one))
        elif one.found:
            output.print_presentation(one)
        elif "all" not in names:
            rule = f"at least one cell of {experiment.name} must be finished in {folder}"
            remedy = f"Compute it: taut reproduce {experiment.name} --preset {preset or 'smoke'}."
            raise ArgumentError("reproduce show", rule=rule, got="none", remedy=remedy)
    if as_json:
        print_json({"records": str(folder), "experiments": shown})


@reproduce.command()
@_records
@click.option(
    "--out",
    type=FOLDER,
    help="Output folder of the report.  [default: RECORDS/report]",
)
@json_option
def report(folder: Path, out: Path | None, as_json: bool) -> None:
    """Write an HTML report of the results so far, with figures.

    \b
    Example:
      taut reproduce report --records runs/lab --out report
    """
    from taut.cli.output import announce_folders, print_json, say
    from taut.report import check_extras
    from taut_lab.report.pages import write_report

    check_extras()
    if not folder.is_dir():
        rule = "must be an existing folder of saved results"
        remedy = "Compute some: taut reproduce all --preset smoke."
        raise ArgumentError("reproduce report", "--records", rule, repr(str(folder)), remedy)
    with announce_folders(out or folder / "report"):
        page = write_report(folder, out or folder / "report")
    if as_json:
        print_json({"records": str(folder), "report": str(page)})
    else:
        say(f"Report: {page}")


def _choose(names: tuple[str, ...]) -> list["Experiment"]:
    """The experiments of these names, each once; \"all\" gives them in the order of the paper."""
    from taut_lab.experiments.registry import EXPERIMENTS, find_experiment

    if "all" in names:
        names = tuple(EXPERIMENTS)
    for name in names:
        if name not in EXPERIMENTS:
            rule = "must be an experiment of taut reproduce list, or all"
            remedy = did_you_mean(name, EXPERIMENTS) or f"Use {', '.join(EXPERIMENTS)}."
            raise ArgumentError("reproduce", "NAME", rule, repr(name), remedy)
    return [find_experiment(name) for name in dict.fromkeys(names)]


def _cells(experiment: "Experiment", preset: str, seeds: tuple[int, ...]) -> list["Cell"]:
    cells = experiment.cells(preset)
    available = sorted({cell.config["seed"] for cell in cells})
    if seeds and not set(seeds) & set(available):
        rule = (
            f"must be a seed of {experiment.name} with --preset {preset}: "
            f"{', '.join(map(str, available))}"
        )
        raise ArgumentError("reproduce", "--seed", rule, ", ".join(map(str, seeds)))
    return [cell for cell in cells if not seeds or cell.config["seed"] in seeds]


def _skip_cells_without_data(
    selected: dict[str, tuple["Experiment", list["Cell"]]],
    records: "Records",
    workers: "Workers",
    data_dir: str | None,
) -> tuple[list[list[tuple["Experiment", "Cell"]]], dict[str, list[str]]]:
    """The cells to compute for each experiment, and why others are skipped."""
    from taut_lab.framework.datasets import datasets_of, missing_data

    every = [cell for _, cells in selected.values() for cell in cells]
    done, _ = records.load(every)
    needs = {cell.key: datasets_of(cell.config) for cell in every if cell.key not in done}
    names = sorted(set().union(*needs.values()))
    key = f"taut-data-{secrets.token_hex(8)}"
    missing = workers.submit(key, missing_data, names, data_dir).result() if names else {}
    tasks, skipped = [], {}
    for name, (experiment, cells) in selected.items():
        lacking = {cell.key: needs.get(cell.key, set()) & set(missing) for cell in cells}
        tasks.append([(experiment, cell) for cell in cells if not lacking[cell.key]])
        if reasons := set().union(*lacking.values()):
            skipped[name] = [missing[one] for one in sorted(reasons)]
    return tasks, skipped
