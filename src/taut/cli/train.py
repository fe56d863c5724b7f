"""`taut train`: labelled data in, a classifier with certified predictions out."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.config_options import config_options
from taut.cli.parameters import SectionedCommand, json_option, threads_option, typed_options
from taut.cli.processes import processes
from taut.errors import ArgumentError
from taut.training import TrainConfig

if TYPE_CHECKING:
    from taut.training import TrainedRun

__all__ = ["train"]

_SECTIONS = {
    "data": "Data",
    "norm": "Target",
    "arch": "Network",
    "epochs": "Training",
    "seed": "Run",
}


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@config_options(TrainConfig, leave_out=("threads",))
@threads_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of the same options, such as config.toml of a run; options given here override "
    "it.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the run.  [default: runs/DATA-NORM]",
)
@click.option("--report/--no-report", default=True, help="Write OUT/index.html.  [default: report]")
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard events to OUT/tensorboard.")
@json_option
def train(
    out: Path | None,
    config_file: Path | None,
    report: bool,
    tensorboard: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Train a classifier with certified predictions.

    Margin, constant and loss follow from the target radius. The folder OUT gets the network, its
    configuration, a log and a report. The same command again resumes from the last checkpoint and
    ends with the same weights.

    \b
    Examples:
      taut train
      taut train --data mnist --norm linf --radius 0.1 --out runs/a
      taut train --data mnist --radius 1.58 --hidden 1024,1024,1024 --epochs 12 --out runs/b
      taut train --data mnist --radius 1.58 --arch conv --out runs/conv
      taut train --data wine.csv --label quality --patience 20 --out runs/wine
      taut train --config runs/a/config.toml --seed 1 --out runs/c
      torchrun --nproc-per-node 2 -m taut train --data mnist --out runs/d
    """
    import torch

    from taut.report import check_extras

    if report:
        check_extras()
    config = configure(config_file, fields)
    out = out or Path("runs") / f"{Path(config.data).stem}-{config.norm}"
    torch.set_num_threads(config.threads or 1)
    with processes() as first:
        _train(config, out, report, tensorboard, as_json, first)


def configure(path: Path | None, given: dict[str, Any]) -> TrainConfig:
    """The configuration: that of the file, overridden by the options that were given.

    Raises:
        ArgumentError: the file is no configuration.
        click.UsageError: an option has no effect with the others.
    """
    from taut.training import from_toml

    config = TrainConfig(threads=given["threads"])
    if path is not None:
        try:
            config = from_toml(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            rule = "must be a TOML text"
            raise ArgumentError(
                subject="train", argument="--config", rule=rule, got=str(path)
            ) from error
    typed = {name: given[name] for name in typed_options(tuple(given))}
    config = replace(config, **typed)
    loss = config.loss or "cross_entropy"
    needs = {
        "milestones": (config.schedule == "step", "--schedule step", config.schedule),
        "decay": (config.schedule == "step", "--schedule step", config.schedule),
        "channels": (config.arch != "dense", "--arch conv, lenet or wrn", config.arch),
        "alpha": (loss == "hkr", "--loss hkr", loss),
        "temperature": (loss == "cross_entropy", "--loss cross_entropy", loss),
        "adversarial_steps": (config.adversarial_radius > 0, "--adversarial-radius", "none"),
    }
    for name in typed:
        used, needed, now = needs.get(name, (True, "", ""))
        if not used:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} has an effect only with {needed}; got {now}.")
    return config


def _train(
    config: TrainConfig, out: Path, report: bool, tensorboard: bool, as_json: bool, first: bool
) -> None:
    from taut.cli import classifier_output as output
    from taut.cli.output import print_json, say
    from taut.training import train as run_training

    page = out / "index.html" if report else None
    done = (out / "result.json").exists()
    with output.train_progress(quiet=as_json or not first) as on_progress:
        run = run_training(config, out, on_progress=on_progress, tensorboard=tensorboard)
    if not first:
        return
    # The report of a finished run may already show attacks.
    if page is not None and not (done and page.exists()):
        _write_page(run, page)
    if as_json:
        print_json(output.run_record(run, page))
        return
    if done:
        say("This run was already finished; nothing was trained.")
    output.print_run(run, page)


def _write_page(run: "TrainedRun", page: Path) -> None:
    from taut.evaluation import EvaluatedClassifier
    from taut.norms import as_norm
    from taut.report import classifier_page, run_facts

    assert run.config.radius is not None
    classifier = EvaluatedClassifier.from_run(run, as_norm(run.config.norm))
    found = classifier.certify()
    radius = run.config.radius
    classifier_page(classifier, found, radius, run=run, facts=run_facts(run)).write(page)
