"""The images of one class, from a file of images and the file of labels beside it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from taut.data.columns import Columns, list_some
from taut.data.idx import IdxSource
from taut.data.idx_pairs import read_idx_labels
from taut.data.source import Block, subject_of
from taut.errors import ArgumentError

__all__ = ["labels_beside", "open_idx_class"]


class _SomeRows:
    """Some rows of a source, in batches of the requested size."""

    columns = ()

    def __init__(self, source: IdxSource, wanted: np.ndarray):
        self._source = source
        self._wanted = wanted
        self.rows = int(wanted.sum())
        self.dim = source.dim
        self.image_shape = source.image_shape

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """See `Source`."""
        kept, seen = np.empty((0, self.dim), np.float32), 0
        for block in self._source.blocks(batch_rows):
            wanted = self._wanted[seen : seen + len(block.values)]
            seen += len(block.values)
            kept = np.concatenate([kept, block.values[wanted]])
            if len(kept) >= batch_rows:
                yield Block(kept[:batch_rows])
                kept = kept[batch_rows:]
        if len(kept):
            yield Block(kept)

    def count(self) -> int:
        """See `Source`."""
        return self.rows


def open_idx_class(path: Path, key: str, columns: Columns = None) -> _SomeRows:
    """The rows of a file of images whose label is `key`.

    Args:
        path: the file of images, such as `train-images-idx3-ubyte.gz`.
        key: the label, a whole number as text.
        columns: must be left out, as for all images.
    """
    subject = subject_of(path)
    if not key.strip().isdecimal():
        raise ArgumentError(
            subject=subject,
            rule="what follows the colon must be a label, a whole number",
            got=repr(key),
        )
    source = IdxSource(path, columns)
    labels = read_idx_labels(labels_beside(path), source.rows)
    wanted = labels == int(key)
    if not wanted.any():
        raise ArgumentError(
            f"{subject}: the label must be among {list_some(np.unique(labels).tolist(), 12)}; "
            f"no row has {int(key)}."
        )
    return _SomeRows(source, wanted)


def labels_beside(path: Path) -> Path:
    """The file of labels that belongs to a file of images, by its name."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    packed, plain = f"{name.removesuffix('.gz')}.gz", name.removesuffix(".gz")
    if name != path.name:
        for found in (path.with_name(packed), path.with_name(plain)):
            if found.is_file():
                return found
    raise ArgumentError(
        f"{subject_of(path)}: the file of labels must lie beside the images, as "
        f"train-labels-idx1-ubyte.gz beside train-images-idx3-ubyte.gz; "
        + (
            f"there is no {packed} in {path.parent.resolve()}."
            if name != path.name
            else "no name fits."
        )
    )
