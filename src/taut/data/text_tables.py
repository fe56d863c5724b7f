"""Delimited text files such as .csv and .tsv, with or without a header."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from taut.data.column_selection import list_some
from taut.data.column_values import is_missing, parse_number
from taut.data.labels import as_position
from taut.data.source_base import ColumnSource, open_bytes, refuse_damage
from taut.errors import ArgumentError, DamagedFileError, DataError

_SAMPLE = 100
_SEVERAL = re.compile(r"[-+.\d]\S*(\s+[-+.\d]\S*)+\s*")


class TextSource(ColumnSource):
    """A table in a text file, which may be compressed or `member` of a zip archive.

    The delimiter is the first of tab, semicolon, comma and bar that occurs equally often in the first two
    lines, otherwise white space. The first row is a header if it has a word above a column of numbers, or
    only words that do not occur below it. With `label`, the name or position of the label column, it is
    also a header if it numbers the columns or is the only row with that name. Numbers may be quoted; empty
    lines are skipped.
    """

    parse = True

    def __init__(self, path: Path, member: str | None = None, label: str | int | None = None):
        super().__init__(path.name if member is None else f"{path.name}:{member}")
        self._path, self._member, self.orders = path, member, {}
        with refuse_damage(self.subject), self._open() as file:
            opening = [line for line in islice(file, _SAMPLE) if line.strip()][:2]
        if not opening:
            raise self.refuse("a table must have rows; the file is empty")
        self._delimiter = _detect_delimiter(opening)
        self.decimal_comma = self._delimiter != ","
        sample = [row for _, row in islice(self._records(), 2)]
        first = [cell.strip() for cell in sample[0]] if sample else [""]
        # A header by numpy.savetxt starts with a comment sign.
        first[0] = first[0].removeprefix("#").strip()
        rows = [*sample, *self._peek()]
        header = _has_header(rows) or self._has_label(first, rows[1:], label)
        self._start = int(header)
        if header and len(sample) < 2:
            raise self.refuse("a table must have rows; the file has a header and nothing else")
        self._set_columns(first if header else (), len(first))

    def _has_label(
        self, first: Sequence[str], below: Sequence[Sequence[str]], label: str | int | None
    ) -> bool:
        """Whether the first row has the name of the label, or numbers the columns.

        Raises:
            ArgumentError: it may be a row or a header, and `label` a position or a name in it.
        """
        width, at = len(first), as_position(label)
        at = width if at is None else at + width * (at < 0)
        words = any(parse_number(cell) is None for cell in first)
        # Names that are numbers are whole and differ; few rows of measurements are so.
        whole = all(cell.isdecimal() for cell in first) and len(set(first)) == width
        if not 0 <= at < width:
            return label in first and (words or whole)
        if width > 2 and all(cell == str(i) for i, cell in enumerate(first) if i != at):
            # The label's own may be a name or a class.
            return first[at] == str(at) or all(row[at].strip() != first[at] for row in below)
        if not (label in first and whole):
            return False
        raise ArgumentError(
            self.subject,
            "label",
            rule=f"must say which column is meant; the first line, {list_some(first)}, may be a row "
            f"or a header, and {label!r} the column at position {label} or the one with that name",
            remedy=f"For a table without a header count from the end: {at - width}. Or name the "
            "columns by words.",
        )

    def column_batches(self, batch_rows: int) -> Iterator[list[np.ndarray]]:
        """See `ColumnSource`."""
        records = (self.pick(row) for _, row in islice(self._records(), self._start, None))
        while batch := list(islice(records, batch_rows)):
            table = np.array(batch, object)
            yield [table[:, i] for i in range(self.dim)]

    def count(self) -> int:
        """See `Source`."""
        return sum(1 for _ in self._records()) - self._start

    def locate(self, row: int) -> str:
        """See `Source`."""
        line, _ = next(islice(self._records(), self._start + row, None))
        return f"line {line}"

    def _open(self) -> io.TextIOWrapper:
        bytes_of = open_bytes(self._path, self._member)
        return io.TextIOWrapper(bytes_of, encoding="utf-8-sig", newline="")

    def _peek(self) -> list[list[str]]:
        """The rows after the second, up to a hundred, or to an invalid one, which is reported later."""
        rows = []
        with suppress(DataError, DamagedFileError):
            rows.extend(row for _, row in islice(self._records(), 2, _SAMPLE))
        return rows

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yields the line number and cells of each non-empty row."""
        width = None
        with refuse_damage(self.subject), self._open() as file:
            lines, delimiter = file, self._delimiter
            if delimiter == " ":
                lines = (line.replace("\t", " ").strip() + "\n" for line in file)
            reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
            try:
                for row in reader:
                    if len(row) != width:
                        if len(row) <= 1 and not "".join(row).strip():
                            continue
                        if width is not None:
                            raise self.refuse(
                                f"every row must have as many cells as the first, {width}",
                                f"{len(row)} on line {reader.line_num}",
                                "Fix it; if it is the last, the file may be cut short.",
                            )
                        width = len(row)
                    yield reader.line_num, row
            except csv.Error as error:
                rule = f"line {reader.line_num} must be delimited text"
                raise self.refuse(rule, str(error), error=DamagedFileError) from error


def _detect_delimiter(opening: Sequence[str]) -> str:
    bare = [re.sub(r'"[^"]*"', "", line.strip("\r\n")) for line in opening]

    def counts(mark: str) -> list[int]:
        return [line.count(mark) for line in bare]

    def several(cell: str) -> bool:
        # A date and a time are one value, although both begin with a digit.
        words = cell.split()
        return len(words) > 1 and all(parse_number(word) is not None for word in words)

    def fits(mark: str) -> bool:
        # Fixed-width columns with a tab before the last, as in some old files, are not a table of two.
        equal = counts(mark)[0] > 0 and len(set(counts(mark))) == 1
        return equal and not any(map(several, bare[-1].split(mark)))

    if mark := next((mark for mark in "\t;,|" if fits(mark)), None):
        return mark
    widths = {len(line.split()) for line in bare}
    if len(widths) == 1 and widths.pop() > 1 and _SEVERAL.fullmatch(bare[-1].strip()):
        return " "
    return max(",;\t|", key=lambda mark: counts(mark)[0])


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some rows names the columns."""
    first, *others = rows or [[]]
    words = [parse_number(cell) is None for cell in first]
    if not any(words) or not others:
        return any(words)
    below = [[row[i] for row in others if not is_missing(row[i])] for i in range(len(first))]
    for word, cells in zip(words, below, strict=True):
        if word and cells and all(parse_number(cell) is not None for cell in cells):
            return True
    names = all(not cell[:1].isdecimal() for cell in first)
    return names and not any(c in cells for c, cells in zip(first, below, strict=True) if c)
