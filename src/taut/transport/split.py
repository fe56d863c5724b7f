"""The split of a sample into training, validation and held-out rows, by a random key per row.

The rows with the smallest keys train critics, the next select one, and all others are held out.
Keys are drawn in the order of the rows, so a sample in memory and the same rows from a file are
split alike, and one pass that keeps the smallest keys is enough, in constant memory.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from taut import parallel
from taut.data import Table
from taut.errors import DataError
from taut.transport.distance_bounds import Scores
from taut.transport.feature_scaling import column_ranges
from taut.transport.input_data import Dataset, find_unseen, iterate_batches

_MOST_TRAINING = 100_000
_MOST_VALIDATION = 10_000
# In so many dimensions critics lack rows before the bounds do: beyond so many held-out rows, most train.
_HIGH = 16
_HELD_OUT = 20_000
# Outside of both, for the upper bound.
_MOST_RESERVE = 8192
# 128 MB of float64 on each side, where rows are long.
_MOST_CELLS = 2**24
_KEYS = zlib.crc32(b"taut.transport.split")

OnRows = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Split:
    """The result of one pass over a sample; points are `(n, dim)`, float64."""

    train: Tensor  # half of the rows or more, at most 100,000; see `count_training`
    validation: Tensor  # a tenth, at most 10,000
    reserve: Tensor  # some of the held-out rows, drawn uniformly
    rows: int
    used: np.ndarray  # (rows,), true for those of `train` and `validation`
    low: Tensor  # smallest value of each column
    high: Tensor
    checksum: int  # of all rows, to detect changes in the second pass
    unseen: tuple[str, ...]  # names of the columns with values that the encoding has not seen


def split_rows(data: Dataset, seed: int, index: int, on_rows: OnRows | None = None) -> Split:
    """One pass over `data` that draws its training, validation and reserve rows uniformly.

    `index` is 0 for x and 1 for y, with independent keys; `on_rows` is called with the rows so far.
    """
    # Not [seed, index] alone: numpy reads [0, 0] as 0, and keys from `default_rng(0)` would sort
    # rows that a user drew from `default_rng(0)` by their own values.
    random = np.random.default_rng([_KEYS, seed, index])
    training = min(_MOST_TRAINING, max(2, _MOST_CELLS // data.dim))
    pool = _SmallestKeys(training + _MOST_VALIDATION + _MOST_RESERVE)
    rows, checksum = 0, 0
    low = torch.full((data.dim,), float("inf"), dtype=torch.float64)
    high = -low
    unseen: dict[str, None] = {}
    for batch in iterate_batches(data):
        if len(batch) == 0:
            continue
        pool.offer(random.random(len(batch)), rows, batch)
        lowest, highest = column_ranges(batch.double())
        low, high = torch.minimum(low, lowest), torch.maximum(high, highest)
        checksum = _checksum(data, batch, checksum)
        unseen |= dict.fromkeys(find_unseen(data.encoding, batch))
        rows += len(batch)
        if on_rows is not None:
            on_rows(rows)
    positions, points = pool.sorted_rows()
    first = min(count_training(rows, data.dim), training)
    second = first + min(max(1, rows // 10), _MOST_VALIDATION)
    used = np.zeros(rows, bool)
    used[positions[:second].numpy()] = True
    train, validation, reserve = points.double().tensor_split([first, second])
    return Split(train, validation, reserve, rows, used, low, high, checksum, tuple(unseen))


def count_training(rows: int, dim: int) -> int:
    """The number of rows that train: half, or in 16 dimensions and more all but a tenth and 20,000.

    Example:
        >>> count_training(100_000, 8), count_training(100_000, 16), count_training(10_000, 16)
        (50000, 70000, 5000)
    """
    most = rows * 9 // 10 - _HELD_OUT if dim >= _HIGH else 0
    return max(rows // 2, most)


def score_held_out(
    data: Dataset, split: Split, score: Callable[[Tensor], Scores], on_rows: OnRows | None = None
) -> Scores:
    """Scores all held-out rows, in their order, in a second pass.

    Several processes share the batches; all return all scores. Raises `DataError` if the rows have changed.
    """
    positions, scores = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, 2).double()]
    rows, checksum = 0, 0
    for number, batch in enumerate(iterate_batches(data)):
        checksum = _checksum(data, batch, checksum)
        fresh = torch.from_numpy(~split.used[rows : rows + len(batch)])
        if len(fresh) < len(batch):
            break
        if number % parallel.world_size() == parallel.rank() and bool(fresh.any()):
            positions.append(rows + fresh.nonzero().flatten())
            scores.append(torch.stack(score(batch[fresh]), 1))
        rows += len(batch)
        if on_rows is not None:
            on_rows(rows)
    if rows != split.rows or checksum != split.checksum:
        rule = (
            "must give the same rows in the same order at every pass, so that no row that "
            "trained the critic is scored as unseen"
        )
        remedy = "Turn shuffling off, or pass a sample in memory."
        raise DataError(data.source, rule=rule, got="other rows at the second pass", remedy=remedy)
    scored = torch.zeros(split.rows, 2, dtype=torch.float64)
    scored[parallel.gather(torch.cat(positions))] = parallel.gather(torch.cat(scores))
    return Scores(*scored[torch.from_numpy(~split.used)].unbind(1))


def _checksum(data: Dataset, batch: Tensor, before: int) -> int:
    # What is in memory was copied there, and cannot change between two passes.
    if isinstance(data, Table):
        return 0
    return zlib.crc32(batch.numpy().data, before)


class _SmallestKeys:
    """Collects the rows with the smallest keys, in memory for twice as many."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.threshold = np.inf
        self.num_rows = 0
        self.parts: list[tuple[np.ndarray, np.ndarray, Tensor]] = []  # keys, positions and points

    def offer(self, keys: np.ndarray, start: int, points: Tensor) -> None:
        wanted = np.flatnonzero(keys < self.threshold)
        self.parts.append((keys[wanted], start + wanted, points[torch.from_numpy(wanted)]))
        self.num_rows += len(wanted)
        if self.num_rows >= 2 * self.capacity:
            self._shrink()

    def _shrink(self) -> None:
        every_key, positions, points = zip(*self.parts, strict=True)
        keys = np.concatenate(every_key)
        order = np.argsort(keys, kind="stable")[: self.capacity]
        rows = torch.cat(points)[torch.from_numpy(order)]
        self.parts = [(keys[order], np.concatenate(positions)[order], rows)]
        self.num_rows = len(order)
        if self.num_rows == self.capacity:
            self.threshold = float(keys[order[-1]])

    def sorted_rows(self) -> tuple[Tensor, Tensor]:
        """Positions and rows by growing key: any first part is a uniform sample."""
        self._shrink()
        _, positions, points = self.parts[0]
        return torch.from_numpy(positions), points
