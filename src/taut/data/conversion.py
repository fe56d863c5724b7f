"""`as_table`: arrays, tensors, frames and lists become a table."""

import os
import sys
from collections.abc import Iterable, Mapping, Set, Sized
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from taut.data.columns import check_names, column_label, list_some
from taut.data.numbers import check_finite, check_rows, check_whole, refuse_text, to_floats
from taut.data.stream import TableStream
from taut.data.table import Table
from taut.errors import ArgumentError, DataError

__all__ = ["as_table"]


def as_table(data: Any, name: str = "data", *, min_rows: int = 2) -> Table:
    """The sample that `data` holds: finite numbers, at least `min_rows` rows.

    A list or any other iterable is taken by its items: numbers make one column; lists of numbers
    and 1-D arrays are rows; arrays and frames of two or more dimensions are batches, and put one
    after the other (a list of images is therefore to be stacked first). Arrays of more than two
    dimensions are made flat, and `image_shape` keeps the shape of a row.

    Args:
        data: a numpy array, torch tensor, pandas DataFrame or Series, `Table`, `TableStream`,
            list of lists, or iterable of batches of these. It is copied, never changed.
        name: name in error messages.
        min_rows: smallest number of rows: 1 or 2.

    Returns:
        A `Table`; its columns have names where a frame gives names.

    Example:
        >>> as_table([[1, 2], [3, 4], [5, 6]])
        Table(3 x 2, float64, from data)
        >>> as_table(torch.zeros(10, 1, 28, 28)).image_shape
        (1, 28, 28)
    """
    if isinstance(data, Table):
        return data
    values, columns = _convert(data, name)
    if values.ndim == 0:
        raise DataError(subject=name, rule="a sample must have rows", got=f"one number, {values!s}")
    shape = values.shape[1:] if values.ndim > 2 else None
    if 0 in values.shape[1:]:
        raise DataError(
            subject=name, rule="a sample must have columns", got=f"shape {values.shape}"
        )
    values = values.reshape(len(values), -1) if len(values) else values.reshape(0, 1)
    check_names(name, columns)
    check_finite(name, values, columns)
    if len(values) < min_rows:
        check_rows(name, len(values))
    if isinstance(data, TableStream):
        shape = data.image_shape
    return Table(values, columns, shape, name)


