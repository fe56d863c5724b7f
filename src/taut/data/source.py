"""`Source`: what every format offers, and how files are opened for it."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

import numpy as np

from taut.errors import DamagedFileError, DataError

__all__ = ["Block", "Source", "open_bytes", "reading", "subject_of"]

GZIP = b"\x1f\x8b"


class Block(NamedTuple):
    """Some rows, and the lines of the file they stand on where it has lines."""

    values: np.ndarray
    lines: np.ndarray | None = None


class Source(Protocol):
    """A file that can be read again and again, some rows at a time."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the chosen columns, or none."""
        ...

    @property
    def dim(self) -> int:
        """How many columns are chosen."""
        ...

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """The shape of one row before it was made flat, where rows are images."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the file says so."""
        ...

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """All rows from the first, `batch_rows` at a time; NaN stands for what is missing."""
        ...

    def count(self) -> int:
        """How many rows there are, by reading them if the file does not say."""
        ...


def subject_of(path: Path) -> str:
    """Who speaks in the errors about a file."""
    return f"data: {path.name}"


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked where it is a gzip file by its first bytes."""
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else open(path, "rb")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what Python says about a bad file into what taut says."""
    subject = subject_of(path)
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(
            f"{subject}: the compressed file is cut short or altered ({error}). Fetch it again."
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
