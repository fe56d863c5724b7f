"""`taut gan`: images in, a generator of such images out, with a distance that is proven."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.classifier_options import data_dir_option, threads_option

if TYPE_CHECKING:
    from taut.training.gan import GanProgress, GanRun

__all__ = ["gan"]


@click.command()
@click.option(
    "--data",
    default="mnist",
    show_default=True,
    help="digits, mnist, fashion-mnist, cifar10, or a folder of images with sides that are "
    "multiples of 4.",
)
@data_dir_option
@click.option(
    "--critic",
    type=click.Choice(["lipschitz", "clipped", "penalty"]),
    default="lipschitz",
    show_default=True,
    help="lipschitz has a proven constant; clipped is WGAN, penalty WGAN-GP: for comparison.",
)
@click.option(
    "--size",
    type=click.Choice(["small", "paper"]),
    default="small",
    show_default=True,
    help="small takes minutes of one core, the networks of the paper want a GPU.",
)
@click.option(
    "--steps",
    "num_steps",
    type=click.IntRange(min=1),
    help="Of the critic.  [default: 4000, of the paper 46900]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--device", help="cpu, cuda, cuda:1 ...  [default: a GPU if there is one]")
@threads_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the run.  [default: runs/DATA-gan]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, nothing else.")
def gan(out: Path | None, size: str, as_json: bool, **fields: Any) -> None:
    """Train a generator of images against a critic of the Wasserstein distance.

    The value of a 1-Lipschitz critic is never above the distance between the images and the samples
    of its batch, so the number that falls while training is a distance in pixels from -1 to 1. The
    folder OUT gets pictures of samples, the generator, a log and the critic with its proof. The
    same command again goes on where it was stopped, even by a crash.

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
        from taut.cli.wasserstein_output import print_json

        print_json({"config": run.config.to_dict(), "result": run.result, "folder": str(out)})
        return
    if done:
        click.echo("This run was finished before; nothing was trained.")
    _print_run(run, out)


def _progress(steps: int, quiet: bool) -> Any:
    """A bar on standard error, with the critic's value so far."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("step {task.completed}/{task.total}"), BarColumn(), TimeRemainingColumn()

    @contextmanager
    def bars() -> Any:
        console = Console(stderr=True, quiet=quiet)
        with Progress(*columns, TextColumn("{task.description}"), console=console) as shown:
            bar = shown.add_task("", total=steps, visible=False)

            def tell(now: "GanProgress") -> None:
                words = None if now.row is None else f"critic {now.row['dual']:.3f}"
                shown.update(bar, completed=now.step, visible=True, description=words)

            yield tell

    return bars()


def _print_run(run: "GanRun", out: Path) -> None:
    result = run.result
    value = f"the critic's value at the end is {result['dual']:.3f}"
    if result["lipschitz"] is None:
        value += ", in units of its own: nothing is proven of this kind of critic."
    else:
        value += f", and its constant is proven to be at most {result['lipschitz']:.6f}:"
        value += " the batches were at least that far apart."
    click.echo(f"After {result['steps']} steps in {result['seconds']:.0f} s {value}")
    click.echo(
        f"Samples: {out / 'samples'}. The generator: taut.training.gan.load_gan({str(out)!r})."
    )
