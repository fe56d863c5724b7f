"""Delimited text: .csv and .tsv, with or without a header."""

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from taut.data.columns import Columns, check_names, column_label, select_positions
from taut.data.numbers import LARGEST_WHOLE, check_whole, parse, refuse_text
from taut.data.source import Block, open_bytes, reading, subject_of
from taut.errors import DamagedFileError, DataError

__all__ = ["TextSource"]

_WHOLE = re.compile(r"\s*[+-]?\d+\s*")


class TextSource:
    """A table in a text file.

    The delimiter is the first of tab, semicolon and comma that the first two lines hold equally
    often. The first row is a header if any of its cells is neither a number nor missing. Numbers
    may be quoted, true and false are 1 and 0, empty lines are skipped.

    Args:
        path: the file.
        columns: the columns to keep.
        header: whether the first row is a header; None to detect it.
    """

    image_shape = None
    rows = None

    def __init__(self, path: Path, columns: Columns = None, header: bool | None = None):
        self._path = path
        self._subject = subject_of(path)
        with reading(path), self._open() as file:
            opening = [line for line in islice(file, 100) if line.strip()][:2]
        if not opening:
            raise DataError(f"{self._subject}: a table must have rows; the file is empty.")
        self._delimiter = _sniff(opening)
        _, first = next(self._records(), (0, []))
        self._width = len(first)
        self._has_header = any(parse(cell) is None for cell in first) if header is None else header
        self.first_row = [cell.strip() for cell in first]
        # A header by numpy.savetxt starts as a comment does.
        self.first_row[0] = self.first_row[0].removeprefix("#").strip()
        names = self.first_row if self._has_header else []
        if self._has_header and next(islice(self._records(), 1, None), None) is None:
            raise DataError(
                f"{self._subject}: a table must have rows; the file has a header and nothing else."
            )
        self._chosen = select_positions(self._subject, names, self._width, columns)
        self.columns = tuple(names[i] for i in self._chosen) if names else ()
        check_names(self._subject, self.columns)
        self.dim = len(self._chosen)

    def blocks(self, batch_rows: int) -> Iterator[Block]:
        """See `Source`."""
        records = islice(self._records(), int(self._has_header), None)
        while batch := list(islice(records, batch_rows)):
            lines = np.array([line for line, _ in batch])
            cells = [row for _, row in batch]
            if self.dim < self._width or self._chosen != sorted(self._chosen):
                cells = [[row[i] for i in self._chosen] for row in cells]
            yield Block(self._convert(cells, lines), lines)

    def count(self) -> int:
        """See `Source`."""
        return sum(1 for _ in self._records()) - int(self._has_header)

    def cells(self) -> list[list[str]]:
        """The chosen columns of every row as the text they are."""
        records = islice(self._records(), int(self._has_header), None)
        return [[row[i].strip() for i in self._chosen] for _, row in records]

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open_bytes(self._path), encoding="utf-8-sig", newline="")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each row that is not empty."""
        width = None
        with reading(self._path), self._open() as file:
            reader = csv.reader(file, delimiter=self._delimiter, strict=True, skipinitialspace=True)
            try:
                for row in reader:
                    if len(row) != width:
                        if len(row) <= 1 and not "".join(row).strip():
                            continue
                        if width is not None:
                            raise DataError(
                                subject=self._subject,
                                rule=f"every row must have as many cells as the first, {width}",
                                got=f"{len(row)} on line {reader.line_num}",
                                remedy="Fix it; if it is the last, the file may be cut short.",
                            )
                        width = len(row)
                    yield reader.line_num, row
            except csv.Error as error:
                raise DamagedFileError(
                    f"{self._subject}: line {reader.line_num} must be delimited text; got: {error}."
                ) from error

    def _convert(self, cells: list[list[str]], lines: np.ndarray) -> np.ndarray:
        try:
            values = np.array(cells, dtype=np.float64)
        except ValueError:
            values = self._convert_slowly(cells, lines)
        # Python reads 1_000 as a number; a table means an identifier.
        if any("_" in cell for row in cells for cell in row):
            values = self._convert_slowly(cells, lines)
        for row, column in np.argwhere(np.abs(values) >= LARGEST_WHOLE):
            if _WHOLE.fullmatch(cell := cells[row][column]):
                place = f" on line {lines[row]}, column {column_label(self.columns, int(column))}"
                check_whole(self._subject, int(cell), place)
        return values

    def _convert_slowly(self, cells: list[list[str]], lines: np.ndarray) -> np.ndarray:
        parsed = [[parse(cell) for cell in row] for row in cells]
        text: dict[int, int] = {}  # column -> its first row that is no number
        for at, row in enumerate(parsed):
            for column, value in enumerate(row):
                if value is None:
                    text.setdefault(column, at)
        if text:
            columns = sorted(text)
            refuse_text(
                self._subject,
                [column_label(self.columns, column) for column in columns],
                [cells[text[column]][column] for column in columns],
                f" on line {lines[text[columns[0]]]}",
            )
        return np.array(parsed, dtype=np.float64)


def _sniff(opening: list[str]) -> str:
    def counts(mark: str) -> list[int]:
        return [re.sub(r'"[^"]*"', "", line).count(mark) for line in opening]

    for mark in "\t;,":
        if counts(mark)[0] and len(set(counts(mark))) == 1:
            return mark
    return max(",;\t", key=lambda mark: counts(mark)[0])
