"""`load_labelled` and `read_labelled`: labelled data by name or path."""

import os
from collections.abc import Sequence
from pathlib import Path

from taut.data.column_selection import Columns, list_some
from taut.data.download import Progress, fetch_file
from taut.data.encoding import Encoding
from taut.data.format_detection import PathLike, detect_format
from taut.data.labelled import LabelledData, LabelledSet
from taut.data.labelled_files import (
    pair_idx,
    parse_cifar,
    read_digits,
    read_idx_folder,
    read_idx_pair,
    read_image_classes,
    read_labelled_npz,
)
from taut.data.labelled_tables import TableOptions, read_labelled_table
from taut.data.labels import NoLabelError
from taut.data.official_sets import OFFICIAL_SETS, OfficialSet, data_folder
from taut.errors import ArgumentError, DataError, did_you_mean


def load_labelled(
    name_or_path: PathLike,
    *,
    data_dir: PathLike | None = None,
    label: str | int | None = None,
    columns: Columns = None,
    drop: Sequence[str | int] = (),
    categorical: Sequence[str | int] = (),
    names: Sequence[str] = (),
    test: PathLike | None = None,
    download: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> LabelledData:
    """Loads the training and test part of a labelled data set.

    Images are `(n, channels, height, width)` in [0, 1] and float32; tables of numbers are kept as they
    are, in float64 where float32 would round them. Categories, dates, times and missing values are
    encoded (see `taut.data.fit_encoding`). Every value is finite, in float32 too. Data that has no
    test part of its own is split, stratified by class.

    Args:
        name_or_path: `digits`, which is part of taut; `mnist`, `fashion-mnist` or `cifar10`, whose
            official files are read only after their checksum; or the path of

            - .csv, .tsv or .parquet, one column of which is the label: whole numbers or words;
            - .npz with arrays x and y, or x_train, y_train, x_test, y_test;
            - a folder with a folder of images for each class, or such folders in `train` and `test`;
            - an idx file, or a folder of four, named as MNIST's are;
            - a .tar.gz archive in the binary format of CIFAR-10.
        data_dir: folder of the named sets, which may have a folder of their own in it; by default
            the variable `TAUT_DATA`, or else the user's cache.
        label: label column, by name, or by position, from the end if negative; by default the one
            called label, target, class or y. A table without a header has positions alone.
        columns: columns of the inputs; by default all but the label.
        drop: columns to leave out.
        categorical: columns that hold categories, even if they look like numbers.
        names: names of all columns, for a table without a header.
        test: second file or folder, with the test data; read as `read_labelled` does.
        download: whether to download missing files into the folder of the set in `data_dir`.
        test_fraction: share of the test part if the data has none.
        seed: random seed of the test part.
        on_progress: see `taut.data.download.fetch_file`.

    Raises:
        ArgumentError: no such name, file or column.
        DataError: the content is not labelled data; says where and why.
        DamagedFileError: a file is cut short, altered or not what its name says.
        FetchError: no mirror provided a file.

    Example:
        >>> data = load_labelled("digits")
        >>> data.train.inputs.shape, data.test.inputs.shape, data.train.high
        ((1438, 1, 8, 8), (359, 1, 8, 8), 1.0)
    """
    name = os.fspath(name_or_path)
    official = OFFICIAL_SETS.get(name.lower())
    options = TableOptions(label, columns, drop, categorical, names)
    if official or name.lower() == "digits":
        if options.given or test is not None:
            rule = f"`label`, `columns` and `test` must be left out for {name}, a named data set"
            raise ArgumentError("load_labelled", rule=f"{rule}; they are for files")
        if official:
            return _load_official(official, data_folder(data_dir), download, on_progress)
        return LabelledData(*read_digits().split(test_fraction, seed), "digits")
    path = _find_path("load_labelled", name)
    train, rest = _read_path(path, options, None)
    if test is not None:
        if rest is not None:
            rule = f"must be left out where the data has a test part of its own, as {path.name} has"
            raise ArgumentError("load_labelled", "test", rule, test)
        rest = read_matching(
            test,
            data_dir=data_dir,
            label=label,
            columns=columns or train.columns,
            classes=train.classes,
            names=names,
            encoding=train.encoding,
        )
    if rest is None:
        train, rest = train.split(test_fraction, seed)
    return LabelledData(train, rest, path.name)


def read_labelled(
    name_or_path: PathLike,
    *,
    data_dir: PathLike | None = None,
    label: str | int | None = None,
    columns: Columns = None,
    classes: Sequence[str] | None = None,
    names: Sequence[str] = (),
    encoding: Encoding | None = None,
) -> LabelledSet:
    r"""Reads all rows of a labelled file in order; for data in two parts, the test part.

    The arguments are those of `load_labelled`, with two more for a trained network. Labels are indices
    into `classes`, whatever the classes of the file and their order; a row of another class raises
    `DataError`. By default the classes are those that occur, at least two. `encoding` is that of the
    training data, in place of `columns`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "new.csv")
        >>> _ = path.write_text("height,kind\n3,oak\n5,ash\n4,oak\n")
        >>> read_labelled(path, label="kind", classes=("yew", "oak", "ash")).labels
        array([1, 2, 1])
    """
    name = os.fspath(name_or_path)
    if name.lower() in ("digits", *OFFICIAL_SETS):
        part = load_labelled(name, data_dir=data_dir, label=label, columns=columns).test
    else:
        options = TableOptions(label, columns, names=names, encoding=encoding)
        whole, rest = _read_path(_find_path("read_labelled", name), options, classes)
        part = whole if rest is None else rest
    return part if classes is None else part.with_classes(classes)


def read_matching(
    name_or_path: PathLike,
    *,
    columns: Columns,
    classes: Sequence[str],
    data_dir: PathLike | None = None,
    label: str | int | None = None,
    names: Sequence[str] = (),
    encoding: Encoding | None = None,
) -> LabelledSet:
    """Reads all rows of a labelled file with the columns and classes of another one.

    The arguments are those of `read_labelled`. If both are tables, columns are matched by name: the file
    may have them in any order and may have more; a missing one raises `DataError`. If this is not a table,
    `columns` is ignored.
    """
    path = Path(os.path.expanduser(name_or_path))
    is_table = path.is_file() and detect_format(path) in ("text", "parquet")
    selected = list(columns) if columns and is_table and encoding is None else None
    try:
        return read_labelled(
            name_or_path,
            data_dir=data_dir,
            label=label,
            columns=selected,
            classes=classes,
            names=names if is_table else (),
            encoding=encoding if is_table else None,
        )
    except ArgumentError as error:
        if selected is None or error.argument != "columns":
            raise
        rule = (
            "the table must have the columns that the network is trained on, "
            f"{list_some(selected, 20)}, in any order"
        )
        got = f"none called {error.got}"
        raise DataError(f"data: {path.name}", rule=rule, got=got) from error


def _find_path(subject: str, name: str) -> Path:
    path = Path(os.path.expanduser(name))
    if path.exists():
        return path
    if Path(name.rpartition(":")[0] or name).exists():
        rule = (
            f"must be a whole file or folder; {path.name!r} names a part of one, which has "
            "no labels"
        )
        raise NoLabelError(subject, "name_or_path", rule)
    known = ["digits", *OFFICIAL_SETS]
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    rule = f"must be {', '.join(known)}, or a file or folder that exists"
    remedy = did_you_mean(repr(name), map(repr, [*known, *map(str, beside)]))
    raise ArgumentError(subject, "name_or_path", rule, repr(name), remedy)


def _load_official(
    official: OfficialSet, folder: Path, download: bool, on_progress: Progress | None
) -> LabelledData:
    existing = [official.find(file, folder) for file in official.files]
    missing = [file for file, path in zip(official.files, existing, strict=True) if path is None]
    if missing and not download:
        raise ArgumentError(
            "load_labelled",
            rule=f"the files of {official.title} must be in {folder / official.name} or {folder}; not "
            f"there: {', '.join(file.name for file in missing)}",
            remedy="Pass data_dir or set TAUT_DATA to where they are, or fetch them: taut data "
            f"fetch {official.name}.",
        )
    paths = [
        path or fetch_file(file, official.mirrors, folder / official.name, on_progress=on_progress)
        for file, path in zip(official.files, existing, strict=True)
    ]
    subjects = [f"data: {path.name}" for path in paths]
    contents = (official.read(file, path) for file, path in zip(official.files, paths, strict=True))
    if official.name == "cifar10":
        return LabelledData(*parse_cifar(subjects[0], next(contents)), official.name)
    train, test = (
        pair_idx(
            f"{official.title} {part}", next(contents), subject, next(contents), official.classes
        )
        for part, subject in (("train", subjects[1]), ("test", subjects[3]))
    )
    return LabelledData(train, test, official.name)


def _read_path(
    path: Path, options: TableOptions, classes: Sequence[str] | None
) -> tuple[LabelledSet, LabelledSet | None]:
    if path.name.lower().endswith((".tar.gz", ".tar")):
        return parse_cifar(f"data: {path.name}", path.read_bytes())
    kind = detect_format(path)
    if kind in ("text", "parquet"):
        return read_labelled_table(path, options, classes), None
    if set_options := options.given:
        rule = "must be left out unless the file is a table"
        raise ArgumentError("load_labelled", set_options[0], rule, path.name)
    match kind:
        case "npz":
            return read_labelled_npz(path, classes)
        case "idx":
            return read_idx_pair(path), None
        case "folder":
            return read_idx_folder(path) or read_image_classes(path, classes)
    rule = f"must hold labels; {path.name} cannot"
    remedy = "Put the arrays x and y in one .npz file: numpy.savez(path, x=x, y=y)."
    raise NoLabelError("load_labelled", "name_or_path", rule, remedy=remedy)
