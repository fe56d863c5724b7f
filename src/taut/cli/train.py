"""`taut train`: labelled data in, a classifier with a proven radius for each prediction out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.audit import ShapeType
from taut.cli.classifier_options import data_dir_option, threads_option
from taut.cli.processes import processes
from taut.cli.sections import SectionedCommand
from taut.cli.train_config import configure
from taut.cli.wasserstein import Finite

if TYPE_CHECKING:
    from taut.training import TrainConfig, TrainedRun

__all__ = ["train"]

_POSITIVE = Finite(0, min_open=True)
_NOT_NEGATIVE = Finite(0)
_COUNT = click.IntRange(min=1)
_SIZES = ShapeType("a list of sizes", "256 or 256,128")
_EPOCHS = ShapeType("a list of epochs", "20 or 20,30")
_SECTIONS = {
    "data": "Data",
    "norm": "What is asked for",
    "arch": "Network",
    "epochs": "Training",
    "seed": "Run",
}


def _choice(*names: str) -> click.Choice:
    return click.Choice(names)


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.option(
    "--data",
    help="digits, mnist, fashion-mnist, cifar10, a .csv, .parquet or .npz file, or a folder of "
    "images.  [default: digits, which comes with taut]",
)
@data_dir_option
@click.option(
    "--label",
    help="The label column of a table: a name, or a position from 0 (-1 is the last).  [default: "
    "the one called label, target, class or y]",
)
@click.option("--test", help="A second file to test on.  [default: a part of --data]")
@click.option(
    "--validation",
    type=Finite(0, 1, max_open=True),
    help="Share held out, to choose the best epoch.  [default: 0.1]",
)
@click.option("--norm", type=_choice("l1", "l2", "linf"), help="Of the radius.  [default: l2]")
@click.option(
    "--radius",
    type=_POSITIVE,
    help="What to prove, in pixels from 0 to 1 or standard deviations of columns.  [default: 0.5 "
    "in l2, 0.1 in linf, 1 in l1]",
)
@click.option(
    "--loss",
    type=_choice("cross_entropy", "hinge", "hkr"),
    help="What is minimised.  [default: cross_entropy]",
)
@click.option(
    "--margin",
    type=_POSITIVE,
    help="The lead asked of the true class, instead of the one that --radius asks for. The paper's "
    "kappa = K*a in linf, for a = 0.1: --loss hinge --lipschitz 1000 --margin 100; that is half of "
    "what a proof of radius a takes.",
)
@click.option(
    "--temperature",
    type=_POSITIVE,
    help="Of the cross-entropy: how much more it cares for those that fall short.  [default: 4.4 / "
    "margin]",
)
@click.option("--alpha", type=_POSITIVE, help="Weight of the hinge in hkr.  [default: 10]")
@click.option(
    "--arch",
    type=_choice("dense", "conv", "lenet", "wrn"),
    help="The kind of network; all but dense are for images, and wrn proves little.  [default: "
    "dense]",
)
@click.option(
    "--channels",
    type=_SIZES,
    metavar="SIZES",
    help="Of the stages of convolutions.  [default: 16,64 in conv, 10,20 in lenet, 64,128,256 in "
    "wrn]",
)
@click.option(
    "--hidden",
    type=_SIZES,
    metavar="SIZES",
    help="Hidden layers.  [default: 256,256,256, from 784 pixels on 1024s, of tables 128,128; one "
    "less in conv]",
)
@click.option(
    "--lipschitz",
    type=_POSITIVE,
    help="The constant of the network, so the scale of its outputs.  [default: 1, in linf 1000]",
)
@click.option("--activation", help="maxmin, fullsort, groupsort4, abs, relu ...  [default: maxmin]")
@click.option(
    "--constraint",
    help="orthonormal, bjorck, spectral, parseval, linf, l1 or none.  [default: orthonormal in l2, "
    "linf in linf, l1 in l1]",
)
@click.option("--dropout", type=Finite(0, 1, max_open=True), help="Share of units dropped.")
@click.option(
    "--epochs",
    type=_COUNT,
    help="Passes over the data.  [default: 40, more where they are fewer than 2500 steps]",
)
@click.option(
    "--augment",
    type=_choice("none", "crop", "crop-flip"),
    help="Move training images by up to an eighth, and mirror them.  [default: none]",
)
@click.option(
    "--batch-size",
    type=_COUNT,
    help="Examples of a step, over all processes.  [default: near a hundredth of the rows, from 32 "
    "to 512]",
)
@click.option(
    "--optimizer",
    type=_choice("adam", "sgd", "aggmo"),
    help="[default: adam in l2, aggmo in linf and l1]",
)
@click.option(
    "--lr",
    type=_POSITIVE,
    help="The highest learning rate.  [default: 0.003 of adam; of aggmo in linf and l1 0.1, or 1 / "
    "lipschitz for a hinge]",
)
@click.option(
    "--schedule", type=_choice("cosine", "step", "constant"), help="Of the rate.  [default: cosine]"
)
@click.option("--milestones", type=_EPOCHS, metavar="EPOCHS", help="Where step falls, like 20,30.")
@click.option("--decay", type=_POSITIVE, help="What step multiplies by there.  [default: 0.1]")
@click.option(
    "--warmup", type=_NOT_NEGATIVE, metavar="EPOCHS", help="First let the rate grow from nothing."
)
@click.option(
    "--weight-decay",
    type=_NOT_NEGATIVE,
    help="Times the weights, what is added to their gradients.  [default: 0]",
)
@click.option(
    "--patience",
    type=click.IntRange(min=0),
    help="Stop after so many epochs without a better proven accuracy.  [default: never]",
)
@click.option(
    "--adversarial",
    "adversarial_radius",
    type=_NOT_NEGATIVE,
    metavar="RADIUS",
    help="Train on inputs that PGD has moved this far; for comparison, proofs do not need it.",
)
@click.option("--adversarial-steps", type=_COUNT, help="Of that attack.  [default: 10]")
@click.option(
    "--jacobian",
    "jacobian_weight",
    type=_NOT_NEGATIVE,
    metavar="WEIGHT",
    help="Add so much of the steepest slope at each input to the loss; for networks whose weights "
    "nothing constrains.",
)
@click.option(
    "--parseval",
    "parseval_beta",
    type=Finite(0, 1, max_open=True),
    metavar="BETA",
    help="Move plain layers so far towards orthonormal ones after each step; for comparison.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Decides every draw.  [default: 0]")
@click.option(
    "--dtype",
    type=_choice("float32", "float64", "bfloat16"),
    help="bfloat16 rounds only what stands between constrained layers.  [default: float32]",
)
@click.option("--device", help="cpu, cuda, cuda:1 ...  [default: a GPU if there is one]")
@threads_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file of the same options, as runs keep one; options given here override it, and "
    "what it derived from those is derived anew.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the run.  [default: runs/DATA-NORM]",
)
@click.option(
    "--checkpoint-every",
    type=_COUNT,
    metavar="STEPS",
    help="What a crash may cost at most, beside the end of each epoch.  [default: 1000]",
)
@click.option("--report/--no-report", default=True, help="Write OUT/index.html.  [default: report]")
@click.option("--tensorboard", is_flag=True, help="Also write events to OUT/tensorboard.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, nothing else.")
def train(
    out: Path | None,
    config_file: Path | None,
    report: bool,
    tensorboard: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Train a classifier whose predictions come with a proven radius.

    Say how far a prediction must hold: margin, constant and loss follow from it. The folder OUT
    gets the network, its configuration, a log and a page. The same command again goes on where it
    was stopped, even by a crash, and ends with the same weights.

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
    config, said = configure(config_file, fields)
    out = out or Path("runs") / f"{Path(config.data).stem}-{config.norm}"
    torch.set_num_threads(config.threads or 1)
    with processes() as first:
        if said and first:
            click.echo(f"taut: {said}", err=True)
        _train(config, out, report, tensorboard, as_json, first)


def _train(
    config: "TrainConfig", out: Path, report: bool, tensorboard: bool, as_json: bool, first: bool
) -> None:
    from taut.cli import classifier_output as output
    from taut.cli.wasserstein_output import print_json
    from taut.training import train as run_training

    page = out / "index.html" if report else None
    done = (out / "result.json").exists()
    with output.train_progress(quiet=as_json or not first) as on_progress:
        run = run_training(config, out, on_progress=on_progress, tensorboard=tensorboard)
    if not first:
        return
    # The page of a finished run may show attacks by now.
    if page is not None and not (done and page.exists()):
        _write_page(run, page)
    if as_json:
        print_json(output.run_record(run, page))
        return
    if done:
        output.say("This run was finished before; nothing was trained.")
    output.print_run(run, page)


def _write_page(run: "TrainedRun", page: Path) -> None:
    from taut.lab.robustness import subject_of
    from taut.norms import as_norm
    from taut.report.classifier import classifier_page, run_facts

    assert run.config.radius is not None
    subject = subject_of(run, as_norm(run.config.norm))
    found = subject.certify()
    radius = run.config.radius
    classifier_page(subject, found, radius, run=run, facts=run_facts(run)).write(page)
