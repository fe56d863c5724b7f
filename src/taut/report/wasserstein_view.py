"""What a page about two data sets looks at: some rows, their scores, the parts of the features."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from taut.data import Table as Rows
from taut.report.attribution import attribute
from taut.report.wasserstein_figures import as_image
from taut.wasserstein import WassersteinResult

__all__ = ["View", "look_at"]

# Weights of the critic times points that it is asked about: seconds for the slowest critic.
_WORK = 3 * 10**9


@dataclass(frozen=True)
class View:
    """What is looked at: some rows of both sides, their scores, and the parts of the features."""

    result: WassersteinResult
    tables: tuple[Rows, Rows]
    names: tuple[str, str]
    picks: tuple[Tensor, Tensor]
    scores: tuple[Tensor, Tensor]
    parts: Tensor
    total: float

    @property
    def labels(self) -> list[str]:
        """What each feature is called."""
        named = self.tables[0].columns or self.tables[1].columns
        return list(named) or [f"column {j}" for j in range(len(self.parts))]

    @property
    def order(self) -> list[int]:
        """The features, the one that moves most first."""
        return self.parts.abs().argsort(descending=True, stable=True).tolist()

    @property
    def shares(self) -> Tensor:
        """Parts of one; zero throughout where the critic tells nothing apart."""
        return self.parts / self.total if self.total > 0 else torch.zeros_like(self.parts)

    def row(self, side: int, index: int) -> np.ndarray:
        """The features of a row, in the units they came in."""
        return self.tables[side].values[index]

    def image(self, row: np.ndarray) -> np.ndarray | None:
        """The row as a picture, where rows are pictures."""
        shape = self.tables[0].image_shape
        return None if shape is None else as_image(row, shape)

    def extent(self, side: int) -> str:
        """Among how many rows was looked."""
        seen, total = len(self.picks[side]), self.result.rows[side]
        return f"all {total:,} rows" if seen == total else f"{seen:,} of {total:,} rows"

    @property
    def limits(self) -> tuple[float, float]:
        """Black and white, the same for every picture."""
        values = [table.values for table in self.tables]
        low, high = min(v.min() for v in values), max(v.max() for v in values)
        return (min(0.0, float(low)), float(high))


def look_at(
    result: WassersteinResult, x: Rows, y: Rows, names: tuple[str, str], generator: Generator
) -> View:
    """Draws rows of both sides, as many as the critic can be asked about in seconds."""
    size = max(1, sum(parameter.numel() for parameter in result.critic.parameters()))
    most = min(20_000, max(500, _WORK // size))
    picks, scores, points = [], [], []
    for table, known in zip((x, y), result.scores, strict=True):
        pick = torch.randperm(len(table), generator=generator)[:most].sort().values
        rows = torch.from_numpy(np.ascontiguousarray(table.values[pick.numpy()])).double()
        picks.append(pick)
        whole = not result.population and len(known) == len(table)
        scores.append(known[pick] if whole else result.score(rows))
        points.append(result.scaling(rows))
    parts, total = attribute(
        result.critic,
        *points,
        num_pairs=min(256, max(32, _WORK // size // 16)),
        generator=generator,
    )
    return View(result, (x, y), names, (*picks,), (*scores,), parts, total)
