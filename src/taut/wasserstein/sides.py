"""What may be passed as a data set: held in memory, or read anew as often as it is asked for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from taut.data import Table, TableStream, in_memory
from taut.data.columns import choose, label, list_some
from taut.errors import ArgumentError, DataError

__all__ = [
    "BatchStream",
    "Side",
    "batches_of",
    "hold",
    "name_columns",
    "name_constant_columns",
    "open_side",
]

_BATCH_CELLS = 2**20
# 512 MB of float64.
_MOST_CELLS = 2**26


class BatchStream:
    """An iterable of batches that can be walked through again, such as a loader, never held whole.

    Attributes:
        columns: the names, or none where the batches have no names.
        dim: how many columns there are.
        image_shape: the shape of one row before it was made flat, where rows are images.
        source: what errors call it.
    """

    def __init__(self, data: Iterable[Any], name: str, first: Table) -> None:
        self._data = data
        self._chosen: list[int] | None = None
        self.columns = first.columns
        self.dim = first.dim
        self.image_shape = first.image_shape
        self.source = name

    def __iter__(self) -> Iterator[Table]:
        for at, item in enumerate(self._data):
            batch = in_memory([item], f"{self.source}, batch {at}", least=1)
            if self._chosen is not None:
                batch = batch.select(self._chosen)
            if batch.dim != self.dim or batch.columns != self.columns:
                raise DataError(
                    f"{self.source}: every batch must have the columns of the first, {self.dim} of "
                    f"them; batch {at} has {batch.dim}, or other names."
                )
            yield batch

    def select(self, columns: Sequence[str | int]) -> "BatchStream":
        """The same stream with the chosen columns, in the order of the choice."""
        chosen = choose(self.source, self.columns, self.dim, columns)
        before = list(range(self.dim)) if self._chosen is None else self._chosen
        other = object.__new__(BatchStream)
        other.__dict__.update(self.__dict__)
        other._chosen = [before[i] for i in chosen]
        other.columns = tuple(self.columns[i] for i in chosen) if self.columns else ()
        other.dim = len(chosen)
        other.image_shape = self.image_shape if chosen == list(range(self.dim)) else None
        return other


Side = Table | TableStream | BatchStream


def open_side(data: Any, name: str, least: int = 2) -> Side:
    """The sample that `data` is: a stream where it can be read again, else a table in memory.

    Args:
        data: an array, tensor, data frame, list of rows, `Table`, `TableStream`, or iterable of
            batches. An iterable that can be walked through again is a stream; an iterator, or what
            gives the same one each time, is read into memory.
        name: what errors call it.
        least: how many rows a sample in memory must have.

    Example:
        >>> open_side(torch.zeros(3, 2), "x")
        Table(3 x 2, float32, from x)
    """
    if isinstance(data, (Table, TableStream, BatchStream)):
        return data
    held = isinstance(data, (Iterator, Sequence, Mapping, Set, Tensor)) or any(
        hasattr(data, mark) for mark in ("__array__", "to_numpy", "toarray", "columns")
    )
    # One iterator for all who ask can be walked through once: a look at its start would be a loss.
    if not held and isinstance(data, Iterable) and (walk := iter(data)) is not iter(data):
        first = next(walk, None)
        if first is None:
            raise DataError(f"{name}: a sample must have at least two rows; got no batches.")
        inner = first[0] if isinstance(first, (list, tuple)) and first else first
        # Single rows and numbers, as of a set of points, are small enough to be held.
        if getattr(inner, "ndim", 0) > 1:
            return BatchStream(data, name, in_memory([first], name, least=1))
    return in_memory(data, name, least=least)


def batches_of(side: Side) -> Iterator[Tensor]:
    """The rows from the first, `(n, dim)` at a time, of the dtype they have."""
    if isinstance(side, Table):
        rows = max(1, _BATCH_CELLS // side.dim)
        for start in range(0, len(side), rows):
            yield torch.from_numpy(side.values[start : start + rows])
        return
    for batch in side:
        yield torch.from_numpy(batch.values if isinstance(batch, Table) else batch)


def hold(side: Side, subject: str) -> Tensor:
    """All rows in memory, `(n, dim)` in float64.

    Raises:
        ArgumentError: a stream of more than 2**26 numbers.
    """
    if isinstance(side, Table):
        return torch.from_numpy(side.values).double()
    parts, cells = [], 0
    for batch in batches_of(side):
        parts.append(batch.double())
        cells += batch.numel()
        if cells > _MOST_CELLS:
            raise ArgumentError(
                f"{subject}: `population=False` holds both sets in memory, so a stream must have at "
                f"most {_MOST_CELLS // side.dim} rows of {side.dim} columns; {side.source} has more. "
                "Compare populations (population=True), which streams, or take a sample of its rows."
            )
    return torch.cat(parts)


def name_constant_columns(names: Sequence[str] | None, low: Tensor, high: Tensor) -> list[str]:
    """A note for columns whose least and largest values, over both samples, are one.

    Example:
        >>> name_constant_columns(("a", "b"), torch.tensor([0, 7]), torch.tensor([1, 7]))
        ["column 'b' is constant: it was kept, and adds nothing to distances"]
    """
    constant = (low == high).nonzero().flatten().tolist()
    if not constant:
        return []
    some = name_columns(names, constant)
    if len(constant) == 1:
        return [f"{some} is constant: it was kept, and adds nothing to distances"]
    return [f"{some} are constant: they were kept, and add nothing to distances"]


def name_columns(names: Sequence[str] | None, which: Sequence[int]) -> str:
    """What a note calls these columns, at least one.

    Example:
        >>> name_columns(("a", "b"), [1]), name_columns(None, [0, 1])
        ("column 'b'", 'columns 0, 1 (counted from 0)')
    """
    if len(which) == 1:
        return f"column {label(names or (), which[0])}"
    some = list_some([names[i] for i in which] if names else which)
    return f"columns {some}" if names else f"columns {some} (counted from 0)"
