"""`taut data`: list, fetch and show datasets."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import DATASET, data_dir_option, json_option

if TYPE_CHECKING:
    from taut.data import LabelledData, OfficialSet, Table


@click.group()
def data() -> None:
    """List, download and inspect datasets.

    \b
    Examples:
      taut data list
      taut data fetch mnist --data-dir data
      taut data show digits
      taut data show wine.csv --label quality
    """


@data.command("list")
@data_dir_option
@json_option
def list_sets(data_dir: str | None, as_json: bool) -> None:
    """List the named datasets and their locations."""
    from taut.cli.output import print_json, print_table, say
    from taut.data import OFFICIAL_SETS, data_folder

    folder = data_folder(data_dir)
    digits = {
        "name": "digits",
        "title": "Optical Recognition of Handwritten Digits",
        "bytes": None,
        "found": "in taut",
        "missing": [],
    }
    sets = [digits, *(_describe(entry, folder) for entry in OFFICIAL_SETS.values())]
    if as_json:
        print_json({"data_dir": folder, "sets": sets})
        return
    rows = []
    for entry in sets:
        size = "-" if entry["bytes"] is None else f"{entry['bytes'] / 1e6:.1f} MB"
        location = entry["found"] or f"not found: taut data fetch {entry['name']}"
        if entry["found"] and entry["missing"]:
            location += f", without {', '.join(entry['missing'])}"
        rows.append((entry["name"], entry["title"], size, location))
    print_table(["name", "title", "download", "found in"], rows, left=(0, 1, 3))
    say(f"Data folder: {folder}")


@data.command()
@click.argument("name", type=DATASET)
@data_dir_option
@json_option
def fetch(name: str, data_dir: str | None, as_json: bool) -> None:
    """Download a dataset and verify its checksums.

    NAME is a name from `taut data list`. Running the same command again resumes an interrupted
    download. A file gets its final name only after its SHA-256 is verified; an existing file is
    verified but not downloaded again.

    \b
    Example:
      taut data fetch mnist --data-dir data
    """
    from taut.cli.output import announce_folders, print_json, progress
    from taut.data import OFFICIAL_SETS, data_folder, fetch
    from taut.errors import check_choice

    if name.lower() == "digits":
        click.echo("digits is part of taut; there is nothing to download.")
        return
    check_choice("data fetch", "name", name.lower(), list(OFFICIAL_SETS))
    dataset = OFFICIAL_SETS[name.lower()]
    folder = data_folder(data_dir) / dataset.name
    with announce_folders(folder), progress() as bar:

        def on_progress(file: str, done: int, total: int) -> None:
            bar(file, done, total, f"{done / 1e6:.1f}/{total / 1e6:.1f} MB")

        paths = fetch(dataset, folder, on_progress=on_progress)
    if as_json:
        print_json({"name": dataset.name, "files": paths})
    else:
        click.echo(f"{dataset.title} is complete in {paths[0].parent}")


@data.command()
@click.argument("name_or_path", type=DATASET)
@data_dir_option
@click.option(
    "--label", help="Label column: a name, or a zero-based index (-1 is the last column)."
)
@click.option("--test", type=click.Path(exists=True), help="Separate file with the test data.")
@json_option
def show(
    name_or_path: str, data_dir: str | None, label: str | None, test: str | None, as_json: bool
) -> None:
    """Show the size, classes and value range of a dataset.

    NAME_OR_PATH is a name from `taut data list`, a table, a .npz file, an IDX file or a folder of
    images. Data without labels is summarised column by column.

    \b
    Examples:
      taut data show digits
      taut data show mnist --data-dir data
      taut data show wine.csv --label quality
    """
    from taut.cli.output import print_json, print_table, say
    from taut.data import NoLabelError, load_labelled, read_table

    try:
        labelled = load_labelled(name_or_path, data_dir=data_dir, label=label, test=test)
        record, sentence, header, rows = _labelled(labelled)
    except NoLabelError:
        if label is not None or test is not None:
            raise
        record, sentence, header, rows = _unlabelled(read_table(name_or_path))
    if as_json:
        print_json(record)
        return
    say(sentence)
    if rows:
        print_table(header, rows)


def _describe(dataset: "OfficialSet", folder: Path) -> dict[str, Any]:
    paths = {file.name: dataset.find(file, folder) for file in dataset.files}
    folders = sorted({str(path.parent) for path in paths.values() if path})
    return {
        "name": dataset.name,
        "title": dataset.title,
        "bytes": sum(file.size for file in dataset.files),
        "found": ", ".join(folders) or None,
        "missing": [name for name, path in paths.items() if path is None],
    }


def _labelled(dataset: "LabelledData") -> tuple[dict[str, Any], str, list[str], list[list[str]]]:
    """The record, a sentence, and the header and the rows of a table."""
    train, test = dataset.train, dataset.test
    record = {
        "name": dataset.name,
        "shape": list(train.inputs.shape[1:]),
        "columns": list(train.columns),
        "min": float(min(train.inputs.min(), test.inputs.min())),
        "max": float(max(train.inputs.max(), test.inputs.max())),
        "range": None if train.low is None else [train.low, train.high],
        "classes": list(dataset.classes),
        "train": {"rows": len(train), "counts": list(train.counts)},
        "test": {"rows": len(test), "counts": list(test.counts)},
    }
    shape = " x ".join(map(str, record["shape"]))
    kind = f"images of {shape}" if len(record["shape"]) == 3 else f"rows of {shape} numbers"
    span = f"from {record['min']:g} to {record['max']:g}"
    rows = list(zip(dataset.classes, train.counts, test.counts, strict=True))
    table = [[str(cell) for cell in row] for row in [*rows, ("all", len(train), len(test))]]
    sentence = f"{dataset.name}: {kind}, {span}, {len(dataset.classes)} classes"
    return record, sentence, ["class", "train", "test"], table


def _unlabelled(sample: "Table") -> tuple[dict[str, Any], str, list[str], list[list[str]]]:
    record = {
        "name": sample.source,
        "rows": len(sample),
        "shape": list(sample.image_shape or (sample.dim,)),
        "columns": list(sample.columns),
        "min": float(sample.values.min()),
        "max": float(sample.values.max()),
        "classes": None,
    }
    named = sample.columns or [str(i) for i in range(min(sample.dim, 20))]
    rows = []
    if sample.image_shape is None:
        for name, column in zip(named, sample.values.T, strict=False):
            numbers = (column.min(), column.mean(), column.max())
            rows.append([name, *(f"{number:g}" for number in numbers)])
    sentence = f"{sample.source}: {len(sample)} rows of {sample.dim} numbers, no labels"
    return record, sentence, ["column", "min", "mean", "max"], rows
