"""What users pass as a data set, as a matrix of numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taut.errors import ArgumentError

__all__ = ["as_samples"]


def as_samples(subject: str, name: str, data: Any) -> tuple[Tensor, tuple[str, ...] | None]:
    """A data set as `(n, dim)` in float64, and the names of its columns where it has some.

    Takes arrays, tensors, data frames, and iterables of batches of these. One dimension is one
    feature; more than two are flattened.

    Args:
        subject: whose argument this is, for errors.
        name: what the argument is called.
        data: the data set.

    Raises:
        ArgumentError: what came is empty, not numeric, or not finite; the text says where.

    Example:
        >>> as_samples("example", "x", [[1.0, 2.0], [3.0, 4.0]])[0].shape
        torch.Size([2, 2])
    """
    columns = tuple(map(str, data.columns)) if hasattr(data, "columns") else None
    if columns is not None:
        text = [c for c in data.columns if not np.issubdtype(np.asarray(data[c]).dtype, np.number)]
        if text:
            raise ArgumentError(
                f"{subject}: `{name}` must hold numbers; got text or objects in the columns "
                f"{', '.join(map(repr, text))}. Drop or encode them."
            )
    array = _as_array(subject, name, data)
    if array.ndim == 0 or array.size == 0:
        raise ArgumentError(f"{subject}: `{name}` must not be empty; got shape {array.shape}.")
    points = array.reshape(len(array), -1)
    bad = ~np.isfinite(points)
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        where = columns[column] if columns else column
        raise ArgumentError(
            f"{subject}: `{name}` must be finite; got {int(bad.sum())} missing or infinite values, "
            f"the first in row {row}, column {where}. Drop or fill them."
        )
    return torch.from_numpy(np.ascontiguousarray(points)), columns


def _as_array(subject: str, name: str, data: Any) -> np.ndarray:
    if isinstance(data, Tensor):
        return data.detach().cpu().double().numpy()
    if isinstance(data, Iterable) and not hasattr(data, "__len__"):
        batches = [_as_array(subject, name, batch) for batch in data]
        if not batches:
            raise ArgumentError(f"{subject}: `{name}` must not be empty; got no batches.")
        return np.concatenate(batches)
    array = np.asarray(data)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ArgumentError(
            f"{subject}: `{name}` must hold numbers; got an array of {array.dtype}. "
            "Drop or encode what is text."
        )
    if np.iscomplexobj(array):
        raise ArgumentError(f"{subject}: `{name}` must be real; got complex numbers.")
    return array.astype(np.float64)
