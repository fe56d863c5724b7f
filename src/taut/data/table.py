"""`Table`: a sample in memory, one row a point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.data.columns import select_positions

__all__ = ["Table"]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A sample of finite numbers.

    Attributes:
        values: `(n, d)`, float32 or float64.
        columns: `d` names, or none where the source gives no names.
        image_shape: shape of one row before it was flattened, where rows are images.
        source: name of the source, for errors and captions.

    Example:
        >>> Table(np.zeros((3, 2)), ("a", "b"), None, "zeros")
        Table(3 x 2, float64, from zeros)
    """

    values: np.ndarray
    columns: tuple[str, ...]
    image_shape: tuple[int, ...] | None
    source: str

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def select(self, columns: Sequence[str | int]) -> "Table":
        """The chosen columns, by name or position, in the order of the choice."""
        chosen = select_positions(f"data: {self.source}", self.columns, self.dim, columns)
        names = tuple(self.columns[i] for i in chosen) if self.columns else ()
        shape = self.image_shape if chosen == list(range(self.dim)) else None
        return replace(self, values=self.values[:, chosen], columns=names, image_shape=shape)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape))
        return f"Table({shape}, {self.values.dtype}, from {self.source})"
