"""`taut gan`: trains a Wasserstein GAN with a 1-Lipschitz critic."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import data_dir_option, threads_option

if TYPE_CHECKING:
    from taut.training.gan import GanProgress, GanRun

__all__ = ["gan"]


@click.command()
@click.option(
    "--data",
    default="mnist",
    show_default=True,
    help="Dataset: digits, mnist, fashion-mnist, cifar10, or a folder of images whose height and width "
    "are multiples of 4.",
)
@data_dir_option
@click.option(
    "--critic",
    type=click.Choice(["lipschitz", "clipped", "penalty"]),
    default="lipschitz",
    show_default=True,
    help="Kind of critic. lipschitz has a proven constant; clipped (WGAN) and penalty (WGAN-GP) are for "
    "comparison.",
)
@click.option(
    "--size",
    type=click.Choice(["small", "paper"]),
    default="small",
    show_default=True,
    help="Size of the networks. small takes minutes on one core; paper needs a GPU.",
)
@click.option(
    "--steps",
    "num_steps",
    type=click.IntRange(min=1),
    help="Number of training steps of the critic.  [default: 4000; with --size paper 46900]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed."
)
@click.option("--device", help="Device: cpu, cuda, cuda:1 ...  [default: a GPU if there is one]")
@threads_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the run.  [default: runs/DATA-gan]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, nothing else.")
def gan(out: Path | None, size: str, as_json: bool, **fields: Any) -> None:
    """Train a generator of images against a critic of the Wasserstein distance.

    The value of a 1-Lipschitz critic is at most the distance between the images and the samples of
    its batch, so training minimises a distance, measured in pixels scaled to [-1, 1]. The folder OUT
    gets images of samples, the generator, a log, and the critic with its certified constant. The
    same command resumes from the last checkpoint.

    \b
    Examples:
      taut gan --data digits --steps 300
      taut gan --data mnist --out runs/a
      taut gan --data fashion-mnist --critic clipped --out runs/b
      taut gan --data cifar10 --size paper --device cuda --out runs/c
    """
    from taut.training.gan import GanConfig, train_gan

    given = {name: value for name, value in fields.items() if value is not None}
    config = GanConfig.paper(**given) if size == "paper" else GanConfig(**given)
    out = out or Path("runs") / f"{Path(config.data).stem}-gan"
    done = (out / "result.json").exists()
    with _progress(config.num_steps, quiet=as_json) as on_progress:
        run = train_gan(config, out, on_progress=on_progress)
    if as_json:
        from taut.cli.output import print_json

        print_json({"config": run.config.to_dict(), "result": run.result, "folder": str(out)})
        return
    if done:
        click.echo("This run was already finished; nothing was trained.")
    _print_run(run, out)


def _progress(steps: int, quiet: bool) -> Any:
    """A progress bar on standard error, with the value of the critic."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("step {task.completed}/{task.total}"), BarColumn(), TimeRemainingColumn()

    @contextmanager
    def bars() -> Any:
        console = Console(stderr=True, quiet=quiet)
        with Progress(*columns, TextColumn("{task.description}"), console=console) as shown:
            bar = shown.add_task("", total=steps, visible=False)

            def update(now: "GanProgress") -> None:
                text = None if now.row is None else f"critic {now.row['dual']:.3f}"
                shown.update(bar, completed=now.step, visible=True, description=text)

            yield update

    return bars()


def _print_run(run: "GanRun", out: Path) -> None:
    result = run.result
    value = f"the value of the critic is {result['dual']:.3f}"
    if result["lipschitz"] is None:
        value += ", in arbitrary units: this kind of critic has no proven constant."
    else:
        value += f", and its constant is at most {result['lipschitz']:.6f} (proven):"
        value += " the distance between the batches was at least that value."
    click.echo(f"After {result['steps']} steps in {result['seconds']:.0f} s {value}")
    click.echo(
        f"Samples: {out / 'samples'}. The generator: taut.training.gan.load_gan({str(out)!r})."
    )