def _convert(data: Any, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The numbers in the shape they came in, and the names of their columns."""
    torch = sys.modules.get("torch")  # a tensor cannot come from a torch that is not imported
    if torch is not None and isinstance(data, torch.Tensor):
        return _from_tensor(data, name, torch), ()
    if hasattr(data, "toarray"):
        raise ArgumentError(
            subject=name,
            rule="must be dense",
            got=str(type(data).__name__),
            remedy="Use .toarray().",
        )
    if hasattr(data, "to_numpy") and hasattr(data, "columns"):
        return _from_frame(data, name)
    if hasattr(data, "to_numpy"):
        title = getattr(data, "name", None)
        named = (title,) if isinstance(title, str) and title else ()
        return _from_cells(np.asarray(data.to_numpy())[:, None], name, named), named
    if isinstance(data, np.ma.MaskedArray) and data.dtype.kind in "biuf":
        data = np.ma.filled(data.astype(np.float64), np.nan)
    if hasattr(data, "__array__"):
        return _from_cells(np.asarray(data), name), ()
    if isinstance(data, (str, os.PathLike)):
        raise ArgumentError(
            subject=name,
            rule="must be numbers",
            got=repr(data),
            remedy="To read a file use taut.data.read_table.",
        )
    if isinstance(data, Mapping):
        raise ArgumentError(
            subject=name,
            rule="must be an array, frame or list of rows",
            got=f"a {type(data).__name__}",
            remedy="Use pandas.DataFrame(...) of it.",
        )
    if isinstance(data, Iterable) and not isinstance(data, (bytes, bytearray, Set)):
        items = list(iter(data))
        columns = data.columns if isinstance(data, TableStream) else ()
        return _from_items(items, name, columns)
    raise ArgumentError(
        subject=name,
        rule="must be an array, tensor, frame, list of rows or iterable of batches",
        got=str(type(data).__name__),
    )


def _from_tensor(data: Any, name: str, torch: Any) -> np.ndarray:
    if data.layout != torch.strided or data.is_quantized or data.device.type == "meta":
        raise ArgumentError(
            subject=name,
            rule="must be a dense tensor with values",
            got=f"{data.layout}, {data.dtype}, on {data.device}",
        )
    data = data.detach().cpu().resolve_conj().resolve_neg()
    if data.dtype.is_floating_point and data.dtype != torch.float64:
        data = data.float()  # numpy has no bfloat16
    return to_floats(name, data.numpy())


def _from_frame(frame: Any, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    titles = list(frame.columns)
    if not titles:
        raise DataError(subject=name, rule="a frame must have columns", got="none")
    # A frame made of a bare array counts its columns; positions are no names.
    columns = () if titles == list(range(len(titles))) else tuple(str(title) for title in titles)
    check_names(name, columns)
    cells = [np.asarray(frame[title].to_numpy()) for title in titles]
    if any(column.dtype.kind in "OUST" for column in cells):
        objects = np.empty((len(cells[0]), len(cells)), object)
        for i, column in enumerate(cells):
            objects[:, i] = column
        return _from_cells(objects, name, columns), columns
    floats = [
        to_floats(f"{name}: column {column_label(columns, i)}", column)
        for i, column in enumerate(cells)
    ]
    return np.stack(floats, axis=1), columns


def _from_items(
    items: list[Any], name: str, columns: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    if not items:
        raise DataError(subject=name, rule="a sample must have at least two rows", got="none")
    items = [_inputs_of(item, name) for item in items]
    if not any(hasattr(item, "ndim") for item in items):
        return _from_rows(items, name), ()
    converted = [_convert(item, name) for item in items]
    parts = [part for part, _ in converted]
    named = columns or converted[0][1]
    for at, (part, names) in enumerate(converted):
        if _kind(part) != _kind(parts[0]):
            raise DataError(
                f"{name}: items must fit together; item 0 has shape {parts[0].shape}, "
                f"item {at} has shape {part.shape}."
            )
        if not columns and names != named:
            raise DataError(
                f"{name}: every batch must have the same columns; batch 0 has {list_some(named)}, "
                f"batch {at} has {list_some(names)}."
            )
    return (np.concatenate(parts) if parts[0].ndim > 1 else np.stack(parts)), named


def _kind(part: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """Equal for batches of equal rows, and for equal rows."""
    return part.ndim, part.shape[1:] if part.ndim > 1 else part.shape


def _inputs_of(item: Any, name: str) -> Any:
    """The one array of a batch that a torch loader wraps in a list."""
    if isinstance(item, (list, tuple)) and item and getattr(next(iter(item)), "ndim", 0) > 1:
        if len(item) > 1:
            raise ArgumentError(
                subject=name,
                rule="a batch must be one array",
                got=f"{len(item)} of them, as loaders with labels give",
                remedy="Use (batch[0] for batch in data).",
            )
        return next(iter(item))
    return item


def _from_rows(rows: list[Any], name: str) -> np.ndarray:
    """Numbers, or rows of numbers, as plain Python holds them."""
    try:
        cells = np.asarray(rows)
        if cells.dtype.kind not in "biufc":
            cells = np.asarray(rows, dtype=object)
    except ValueError as error:
        lengths = [len(row) if isinstance(row, Sized) else 1 for row in rows]
        odd = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is None:
            raise DataError(f"{name}: rows must be lists of numbers; got: {error}.") from error
        raise DataError(
            f"{name}: every row must have as many cells as the first, {lengths[0]}; "
            f"row {odd} (counted from 0) has {lengths[odd]}."
        ) from error
    return _from_cells(cells, name)


def _from_cells(cells: np.ndarray, name: str, columns: tuple[str, ...] = ()) -> np.ndarray:
    if cells.dtype.kind != "O":
        return to_floats(name, cells)
    flat = [_number(cell, name) for cell in cells.flat]
    odd = [i for i, number in enumerate(flat) if number is None]
    if odd:
        width = cells.size // max(1, len(cells)) if cells.ndim > 1 else 1
        first = {}
        for i in odd:
            first.setdefault(i % width, i)
        where = sorted(first)
        examples = [cells.flat[first[column]] for column in where]
        refuse_text(name, [column_label(columns, i) for i in where], examples, option="")
    return np.array(flat, dtype=np.float64).reshape(cells.shape)


def _number(cell: Any, name: str) -> float | None:
    """The number that an object is: NaN where it stands for a missing one, `None` where it is none."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return float("nan")
    if isinstance(cell, Integral):
        check_whole(name, int(cell))
    return float(cell) if isinstance(cell, (Real, Decimal, np.bool_)) else None
