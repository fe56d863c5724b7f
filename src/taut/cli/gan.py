"""`taut gan`: trains a Wasserstein GAN with a 1-Lipschitz critic."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import (
    COUNT,
    DATASET,
    FOLDER,
    data_dir_option,
    json_option,
    seed_option,
    threads_option,
)
from taut.errors import ArgumentError

if TYPE_CHECKING:
    from taut.training.gan import GanProgress


@click.command()
@click.option(
    "--data",
    type=DATASET,
    default="mnist",
    help="Dataset: digits, mnist, fashion-mnist, cifar10, or a folder of images whose height and width "
    "are multiples of 4.",
)
@data_dir_option
@click.option(
    "--critic",
    type=click.Choice(["lipschitz", "clipped", "penalty"]),
    default="lipschitz",
    help="Type of critic. lipschitz has a proven constant; clipped (WGAN) and penalty (WGAN-GP) are for "
    "comparison.",
)
@click.option(
    "--size",
    type=click.Choice(["small", "paper"]),
    default="small",
    help="Size of the networks. small takes minutes on one core; paper needs a GPU.",
)
@click.option(
    "--num-steps",
    "num_steps",
    type=COUNT,
    help="Number of training steps of the critic.  [default: 4000, or 46900 with --size paper]",
)
@seed_option
@click.option("--device", help="Device: cpu, cuda or cuda:1.  [default: a GPU if available]")
@threads_option
@click.option("--out", type=FOLDER, help="Output folder of the run.  [default: runs/DATA-gan]")
@json_option
def gan(out: Path | None, size: str, as_json: bool, **fields: Any) -> None:
    """Train a Wasserstein GAN for images with a 1-Lipschitz critic.

    The generator is trained to minimise the value of the critic: its mean output on a batch of real
    images minus its mean output on a batch of generated ones. With a 1-Lipschitz critic, this value is
    a lower bound on the Wasserstein distance between the two batches, with pixels scaled to [-1, 1].

    Sample images, the generator, the critic with its proven constant, and a log are written to OUT.
    Running the same command again resumes from the last checkpoint.

    \b
    Examples:
      taut gan --data digits --num-steps 300
      taut gan --data mnist --out runs/a
      taut gan --data fashion-mnist --critic clipped --out runs/b
      taut gan --data cifar10 --size paper --device cuda --out runs/c
    """
    from taut.bounds import format_bound
    from taut.cli.output import announce_folders, print_json, progress, say
    from taut.training.gan import GanConfig, train_gan

    if Path(fields["data"]).suffix in (".csv", ".tsv", ".parquet"):
        rule = "must be a dataset of images, or a folder of images"
        raise ArgumentError(argument="data", rule=rule, got=repr(fields["data"]))
    given = {name: value for name, value in fields.items() if value is not None}
    config = GanConfig.paper(**given) if size == "paper" else GanConfig(**given)
    out = out or Path("runs") / f"{Path(config.data).stem}-gan"
    done = (out / "result.json").exists()
    with announce_folders(out), progress(quiet=as_json) as bar:

        def on_progress(now: "GanProgress") -> None:
            bar("training", now.step, now.steps, f"critic {now.dual:.3f}")

        run = train_gan(config, out, on_progress=on_progress)
    if as_json:
        print_json({"config": run.config.to_dict(), "result": run.result, "folder": out})
        return
    if done:
        say("This run was already finished; nothing was trained.")
    result = run.result
    value = f"the value of the critic is {format_bound(result['dual'], 'lower')}"
    if result["lipschitz"] is None:
        value += ", in arbitrary units: this kind of critic has no proven constant."
    else:
        constant = format_bound(result["lipschitz"], "upper", 7)
        least = format_bound(result["dual"] / max(result["lipschitz"], 1.0), "lower")
        value += f", and its constant is at most {constant} (proven): the distance between the "
        value += f"batches was at least {least}."
    say(f"After {result['steps']} steps in {result['seconds']:.0f} s, {value}")
    say(f"Samples: {out / 'samples'}. The generator: taut.training.gan.load_gan({str(out)!r}).")
