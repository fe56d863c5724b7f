"""Options that say what the columns of a table hold."""

import click

from taut.cli.parameters import POSITIVE, columns, encodings, option_group

# Options of a command that are those of `taut.data.fit_encoding`.
COLUMN_OPTIONS = (
    *("columns", "drop", "categorical", "encode"),
    *("category_distance", "missing_distance"),
)

column_options = option_group(
    click.option("--columns", type=columns, help="Columns to use: names or zero-based indices."),
    click.option("--drop", type=columns, help="Columns to leave out."),
    click.option("--categorical", type=columns, help="Numeric columns to treat as categories."),
    click.option(
        "--encode",
        type=encodings,
        multiple=True,
        metavar="COLUMN=KIND",
        help="Encoding of one column: number, category, category:2 (distance 2 between categories), "
        "date, time, or ordered categories from first to last, as in 'size=S<M<L'; repeatable.",
    ),
    click.option(
        "--names", type=columns, help="Names of all columns, for tables without a header."
    ),
    click.option(
        "--category-distance",
        type=POSITIVE,
        default=1.0,
        help="Distance between two different categories.",
    ),
    click.option(
        "--missing-distance",
        type=POSITIVE,
        default=1.0,
        help="Distance between a missing number and the centre of its column.",
    ),
)
