"""`taut train`: labelled data in, a classifier with certified predictions out."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from taut.cli.parameters import (
    COUNT,
    DATASET,
    FOLDER,
    NOT_NEGATIVE,
    POSITIVE,
    Finite,
    Whole,
    json_option,
    sizes_type,
    threads_option,
    typed_options,
)
from taut.cli.torchrun_processes import processes
from taut.errors import ArgumentError, require
from taut.training import (
    FieldType,
    Progress,
    TrainConfig,
    TrainedRun,
    architecture_of,
    field_docs,
    field_types,
    from_toml,
    parse_tolerances,
    write_tolerances,
)
from taut.training import train as run_training

# Options in the first section of the help; the others follow by subject.
_COMMON = {
    *("data", "label", "norm", "radius", "arch", "hidden", "epochs", "seed", "device"),
    *("config_file", "out", "as_json", "help"),
}
# The first option of each subject, and the heading of its section.
_SECTIONS = {
    "data": "Advanced data options",
    "norm": "Advanced loss options",
    "arch": "Advanced network options",
    "epochs": "Advanced optimisation options",
    "seed": "Advanced run options",
}
_INTERRUPTED = 130
_LISTS = {
    "hidden": "a list of layer widths",
    "channels": "a list of channel counts",
    "milestones": "a list of epochs",
}
_METAVARS = {"milestones": "EPOCHS", "tolerance": "TOLERANCES", "test": "PATH"}
_METAVARS |= dict.fromkeys(("names", "columns", "drop", "categorical"), "COLUMNS")
_TYPES = {
    "positive": POSITIVE,
    "not_negative": NOT_NEGATIVE,
    "share": Finite(0, 1, max_open=True),
    "fraction": Finite(0, 1, min_open=True),
    "whole": Whole(min=0),
}


class SectionedCommand(click.Command):
    """A command with headings in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the common options, then the others under their headings."""
        common, subject = "Common options", ""
        sections: dict[str, list[tuple[str, str]]] = {common: []}
        for parameter in self.get_params(ctx):
            subject = _SECTIONS.get(str(parameter.name), subject)
            if (record := parameter.get_help_record(ctx)) is not None:
                heading = common if parameter.name in _COMMON else subject
                sections.setdefault(heading, []).append(record)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for every field of the configuration, with its type, range and description.

    Options have no default of their own: one that is not given is None, and the configuration file
    or the configuration itself decides.
    """
    docs, types = field_docs(TrainConfig), field_types(TrainConfig)
    for field in reversed(fields(TrainConfig)):
        if field.name == "threads":
            continue
        text = docs[field.name].replace("`", "").rstrip(".")
        default = "" if field.default in (None, (), "", 0) else f"  [default: {field.default}]"
        command = click.option(
            f"--{field.name.replace('_', '-')}",
            type=_type(field.name, types[field.name]),
            metavar=_METAVARS.get(field.name),
            help=f"{text[:1].upper()}{text[1:]}.{default}",
        )(command)
    return command


def _type(name: str, kind: FieldType) -> click.ParamType | Callable[[str], Any]:
    if kind.choices:
        return click.Choice(kind.choices)
    if kind.base is tuple:
        return sizes_type(_LISTS[name], "20 or 20,30")
    if kind.base is str:
        return DATASET if name == "data" else click.STRING
    return _TYPES.get(kind.check, COUNT)


