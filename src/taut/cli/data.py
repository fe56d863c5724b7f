"""`taut data`: which data sets there are, how to get them, what is in them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from taut.data import LabelledData
    from taut.data.known import KnownSet

__all__ = ["data"]

_data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where data sets are kept.  [default: TAUT_DATA, else the cache of the user]",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@click.group()
def data() -> None:
    """List, fetch and look at data sets.

    \b
    Example:
      taut data list
      taut data fetch mnist --data-dir data
      taut data show digits
      taut data show wine.csv --label quality
    """


@data.command("list")
@_data_dir
@_as_json
def list_sets(data_dir: Path | None, as_json: bool) -> None:
    """List the data sets that are known by name, and where they are."""
    from rich.console import Console

    from taut.data.known import KNOWN, data_folder

    folder = data_folder(data_dir)
    rows: list[dict[str, Any]] = [
        {
            "name": "digits",
            "title": "Optical Recognition of Handwritten Digits",
            "bytes": None,
            "found": "in taut",
            "missing": [],
        }
    ]
    rows += [_describe(known, folder) for known in KNOWN.values()]
    if as_json:
        click.echo(json.dumps({"data_dir": str(folder), "sets": rows}))
        return
    table = _plain_table()
    for title in ("name", "title", "to fetch", "found in"):
        table.add_column(title, overflow="fold", justify="right" if title == "to fetch" else "left")
    for row in rows:
        size = "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f} MB"
        found = row["found"] or f"not found: taut data fetch {row['name']}"
        if row["found"] and row["missing"]:
            found += f", without {', '.join(row['missing'])}"
        table.add_row(row["name"], row["title"], size, found)
    console = Console()
    console.print(table)
    console.print(f"Looked in {folder}", highlight=False, markup=False, soft_wrap=True)


@data.command()
@click.argument("name")
@_data_dir
@_as_json
def fetch(name: str, data_dir: Path | None, as_json: bool) -> None:
    """Fetch a known data set, with checksums.

    What broke off is resumed by the same command. A file gets its name only when its SHA-256 is
    the official one; one that is there already is only checked.

    \b
    Example:
      taut data fetch mnist --data-dir data
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from taut.data.fetch import fetch
    from taut.data.known import KNOWN, data_folder
    from taut.errors import check_choice

    if name.lower() == "digits":
        click.echo("digits comes with taut; nothing is to be fetched.")
        return
    check_choice("data fetch", "NAME", name.lower(), list(KNOWN))
    known = KNOWN[name.lower()]
    columns = (TextColumn("{task.description:<26}"), BarColumn(), DownloadColumn())
    # Progress is for people: it must not mix with what a program reads.
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bars = {file.name: progress.add_task(file.name, total=file.size) for file in known.files}

        def on_progress(file: str, done: int, total: int) -> None:
            progress.update(bars[file], completed=done)

        paths = fetch(known, data_folder(data_dir) / known.name, on_progress=on_progress)
    if as_json:
        click.echo(json.dumps({"name": known.name, "files": [str(path) for path in paths]}))
    else:
        click.echo(f"{known.title} is complete in {paths[0].parent}")


@data.command()
@click.argument("name_or_path")
@_data_dir
@click.option("--label", help="The column of the classes, by name or position from 0.")
@click.option("--test", type=click.Path(exists=True), help="A second file, of what to test on.")
@_as_json
def show(
    name_or_path: str, data_dir: Path | None, label: str | None, test: str | None, as_json: bool
) -> None:
    """Show what a data set holds: rows, classes, range.

    NAME_OR_PATH is a name of `taut data list`, a table, a .npz file, idx files or a folder of
    images. Without labels it is shown as a plain sample.

    \b
    Example:
      taut data show digits
      taut data show mnist --data-dir data
      taut data show wine.csv --label quality
    """
    from taut.data import load_labelled
    from taut.data.label_column import NoLabelError

    try:
        found = load_labelled(name_or_path, data_dir=data_dir, label=label, test=test)
    except NoLabelError:
        if label is not None or test is not None:
            raise
        _show_sample(name_or_path, as_json)
        return
    record = _record(found)
    if as_json:
        click.echo(json.dumps(record))
        return
    from rich.console import Console

    table = _plain_table()
    table.add_column("class")
    table.add_column("train", justify="right")
    table.add_column("test", justify="right")
    for name, train, rest in zip(found.classes, found.train.counts, found.test.counts, strict=True):
        table.add_row(name, str(train), str(rest))
    table.add_section()
    table.add_row("all", str(len(found.train)), str(len(found.test)))
    console = Console()
    console.print(_sentence(record), highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def _describe(known: "KnownSet", folder: Path) -> dict[str, Any]:
    places = {file.name: known.find(file, folder) for file in known.files}
    found = sorted({str(path.parent) for path in places.values() if path})
    return {
        "name": known.name,
        "title": known.title,
        "bytes": sum(file.size for file in known.files),
        "found": ", ".join(found) or None,
        "missing": [name for name, path in places.items() if path is None],
    }


def _record(found: "LabelledData") -> dict[str, Any]:
    train = found.train
    return {
        "name": found.name,
        "shape": list(train.inputs.shape[1:]),
        "columns": list(train.columns),
        "least": float(min(train.inputs.min(), found.test.inputs.min())),
        "greatest": float(max(train.inputs.max(), found.test.inputs.max())),
        "range": None if train.low is None else [train.low, train.high],
        "classes": list(found.classes),
        "train": {"rows": len(train), "counts": list(train.counts)},
        "test": {"rows": len(found.test), "counts": list(found.test.counts)},
    }


def _sentence(record: dict[str, Any]) -> str:
    shape = " x ".join(map(str, record["shape"]))
    kind = f"images of {shape}" if len(record["shape"]) == 3 else f"rows of {shape} numbers"
    span = f"from {record['least']:g} to {record['greatest']:g}"
    return f"{record['name']}: {kind}, {span}, {len(record['classes'])} classes"


def _show_sample(path: str, as_json: bool) -> None:
    from rich.console import Console

    from taut.data import read_table

    sample = read_table(path)
    record = {
        "name": sample.source,
        "rows": len(sample),
        "shape": list(sample.image_shape or (sample.dim,)),
        "columns": list(sample.columns),
        "least": float(sample.values.min()),
        "greatest": float(sample.values.max()),
        "classes": None,
    }
    if as_json:
        click.echo(json.dumps(record))
        return
    table = _plain_table()
    for title in ("column", "least", "mean", "greatest"):
        table.add_column(title, justify="left" if title == "column" else "right")
    named = sample.columns or [str(i) for i in range(min(sample.dim, 20))]
    for name, column in zip(named, sample.values.T, strict=False):
        table.add_row(
            name, *(f"{value:g}" for value in (column.min(), column.mean(), column.max()))
        )
    console = Console()
    text = f"{sample.source}: {len(sample)} rows of {sample.dim} numbers, no labels"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    if sample.image_shape is None:
        console.print(table)


def _plain_table() -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
