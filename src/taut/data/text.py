"""Delimited text: .csv and .tsv, with or without a header."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from taut.data.columns import column_label
from taut.data.numbers import LARGEST_WHOLE, check_whole, convert_cells, parse_number
from taut.data.source import Source, open_bytes, refuse_damage
from taut.errors import DamagedFileError, DataError

__all__ = ["TextSource"]

_WHOLE = re.compile(r"\s*[+-]?\d+\s*")


class TextSource(Source):
    """A table in a text file.

    The delimiter is the first of tab, semicolon and comma that the first two lines hold equally
    often. The first row is a header if any of its cells is neither a number nor missing. Numbers
    may be quoted, true and false are 1 and 0, empty lines are skipped.

    Args:
        path: the file.
        header: whether the first row is a header; None to detect it.

    Attributes:
        first_row: cells of the first row, header or not.
    """

    def __init__(self, path: Path, header: bool | None = None):
        super().__init__(path.name)
        self._path = path
        with refuse_damage(self.subject), self._open() as file:
            opening = [line for line in islice(file, 100) if line.strip()][:2]
        if not opening:
            raise DataError(f"{self.subject}: a table must have rows; the file is empty.")
        self._delimiter = _detect_delimiter(opening)
        _, first = next(self._records(), (0, []))
        if header is None:
            header = any(parse_number(cell) is None for cell in first)
        self.first_row = [cell.strip() for cell in first]
        # A header by numpy.savetxt starts as a comment does.
        self.first_row[0] = self.first_row[0].removeprefix("#").strip()
        self._start = int(header)
        if header and next(islice(self._records(), 1, None), None) is None:
            raise DataError(
                f"{self.subject}: a table must have rows; the file has a header and nothing else."
            )
        self._set_columns(self.first_row if header else (), len(first))

    def blocks(self, batch_rows: int) -> Iterator[np.ndarray]:
        """See `Source`."""
        start, records = 0, islice(self._records(), self._start, None)
        while batch := [self.pick(row) for _, row in islice(records, batch_rows)]:
            yield self._convert(batch, start)
            start += len(batch)

    def count(self) -> int:
        """See `Source`."""
        return sum(1 for _ in self._records()) - self._start

    def locate(self, row: int) -> str:
        """See `Source`."""
        line, _ = next(islice(self._records(), self._start + row, None))
        return f"line {line}"

    def cells(self, column: int) -> list[str]:
        """The text of one column in every row."""
        return [row[column].strip() for _, row in islice(self._records(), self._start, None)]

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open_bytes(self._path), encoding="utf-8-sig", newline="")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each row that is not empty."""
        width = None
        with refuse_damage(self.subject), self._open() as file:
            reader = csv.reader(file, delimiter=self._delimiter, strict=True, skipinitialspace=True)
            try:
                for row in reader:
                    if len(row) != width:
                        if len(row) <= 1 and not "".join(row).strip():
                            continue
                        if width is not None:
                            raise DataError(
                                subject=self.subject,
                                rule=f"every row must have as many cells as the first, {width}",
                                got=f"{len(row)} on line {reader.line_num}",
                                remedy="Fix it; if it is the last, the file may be cut short.",
                            )
                        width = len(row)
                    yield reader.line_num, row
            except csv.Error as error:
                raise DamagedFileError(
                    f"{self.subject}: line {reader.line_num} must be delimited text; got: {error}."
                ) from error

    def _convert(self, cells: list[Sequence[str]], start: int) -> np.ndarray:
        def locate(row: int) -> str:
            return self.locate(start + row)

        values = _parse_floats(cells)
        if values is None:
            values = convert_cells(self.subject, cells, parse_number, self.columns, locate)
        for row, column in np.argwhere(np.abs(values) >= LARGEST_WHOLE):
            cell = cells[row][column]
            if _WHOLE.fullmatch(cell) and abs(int(cell)) > LARGEST_WHOLE:
                place = f" on {locate(row)}, column {column_label(self.columns, int(column))}"
                check_whole(self.subject, int(cell), place)
        return values


def _parse_floats(cells: list[Sequence[str]]) -> np.ndarray | None:
    """Cells that are all plain numbers, at the speed of numpy; `None` if one is not."""
    # numpy reads 1_000 as a number; a table means an identifier.
    if any("_" in cell for row in cells for cell in row):
        return None
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None


def _detect_delimiter(opening: list[str]) -> str:
    def counts(mark: str) -> list[int]:
        return [re.sub(r'"[^"]*"', "", line).count(mark) for line in opening]

    for mark in "\t;,":
        if counts(mark)[0] and len(set(counts(mark))) == 1:
            return mark
    return max(",;\t", key=lambda mark: counts(mark)[0])