@click.command(cls=SectionedCommand)
@config_options
@threads_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with these options, such as the config.toml of another run; command-line "
    "options override it.",
)
@click.option("--out", type=FOLDER, help="Output folder of the run.  [default: runs/DATA-NORM]")
@click.option("--report/--no-report", default=True, help="Write an HTML report to OUT/index.html.")
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard events to OUT/tensorboard.")
@json_option
def train(
    out: Path | None,
    config_file: Path | None,
    report: bool,
    tensorboard: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Train a classifier with certified radii.

    By default, the Lipschitz constant, the loss and its margin are derived from the norm, the target
    radius and the architecture. The network, its configuration, a log and a report are written to OUT.
    Running the same command again resumes from the last checkpoint and ends with the same weights as
    an uninterrupted run.

    \b
    Examples:
      taut train
      taut train --data mnist --norm linf --radius 0.1 --out runs/a
      taut train --data mnist --norm linf --radius 0.1 --arch ibp --out runs/i
      taut train --data mnist --radius 1.58 --hidden 1024,1024,1024 --epochs 12 --out runs/b
      taut train --data mnist --radius 1.58 --arch conv --out runs/conv
      taut train --data wine.csv --label quality --patience 20 --out runs/wine
      taut train --data wine.csv --label colour --tolerance pH=0.1,sulphur=2 --out runs/colour
      taut train --config runs/a/config.toml --seed 1 --out runs/c
      torchrun --nproc-per-node 2 -m taut train --data mnist --out runs/d
    """
    import torch

    from taut.cli.output import announce_folders, print_json, progress
    from taut.report import check_extras

    if report:
        check_extras()
    if tensorboard:
        require("tensorboard", "track", "train: --tensorboard")
    config = configure(config_file, given)
    out = out or Path("runs") / f"{Path(config.data).stem}-{config.norm}"
    page = out / "index.html" if report else None
    torch.set_num_threads(config.threads or 1)
    with processes() as first:
        done = (out / "result.json").exists()
        with announce_folders(*[out] * first), progress(quiet=as_json or not first) as bar:
            on_progress = _show_in(bar)
            try:
                run = run_training(config, out, on_progress=on_progress, tensorboard=tensorboard)
            except KeyboardInterrupt as error:
                if first:
                    message = "Interrupted. Run the same command to resume from the last checkpoint"
                    click.echo(f"{message} in {out}.", err=True)
                raise SystemExit(_INTERRUPTED) from error
        if not first:
            return
        # The report of a finished run may already show attacks.
        if page is not None and not (done and page.exists()):
            _write_page(run, page)
        if as_json:
            record = {"run": out, "report": page, "config": run.config.to_dict()}
            print_json({**run.result, **record})
        else:
            _print_run(run, out, page, done)


def configure(path: Path | None, given: dict[str, Any]) -> TrainConfig:
    """The configuration: that of the file, overridden by the options that were given.

    Raises:
        ArgumentError: the file is no configuration.
        click.UsageError: an option has no effect with the others.
    """
    config = TrainConfig(threads=given["threads"])
    if path is not None:
        try:
            config = from_toml(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise ArgumentError("train", "--config", "must be a TOML text", str(path)) from error
    typed = {name: given[name] for name in typed_options(*given)}
    if "tolerance" in typed:
        # A file of tolerances is read once; the run keeps what it says.
        typed["tolerance"] = write_tolerances(parse_tolerances(typed["tolerance"]))
        typed.setdefault("norm", "linf" if path is None else config.norm)
    config = replace(config, **typed)
    arch = architecture_of(config)
    loss = config.loss or ("ramp" if arch == "distance" else "cross_entropy")
    layers = (arch not in ("distance", "ibp"), "another --arch", arch)
    staged = ("conv", "lenet", "wrn", "ibp")
    needs = {
        "activation": layers,
        "constraint": layers,
        "dropout": layers,
        "milestones": (config.schedule == "step", "--schedule step", config.schedule),
        "decay": (config.schedule == "step", "--schedule step", config.schedule),
        "blocks": (arch == "wrn", "--arch wrn", arch),
        "channels": (arch in staged, "--arch conv, lenet, wrn or ibp", arch),
        "keep": (arch == "distance", "--arch distance", arch),
        "clip": (arch == "ibp", "--arch ibp", arch),
        "lipschitz": (arch != "ibp", "another --arch", arch),
        "alpha": (loss == "hkr", "--loss hkr", loss),
        "temperature": (loss in ("cross_entropy", "ramp"), "--loss cross_entropy or ramp", loss),
        "adversarial_steps": (config.adversarial_radius > 0, "--adversarial-radius", "none"),
    }
    for name in typed:
        used, needed, now = needs.get(name, (True, "", ""))
        if not used:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} has an effect only with {needed}; got {now}.")
    return config


def _show_in(bar: Callable[..., None]) -> Callable[[Progress], None]:
    """Shows the epoch, the loss and the accuracy on validation rows in a progress bar."""
    from taut.report import percent

    def on_progress(now: Progress) -> None:
        text = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3g}"
        if now.row is not None and now.row["certified"] is not None:
            clean, certified = percent(now.row["clean"]), percent(now.row["certified"], "lower")
            text += f"  clean {clean}  certified {certified}"
        bar("training", (now.epoch - 1) * now.steps + now.step, now.epochs * now.steps, text)

    return on_progress


def _write_page(run: TrainedRun, page: Path) -> None:
    from taut.evaluation import EvaluatedClassifier
    from taut.norms import as_norm
    from taut.report import classifier_page, run_metadata

    radius = run.config.radius
    assert radius is not None
    classifier = EvaluatedClassifier.from_run(run, as_norm(run.config.norm))
    certificates = classifier.certify()
    classifier_page(classifier, certificates, radius, run=run, metadata=run_metadata(run)).write(
        page
    )


def _print_run(run: TrainedRun, out: Path, page: Path | None, done: bool) -> None:
    from taut.cli.output import print_table, say
    from taut.report import NORM_NAMES, format_bound, percent

    result = run.result
    if done:
        say("This run was already finished; nothing was trained.")
    target = f"{NORM_NAMES[result['norm']]} {result['radius']:.4g}"
    rows = {
        "clean accuracy": percent(result["clean"]),
        f"certified within {target}": percent(result["certified"], "lower"),
        "median radius": format_bound(result["median_radius"], "lower", 3),
        "Lipschitz constant, proven": f"<= {format_bound(result['lipschitz'], 'upper', 7)}",
        "examples": f"{result['test_rows']:,}",
    }
    print_table(["", "test examples"], list(rows.items()))
    count = result["epochs"]
    epochs = f"{count} epoch{'s' * (count != 1)}, weights of epoch {result['best_epoch']}"
    say(f"{epochs}, {result['seconds']:.0f} s.")
    if result["epochs"] < (run.config.epochs or 0):
        say(
            f"Stopped before epoch {run.config.epochs}: no better certified validation accuracy in "
            f"the last {run.config.patience} epochs."
        )
    say(f"Run: {out}")
    if page is not None:
        say(f"Report: {page}")
    if (events := out / "tensorboard").exists():
        say(f"Curves: tensorboard --logdir {events}")
    say(f"Next: taut certify {out}; taut attack {out}")
