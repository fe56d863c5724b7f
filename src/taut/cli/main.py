"""The command `taut`: a table of subcommands and plugins, each imported only when it is run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from taut.cli.failures import DISK_FULL, STORAGE_ERRORS, Failure, explain
from taut.cli.parameters import TYPED
from taut.errors import ArgumentError, DataError, TautError, did_you_mean


class Subcommand(NamedTuple):
    """Target of a subcommand, "module:name", and its line of help, shown without importing it."""

    target: str
    help: str


def plugins() -> dict[str, Subcommand]:
    """Subcommands of other installed packages.

    A package adds one by an entry point of the group `taut.commands`. Its name is that of the
    subcommand; its value names a pair of strings, "module:name" and a line of help, in a module
    that is quick to import.
    """
    from importlib.metadata import entry_points

    points = sorted(entry_points(group="taut.commands"), key=lambda point: point.name)
    return {point.name: Subcommand(*point.load()) for point in points}


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

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Reads the options of the group itself; the words are kept for errors of subcommands."""
        words = [*args]
        with _reported(self, info_name or "", words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta.setdefault(TYPED, words)
        return context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table; plugins come last."""
        return list(self._entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the subcommand, or returns None when there is none of that name."""
        subcommand = self.table.get(cmd_name) or self.plugins().get(cmd_name)
        if subcommand is None:
            return None
        module, _, name = subcommand.target.partition(":")
        return getattr(import_module(module), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand; an unknown name is answered with the nearest names."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and name[:1] != "-":
            rule, near = f"no such command {name!r}", did_you_mean(name, self._entries())
            raise ArgumentError(rule=rule, remedy=near or f"See {ctx.command_path} --help.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the subcommands under their headings, from their lines of help alone."""
        entries = self._entries()
        headings = {name: heading for heading, names in SECTIONS.items() for name in names}
        for heading in (*SECTIONS, OTHERS):
            named = [name for name in entries if headings.get(name, OTHERS) == heading]
            if named:
                with formatter.section(heading):
                    formatter.write_dl([(name, entries[name].help) for name in named])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes names of subcommands and options, without importing a subcommand."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        named = [
            CompletionItem(name, help=entry.help)
            for name, entry in self._entries().items()
            if name.startswith(incomplete)
        ]
        return named + options

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the subcommand; errors of the caller are shown without a traceback."""
        if ctx.params.get("debug"):
            return super().invoke(ctx)
        with _reported(self, ctx.command_path, ctx.meta[TYPED], ctx):
            return super().invoke(ctx)

    def _entries(self) -> dict[str, Subcommand]:
        return {**self.table, **self.plugins()}


@contextmanager
def _reported(
    group: click.Group, path: str, words: Sequence[str], ctx: click.Context | None = None
) -> Iterator[None]:
    """Raises errors of taut and of click as failures of the command that `words` name."""
    try:
        yield
    except (TautError, click.ClickException) as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", Failure)):
            raise
        command: click.Command = group
        for word in words:
            subcommand = (
                command.get_command(ctx, word) if ctx and isinstance(command, click.Group) else None
            )
            if subcommand is not None:
                command, path = subcommand, f"{path} {word}"
        raise Failure(*explain(error, command, path), as_json="--json" in words) from error
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        raise Failure(path, _of_storage(error), as_json="--json" in words) from error


def _of_storage(error: OSError) -> TautError:
    where = f"{error.filename}: " if error.filename else ""
    remedy = "Free some space, or choose another folder."
    if error.errno not in DISK_FULL:
        remedy = "Choose a file or folder that may be read and written."
    return DataError(rule=f"{where}{(error.strerror or str(error)).lower()}", remedy=remedy)


# Headings of the help, and the commands below each. Others, such as those of plugins, come last.
SECTIONS = {
    "Start": ("demo", "data"),
    "Measure": ("wasserstein", "watch"),
    "Train": ("train", "gan", "predict"),
    "Verify": ("certify", "attack", "audit", "verify", "export"),
    "Research": ("reproduce", "bench"),
}
OTHERS = "Other commands"

_HELP = {
    "demo": "Run a demo and write an HTML report.",
    "wasserstein": "Measure the distance between two datasets.",
    "watch": "Watch batches of rows for drift from a reference.",
    "train": "Train a classifier with certified radii.",
    "gan": "Train a GAN with a 1-Lipschitz critic.",
    "predict": "Classify unlabelled rows, each with its certified radius.",
    "certify": "Compute the certified radius of each prediction.",
    "attack": "Attack a classifier and check its certificates.",
    "audit": "Prove a bound on the Lipschitz constant of a saved network.",
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
    epilog="`taut COMMAND --help` describes the arguments and options of a command. With the option "
    "--json, which most commands have, a command prints one JSON object; if it fails, the object has the "
    'key "error".',
)
@click.version_option(None, "-V", "--version", package_name="taut", prog_name="taut")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def main(debug: bool) -> None:
    """Neural networks with a proven Lipschitz constant, certified radii and Wasserstein distances.

    The output of a network with Lipschitz constant 1 never changes by more than its input does.
    taut builds such networks from layers that satisfy the constraint at every training step, and
    proves every constant that it reports.

    \b
    Example:
      taut demo --out demo     write an HTML report to demo/
    """


if __name__ == "__main__":
    main(prog_name="taut")
