"""Labelled sets in files: tables with a column of labels, archives of two arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taut.data.arrays import npz_arrays
from taut.data.classes import name_classes
from taut.data.columns import Columns, list_some, select_positions
from taut.data.label_column import NoLabelError, find_label, has_header
from taut.data.numbers import check_finite, to_floats
from taut.data.parquet import ParquetSource
from taut.data.read import read_source
from taut.data.source import Source, subject_of
from taut.data.text import TextSource
from taut.errors import ArgumentError, DataError

__all__ = ["Named", "read_labelled_archive", "read_labelled_table"]

_INPUTS = ("x", "inputs", "images", "data", "features")
_LABELS = ("y", "labels", "label", "target", "targets")


class Named(NamedTuple):
    """Inputs, images as float32 and tables as they are, and the name of the class of each."""

    inputs: np.ndarray
    names: list[str]
    columns: tuple[str, ...]
    low: float | None
    high: float | None


def read_labelled_table(
    path: Path, kind: str, label: str | int | None = None, columns: Columns = None
) -> Named:
    """The rows of a text or parquet file, one column of which is the label.

    Args:
        path: the file.
        kind: `"text"` or `"parquet"`.
        label: see `taut.data.label_column.find_label`.
        columns: the inputs; all others by default.
    """
    subject = subject_of(path)
    if kind == "text":
        first = TextSource(path, header=False).first_row

        def cells_of(column: int) -> list[str]:
            return [row[0] for row in TextSource(path, [column], header=False).cells()]

        header = has_header(subject, first, label, cells_of)
        names, width = first if header else [], len(first)
        at = find_label(subject, names, width, label)
        raw = TextSource(path, [at], header=header).cells()
    else:
        names = ParquetSource(path, text=True).all_columns
        header, width = True, len(names)
        at = find_label(subject, names, width, label)
        raw = ParquetSource(path, [at], text=True).cells()
    chosen = select_positions(subject, names, width, columns)
    if at in chosen and columns is not None:
        raise ArgumentError(f"{subject}: `columns` must leave out the label; it is among them.")
    inputs = [i for i in chosen if i != at]
    if not inputs:
        raise DataError(f"{subject}: there must be a column beside the label; there is none.")
    source: Source = (
        TextSource(path, inputs, header=header) if kind == "text" else ParquetSource(path, inputs)
    )
    table = read_source(source, path.name)
    _check_range(subject, table.values, table.columns)
    labels = name_classes(subject, [row[0] for row in raw])
    return Named(table.values, labels, table.columns, None, None)


def read_labelled_archive(path: Path) -> tuple[Named, Named | None]:
    """The arrays x and y of a .npz file, or x_train, y_train, x_test and y_test."""
    subject = subject_of(path)
    arrays = {key.lower(): array for key, array in npz_arrays(path).items()}
    train = _two_arrays(subject, arrays, "_train")
    if train is not None:
        return train, _two_arrays(subject, arrays, "_test")
    if (whole := _two_arrays(subject, arrays, "")) is not None:
        return whole, None
    raise NoLabelError(
        f"{subject}: a labelled .npz file must hold arrays x and y, or x_train, y_train, x_test "
        f"and y_test; got {list_some(arrays)}."
    )


def _two_arrays(subject: str, arrays: dict[str, np.ndarray], ending: str) -> Named | None:
    inputs, labels = (
        [name + ending for name in names if name + ending in arrays] for names in (_INPUTS, _LABELS)
    )
    if not inputs or not labels:
        return None
    if len(inputs) > 1 or len(labels) > 1:
        raise DataError(
            subject=subject,
            rule="inputs and labels must be there once",
            got=str(list_some(inputs + labels)),
        )
    x, y = arrays[inputs[0]], arrays[labels[0]]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "biufU":
        raise DataError(
            subject=subject,
            rule=f"{labels[0]} must be one label a row",
            got=f"{y.dtype} of shape {y.shape}",
            remedy="Of one-hot rows take .argmax(1).",
        )
    if len(x) != len(y):
        raise DataError(
            f"{subject}: there must be a label for every input; {inputs[0]} has {len(x)} rows, "
            f"{labels[0]} has {len(y)}."
        )
    values, low, high = _as_images(subject, x)
    return Named(values, name_classes(subject, y.tolist()), (), low, high)


def _as_images(subject: str, values: np.ndarray) -> tuple[np.ndarray, float | None, float | None]:
    """Rows of numbers as they are; images with their channels first and bytes scaled to [0, 1]."""
    if values.ndim not in (2, 3, 4) or 0 in values.shape:
        raise DataError(
            subject=subject,
            rule="inputs must be rows of numbers, or images of shape (n, height, width), (n, "
            "channels, height, width) or (n, height, width, channels)",
            got=str(values.shape),
        )
    floats = to_floats(subject, values)
    _check_range(subject, floats.reshape(len(values), -1))
    if values.ndim == 2:
        return floats, None, None
    floats = floats.astype(np.float32, copy=False)
    if values.ndim == 3:
        floats = floats[:, None]
    elif values.shape[-1] in (1, 3) and values.shape[1] not in (1, 3):
        floats = np.ascontiguousarray(floats.transpose(0, 3, 1, 2))
    if values.dtype == np.uint8:
        floats /= np.float32(255)
    if 0 <= floats.min() and floats.max() <= 1:
        return floats, 0.0, 1.0
    return floats, None, None


def _check_range(subject: str, values: np.ndarray, names: Sequence[str] = ()) -> None:
    """Raises for what is not finite, in float32 either: squares of it must not overflow."""
    check_finite(subject, values, names)
    with np.errstate(over="ignore"):
        check_finite(subject, values.astype(np.float32, copy=False), names)
