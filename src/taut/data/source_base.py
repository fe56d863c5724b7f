"""`Source`: the interface of every reader, and its handling of files and damage."""

import gzip
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import BinaryIO, Self, TypeVar, cast

import numpy as np

from taut.data.column_selection import Columns, check_names, list_some, select_positions
from taut.data.column_values import stack_numbers
from taut.errors import ArgumentError, DamagedFileError, DataError, TautError

T = TypeVar("T")
_GZIP = b"\x1f\x8b"


class Source(ABC):
    """A table in a file or folder that can be read repeatedly, in batches of rows."""

    selectable = True  # whether columns can be selected
    selection: list[int] | None = None  # positions of the selected columns; None for all
    rows: int | None = None  # None if only reading the file gives it
    image_shape: tuple[int, ...] | None = None  # shape of a row that is an image, before flattening
    names: tuple[str, ...]  # names of all columns, or none
    width: int  # number of all columns

    def __init__(self, name: str):
        self.name = name  # for errors and captions
        self.subject = f"data: {name}"

    def _set_columns(self, names: Sequence[str], width: int) -> None:
        self.names, self.width = tuple(names), width

    def refuse(
        self, rule: str, got: str = "", remedy: str = "", error: type[TautError] = DataError
    ) -> TautError:
        """Creates the error that this file violates a rule."""
        return error(subject=self.subject, rule=rule, got=got, remedy=remedy)

    def rename(self, names: Sequence[str]) -> None:
        """Renames the columns, replacing the names in the file if it has some."""
        if len(names) != self.width:
            rule = f"must name all {self.width} columns"
            raise ArgumentError(self.subject, "names", rule, f"{len(names)} names")
        self._set_columns(names, self.width)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the selected columns, or none."""
        return self.names if self.selection is None else tuple(self.pick(self.names))

    @property
    def dim(self) -> int:
        """Number of selected columns."""
        return self.width if self.selection is None else len(self.selection)

    def pick(self, row: Sequence[T]) -> Sequence[T]:
        """Selects the items of the selected columns from a row; an empty row stays empty."""
        return row if self.selection is None or not row else [row[i] for i in self.selection]

    def select(self, columns: Columns) -> Self:
        """Returns a source of the same file with the selected columns."""
        if columns is not None and not self.selectable:
            raise ArgumentError(self.subject, "columns", "must be left out for images", columns)
        selected = copy(self)
        if columns is not None:
            positions = select_positions(self.subject, self.names, self.width, columns)
            if positions != list(range(self.width)):
                selected.selection, selected.image_shape = positions, None
        return selected

    @abstractmethod
    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """Yields the selected columns in batches of `batch_rows` rows; NaN for a missing value."""

    def count(self) -> int:
        """Number of rows; reads the file if its format does not state it."""
        assert self.rows is not None
        return self.rows

    def locate(self, row: int) -> str:
        """The location of a row, for errors."""
        return f"row {row} (counted from 0)"


class ColumnSource(Source):
    """A table whose columns may hold text, dates or missing values besides numbers."""

    decimal_comma = False  # whether a comma in a number separates its decimals, not its thousands
    parse = False  # whether numbers are read in cells of text
    has_columns_argument = True  # whether the caller can choose columns by `columns=`
    orders: dict[int, tuple[str, ...]]  # of columns of ordered categories, by position
    categorical: frozenset[int] = frozenset()  # positions of columns of categories, by their type

    @abstractmethod
    def column_batches(self, batch_rows: int) -> Iterator[list[np.ndarray]]:
        """Yields the selected columns, converted by `as_column_values`, `batch_rows` rows at a time."""

    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """See `Source`; raises for a column that holds something other than numbers."""
        check_names(self.subject, self.columns)
        start = 0
        for columns in self.column_batches(batch_rows):
            yield stack_numbers(
                self.subject,
                columns,
                self.columns,
                lambda row, start=start: self.locate(start + row),
                parse=self.parse,
                selectable=self.has_columns_argument,
            )
            start += len(columns[0])


def open_bytes(path: Path, member: str | None = None) -> BinaryIO:
    """Opens the bytes of a file, decompressed if its first bytes are those of gzip.

    For a zip archive, opens the bytes of its file `member`, which is required if there are several.
    """
    with open(path, "rb") as file:
        head = file.read(4)
    if path.suffix.lower() == ".zip" and head[:2] == b"PK":
        with zipfile.ZipFile(path) as archive:
            return cast(BinaryIO, archive.open(_find_member(path, archive, member)))
    return cast(BinaryIO, gzip.open(path, "rb")) if head[:2] == _GZIP else open(path, "rb")


def _find_member(path: Path, archive: zipfile.ZipFile, member: str | None) -> str:
    subject = f"data: {path.name}"
    names = [
        item.filename
        for item in archive.infolist()
        if not item.is_dir() and not item.filename.startswith(("__MACOSX/", "."))
    ]
    if member is None:
        tables = [n for n in names if Path(n).suffix.lower() in (".csv", ".tsv", ".txt", ".data")]
        if len(tables) == 1:
            return tables[0]
        rule = "must say which file of the archive is meant" if tables else "must hold a table"
        remedy = f"Use {path.name}:{tables[0]} for the first." if tables else ""
        raise ArgumentError(subject, "path", rule, list_some(names) or "an empty archive", remedy)
    if member not in names:
        rule = f"the file must be among {list_some(names)}"
        raise ArgumentError(subject, rule=rule, got=repr(member))
    return member


def read_bytes(path: Path) -> bytes:
    """Reads all bytes of a file, decompressed as by `open_bytes`."""
    with refuse_damage(f"data: {path.name}"), open_bytes(path) as file:
        return file.read()


@contextmanager
def refuse_damage(
    subject: str, what: str = "the compressed file", errors: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Converts errors about a bad file to those of taut; `errors` mean damage, like those of gzip."""
    try:
        yield
    except TautError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, *errors) as error:
        reason = str(error).partition("\n")[0]
        rule = f"{what} is cut short or altered ({reason})"
        raise DamagedFileError(subject, rule=rule, remedy="Write or fetch it again.") from error
    except UnicodeDecodeError as error:
        rule = f"text must be UTF-8; byte {error.object[error.start]:#04x} is not"
        raise DataError(subject, rule=rule, remedy="Save the file as UTF-8.") from error
    except OSError as error:
        rule = "the file must be readable"
        raise DataError(subject, rule=rule, got=str(error.strerror or error)) from error
