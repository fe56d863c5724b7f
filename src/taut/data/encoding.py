r"""`Encoding`: how the columns of a mixed table become numbers, and the metric on rows that this is.

The distance of two rows is the L2 distance of their encoded rows:

$$d(r, s)^2 = \sum_{\text{numbers}} \frac{(r_j - s_j)^2}{c_j^2}
  + \sum_{\text{categories}} \delta_j^2\,[r_j \ne s_j],$$

with $c_j$ the scale of a column. Numbers, dates (in days), times (in hours) and ordered categories
(their positions 0, 1, 2, ...) are one feature each. Unordered categories are $\delta_j$ apart, any
two of them: two are one feature with the values 0 and $\delta_j$; more are one-hot vectors times
$\delta_j / \sqrt 2$, whose distances are $\sqrt{\delta_j^2/2 + \delta_j^2/2} = \delta_j$. A missing
category is a category of its own. A missing number stands at the centre of its column, and a second
feature, 0 or $\delta$, sets it apart: from a value $v$ it is
$\sqrt{\delta^2 + (v - \text{centre})^2/c_j^2}$ away. So this is a metric, and what holds of critics
and bounds in L2 holds of rows.

Rows that come later may have categories, or gaps, that the encoding has never seen. These are mapped to
a point that is *at most* as far from each known value as the metric says (the zero vector; the middle of
two categories; the centre of a column), and all of them to the same one.

**Lemma.** The map from rows to encoded rows is 1-Lipschitz, and an isometry on rows without unseen values.
So a 1-Lipschitz critic of encoded rows is 1-Lipschitz in the metric on rows, and
$W_1$ of encoded rows is at most $W_1$ of the rows: lower bounds stay valid, upper bounds hold only where
nothing is unseen, which `Encoding.unseen` finds out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from taut.data.column_selection import list_some
from taut.data.column_values import is_missing, to_floats
from taut.data.number_and_date_parsing import FORMATS, parse_column, read_numbers, to_days, to_unit
from taut.errors import DataError

ColumnKind = Literal["number", "date", "time", "ordered", "category", "left out"]
_UNITS = {"date": "date, in days", "time": "time, in hours"}
_BOOLEANS = {"true": "True", "false": "False"}


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column becomes numbers.

    Attributes:
        name: name of the column.
        kind: what the column holds, or "left out".
        form: how its text writes numbers or dates, one of `taut.data.number_and_date_parsing.FORMATS`.
        categories: the categories, in order where they are ordered.
        distance: distance of any two categories.
        missing: whether some values are missing.
        missing_distance: distance that sets a missing number apart.
        reason: why it is left out.
    """

    name: str
    kind: ColumnKind
    form: str = "number"
    categories: tuple[str, ...] = ()
    distance: float = 1.0
    missing: bool = False
    missing_distance: float = 1.0
    reason: str = ""

    def __post_init__(self) -> None:
        # Encodings are read from files too.
        texts = (self.name, self.form, self.reason, *self.categories)
        numbers = (self.distance, self.missing_distance)
        if not (
            self.kind in get_args(ColumnKind)
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(x, float) and 0 < x < math.inf for x in numbers)
            and isinstance(self.missing, bool)
            and self.form in FORMATS
            and len(set(self.categories)) == len(self.categories)
        ):
            raise ValueError("no encoding of a column")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the encoded features, none for a column that is left out."""
        if self.kind == "left out":
            return ()
        gap = f"{self.name} missing"
        if self.kind != "category":
            return (self.name, gap) if self.missing else (self.name,)
        names = [f"{self.name}={category}" for category in self.categories]
        names += [gap] if self.missing else []
        return tuple(names if len(names) > 2 else names[-1:])

    @property
    def fixed(self) -> tuple[bool, ...]:
        """For each feature, whether its unit is stated, so that scaling leaves it alone."""
        names = self.features
        return (True,) * len(names) if self.kind == "category" else (False, True)[: len(names)]

    @property
    def indicators(self) -> tuple[float, ...]:
        """For each feature, its encoded value where a cell has the category or gap; 1 for numbers."""
        count = len(self.features)
        if self.kind == "category":
            return (self.distance / math.sqrt(2 if count > 1 else 1),) * count
        return (1.0, self.missing_distance)[:count]

    def encode(self, cells: np.ndarray) -> np.ndarray:
        """Encodes the output of `as_column_values` as features, `(n, features)`; NaN for a missing number.

        Raises:
            DataError: a cell is no number or date, or no category of an ordered column.
        """
        if self.kind == "category":
            return self._one_hot(cells)
        values = self._values(cells)
        if not self.missing:
            return values[:, None]
        return np.stack([values, np.isnan(values) * self.missing_distance], axis=1)

    def _one_hot(self, cells: np.ndarray) -> np.ndarray:
        index: dict[str | None, int] = {name: i for i, name in enumerate(self.categories)}
        if self.missing:
            index[None] = len(index)
        indices = np.array([index.get(name, -1) for name in name_category(cells)])
        if len(index) <= 2:
            # One category and all others; or two, and others in the middle.
            other = self.distance if len(index) == 1 else self.distance / 2
            return np.where(indices < 0, other, indices * self.distance)[:, None]
        return (indices[:, None] == np.arange(len(index))) * self.indicators[0]

    def _values(self, cells: np.ndarray) -> np.ndarray:
        if self.kind == "ordered":
            index = {name: float(i) for i, name in enumerate(self.categories)}
            names = name_category(cells)
            strange = [n for n in names if n is not None and n not in index]
            if strange:
                self._refuse(f"one of the categories {list_some(self.categories)}", strange[0])
            return np.array([np.nan if name is None else index[name] for name in names])
        match cells.dtype.kind:
            case "M":
                return to_days(cells)
            case "m":
                return to_unit(cells, "h")
            case "O":
                return self._read(cells)
        return to_floats(f"column {self.name!r}", cells)

    def _read(self, cells: np.ndarray) -> np.ndarray:
        if self.form == "number" and (numbers := read_numbers(cells)) is not None:
            return numbers
        values = np.full(len(cells), np.nan)
        there = [i for i, cell in enumerate(cells) if not is_missing(cell)]
        texts = [str(cells[i]).strip() for i in there]
        parsed = parse_column(self.form, texts) if texts else np.zeros(0)
        if parsed is None:
            odd = next(text for text in texts if parse_column(self.form, [text]) is None)
            self._refuse(f"a {self.kind}", odd)
        values[there] = parsed
        return values

    def _refuse(self, rule: str, got: str) -> None:
        raise DataError(f"column {self.name!r}", rule=f"every cell must be {rule}", got=repr(got))

    def has_unseen(self, features: np.ndarray) -> bool:
        """Whether one of the encoded cells is a category, or a gap, that is not known here."""
        if self.kind != "category":
            return not self.missing and bool(np.isnan(features[:, 0]).any())
        if features.shape[1] > 1:
            return not features.any(axis=1).all()
        known_values = (0.0, self.distance)[: len(self.categories) + self.missing]
        return not np.isin(features[:, 0], known_values).all()

    def decode(self, features: np.ndarray) -> list[str]:
        """The cells that encoded features `(n, features)` stand for, for people to read."""
        if self.kind == "category":
            names = [*self.categories, *["missing"] * self.missing]
            if len(names) <= 2:
                indices = np.rint(features[:, 0] / self.distance).astype(int)
                return [names[index] if index < len(names) else "other" for index in indices]
            return [names[row.argmax()] if row.any() else "other" for row in features]
        return [self.show(value) for value in features[:, 0].tolist()]

    def show(self, value: float) -> str:
        """A number of this column for people to read.

        Example:
            >>> ColumnEncoding("day", "date").show(364.5)
            '1970-12-31 12:00'
            >>> ColumnEncoding("opened", "time").show(15.4333)
            '15:26'
            >>> ColumnEncoding("id", "number").show(1000123.0)
            '1,000,123'
        """
        if value != value:
            return "missing"
        if self.kind == "date":
            moment = np.datetime64(round(value * 86400), "s")
            text = str(moment).replace("T", " ")
            return text[:10] if text.endswith("00:00:00") else text[:16]
        if self.kind == "time":
            hours, minutes = divmod(round(abs(value) * 60), 60)
            return f"{'-' if value < 0 else ''}{hours:02d}:{minutes:02d}"
        if self.kind == "ordered" and value == int(value):
            return self.categories[int(value)]
        # Whole digits of large numbers, which may be keys, are worth more than a power of ten.
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"

    @property
    def description(self) -> str:
        """How the column is used, or why it is left out, in a few words."""
        gaps = (
            f"; a missing value is {self.missing_distance:g} from the centre"
            if self.missing
            else ""
        )
        match self.kind:
            case "left out":
                return f"left out: {self.reason}"
            case "category":
                count = len(self.categories) + self.missing
                gaps = ", one of them for missing values" if self.missing else ""
                nouns = "category" if count == 1 else "categories"
                return f"{count} {nouns}, {self.distance:g} apart{gaps}"
            case "ordered":
                return f"ordered, one step apart: {' < '.join(self.categories)}{gaps}"
        how = "" if self.form in ("number", "ISO", "time") else f", {self.form}"
        return f"{_UNITS.get(self.kind, 'number')}{how}{gaps}"


@dataclass(frozen=True)
class Encoding:
    """How each column of a table becomes numbers; `fit_encoding` finds it in the data.

    Attributes:
        columns: all columns of the table in their order, also those that are left out.
        named: whether the table has column names.

    Example:
        >>> colour = ColumnEncoding("colour", "category", categories=("blue", "red", "tan"))
        >>> encoding = Encoding((ColumnEncoding("age", "number"), colour))
        >>> encoding.features
        ('age', 'colour=blue', 'colour=red', 'colour=tan')
        >>> rows = encoding.encode([np.array([3.0, 4.0]), np.array(["red", "tan"], object)])
        >>> print(f"{np.linalg.norm(rows[0] - rows[1]) ** 2:.6f}")  # 1 of age, and 1 of colour
        2.000000
    """

    columns: tuple[ColumnEncoding, ...]
    named: bool = True

    @property
    def used(self) -> tuple[ColumnEncoding, ...]:
        """The columns that are not left out."""
        return tuple(column for column in self.columns if column.kind != "left out")

    @property
    def left_out(self) -> tuple[ColumnEncoding, ...]:
        """The columns that are left out."""
        return tuple(column for column in self.columns if column.kind == "left out")

    def select(self, names: Sequence[str], subject: str = "data") -> list[str | int]:
        """The columns to read of a table with these column names, or positions if it has none.

        Raises:
            DataError: a column is not there.
        """
        if not (self.named and names):
            return [i for i, column in enumerate(self.columns) if column.kind != "left out"]
        if missing := [column.name for column in self.used if column.name not in names]:
            rule = "must have the columns that were encoded"
            got = f"none called {list_some(missing)} among {list_some(names, 20)}"
            raise DataError(subject, rule=rule, got=got)
        return [column.name for column in self.used]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the encoded features; a name that two would share is numbered."""
        taken: dict[str, None] = {}
        for name in (name for column in self.used for name in column.features):
            unique, count = name, 1
            while unique in taken:
                count += 1
                unique = f"{name} ({count})"
            taken[unique] = None
        return tuple(taken)

    @property
    def fixed(self) -> np.ndarray:
        """For each feature, whether its unit is stated, so that scaling leaves it alone."""
        return np.array([flag for column in self.used for flag in column.fixed], bool)

    @property
    def indicators(self) -> np.ndarray:
        """For each feature, its encoded value where a cell has the category or gap; 1 for numbers."""
        return np.array([value for column in self.used for value in column.indicators])

    @property
    def groups(self) -> list[slice]:
        """The features of each used column."""
        ends = np.cumsum([0, *(len(column.features) for column in self.used)]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    @property
    def mixed(self) -> bool:
        """Whether there is more than plain numbers: categories, dates, times or missing values."""
        return any(column.kind != "number" or column.missing for column in self.used)

    @property
    def has_gaps(self) -> bool:
        """Whether a number may be missing, and so stands at the centre of its column."""
        return any(column.missing and column.kind != "category" for column in self.used)

    def encode(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        """The encoded rows of the used columns, `(n, features)`; NaN for a missing number."""
        parts = [column.encode(values) for column, values in zip(self.used, cells, strict=True)]
        rows = np.concatenate(parts, axis=1)
        if (wrong := np.isinf(rows)).any():
            rule, name = "values must be finite", self.features[int(wrong.any(0).argmax())]
            raise DataError(f"column {name!r}", rule=rule, got="infinity")
        return rows

    def unseen(self, rows: np.ndarray) -> tuple[str, ...]:
        """Names of the columns in which encoded rows have categories, or gaps, not known here."""
        pairs = zip(self.used, self.groups, strict=True)
        return tuple(column.name for column, group in pairs if column.has_unseen(rows[:, group]))

    def decode(self, rows: np.ndarray) -> list[list[str]]:
        """The cells of encoded rows for people to read, one list for each row."""
        pairs = zip(self.used, self.groups, strict=True)
        columns = [column.decode(rows[:, group]) for column, group in pairs]
        return [list(row) for row in zip(*columns, strict=True)]

    @property
    def accounts(self) -> dict[str, str]:
        """For every column of the table, how it is used or why it is left out."""
        return {column.name: column.description for column in self.columns}

    @property
    def losses(self) -> str:
        """All columns that are left out, with the reasons, in one sentence; empty if there are none."""
        reasons = [f"{column.name} ({column.reason})" for column in self.left_out]
        return f"left out: {', '.join(reasons)}" if reasons else ""

    def to_json(self) -> dict[str, Any]:
        """The encoding in plain lists, strings and numbers."""
        return {"named": self.named, "columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> "Encoding":
        """What `to_json` wrote; raises `ValueError`, `TypeError` or `LookupError` for others."""
        columns = tuple(
            ColumnEncoding(**column | {"categories": tuple(column["categories"])})
            for column in stated["columns"]
        )
        if type(stated["named"]) is not bool or not any(c.kind != "left out" for c in columns):
            raise ValueError("no encoding of a table")
        return cls(columns, stated["named"])


def name_category(cells: np.ndarray) -> list[str | None]:
    """The category that each cell names, `None` where it is missing; booleans are "True" and "False"."""
    if cells.dtype.kind == "O":
        names = [None if is_missing(cell) else cell.strip() for cell in cells.tolist()]
        return [name and _BOOLEANS.get(name.lower(), name) for name in names]
    if cells.dtype.kind == "f":
        return [None if v != v else repr(v).removesuffix(".0") for v in cells.tolist()]
    return [None if text == "NaT" else text for text in cells.astype(str).tolist()]
