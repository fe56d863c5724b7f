"""The details behind a report on two data sets: some rows, their scores, feature contributions."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from taut.data import Table as Rows
from taut.report.attribution import attribute
from taut.report.wasserstein_figures import as_image
from taut.transport import WassersteinResult

__all__ = ["Details", "collect_details"]

# Weights of the critic times points that it scores: seconds for the slowest critic.
_WORK = 3 * 10**9


@dataclass(frozen=True)
class Details:
    """Some rows of both data sets, their scores, and the contributions of the features."""

    result: WassersteinResult
    tables: tuple[Rows, Rows]
    names: tuple[str, str]
    picks: tuple[Tensor, Tensor]
    scores: tuple[Tensor, Tensor]
    parts: Tensor
    total: float

    @property
    def labels(self) -> list[str]:
        """The names of the features."""
        named = self.tables[0].columns or self.tables[1].columns
        return list(named) or [f"column {j}" for j in range(len(self.parts))]

    @property
    def order(self) -> list[int]:
        """The features by their contribution, the largest first."""
        return self.parts.abs().argsort(descending=True, stable=True).tolist()

    @property
    def shares(self) -> Tensor:
        """Contributions as parts of 1; zero where the critic finds no difference."""
        return self.parts / self.total if self.total > 0 else torch.zeros_like(self.parts)

    def row(self, side: int, index: int) -> np.ndarray:
        """The features of a row, in their original units."""
        return self.tables[side].values[index]

    def image(self, row: np.ndarray) -> np.ndarray | None:
        """The row as a picture, where rows are pictures."""
        shape = self.tables[0].image_shape
        return None if shape is None else as_image(row, shape)

    def extent(self, side: int) -> str:
        """The number of rows that were scored, as text."""
        seen, total = len(self.picks[side]), self.result.rows[side]
        return f"all {total:,} rows" if seen == total else f"{seen:,} of {total:,} rows"

    @property
    def limits(self) -> tuple[float, float]:
        """Black and white, the same for every picture."""
        values = [table.values for table in self.tables]
        low, high = min(v.min() for v in values), max(v.max() for v in values)
        return (min(0.0, float(low)), float(high))


def collect_details(
    result: WassersteinResult, x: Rows, y: Rows, names: tuple[str, str], generator: Generator
) -> Details:
    """Draws rows of both data sets, as many as the critic can score in seconds."""
    size = max(1, sum(parameter.numel() for parameter in result.critic.parameters()))
    most = min(20_000, max(500, _WORK // size))
    picks, scores, points = [], [], []
    for table, known in zip((x, y), result.scores, strict=True):
        pick = torch.randperm(len(table), generator=generator)[:most].sort().values
        rows = torch.from_numpy(np.ascontiguousarray(table.values[pick.numpy()])).double()
        picks.append(pick)
        whole = result.finite and len(known) == len(table)
        scores.append(known[pick] if whole else result.score(rows))
        points.append(result.scaling(rows))
    parts, total = attribute(
        result.critic,
        *points,
        num_pairs=min(256, max(32, _WORK // size // 16)),
        generator=generator,
    )
    return Details(result, (x, y), names, (*picks,), (*scores,), parts, total)
