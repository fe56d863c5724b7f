"""Types, arguments and options that several commands share."""

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

__all__ = [
    "COUNT",
    "FILE",
    "FOLDER",
    "NORM",
    "NOT_NEGATIVE",
    "POSITIVE",
    "Columns",
    "Finite",
    "Sizes",
    "data_dir_option",
    "input_shape_option",
    "json_option",
    "network_argument",
    "seed_option",
    "threads_option",
    "typed_options",
]


class Finite(click.FloatRange):
    """A finite number inside a range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """From text such as `0.5`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Columns(click.ParamType):
    """Column names and positions, separated by commas; a name with a comma is quoted."""

    name = "columns"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str | int]:
        """From text such as `age,income,3`."""
        if isinstance(value, list):
            return value
        import csv

        cells = [cell.strip() for cell in next(csv.reader([value], skipinitialspace=True), [])]
        if not cells or "" in cells:
            message = f"{value!r} is not a list of columns; write it like age,income,3."
            self.fail(message, param, ctx)
        return [int(cell) if cell.isdecimal() else cell for cell in cells]


class Sizes(click.ParamType):
    """Positive whole numbers, separated by commas.

    Args:
        what: what the list is, in the error message.
        example: an example of one.
    """

    name = "sizes"

    def __init__(self, what: str = "a shape", example: str = "784 or 1,28,28") -> None:
        self.what = what
        self.example = example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """From text such as `1,28,28`."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            rule = f"positive whole numbers, separated by commas, like {self.example}"
            self.fail(f"{value!r} is not {self.what}: {rule}.", param, ctx)
        return tuple(int(part) for part in parts)


NORM = click.Choice(["l1", "l2", "linf"])
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = Finite(0, min_open=True)
NOT_NEGATIVE = Finite(0)

network_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))
threads_option = click.option("--threads", type=COUNT, default=1, help="Number of CPU threads.")
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Random seed."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Folder of MNIST-style datasets.  [default: TAUT_DATA, else the user's cache]",
)
input_shape_option = click.option(
    "--input-shape",
    type=Sizes(),
    help="Shape of one input, like 1,28,28.  [default: as saved, or that of the first layer]",
)


def typed_options(*names: str) -> list[str]:
    """Those of the parameters that were given on the command line."""
    source = click.get_current_context().get_parameter_source
    return [name for name in names if source(name) is ParameterSource.COMMANDLINE]
