"""A folder of images: one file a row."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from taut.data.columns import Columns
from taut.data.source import Block, subject_of
from taut.errors import ArgumentError, DamagedFileError, DataError, require

__all__ = ["ENDINGS", "FolderSource"]

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")


class FolderSource:
    """The images of a folder, in the order of their names, scaled to [0, 1].

    Grey images have the shape `(height, width)`, coloured ones `(3, height, width)`, as torch's
    convolutions take them. All must have one shape. Files with other endings are passed over.
    """

    columns = ()

    def __init__(self, path: Path, columns: Columns = None):
        self._subject = subject_of(path)
        self._files = sorted(
            file
            for file in path.iterdir()
            if file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
        )
        if not self._files:
            inner = any(file.is_dir() for file in path.iterdir())
            raise DataError(
                f"{self._subject}: a folder must hold images ({', '.join(ENDINGS)}); this one "
                f"holds none{', only folders: give one of them' if inner else ''}."
            )
        if columns is not None:
            raise ArgumentError(
                subject=str(self._subject),
                argument="columns",
                rule="must be left out for images",
                got=f"columns={columns!r}",
            )
        self._pillow = require("PIL.Image", "data", "data: a folder of images")
        self.rows = len(self._files)
        self.image_shape: tuple[int, ...] = self._read(self._files[0]).shape
        self.dim = math.prod(self.image_shape)

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """See `Source`."""
        for start in range(0, self.rows, batch_rows):
            files = self._files[start : start + batch_rows]
            values = np.empty((len(files), self.dim), np.float32)
            for row, file in zip(values, files, strict=True):
                image = self._read(file)
                if image.shape != self.image_shape:
                    raise DataError(
                        f"{self._subject}: images must have one shape; {self._files[0].name} is "
                        f"{_describe(self.image_shape)}, {file.name} is {_describe(image.shape)}. "
                        "Resize or convert them first."
                    )
                row[:] = image.reshape(-1)
            yield Block(values)

    def count(self) -> int:
        """See `Source`."""
        return self.rows

    def _read(self, file: Path) -> np.ndarray:
        try:
            with self._pillow.open(file) as image:
                return self._to_array(file, image)
        except (OSError, SyntaxError, ValueError, self._pillow.DecompressionBombError) as error:
            if isinstance(error, DataError):
                raise
            raise DamagedFileError(
                f"{self._subject}: {file.name} must be an image that can be read; got: {error}."
            ) from error

    def _to_array(self, file: Path, image: Any) -> np.ndarray:
        if image.mode == "P" and "transparency" not in image.info:
            image = image.convert("RGB")
        if image.mode == "1":
            image = image.convert("L")
        if image.mode == "L":
            return np.asarray(image, np.float32) / np.float32(255)
        if image.mode == "RGB":
            return np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
        if image.mode.startswith("I;16"):
            return np.asarray(image, np.float32) / np.float32(65535)
        raise DataError(
            f"{self._subject}: images must be grey or RGB; {file.name} is {image.mode}. "
            'Convert it first: image.convert("RGB").'
        )


def _describe(shape: tuple[int, ...]) -> str:
    return f"{shape[-2]} x {shape[-1]} {'grey' if len(shape) == 2 else 'RGB'}"
