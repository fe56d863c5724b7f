"""Types and options that several commands share."""

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

__all__ = [
    "COUNT",
    "FILE",
    "NORM",
    "NOT_NEGATIVE",
    "POSITIVE",
    "Columns",
    "Finite",
    "SectionedCommand",
    "Sizes",
    "data_dir_option",
    "json_option",
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
            self.fail(
                f"{value!r} is not a list of columns; write it like age,income,3.", param, ctx
            )
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
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """From text such as `1,28,28`."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            self.fail(
                f"{value!r} is not {self.what}: positive whole numbers, separated by commas, like "
                f"{self.example}.",
                param,
                ctx,
            )
        return tuple(int(part) for part in parts)


NORM = click.Choice(["l1", "l2", "linf"])
FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = Finite(0, min_open=True)
NOT_NEGATIVE = Finite(0)

threads_option = click.option(
    "--threads", type=COUNT, default=1, show_default=True, help="Number of CPU threads."
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Folder of MNIST-style datasets.  [default: TAUT_DATA, else the user's cache]",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    show_default=True,
    help="Random seed.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")


def typed_options(names: tuple[str, ...] | None = None) -> list[str]:
    """The parameters that were given on the command line, of these or of all."""
    context = click.get_current_context()
    return [
        name
        for name in (context.params if names is None else names)
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


class SectionedCommand(click.Command):
    """A command with headings in its help.

    Args:
        sections: the first option of each section, by the name of its parameter, and the heading;
            options up to the next section belong to it.
    """

    def __init__(self, *args: Any, sections: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their headings."""
        heading, rows = "Options", []
        for parameter in [*self.get_params(ctx), None]:
            if parameter is None or parameter.name in self.sections:
                if rows:
                    with formatter.section(heading):
                        formatter.write_dl(rows)
                heading, rows = self.sections.get(getattr(parameter, "name", ""), heading), []
            record = None if parameter is None else parameter.get_help_record(ctx)
            if record is not None:
                rows.append(record)
