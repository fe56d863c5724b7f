"""Which rows train, which choose, and which stay unseen: decided by a key that each row draws.

The smallest keys train critics, the next choose between them, and all others are held out. Keys are
drawn in the order of the rows, so a sample in memory and the same rows from a file are split alike,
and one pass that keeps the smallest keys is enough, in memory that does not grow with the rows.
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
from taut.wasserstein.sides import Side, batches_of

__all__ = ["Draw", "draw_rows", "score_held_out"]

_MOST_TRAINING = 100_000
_MOST_CHOOSING = 10_000
# Outside of both, for the transport of batches.
_MOST_KEPT = 8192
# 128 MB of float64 on each side, where rows are long.
_MOST_CELLS = 2**24

OnRows = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Draw:
    """What one pass over a sample leaves in memory.

    Attributes:
        train: `(n, dim)`, float64: half of the rows, at most 100,000.
        choose: a tenth, at most 10,000.
        kept: some of the others, drawn uniformly.
        rows: how many rows there are in all.
        taken: `(rows,)`, true for those of `train` and `choose`.
        low: the least value of each column.
        high: the largest.
        checksum: of the rows, to see whether a second pass gives the same.
    """

    train: Tensor
    choose: Tensor
    kept: Tensor
    rows: int
    taken: np.ndarray
    low: Tensor
    high: Tensor
    checksum: int


def draw_rows(side: Side, seed: int, which: int, on_rows: OnRows | None = None) -> Draw:
    """One pass over `side` that draws its training, choosing and kept rows uniformly.

    Args:
        side: the sample.
        seed: of the keys.
        which: 0 for x, 1 for y, whose keys are then others.
        on_rows: called with the number of rows read, as they are read.
    """
    random = np.random.default_rng([seed, which])
    training = min(_MOST_TRAINING, max(2, _MOST_CELLS // side.dim))
    capacity = training + _MOST_CHOOSING + _MOST_KEPT
    pool = _Smallest(capacity)
    rows, checksum = 0, 0
    low = torch.full((side.dim,), float("inf"), dtype=torch.float64)
    high = -low
    for batch in batches_of(side):
        if len(batch) == 0:
            continue
        pool.offer(random.random(len(batch)), rows, batch)
        low = torch.minimum(low, batch.amin(0).double())
        high = torch.maximum(high, batch.amax(0).double())
        checksum = _checksum(side, batch, checksum)
        rows += len(batch)
        if on_rows is not None:
            on_rows(rows)
    index, points = pool.drawn()
    first = min(rows // 2, training)
    second = first + min(max(1, rows // 10), _MOST_CHOOSING)
    taken = np.zeros(rows, bool)
    taken[index[:second].numpy()] = True
    train, choose, kept = points.double().tensor_split([first, second])
    return Draw(train, choose, kept, rows, taken, low, high, checksum)


def score_held_out(
    side: Side, draw: Draw, score: Callable[[Tensor], Tensor], on_rows: OnRows | None = None
) -> Tensor:
    """A second pass that scores all rows but those taken: `(held-out rows,)`, in their order.

    Several processes share the batches out; all get all scores.

    Raises:
        DataError: the rows are not those of the first pass.
    """
    places, scores = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.float64)]
    rows, checksum = 0, 0
    for number, batch in enumerate(batches_of(side)):
        checksum = _checksum(side, batch, checksum)
        fresh = torch.from_numpy(~draw.taken[rows : rows + len(batch)])
        if len(fresh) < len(batch):
            break
        if number % parallel.world_size() == parallel.rank() and bool(fresh.any()):
            places.append(rows + fresh.nonzero().flatten())
            scores.append(score(batch[fresh]))
        rows += len(batch)
        if on_rows is not None:
            on_rows(rows)
    if rows != draw.rows or checksum != draw.checksum:
        raise DataError(
            f"{side.source}: must give the same rows in the same order at every pass, so that no "
            "row that trained the critic is scored as unseen; a second pass gave others. Turn "
            "shuffling off, or pass a sample in memory."
        )
    found = torch.zeros(draw.rows, dtype=torch.float64)
    found[parallel.gather(torch.cat(places))] = parallel.gather(torch.cat(scores))
    return found[torch.from_numpy(~draw.taken)]


def _checksum(side: Side, batch: Tensor, before: int) -> int:
    # What is in memory was copied there, and cannot change between two passes.
    if isinstance(side, Table):
        return 0
    return zlib.crc32(np.ascontiguousarray(batch.numpy()).data, before)


class _Smallest:
    """The rows of the smallest keys among those offered, in memory of twice their number."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.threshold = np.inf
        self.keys: list[np.ndarray] = []
        self.index: list[np.ndarray] = []
        self.points: list[Tensor] = []
        self.held = 0

    def offer(self, keys: np.ndarray, start: int, points: Tensor) -> None:
        wanted = np.flatnonzero(keys < self.threshold)
        self.keys.append(keys[wanted])
        self.index.append(start + wanted)
        self.points.append(points[torch.from_numpy(wanted)])
        self.held += len(wanted)
        if self.held >= 2 * self.capacity:
            self._shrink()

    def _shrink(self) -> None:
        keys = np.concatenate(self.keys)
        order = np.argsort(keys, kind="stable")[: self.capacity]
        self.keys = [keys[order]]
        self.index = [np.concatenate(self.index)[order]]
        self.points = [torch.cat(self.points)[torch.from_numpy(order)]]
        self.held = len(order)
        if self.held == self.capacity:
            self.threshold = float(self.keys[0][-1])

    def drawn(self) -> tuple[Tensor, Tensor]:
        """Places and rows, by growing key: any first part is a uniform draw without replacement."""
        self._shrink()
        return torch.from_numpy(self.index[0]), self.points[0]
