"""The command `taut`: a table of subcommands and plugins, each imported only when it is run."""

import errno
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import IO, Any, NamedTuple

import click

from taut.errors import TautError

__all__ = ["LazyGroup", "Subcommand", "main", "plugins"]


class Subcommand(NamedTuple):
    """The place of a subcommand, "module:name", and its line of help, shown without importing it."""

    target: str
    help: str


def plugins() -> dict[str, Subcommand]:
    """Subcommands of other installed packages.

    A package adds one by an entry point of the group `taut.commands`. Its name is that of the
    subcommand; its value names a pair of strings, "module:name" and a line of help, in a module
    that is quick to import.
    """
    from importlib.metadata import entry_points

    found = sorted(entry_points(group="taut.commands"), key=lambda point: point.name)
    return {point.name: Subcommand(*point.load()) for point in found}


class Failure(click.ClickException):
    """An error of the caller, reported in one line."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the sentence in red to standard error, or to `file`."""
        click.secho(f"taut: {self.format_message()}", fg="red", file=file, err=file is None)


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one only to run it.

    Args:
        table: subcommands by name.
        plugins: finds more of them; called only for the list and for a name that `table` lacks.
    """

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, Subcommand],
        plugins: Callable[[], Mapping[str, Subcommand]] = dict,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.table = table
        self.plugins = plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table; plugins come last."""
        return list({**self.table, **self.plugins()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the subcommand, or returns None when there is none of that name."""
        found = self.table.get(cmd_name) or self.plugins().get(cmd_name)
        if found is None:
            return None
        module, _, name = found.target.partition(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of subcommands from their lines of help alone."""
        for heading, table in (("Commands", self.table), ("Plugins", self.plugins())):
            if table:
                with formatter.section(heading):
                    formatter.write_dl([(name, entry.help) for name, entry in table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the subcommand; errors of taut are shown without a traceback."""
        try:
            return super().invoke(ctx)
        except TautError as error:
            if ctx.params.get("debug"):
                raise
            raise Failure(str(error)) from error
        except OSError as error:
            if ctx.params.get("debug") or error.errno not in _STORAGE:
                raise
            where = f"{error.filename}: " if error.filename else ""
            reason = (error.strerror or str(error)).lower()
            remedy = "Free some space, or choose another place."
            if error.errno not in _FULL:
                remedy = "Choose a file or folder that may be read and written."
            raise Failure(f"{where}{reason}. {remedy}") from error


# Errors of storage, which say what is wrong without a traceback.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STORAGE = (*_FULL, errno.EACCES, errno.EPERM, errno.EROFS)

_HELP = {
    "demo": "Run a demo and write an HTML report.",
    "wasserstein": "Measure the distance between two datasets.",
    "train": "Train a classifier with certified radii.",
    "gan": "Train a GAN with a 1-Lipschitz critic.",
    "predict": "Predict rows without labels, each with its certified radius.",
    "certify": "Compute the certified radius of each prediction.",
    "attack": "Attack a classifier and check its certificates.",
    "audit": "Bound the Lipschitz constant of a saved network.",
    "verify": "Verify a saved Lipschitz constant with an independent checker.",
    "export": "Convert a saved network for other runtimes.",
    "data": "List, download and inspect datasets.",
}
SUBCOMMANDS = {name: Subcommand(f"taut.cli.{name}:{name}", text) for name, text in _HELP.items()}


@click.group(
    cls=LazyGroup,
    table=SUBCOMMANDS,
    plugins=plugins,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="`taut COMMAND --help` describes the arguments and options of a command.",
)
@click.version_option(package_name="taut", prog_name="taut")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def main(debug: bool) -> None:
    """Lipschitz networks that use their full slope, with bounds you can prove.

    The output of a network with Lipschitz constant 1 never changes by more than its input does.
    taut builds such networks from layers that satisfy the constraint at every training step, and
    proves every constant that it reports.

    \b
    Example:
      taut demo --out demo     write an HTML report to demo/
    """


if __name__ == "__main__":
    main(prog_name="taut")
