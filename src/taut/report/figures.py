"""Drawings shared by reports: images, galleries of images, and training curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.plotting import Picture, draw

_GAP = 0.08


def smooth(history: Sequence[float], window: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Moving averages over up to `window` steps, and the step at which each ends."""
    window = min(window, max(1, len(history) // 10))
    values = np.convolve(history, np.ones(window) / window, mode="valid")
    return np.arange(len(values)) + window, values


def as_image(row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A row as `(height, width)` or `(height, width, 3)`; None where no picture has that shape.

    Example:
        >>> as_image(np.arange(12), (3, 2, 2)).shape, as_image(np.arange(4), (1, 2, 2)).shape
        ((2, 2, 3), (2, 2))
    """
    image = row.reshape(shape)
    if image.ndim == 3 and image.shape[0] == 1:
        image = image[0]
    elif image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    elif image.ndim == 3 and image.shape[0] == 3:
        image = image.transpose(1, 2, 0)
    coloured = image.ndim == 3 and image.shape[-1] == 3
    return image if image.ndim == 2 or coloured else None


@dataclass(frozen=True)
class Tile:
    """An image with text below it."""

    image: np.ndarray  # (height, width) or (height, width, 3)
    words: str = ""  # at most three short lines
    signed: bool = False  # a map of signed numbers around zero, on its own scale


def draw_gallery(
    rows: Sequence[Sequence[Tile]], limits: tuple[float, float], alt: str, title: str = ""
) -> Picture:
    """Draws rows of tiles of one size; unsigned ones share the brightness scale `limits`."""
    # At least three columns, so that a single last tile is not larger than the others.
    across = max(3, *(len(row) for row in rows))
    height, width = rows[0][0].image.shape[:2]
    ratio = height / width
    # Letters keep their size, so fewer tiles abreast leave less of a tile to a line of words.
    lines = [max(tile.words.count("\n") + bool(tile.words) for tile in row) for row in rows]
    # A phone shows a width of 3.6 inches at 1.25 pixels a point, so letters of 9 points are read.
    size = 3.6
    heights = [ratio + _GAP + 0.056 * across * count for count in lines]

    def paint(axes: Any) -> None:
        top = 0.0
        for row, tall in zip(rows, heights, strict=True):
            for column, tile in enumerate(row):
                left = column * (1 + _GAP)
                where = (left, left + 1, top + ratio, top)
                _show(axes, tile.image, None if tile.signed else limits, where)
                axes.text(left + 0.5, top + ratio + 0.04, tile.words, ha="center", va="top", size=9)
            top += tall
        axes.set(xlim=(0, across * (1 + _GAP) - _GAP), ylim=(top, 0))
        axes.set_aspect("equal")
        axes.set_axis_off()

    tall = size * sum(heights) / (across * (1 + _GAP))
    return draw(paint, alt=alt, title=title, size=(size, tall))


def draw_image(
    image: np.ndarray, title: str, alt: str, limits: tuple[float, float] | None = None
) -> Picture:
    """Draws an image; without limits, a map of signed numbers around zero, with its scale."""

    def paint(axes: Any) -> None:
        shown = _show(axes, image, limits)
        axes.set_axis_off()
        if limits is None:
            bar = axes.figure.colorbar(shown, ax=axes, fraction=0.045, pad=0.03)
            bar.outline.set_visible(False)

    return draw(paint, alt=alt, title=title, size=(3.4, 2.7))


def _show(
    axes: Any,
    image: np.ndarray,
    limits: tuple[float, float] | None,
    extent: tuple[float, float, float, float] | None = None,
) -> Any:
    """Draws brightness within `limits`, or a map of signed numbers if `limits` is None."""
    if limits is None:
        image = image.sum(-1) if image.ndim == 3 else image
        high = float(np.abs(image).max()) or 1.0
        colours, low = "PuOr", -high
    else:
        image = np.clip((image - limits[0]) / max(limits[1] - limits[0], 1e-300), 0, 1)
        colours, low, high = "gray", 0.0, 1.0
    return axes.imshow(
        image, cmap=colours, vmin=low, vmax=high, extent=extent, interpolation="nearest"
    )
