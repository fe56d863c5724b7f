"""Types, arguments and options that several commands share."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from taut.errors import ArgumentError

Command = Callable[..., Any]


def option_group(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator for several options, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# Key of the words of the command line in the data of click's contexts.
TYPED = f"{__name__}.typed"


class Finite(click.FloatRange):
    """A finite number inside a range."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """From text such as `0.5`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number inside a range."""

    name = "integer"


class Seed(Whole):
    """A random seed: a whole number of at most 63 bits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """From text such as `7`."""
        number = super().convert(value, param, ctx)
        if number >= 2**63:
            self.fail(f"{value} is not below 2**63.", param, ctx)
        return number


class _Dataset(click.ParamType):
    """The name of a dataset, or a file or folder; shells complete both."""

    name = "dataset"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from taut.data import OFFICIAL_SETS

        names = [name for name in ("digits", *OFFICIAL_SETS) if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def columns(value: str) -> list[str | int]:
    """Column names and positions from text such as `age,income,3`; a name with a comma is quoted."""
    from taut.data import parse_columns

    try:
        return parse_columns(value)
    except ArgumentError as error:
        message = f"{value!r} is not a list of columns, such as age,income,3."
        raise click.BadParameter(message) from error


class _Encodings(click.ParamType):
    """A column and its encoding, from text such as `size=S<M<L`."""

    name = "encoding"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        column, mark, kind = str(value).partition("=")
        if not (mark and column.strip() and kind.strip()):
            rule = "COLUMN=KIND, such as month=category or 'size=S<M<L'"
            self.fail(f"{value!r} is not {rule}.", param, ctx)
        return column.strip(), kind.strip()


encodings = _Encodings()


def sizes_type(
    what: str = "a shape", example: str = "784 or 1,28,28"
) -> Callable[[str], tuple[int, ...]]:
    """The type of positive whole numbers that are separated by commas; errors say what they are."""

    def sizes(value: str) -> tuple[int, ...]:
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            rule = f"{what}, positive whole numbers separated by commas, such as {example}"
            raise click.BadParameter(f"{value!r} is not {rule}.")
        return tuple(int(part) for part in parts)

    return sizes


class _Output(click.Path):
    """A file or folder to be written; refused at once, and not after the work, where it cannot be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of a value."""
        path = cast(Path, super().convert(value, param, ctx))
        above = next((each for each in path.absolute().parents if each.exists()), None)
        if above is not None and not above.is_dir():
            self.fail(f"Directory {str(above)!r} is a file.", param, ctx)
        return path


DATASET = _Dataset()
NORM = click.Choice(["l1", "l2", "linf"])
FILE = _Output(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = _Output(file_okay=False, path_type=Path)
COUNT = Whole(min=1)
POSITIVE = Finite(0, min_open=True)
NOT_NEGATIVE = Finite(0)

network_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))
threads_option = click.option("--threads", type=COUNT, default=1, help="Number of CPU threads.")
seed_option = click.option("--seed", type=Seed(min=0), default=0, help="Random seed.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Folder of the downloaded datasets.  [default: $TAUT_DATA, or the user's cache folder]",
)
radius_norm_option = click.option(
    "--norm",
    type=NORM,
    help="Norm in which the radii are measured.  [default: the norm of the training run, or the norm "
    "stored in the file]",
)
arithmetic_option = click.option(
    "--arithmetic",
    type=click.Choice(["real", "float64", "float32"]),
    default="real",
    help="Arithmetic that the certificate covers: exact real numbers, or floating point including its "
    "roundoff.",
)
input_shape_option = click.option(
    "--input-shape",
    type=sizes_type(),
    metavar="SHAPE",
    help="Shape of one input, such as 1,28,28.  [default: the shape stored in the file, or the one that "
    "the first layer implies]",
)


def typed_words() -> list[str]:
    """The words behind `taut` on the command line."""
    return click.get_current_context().find_root().meta[TYPED]


def typed_options(*names: str) -> list[str]:
    """Those of the parameters that were given on the command line."""
    source = click.get_current_context().get_parameter_source
    return [name for name in names if source(name) is ParameterSource.COMMANDLINE]


def refuse_options(when: str, *names: str) -> None:
    """Raises a usage error if one of these options was given: none is ignored."""
    for name in typed_options(*names):
        raise click.UsageError(f"--{name.replace('_', '-')} {when}.")


def network_file(path: Path) -> Path:
    """The file itself, or the network file of a run."""
    if not path.is_dir():
        return path
    from taut.training import RunFolder

    model_file = RunFolder(path).model_file
    if not model_file.exists():
        rule = "must be a network or the folder of a finished run"
        got = f"{path}, which has no {model_file.name}"
        remedy = "Run the same training command again to finish it."
        raise ArgumentError(argument="PATH", rule=rule, got=got, remedy=remedy)
    return model_file
