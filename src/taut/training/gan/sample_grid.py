"""Image grids of generated samples."""

import io
import math
from pathlib import Path

import numpy as np
from torch import Tensor

from taut.errors import ArgumentError, require
from taut.export import write_atomically


def draw_grid(images: Tensor) -> np.ndarray:
    """Arranges images in a nearly square grid, one pixel apart.

    Args:
        images: `(n, 1, h, w)` or `(n, 3, h, w)`, in [-1, 1].

    Returns:
        Bytes, `(height, width)` or `(height, width, 3)`.

    Example:
        >>> import torch
        >>> draw_grid(torch.zeros(6, 1, 4, 4)).shape
        (9, 14)
    """
    n, channels, h, w = images.shape
    if channels not in (1, 3):
        rule = "must have 1 or 3 channels to be drawn"
        raise ArgumentError("draw_grid", "images", rule, str(channels))
    columns = math.ceil(math.sqrt(n))
    rows = -(-n // columns)
    grid = np.zeros((rows * (h + 1) - 1, columns * (w + 1) - 1, channels), np.uint8)
    pixels = ((images.detach().cpu().numpy() + 1) * 127.5).round().clip(0, 255).astype(np.uint8)
    for index, image in enumerate(pixels):
        row, column = divmod(index, columns)
        top, left = row * (h + 1), column * (w + 1)
        grid[top : top + h, left : left + w] = image.transpose(1, 2, 0)
    return grid[..., 0] if channels == 1 else grid


def write_grid(path: Path, images: Tensor) -> None:
    """Writes `draw_grid(images)` as a PNG, atomically and at twice the size."""
    pillow = require("PIL.Image", "data", "data: a picture of samples")
    grid = draw_grid(images).repeat(2, 0).repeat(2, 1)
    buffer = io.BytesIO()
    pillow.fromarray(grid).save(buffer, "PNG")
    write_atomically(path, buffer.getvalue())
