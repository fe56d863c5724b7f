"""Conversion of arrays, tensors, frames and lists to a table."""

import math
import os
import sys
from collections.abc import Iterable, Mapping, Set, Sized
from typing import Any

import numpy as np

from taut.data.column_selection import check_names, list_some
from taut.data.column_values import (
    as_column_values,
    check_finite,
    check_rows,
    stack_numbers,
    to_floats,
)
from taut.data.frames import FrameSource, is_frame
from taut.data.table import Table, TableStream
from taut.errors import ArgumentError, DataError


def as_table(data: Any, name: str = "data", *, min_rows: int = 2) -> Table:
    """Converts `data` to a sample: finite numbers, at least `min_rows` rows.

    A list or any other iterable is taken by its items: numbers make one column; lists of numbers
    and 1-D arrays are rows; arrays and frames of two or more dimensions are batches, and are
    concatenated (so stack a list of images first). Arrays of more than two
    dimensions are flattened, and `image_shape` keeps the shape of a row.

    Args:
        data: a numpy array, torch tensor, pandas DataFrame or Series, `Table`, `TableStream`,
            list of lists, or iterable of batches of these. It is copied, never changed.
        name: name in error messages.
        min_rows: smallest number of rows: 1 or 2.

    Returns:
        A `Table`; its columns have names if `data` has column names.

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
        raise DataError(name, rule="a sample must have rows", got=f"one number, {values!s}")
    if 0 in values.shape[1:]:
        raise DataError(name, rule="a sample must have columns", got=f"shape {values.shape}")
    shape = values.shape[1:] if values.ndim > 2 else None
    values = values.reshape(len(values), math.prod(values.shape[1:]))
    check_names(name, columns)
    check_finite(name, values, columns)
    if len(values) < min_rows:
        check_rows(name, len(values))
    if isinstance(data, TableStream):
        shape = data.image_shape
    return Table(values, columns, shape, name)


def _convert(data: Any, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the numbers in their own shape, and the names of their columns."""

    def refuse(rule: str, got: str = type(data).__name__, remedy: str = "") -> ArgumentError:
        return ArgumentError(name, rule=rule, got=got, remedy=remedy)

    torch = sys.modules.get("torch")  # without torch imported, data cannot be a tensor
    if torch is not None and isinstance(data, torch.Tensor):
        if data.layout != torch.strided or data.is_quantized or data.device.type == "meta":
            got = f"{data.layout}, {data.dtype}, on {data.device}"
            raise refuse("must be a dense tensor with values", got)
        data = data.detach().cpu().resolve_conj().resolve_neg()
        if data.dtype.is_floating_point and data.dtype != torch.float64:
            data = data.float()  # numpy has no bfloat16
        return to_floats(name, data.numpy()), ()
    if hasattr(data, "toarray"):
        raise refuse("must be dense", remedy="Use .toarray().")
    if is_frame(data):
        frame = FrameSource(data, name)
        return next(frame.blocks(max(1, frame.rows))), frame.columns
    if hasattr(data, "to_numpy"):
        title = getattr(data, "name", None)
        named = (title,) if isinstance(title, str) and title else ()
        return _from_cells(np.asarray(data.to_numpy())[:, None], name, named), named
    if isinstance(data, np.ma.MaskedArray) and data.dtype.kind in "biuf":
        to_floats(name, data.compressed())  # refuses whole numbers that would lose digits
        data = np.ma.filled(data.astype(np.float64), np.nan)
    if hasattr(data, "__array__"):
        return _from_cells(np.asarray(data), name), ()
    if isinstance(data, (str, os.PathLike)):
        remedy = "To read a file use taut.data.read_table."
        raise refuse("must be numbers", repr(data), remedy)
    if isinstance(data, Mapping):
        rule = "must be an array, frame or list of rows"
        raise refuse(rule, remedy="Use pandas.DataFrame(...) of it.")
    if isinstance(data, Iterable) and not isinstance(data, (bytes, bytearray, Set)):
        columns = data.columns if isinstance(data, TableStream) else ()
        return _from_items(list(iter(data)), name, columns)
    raise refuse("must be an array, tensor, frame, list of rows or iterable of batches")


def _from_items(
    items: list[Any], name: str, columns: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    if not items:
        check_rows(name, 0)
    items = [_inputs_of(item, name) for item in items]
    if not any(hasattr(item, "ndim") for item in items):
        return _from_rows(items, name), ()
    converted = [_convert(item, name) for item in items]
    first, named = converted[0][0], columns or converted[0][1]
    for at, (part, names) in enumerate(converted):
        if part.ndim != first.ndim or part.shape[part.ndim > 1 :] != first.shape[first.ndim > 1 :]:
            rule = "items must fit together; item 0 has shape {}, item {} has shape {}"
            raise DataError(name, rule=rule.format(first.shape, at, part.shape))
        if not columns and names != named:
            rule = "every batch must have the same columns; batch 0 has {}, batch {} has {}"
            message = rule.format(list_some(named), at, list_some(names))
            raise DataError(name, rule=message)
    parts = [part for part, _ in converted]
    return (np.concatenate(parts) if first.ndim > 1 else np.stack(parts)), named


def _inputs_of(item: Any, name: str) -> Any:
    """Unwraps a batch that a torch loader wraps in a list."""
    if isinstance(item, (list, tuple)) and item and getattr(item[0], "ndim", 0) > 1:
        first, *others = item
        if others:
            got = f"{len(item)} of them, as loaders with labels give"
            remedy = "Use (batch[0] for batch in data)."
            raise ArgumentError(name, rule="a batch must be one array", got=got, remedy=remedy)
        return first
    return item


def _from_rows(rows: list[Any], name: str) -> np.ndarray:
    """Converts Python lists of numbers or of rows."""
    try:
        cells = np.asarray(rows)
        # Beside fractions, whole numbers that lose digits must still be seen as such.
        large = cells.dtype.kind == "f" and bool((np.abs(cells) >= 2.0**53).any())
        if cells.dtype.kind not in "biufc" or large:
            cells = np.asarray(rows, dtype=object)
    except ValueError as error:
        lengths = [len(row) if isinstance(row, Sized) else 1 for row in rows]
        odd = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is None:
            raise DataError(name, rule="rows must be lists of numbers", got=str(error)) from error
        rule = f"every row must have as many cells as the first, {lengths[0]}; row {odd}"
        raise DataError(name, rule=f"{rule} (counted from 0) has {lengths[odd]}") from error
    return _from_cells(cells, name)


def _from_cells(cells: np.ndarray, name: str, columns: tuple[str, ...] = ()) -> np.ndarray:
    if cells.dtype.kind != "O":
        return to_floats(name, cells)
    rows = np.atleast_1d(cells)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    converted = [as_column_values(rows[:, i]) for i in range(rows.shape[1])]
    return stack_numbers(name, converted, columns).reshape(cells.shape)
