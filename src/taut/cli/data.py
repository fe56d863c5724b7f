"""`taut data`: list, fetch and show data sets."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import data_dir_option, json_option

if TYPE_CHECKING:
    from taut.data import LabelledData, OfficialSet

__all__ = ["data"]


@click.group()
def data() -> None:
    """List, fetch and show data sets.

    \b
    Example:
      taut data list
      taut data fetch mnist --data-dir data
      taut data show digits
      taut data show wine.csv --label quality
    """


@data.command("list")
@data_dir_option
@json_option
def list_sets(data_dir: str | None, as_json: bool) -> None:
    """List the official data sets, and where they are."""
    from rich.console import Console

    from taut.cli.output import plain_table, say
    from taut.data import OFFICIAL_SETS, data_folder

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
    rows += [_describe(known, folder) for known in OFFICIAL_SETS.values()]
    if as_json:
        click.echo(json.dumps({"data_dir": str(folder), "sets": rows}))
        return
    table = plain_table("name", "title", "download", "found in", left=2)
    table.columns[3].justify = "left"
    for row in rows:
        size = "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f} MB"
        found = row["found"] or f"not found: taut data fetch {row['name']}"
        if row["found"] and row["missing"]:
            found += f", without {', '.join(row['missing'])}"
        table.add_row(row["name"], row["title"], size, found)
    Console().print(table)
    say(f"Data folder: {folder}")


@data.command()
@click.argument("name")
@data_dir_option
@json_option
def fetch(name: str, data_dir: str | None, as_json: bool) -> None:
    """Download an official data set and verify its checksums.

    The same command resumes an interrupted download. A file gets its name only when its SHA-256 is
    the official one; an existing file is only verified.

    \b
    Example:
      taut data fetch mnist --data-dir data
    """
    from rich.progress import DownloadColumn

    from taut.cli.output import progress_bars
    from taut.data import OFFICIAL_SETS, data_folder, fetch
    from taut.errors import check_choice

    if name.lower() == "digits":
        click.echo("digits is part of taut; there is nothing to download.")
        return
    check_choice("data fetch", "NAME", name.lower(), list(OFFICIAL_SETS))
    known = OFFICIAL_SETS[name.lower()]
    with progress_bars("{task.description:<26}", DownloadColumn()) as progress:
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
@data_dir_option
@click.option("--label", help="Label column, by name or position from 0.")
@click.option("--test", type=click.Path(exists=True), help="Second file, with the test data.")
@json_option
def show(
    name_or_path: str, data_dir: str | None, label: str | None, test: str | None, as_json: bool
) -> None:
    """Show the rows, classes and range of a data set.

    NAME_OR_PATH is a name of `taut data list`, a table, a .npz file, idx files or a folder of
    images. Data without labels is shown as a plain sample.

    \b
    Example:
      taut data show digits
      taut data show mnist --data-dir data
      taut data show wine.csv --label quality
    """
    from taut.data import NoLabelError, load_labelled

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

    from taut.cli.output import plain_table, say

    table = plain_table("class", "train", "test")
    for name, train, rest in zip(found.classes, found.train.counts, found.test.counts, strict=True):
        table.add_row(name, str(train), str(rest))
    table.add_section()
    table.add_row("all", str(len(found.train)), str(len(found.test)))
    say(_sentence(record))
    Console().print(table)


def _describe(known: "OfficialSet", folder: Path) -> dict[str, Any]:
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
        "min": float(min(train.inputs.min(), found.test.inputs.min())),
        "max": float(max(train.inputs.max(), found.test.inputs.max())),
        "range": None if train.low is None else [train.low, train.high],
        "classes": list(found.classes),
        "train": {"rows": len(train), "counts": list(train.counts)},
        "test": {"rows": len(found.test), "counts": list(found.test.counts)},
    }


def _sentence(record: dict[str, Any]) -> str:
    shape = " x ".join(map(str, record["shape"]))
    kind = f"images of {shape}" if len(record["shape"]) == 3 else f"rows of {shape} numbers"
    span = f"from {record['min']:g} to {record['max']:g}"
    return f"{record['name']}: {kind}, {span}, {len(record['classes'])} classes"


def _show_sample(path: str, as_json: bool) -> None:
    from rich.console import Console

    from taut.cli.output import plain_table, say
    from taut.data import read_table

    sample = read_table(path)
    record = {
        "name": sample.source,
        "rows": len(sample),
        "shape": list(sample.image_shape or (sample.dim,)),
        "columns": list(sample.columns),
        "min": float(sample.values.min()),
        "max": float(sample.values.max()),
        "classes": None,
    }
    if as_json:
        click.echo(json.dumps(record))
        return
    table = plain_table("column", "min", "mean", "max")
    named = sample.columns or [str(i) for i in range(min(sample.dim, 20))]
    for name, column in zip(named, sample.values.T, strict=False):
        table.add_row(
            name, *(f"{value:g}" for value in (column.min(), column.mean(), column.max()))
        )
    say(f"{sample.source}: {len(sample)} rows of {sample.dim} numbers, no labels")
    if sample.image_shape is None:
        Console().print(table)
