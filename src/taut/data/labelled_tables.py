"""Labelled tables: text and parquet files, one column of which holds the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taut.data.column_selection import Columns, select_positions
from taut.data.column_values import check_finite
from taut.data.encoding import Encoding
from taut.data.encoding_fit import fit_encoding
from taut.data.format_detection import open_source
from taut.data.labelled import LabelledSet
from taut.data.labels import find_label, name_classes, number_classes
from taut.data.source_base import ColumnSource
from taut.data.table import read_source
from taut.errors import ArgumentError


@dataclass(frozen=True)
class TableOptions:
    """Options for the columns of a labelled table; see `load_labelled`.

    `encoding` takes the place of `columns`, `drop` and `categorical`.
    """

    label: str | int | None = None
    columns: Columns = None
    drop: Sequence[str | int] = ()
    categorical: Sequence[str | int] = ()
    names: Sequence[str] = ()
    encoding: Encoding | None = None

    @property
    def given(self) -> list[str]:
        """Names of the options that are set."""
        return [name for name, value in vars(self).items() if value is not None and value != ()]


def read_labelled_table(
    path: Path, options: TableOptions, classes: Sequence[str] | None
) -> LabelledSet:
    """Reads the rows of a text or parquet file, encoded if it holds more than numbers."""
    subject = f"data: {path.name}"
    source = open_source(path, options.names, options.label)
    assert isinstance(source, ColumnSource)
    at = find_label(subject, source.names, source.width, options.label)
    names = name_classes(subject, _cells(source, at))
    labels, class_names = number_classes(subject, names, classes)
    if options.encoding is not None:
        encoding: Encoding | None = options.encoding
        inputs: Any = encoding.select(source.names, subject)
    else:
        inputs = _select_inputs(source, at, options)
        fitted = fit_encoding(source, columns=inputs, categorical=options.categorical)
        encoding = None
        if fitted.mixed or len(fitted.used) < len(inputs):
            encoding, inputs = fitted, fitted.select(source.names, subject)
    table = read_source(source.select(inputs), encoding=encoding)
    check_range(subject, table.values, table.columns, missing=encoding is not None)
    return LabelledSet(
        table.values, labels, class_names, table.columns, None, None, path.name, encoding
    )


def _select_inputs(source: ColumnSource, label: int, options: TableOptions) -> list[int]:
    subject, names, width = source.subject, source.names, source.width
    positions = select_positions(subject, names, width, options.columns)
    if label in positions and options.columns is not None:
        raise ArgumentError(subject, "columns", "must leave out the label; it is among them")
    drop = list(options.drop)
    dropped = select_positions(subject, names, width, drop, "drop") if drop else []
    inputs = [i for i in positions if i != label and i not in dropped]
    if not inputs:
        raise source.refuse("there must be a column beside the label; there is none")
    return inputs


def _cells(source: ColumnSource, column: int) -> list[Any]:
    """The values of one column in every row."""
    blocks = source.select([column]).column_batches(2**16)
    return [c.strip() if isinstance(c, str) else c for (cells,) in blocks for c in cells.tolist()]


def check_range(
    subject: str, values: np.ndarray, names: Sequence[str] = (), missing: bool = False
) -> None:
    """Raises for values that are not finite in float32, the dtype of the network."""
    if missing:
        values = np.where(np.isnan(values), 0.0, values)
    check_finite(subject, values, names)
    with np.errstate(over="ignore"):
        check_finite(subject, values.astype(np.float32, copy=False), names)
