"""`fit_encoding`: infers the kinds of the columns of tables, and their encoding."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut.data.column_selection import check_names, list_some, select_positions
from taut.data.column_values import LARGEST_WHOLE, check_rows, is_missing
from taut.data.encoding import ColumnEncoding, Encoding, name_category
from taut.data.number_and_date_parsing import FORMATS, parse_column
from taut.data.source_base import ColumnSource
from taut.errors import ArgumentError, DataError, check_positive, did_you_mean

_SUBJECT = "fit_encoding"
_BATCH_ROWS = 16384
_MOST_CATEGORIES = 64  # if inferred; columns declared as categories may have more
_MOST_DISTINCT = 4096
_MOSTLY = 0.9  # share of numbers above which other cells are errors, not text
_KINDS = ("number", "category", "date", "time")


def fit_encoding(
    *sources: ColumnSource,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] = (),
    categorical: Sequence[str | int] = (),
    encode: Mapping[str | int, str] | None = None,
    category_distance: float = 1.0,
    missing_distance: float = 1.0,
) -> Encoding:
    """Fits an encoding to tables with the same columns, in one pass over each.

    Columns of numbers, dates and times become numbers. A column of text with at most 64 different
    values, each used twice on average, holds categories; one with more is text and left out. So
    are columns without a name or without values, and whole numbers beyond 2**53, which identify rows.
    A column with a categorical type, such as that of pandas, is never read as numbers.

    Args:
        *sources: the tables; all columns of all of them, matched by name where they have names.
        columns: columns to use, by name or position; by default all.
        drop: columns to leave out.
        categorical: columns that hold categories, even if they look like numbers.
        encode: for single columns, "number", "category", "date" or "time"; "category:2" for
            categories that are 2 apart; or ordered categories from first to last, "low<mid<high".
        category_distance: distance of two different categories.
        missing_distance: distance that sets a missing number apart from all others.

    Raises:
        ArgumentError: no such column, or no such encoding.
        DataError: a column of numbers has a few other cells, or infinite values; ordered
            categories have two orders.
    """
    check_positive(_SUBJECT, "category_distance", category_distance)
    check_positive(_SUBJECT, "missing_distance", missing_distance)
    first = sources[0]
    names, width = first.names, first.width

    def positions(argument: str, selection: Iterable[str | int]) -> list[int]:
        listed = list(selection)
        return select_positions(first.subject, names, width, listed, argument) if listed else []

    wanted = set(range(width)) if columns is None else set(positions("columns", columns))
    dropped = set(positions("drop", drop))
    requests = dict.fromkeys(positions("categorical", categorical), "category")
    requested = encode or {}
    for i, key in zip(positions("encode", requested), requested, strict=True):
        requests[i] = requested[key]
    profiles = []
    for i in range(width):
        reason = "not selected" if i not in wanted else "dropped" if i in dropped else ""
        name = names[i] if names else f"column {i}"
        if not name and not reason:
            name, reason = f"column {i}", "it has no name, as an index saved by mistake"
        profiles.append(_Profile(name, i, bool(names), requests.get(i, ""), reason))
    for source in sources:
        for profile in profiles:
            profile.declare(source)
    for source in sources:
        read = [profile for profile in profiles if not profile.reason]
        if not read:
            raise ArgumentError(first.subject, rule="a column must be left", got="none")
        _read_table(source, read)
    encoding = Encoding(
        tuple(p.choose(float(category_distance), float(missing_distance)) for p in profiles),
        bool(names),
    )
    if not encoding.used:
        reasons = list_some([f"{c.name}: {c.reason}" for c in encoding.columns])
        rule = "a column must be left to compare"
        raise DataError(first.subject, rule=rule, got=f"none ({reasons})")
    return encoding


def _read_table(source: ColumnSource, profiles: "list[_Profile]") -> None:
    check_names(source.subject, [n for n in source.names if n in [p.name for p in profiles]])
    columns = [p.name if source.names and p.named else p.position for p in profiles]
    start = 0
    for profile in profiles:
        profile.open(source)
    for block in source.select(columns).column_batches(_BATCH_ROWS):
        for profile, cells in zip(profiles, block, strict=True):
            profile.add(cells, start)
        start += len(block[0])
    check_rows(source.subject, start)


@dataclass
class _Profile:
    """Statistics of the cells of one column over all tables."""

    name: str
    position: int  # in the first table
    named: bool  # whether tables are matched by names
    request: str  # encoding that the caller requests; empty to infer one
    reason: str = ""  # why the column is left out
    rows: int = 0
    missing: int = 0
    # Kinds of typed cells; "text" is inferred from its formats.
    kinds: set[str] = field(default_factory=set)
    # Formats in which all text can be read, the likeliest first.
    forms: list[str] = field(default_factory=lambda: list(FORMATS))
    categories: set[str] | None = field(default_factory=set)  # distinct values; None for too many
    order: tuple[str, ...] = ()  # order of the categories, from the column type
    declared: bool = False  # whether a table declares the column as categorical
    identifies: bool = False  # whether it holds whole numbers too large to be measurements
    # For each table, how many cells of text are numbers, and how many are not.
    texts: list[list[int]] = field(default_factory=list)
    odd: str = ""  # the first cell of text that is not a number, with its location

    def declare(self, source: ColumnSource) -> None:
        """Sets the categories that the column type declares, before any table is read."""
        by_name = self.named and self.name in source.names
        at = source.names.index(self.name) if by_name else self.position
        order = source.orders.get(at, ())
        if self.order and order and order != self.order and not (self.request or self.reason):
            rule = f"the categories of column {self.name!r} must have one order in all tables"
            got = f"{' < '.join(self.order)}, and {' < '.join(order)}"
            remedy = f"Give both columns one type, or encode it as {'<'.join(self.order)!r}."
            raise DataError(source.subject, rule=rule, got=got, remedy=remedy)
        self.order = self.order or order
        self.declared |= at in source.categorical

    def open(self, source: ColumnSource) -> None:
        """Begins a new table."""
        self.source = source
        if not source.decimal_comma and "decimal comma" in self.forms:
            self.forms.remove("decimal comma")
            self.forms.insert(2, "decimal comma")
        self.texts.append([0, 0])

    def add(self, cells: np.ndarray, start: int) -> None:
        """Adds the next cells of the table, which begin in row `start`."""
        kind = cells.dtype.kind
        self.rows += len(cells)
        if kind == "O":
            self._add_text(cells, start)
            return
        self.kinds.add({"b": "category", "M": "date", "m": "time"}.get(kind, "number"))
        if kind in "cV":
            rule = f"column {self.name!r} must hold numbers, text or dates"
            raise DataError(self.source.subject, rule=rule, got=str(cells.dtype))
        if kind in "fMm":
            self.missing += int(np.count_nonzero(cells != cells))
        if kind == "f":
            self._refuse_infinite(np.isinf(cells), start)
        if kind in "iu" and len(cells):
            self.identifies |= max(abs(int(cells.min())), abs(int(cells.max()))) > LARGEST_WHOLE
        named = self.request.startswith("category") or "<" in self.request
        if kind == "b" or self.declared or self.order or named:
            self._collect(name_category(cells))

    def _add_text(self, cells: np.ndarray, start: int) -> None:
        rows = [row for row, cell in enumerate(cells.tolist()) if not is_missing(cell)]
        texts = [cells[row].strip() for row in rows]
        self.missing += len(cells) - len(texts)
        self._collect(name_category(cells))
        if not texts:
            return
        self.kinds.add("text")
        numbers = parse_column("number", texts) if "number" in self.forms else None
        self.forms = [form for form in self.forms if parse_column(form, texts) is not None]
        if numbers is not None:
            infinite = np.zeros(len(cells), bool)
            infinite[rows] = np.isinf(numbers)
            self._refuse_infinite(infinite, start)
            large = (texts[i].lstrip("+-") for i in np.flatnonzero(abs(numbers) >= LARGEST_WHOLE))
            self.identifies |= any(t.isdecimal() and int(t) > LARGEST_WHOLE for t in large)
        plain = numbers is not None
        are_numbers = [plain or parse_column("number", [text]) is not None for text in texts]
        self.texts[-1][0] += sum(are_numbers)
        self.texts[-1][1] += len(texts) - sum(are_numbers)
        if not self.odd and not all(are_numbers):
            at = are_numbers.index(False)
            location = f"{self.source.locate(start + rows[at])} of {self.source.name}"
            self.odd = f"{texts[at][:40]!r} in {location}"

    def _collect(self, names: Iterable[str | None]) -> None:
        if self.categories is not None:
            self.categories.update(name for name in names if name is not None)
            if len(self.categories) > _MOST_DISTINCT:
                self.categories = None

    def _refuse_infinite(self, infinite: np.ndarray, start: int) -> None:
        if infinite.any():
            location = self.source.locate(start + int(infinite.argmax()))
            raise DataError(
                self.source.subject,
                rule=f"every value must be a finite number; one is infinite, in {location}, column "
                f"{self.name!r}",
                remedy="Drop such rows or fill them in.",
            )

    def choose(self, category_distance: float, missing_distance: float) -> ColumnEncoding:
        """Chooses the encoding of the column."""
        gaps = {"missing": self.missing > 0, "missing_distance": missing_distance}
        if self.reason:
            return ColumnEncoding(self.name, "left out", reason=self.reason)
        kind, _, distance = self.request.partition(":")
        if order := self._find_order():
            return ColumnEncoding(self.name, "ordered", categories=order, **gaps)
        if kind and (kind not in _KINDS or (distance and kind != "category")):
            rule = f"must be {', '.join(_KINDS)}, category:2, or categories in order, a<b<c"
            got = f"{self.request!r} for column {self.name!r}"
            raise ArgumentError(_SUBJECT, "encode", rule, got, did_you_mean(kind, _KINDS))
        if self.missing == self.rows:
            return ColumnEncoding(self.name, "left out", reason="it has no values")
        encoded_kind, detail = self._read_as(kind) if kind else self._find_kind()
        if encoded_kind == "category":
            apart = self._distance(distance) if distance else category_distance
            names = tuple(sorted(self.categories or (), key=_by_size))
            return ColumnEncoding(self.name, encoded_kind, categories=names, distance=apart, **gaps)
        if encoded_kind == "left out":
            return ColumnEncoding(self.name, encoded_kind, reason=detail)
        return ColumnEncoding(self.name, encoded_kind, detail, **gaps)

    def _find_kind(self) -> tuple[Any, str]:
        """The kind inferred from the cells, and its text format; for "left out", the reason."""
        distinct = None if self.categories is None else len(self.categories)
        few = distinct is not None and distinct <= min(_MOST_CATEGORIES, max(2, self.rows / 2))
        many = f"more than {_MOST_DISTINCT:,}" if distinct is None else f"{distinct:,}"
        if self.declared:
            return ("category", "") if few else ("left out", f"{many} different categories")
        if self.identifies:
            return "left out", "an identifier, whole numbers beyond 2**53"
        form = self.forms[0] if self.forms else ""
        text = {FORMATS[form][0] if form else "text"} if "text" in self.kinds else set()
        kinds = self.kinds - {"text"} | text
        if len(kinds) == 1 and kinds != {"text"}:
            return min(kinds), form or "number"
        if kinds <= {"text", "category"} and few:
            return "category", ""
        mostly = any(some >= _MOSTLY * max(1, some + others) for some, others in self.texts)
        if mostly or len(kinds) > 1:
            what = "numbers" if mostly else " and ".join(sorted(kinds))
            rule = f"column {self.name!r} must hold one kind of values"
            got = f"{what}, and {self.odd or 'something else'}"
            remedy = "Fix it, or leave the column out."
            raise DataError(
                self.source.subject, rule=rule, got=got, remedy=remedy, option=("drop", [self.name])
            )
        return "left out", f"text, {many} different values"

    def _read_as(self, kind: str) -> tuple[Any, str]:
        """The kind that the caller requests, and its text format."""
        if kind == "category":
            if self.categories is None:
                rule = f"a column of categories must have at most {_MOST_DISTINCT} of them"
                raise ArgumentError(_SUBJECT, "encode", rule, f"more in column {self.name!r}")
            return kind, ""
        forms = [form for form in self.forms if FORMATS[form][0] == kind]
        if "text" in self.kinds and not forms:
            rule = f"column {self.name!r} must hold a {kind} in every cell"
            raise DataError(self.source.subject, rule=rule, got=self.odd or "other text")
        return kind, (forms or ["number"])[0]

    def _find_order(self) -> tuple[str, ...]:
        """The order of the categories from the caller or the column type; empty if there is none."""
        order = () if self.request else self.order
        if "<" in self.request:
            parts = [part.strip() for part in self.request.split("<")]
            names = name_category(np.array(parts, object))
            order = tuple(name or part for name, part in zip(names, parts, strict=True))
        strange = sorted((self.categories or set()) - set(order))
        if order and (strange or len(set(order)) < len(order) or self.categories is None):
            rule = f"the order of column {self.name!r} must list each of its values once"
            got = f"also {list_some(strange)} in the data" if strange else " < ".join(order)
            raise ArgumentError(_SUBJECT, "encode", rule, got)
        return order

    def _distance(self, text: str) -> float:
        numbers = parse_column("number", [text])
        distance = -1.0 if numbers is None else float(numbers[0])
        check_positive(_SUBJECT, f"encode of {self.name!r}", distance)
        return distance


def _by_size(name: str) -> tuple[float, str]:
    """Sort key: numbers by size, then words alphabetically."""
    try:
        return float(name), name
    except ValueError:
        return float("inf"), name
