"""`Source`: what every reader of a format offers, and how it opens files and reports damage."""

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import BinaryIO, Self, TypeVar, cast

import numpy as np

from taut.data.columns import Columns, check_names, select_positions
from taut.errors import ArgumentError, DamagedFileError, DataError, TautError

__all__ = ["Source", "open_bytes", "read_bytes", "refuse_damage"]

T = TypeVar("T")
_GZIP = b"\x1f\x8b"


class Source(ABC):
    """A table in a file or folder, which can be read again and again, some rows at a time.

    Attributes:
        name: name of the file, for errors and captions.
        subject: subject of errors about the file.
        names: names of all columns, or none.
        width: number of all columns.
        chosen: positions of the chosen columns, in the order of the choice; None for all.
        rows: number of rows, or None where only reading the file tells.
        image_shape: shape of a row that is a whole image, before it was flattened.
    """

    selectable = True  # whether columns can be chosen
    chosen: list[int] | None = None
    rows: int | None = None
    image_shape: tuple[int, ...] | None = None

    def __init__(self, name: str):
        self.name = name
        self.subject = f"data: {name}"

    def _set_columns(self, names: Sequence[str], width: int) -> None:
        self.names = tuple(names)
        self.width = width

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the chosen columns, or none."""
        return self.names if self.chosen is None else tuple(self.pick(self.names))

    @property
    def dim(self) -> int:
        """Number of chosen columns."""
        return self.width if self.chosen is None else len(self.chosen)

    def pick(self, row: Sequence[T]) -> Sequence[T]:
        """The chosen items of a row with all columns, or none of an empty one."""
        return row if self.chosen is None or not row else [row[i] for i in self.chosen]

    def select(self, columns: Columns) -> Self:
        """The same file with the chosen columns; raises unless their names differ."""
        if columns is not None and not self.selectable:
            rule = "must be left out for images"
            raise ArgumentError(subject=self.subject, argument="columns", rule=rule, got=columns)
        selected = copy(self)
        if columns is not None:
            chosen = select_positions(self.subject, self.names, self.width, columns)
            if chosen != list(range(self.width)):
                selected.chosen, selected.image_shape = chosen, None
        check_names(self.subject, selected.columns)
        return selected

    @abstractmethod
    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """The chosen columns of all rows, `batch_rows` at a time; NaN for a missing value."""

    def count(self) -> int:
        """Number of rows; a format whose files do not state it reads them."""
        assert self.rows is not None
        return self.rows

    def locate(self, row: int) -> str:
        """The place of a row, for errors."""
        return f"row {row} (counted from 0)"


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed if its first bytes are those of gzip."""
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else open(path, "rb")


def read_bytes(path: Path) -> bytes:
    """All bytes of a file, decompressed as `open_bytes` does."""
    with refuse_damage(f"data: {path.name}"), open_bytes(path) as file:
        return file.read()


@contextmanager
def refuse_damage(
    subject: str, what: str = "the compressed file", errors: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turns errors about a bad file into those of taut; `errors` mean damage, as gzip's do."""
    try:
        yield
    except TautError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile, *errors) as error:
        reason = str(error).partition("\n")[0]
        raise DamagedFileError(
            f"{subject}: {what} is cut short or altered ({reason}). Write or fetch it again."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{subject}: text must be UTF-8; byte {error.object[error.start]:#04x} is not. "
            "Save the file as UTF-8."
        ) from error
    except OSError as error:
        raise DataError(
            f"{subject}: the file must be readable; got: {error.strerror or error}."
        ) from error
