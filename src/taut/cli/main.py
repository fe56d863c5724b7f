"""The command `taut`: one table of subcommands, each imported only when it is run."""

from importlib import import_module
from typing import IO, Any, NamedTuple

import click

from taut.errors import TautError

__all__ = ["LazyGroup", "Subcommand", "main"]


class Subcommand(NamedTuple):
    """Where a subcommand lives, and the line of help that is shown without importing it."""

    target: str
    help: str


class Failure(click.ClickException):
    """A mistake of the caller, told in one line."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the sentence in red to standard error, or to `file`."""
        click.secho(f"taut: {self.format_message()}", fg="red", file=file, err=file is None)


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one only to run it."""

    def __init__(self, *args: Any, table: dict[str, Subcommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table: the first thing to try comes first."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the subcommand, or returns None when there is none of that name."""
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name].target.partition(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of subcommands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the subcommand; an error that taut raised on purpose needs no traceback."""
        try:
            return super().invoke(ctx)
        except TautError as error:
            if ctx.params.get("debug"):
                raise
            raise Failure(str(error)) from error


SUBCOMMANDS = {
    "demo": Subcommand("taut.cli.demo:demo", "See what taut does: train critics, write one page."),
    "wasserstein": Subcommand(
        "taut.cli.wasserstein:wasserstein", "Measure how far apart two data sets are."
    ),
    "train": Subcommand("taut.cli.train:train", "Train a classifier with proven radii."),
    "gan": Subcommand("taut.cli.gan:gan", "Train a generator against a 1-Lipschitz critic."),
    "certify": Subcommand("taut.cli.certify:certify", "Prove how far predictions hold."),
    "attack": Subcommand("taut.cli.attack:attack", "Attack a classifier, next to its proof."),
    "audit": Subcommand("taut.cli.audit:audit", "Prove the constant of a saved network."),
    "export": Subcommand("taut.cli.export:export", "Write a saved network for other runtimes."),
    "data": Subcommand("taut.cli.data:data", "List, fetch and look at data sets."),
    "reproduce": Subcommand(
        "taut.cli.reproduce:reproduce", "Compute the tables and figures of the paper."
    ),
    "bench": Subcommand("taut.cli.bench:bench", "Measure speed against peers on this machine."),
}


@click.group(
    cls=LazyGroup,
    table=SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`taut COMMAND --help` tells what a command takes.",
)
@click.version_option(package_name="taut", prog_name="taut")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def main(debug: bool) -> None:
    """Lipschitz networks that use all of their slope, with numbers you can prove.

    A network with Lipschitz constant 1 moves its output no further than its input was moved.
    taut builds such networks from layers that hold the constant at every step of training, and
    proves the number it states.

    \b
    Example:
      taut demo --out demo     write a page of pictures to demo/
    """


if __name__ == "__main__":
    main(prog_name="taut")
