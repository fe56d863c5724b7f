"""`taut reproduce`: every table and figure of the paper, by one command each."""

import difflib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.classifier_options import data_dir_option
from taut.errors import ArgumentError

if TYPE_CHECKING:
    from taut.lab.engines import Engine
    from taut.lab.experiment import Cell, Experiment
    from taut.lab.records import Records

__all__ = ["reproduce"]

_PRESETS = click.Choice(["smoke", "cpu", "paper"])
_INTERRUPTED = 130
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _folder(*names: str) -> Any:
    return click.option(
        *names,
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("runs/lab"),
        show_default=True,
        help="The folder of the records, one file for each cell.",
    )


class _NamesFirst(click.Group):
    """A group in which `taut reproduce NAME` is `taut reproduce run NAME`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_NamesFirst)
def reproduce() -> None:
    """Compute the tables and figures of the paper.

    An experiment is a table or figure; it is made of cells, each decided by its configuration and
    seed. Every finished cell is a file: a command that was stopped, by whatever, goes on where it
    was when it is given again.

    \b
    Examples:
      taut reproduce list
      taut reproduce all --preset smoke
      taut reproduce NAME --preset cpu --jobs 2 --data-dir data
      taut reproduce NAME --preset paper --cluster tcp://host:8786
      taut reproduce show NAME
      taut reproduce report --out page
    """


@reproduce.command("list")
@_folder("--records", "--out")
@_as_json
def list_experiments(folder: Path, as_json: bool) -> None:
    """List the experiments, and how much of each is finished."""
    from taut.cli import reproduce_output as output
    from taut.cli.wasserstein_output import print_json
    from taut.lab.experiment import PRESETS
    from taut.lab.records import Records

    records = Records(folder)
    rows = []
    for experiment in _choose(("all",)):
        counts = {
            preset: {
                "cells": len(experiment.cells(preset)),
                "finished": len(records.of(experiment, preset)),
            }
            for preset in PRESETS
        }
        about = {"name": experiment.name, "label": experiment.label, "title": experiment.title}
        rows.append({**about, "needs": list(experiment.needs), "presets": counts})
    if as_json:
        print_json({"records": str(folder), "experiments": rows})
    else:
        output.print_list(rows, folder)


@reproduce.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--preset",
    type=_PRESETS,
    default="smoke",
    show_default=True,
    help="smoke: seconds, to see that all works; cpu: minutes to hours; paper: as in the paper.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Cells at a time, each in a process of one thread.",
)
@click.option(
    "--cluster",
    metavar="URL",
    help="A dask scheduler, like tcp://host:8786, whose workers compute instead.",
)
@click.option("--seed", "seeds", type=int, multiple=True, help="Only this seed; repeatable.")
@_folder("--out", "--records")
@data_dir_option
@_as_json
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
    """Compute what is not finished yet. The word run may be left out.

    NAME is a name of `taut reproduce list`, or all. A cell that raises an error does not stop the
    others: the reason is written beside the records, and it is tried again the next time. A worker
    that dies costs only the time of its cell. The command fails if a cell did.

    \b
    Examples:
      taut reproduce all --preset smoke
      taut reproduce NAME --preset cpu --jobs 2 --data-dir data

    \b
    On several machines that share the data:
      dask scheduler
      dask worker tcp://host:8786 --nthreads 1
      taut reproduce all --preset paper --cluster tcp://host:8786
    """
    from taut.cli import reproduce_output as output
    from taut.cli.wasserstein_output import print_json
    from taut.lab.engines import open_engine
    from taut.lab.records import Records
    from taut.lab.sweep import sweep

    place = data_dir or os.environ.get("TAUT_DATA")
    # Workers may stand in another folder.
    place = None if not place else os.path.abspath(os.path.expanduser(place))
    records = Records(folder)
    chosen = {
        experiment.name: (experiment, _cells(experiment, preset, seeds))
        for experiment in _choose(names)
    }
    skipped: dict[str, list[str]] = {}
    try:
        with (
            output.sweep_progress(quiet=as_json) as (on_moment, say),
            open_engine(jobs, cluster) as engine,
        ):
            for name, (experiment, cells) in chosen.items():
                if preset != "smoke" and (
                    missing := _missing(experiment, cells, records, engine, place)
                ):
                    skipped[name] = missing
                    say(f"{name} is skipped: {' '.join(missing)}")
            swept = sweep(
                [
                    (e, cell)
                    for n, (e, cells) in chosen.items()
                    if n not in skipped
                    for cell in cells
                ],
                records,
                engine,
                data_dir=place,
                on_moment=on_moment,
                say=say,
            )
    except KeyboardInterrupt:
        click.echo("Stopped. What is finished is kept; the same command goes on.", err=True)
        raise SystemExit(_INTERRUPTED) from None
    summary = output.summarize(chosen, swept, skipped, records, preset)
    if as_json:
        print_json(summary)
    else:
        output.print_summary(summary)
    if swept.failed or (skipped and "all" not in names):
        raise SystemExit(1)


@reproduce.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--preset", type=_PRESETS, help="[default: the largest with a finished cell]")
@_folder("--records", "--out")
@_as_json
def show(names: tuple[str, ...], preset: str | None, folder: Path, as_json: bool) -> None:
    """Show the tables of what is finished, with the paper's numbers.

    \b
    Example:
      taut reproduce show NAME --preset cpu
    """
    from taut.cli import reproduce_output as output
    from taut.cli.wasserstein_output import print_json
    from taut.lab.records import Records

    records = Records(folder)
    shown = []
    for experiment in _choose(names):
        which = preset or records.largest_preset(experiment)
        found = [] if which is None else records.of(experiment, which)
        if which is None or not found:
            if "all" in names:
                continue
            raise ArgumentError(
                f"reproduce show: a cell of {experiment.name} must be finished in {folder}; none "
                f"is. Compute it: taut reproduce {experiment.name} --preset {which or 'smoke'}."
            )
        exhibit = experiment.show([record.result for record in found])
        count = f"{len(found)} of {len(experiment.cells(which))} cells"
        if as_json:
            shown.append(output.exhibit_record(experiment, which, len(found), exhibit))
        else:
            output.print_exhibit(experiment, f"preset {which}, {count}", exhibit)
    if as_json:
        print_json({"records": str(folder), "experiments": shown})


@reproduce.command()
@_folder("--records")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the page.  [default: RECORDS/report]",
)
@_as_json
def report(folder: Path, out: Path | None, as_json: bool) -> None:
    """Write all that is finished as a page, with figures.

    \b
    Example:
      taut reproduce report --records runs/lab --out page
    """
    from taut.cli.wasserstein_output import print_json, say
    from taut.report import check_extras
    from taut.report.lab import write_report

    check_extras()
    page = write_report(folder, out or folder / "report")
    if as_json:
        print_json({"records": str(folder), "report": str(page)})
    else:
        say(f"The page: {page}")


def _choose(names: tuple[str, ...]) -> list["Experiment"]:
    """The experiments of these names, each once, in the order of the paper for all."""
    from taut.lab.registry import EXPERIMENTS, find_experiment

    if "all" in names:
        names = EXPERIMENTS
    for name in names:
        if name not in EXPERIMENTS:
            near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.6)
            hint = (
                f"Did you mean {' or '.join(near)}?" if near else f"Use {', '.join(EXPERIMENTS)}."
            )
            raise ArgumentError(
                f"reproduce: `NAME` must be one of taut reproduce list, or all; got {name!r}. {hint}"
            )
    return [find_experiment(name) for name in dict.fromkeys(names)]


def _cells(experiment: "Experiment", preset: str, seeds: tuple[int, ...]) -> list["Cell"]:
    cells = experiment.cells(preset)
    held = sorted({cell.config["seed"] for cell in cells})
    if seeds and not set(seeds) & set(held):
        raise ArgumentError(
            f"reproduce: `--seed` must be one of {experiment.name} with --preset {preset}: "
            f"{', '.join(map(str, held))}; got {', '.join(map(str, seeds))}."
        )
    return [cell for cell in cells if not seeds or cell.config["seed"] in seeds]


def _missing(
    experiment: "Experiment",
    cells: list["Cell"],
    records: "Records",
    engine: "Engine",
    data_dir: str | None,
) -> list[str]:
    """What the workers lack to compute the rest of an experiment."""
    from taut.lab.sweep import missing_data

    if not experiment.needs or len(records.load(cells)[0]) == len(cells):
        return []
    key = f"taut-data-{secrets.token_hex(8)}"
    return engine.submit(key, missing_data, experiment.needs, data_dir).result()
