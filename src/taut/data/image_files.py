"""Folders of images, one file per row."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from taut.data.source_base import Source
from taut.errors import DamagedFileError, require

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")


class FolderSource(Source):
    """The images of a folder in the order of their names, `(height, width)` or `(3, height, width)`.

    They are scaled to [0, 1], and all must have one shape. Files with other endings are ignored.
    """

    selectable = False
    rows: int
    image_shape: tuple[int, ...]

    def __init__(self, path: Path):
        super().__init__(path.name)
        items = sorted(path.iterdir())
        images = (item for item in items if item.suffix.lower() in IMAGE_ENDINGS)
        self._files = [item for item in images if item.name[0] != "." and item.is_file()]
        if not self._files:
            inner = any(item.is_dir() for item in items)
            raise self.refuse(
                f"a folder must hold images ({', '.join(IMAGE_ENDINGS)}); this one holds "
                f"none{', only folders: give one of them' if inner else ''}"
            )
        self._pillow = require("PIL.Image", "data", "data: a folder of images")
        self.rows = len(self._files)
        self.image_shape = self._read(self._files[0]).shape
        self._set_columns((), math.prod(self.image_shape))

    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """See `Source`."""
        for start in range(0, self.rows, batch_rows):
            files = self._files[start : start + batch_rows]
            values = np.empty((len(files), self.width), np.float32)
            for row, file in zip(values, files, strict=True):
                image = self._read(file)
                if image.shape != self.image_shape:
                    raise self.refuse(
                        f"images must have one shape; {self._files[0].name} is "
                        f"{_describe(self.image_shape)}, {file.name} is {_describe(image.shape)}",
                        remedy="Resize or convert them first.",
                    )
                row[:] = image.reshape(-1)
            yield values

    def _read(self, file: Path) -> np.ndarray:
        errors = (OSError, SyntaxError, ValueError, self._pillow.DecompressionBombError)
        try:
            with self._pillow.open(file) as image:
                if image.mode == "P" and "transparency" not in image.info:
                    image = image.convert("RGB")
                if image.mode == "1":
                    image = image.convert("L")
                mode, array = image.mode, np.asarray(image, np.float32)
        except errors as error:
            rule = f"{file.name} must be an image that can be read"
            raise self.refuse(rule, str(error), error=DamagedFileError) from error
        if mode == "RGB":
            return array.transpose(2, 0, 1) / np.float32(255)
        if mode == "L" or mode.startswith("I;16"):
            return array / np.float32(255 if mode == "L" else 65535)
        remedy = 'Convert it first: image.convert("RGB").'
        raise self.refuse(f"images must be grey or RGB; {file.name} is {mode}", remedy=remedy)


def _describe(shape: tuple[int, ...]) -> str:
    return f"{shape[-2]} x {shape[-1]} {'grey' if len(shape) == 2 else 'RGB'}"
