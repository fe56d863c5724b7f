"""`LabelledSet` and `LabelledData`: inputs with the class of each, in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taut.data.column_selection import list_some
from taut.data.encoding import Encoding
from taut.data.labels import number_classes
from taut.errors import DataError, check_within


@dataclass(frozen=True, eq=False, repr=False)
class LabelledSet:
    """Finite inputs with class indices; missing numbers of encoded rows are NaN.

    Invariant: `inputs` and `labels` have `n` rows, labels are from 0 to `len(classes) - 1`, and every
    input lies in the range, if there is one.

    Attributes:
        inputs: `(n, channels, height, width)` in float32 for images; else `(n, d)`, in float64
            where the source has numbers that float32 would round.
        labels: int64, `(n,)`.
        classes: names of the classes, in the order of their indices.
        columns: `d` names, or none if the source has no names or rows are images.
        low: smallest possible value of an input, 0 for images, `None` if unknown.
        high: largest possible value, 1 for images.
        source: name of the source.
        encoding: encoding of the columns, for a table with more than numbers.

    Example:
        >>> pictures = np.zeros((4, 1, 8, 8), np.float32)
        >>> LabelledSet(pictures, np.array([0, 1, 1, 0]), ("no", "yes"), (), 0.0, 1.0, "zeros")
        LabelledSet(4 x 1 x 8 x 8, 2 classes, from zeros)
    """

    inputs: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    low: float | None
    high: float | None
    source: str
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        subject = f"data: {self.source}"
        if len(self.inputs) != len(self.labels):
            got = f"{len(self.inputs)} inputs and {len(self.labels)} labels"
            raise DataError(subject, rule="every input must have a label", got=got)
        if not len(self.labels):
            raise DataError(subject, rule="a labelled set must have rows", got="none")
        wrong = (self.labels < 0) | (self.labels >= len(self.classes))
        if wrong.any():
            row, last = int(np.argmax(wrong)), len(self.classes) - 1
            rule = (
                f"labels must be from 0 to {last}, one for each class; row {row} (counted from 0)"
            )
            raise DataError(subject, rule=f"{rule} has {self.labels[row]}")

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """`(channels, height, width)` if the inputs are images, otherwise `None`."""
        shape: Any = self.inputs.shape[1:]
        return shape if len(shape) == 3 else None

    @property
    def dim(self) -> int:
        """Number of values of one input."""
        return self.inputs[0].size

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of inputs of each class."""
        return tuple(np.bincount(self.labels, minlength=len(self.classes)).tolist())

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: "Sequence[int] | np.ndarray | slice") -> "LabelledSet":
        """Selects rows, in the given order, with the same classes."""
        return replace(self, inputs=self.inputs[rows], labels=self.labels[rows])

    def with_classes(self, classes: Sequence[str]) -> "LabelledSet":
        """Re-indexes the labels of the rows to the given classes.

        Raises:
            DataError: the class of a row is not among them.

        Example:
            >>> rows = LabelledSet(
            ...     np.zeros((2, 1), np.float32), np.array([0, 1]), ("no", "yes"), (), None, None, "t"
            ... )
            >>> rows.with_classes(["yes", "perhaps", "no"]).labels
            array([2, 0])
        """
        names = [self.classes[number] for number in self.labels]
        labels, class_names = number_classes(f"data: {self.source}", names, classes)
        return replace(self, labels=labels, classes=class_names)

    def split(self, fraction: float, seed: int) -> tuple["LabelledSet", "LabelledSet"]:
        """Splits the set into two parts, stratified by class.

        The second part gets `round(fraction * m)` random rows of a class with `m` rows. With two or more
        rows, each part gets at least one; a single row stays in the first. Rows keep their order.

        Args:
            fraction: share of the second part, between 0 and 1.
            seed: random seed.

        Returns:
            The remaining part, and the part with that fraction.

        Example:
            >>> from taut.data import load_labelled
            >>> rest, part = load_labelled("digits").train.split(0.1, seed=0)
            >>> len(rest), len(part)
            (1295, 143)
        """
        check_within("LabelledSet.split", "fraction", fraction, "(0, 1)")
        generator = np.random.default_rng(seed)
        in_part = np.zeros(len(self), bool)
        for number in range(len(self.classes)):
            rows = generator.permutation(np.flatnonzero(self.labels == number))
            most = len(rows) - 1
            in_part[rows[: min(max(round(fraction * len(rows)), 1), most)]] = most > 0
        if not in_part.any():
            rule = "to be split a set must have a class with two rows; every class has one"
            remedy = "Give more rows, or a separate test file."
            raise DataError(f"data: {self.source}", rule=rule, remedy=remedy)
        return self.take(~in_part), self.take(in_part)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.inputs.shape))
        return f"LabelledSet({shape}, {len(self.classes)} classes, from {self.source})"


def label_images(
    pixels: np.ndarray,
    labels: np.ndarray,
    classes: tuple[str, ...],
    source: str,
    largest: int = 255,
) -> LabelledSet:
    """Scales images of bytes, `(n, channels, height, width)`, from 0 ... `largest` to [0, 1]."""
    inputs = pixels.astype(np.float32) / np.float32(largest)
    return LabelledSet(inputs, labels.astype(np.int64), classes, (), 0.0, 1.0, source)


@dataclass(frozen=True, eq=False, repr=False)
class LabelledData:
    """Training and test data with the same classes, shape, columns and range.

    Attributes:
        train: training data.
        test: test data.
        name: name of the data set, or of its file.
    """

    train: LabelledSet
    test: LabelledSet
    name: str

    def __post_init__(self) -> None:
        train, test = self.train, self.test
        for rule, ours, theirs in (
            ("the same classes", train.classes, test.classes),
            ("inputs of one shape", train.inputs.shape[1:], test.inputs.shape[1:]),
            ("the same columns in the same order", train.columns, test.columns),
            ("inputs of one range, such as [0, 1]", (train.low, train.high), (test.low, test.high)),
        ):
            if ours != theirs:
                raise DataError(
                    f"data: {self.name}",
                    rule=f"training and test must have {rule}",
                    got=f"{list_some(ours) or 'none'} in {train.source} and "
                    f"{list_some(theirs) or 'none'} in {test.source}",
                )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their indices."""
        return self.train.classes

    def __repr__(self) -> str:
        return f"LabelledData({self.name}: train {self.train!r}, test {self.test!r})"
