"""Labelled data prepared for a network: training, validation and test examples."""

import hashlib
import os
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taut.data import (
    OFFICIAL_SETS,
    Encoding,
    LabelledData,
    LabelledSet,
    column_label,
    load_labelled,
    parse_columns,
)
from taut.errors import ArgumentError, DataError, TautWarning
from taut.training.column_tolerances import FREE, feature_tolerances, parse_tolerances
from taut.training.config import TrainConfig
from taut.training.config_fields import AnyConfig

# Deviation of a fixed column, in tolerances of the others: its slope costs no radius, and at this width
# it can outweigh them.
_FIXED_WIDTH = 8.0


@dataclass(frozen=True)
class InputSpec:
    r"""The inputs that a network expects, and the classes of its outputs.

    Attributes:
        shape: shape of one input.
        classes: names of the outputs.
        columns: column names of a table, if it has names.
        low: smallest possible value of an input, or None.
        high: largest possible value of an input, or None.
        shift: subtracted from each column of a table; empty for images.
        spread: divisor of each shifted column, and the unit of radii.
        tolerance: tolerances of the features in the units of the table, which are then the unit of
            radii; 0 for features that do not change, infinity for categories that are free.
        encoding: encoding of the columns of a table with more than numbers.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    shift: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    tolerance: tuple[float, ...] = ()
    encoding: Encoding | None = None

    @property
    def weights(self) -> list[float] | None:
        """Tolerances in units of the inputs, 0 for fixed features; None if all are 1."""
        if not self.tolerance:
            return None
        units = self.spread or (1.0,) * len(self.tolerance)
        pairs = zip(self.tolerance, units, strict=True)
        weights = [t / unit if 0 < t < FREE else 0.0 for t, unit in pairs]
        return None if all(weight == 1 for weight in weights) else weights

    def certified_units(self) -> list[float]:
        """The unit of radii for each column, in its own unit; 0 for fixed columns."""
        return [0.0 if t == FREE else t for t in self.tolerance] or list(self.spread)

    def with_indicators(self) -> "InputSpec":
        """The inputs with 1, instead of its encoded value, for the category or gap that a cell has."""
        if self.encoding is None:
            return self
        fields = ("shift", "spread", "tolerance")
        given = {name: values for name in fields if (values := getattr(self, name))}
        ones = self.encoding.indicators
        scaled = {name: tuple((np.array(v) / ones).tolist()) for name, v in given.items()}
        return replace(self, **scaled)

    def free_choices(self) -> list[tuple[slice, Tensor]]:
        """For each free category, its features and the inputs `(choices, features)` of its values."""
        if self.encoding is None or FREE not in self.tolerance:
            return []
        choices = []
        for column, group in zip(self.encoding.used, self.encoding.groups, strict=True):
            if self.tolerance[group.start] == FREE:
                cells = np.array([*column.categories, *[None] * column.missing], object)
                block = np.zeros((len(cells), len(self.shift)))
                block[:, group] = column.encode(cells)
                choices.append((group, self.apply(block)[:, group]))
        return choices

    @property
    def input_range(self) -> tuple[float, float] | None:
        """Smallest and largest possible value of an input, where both are known."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def apply(self, inputs: np.ndarray | Tensor) -> Tensor:
        r"""Prepares inputs of the source for the network: `(n, *shape)`, float32.

        Columns are shifted and divided in float64 and rounded afterwards: the rounding error of
        $z = (x - shift) / spread$ is at most $2^{-24} |z|$, whatever the units.
        """
        if tuple(inputs.shape[1:]) != self.shape:
            rule, got = f"must be (n, {', '.join(map(str, self.shape))})", tuple(inputs.shape)
            raise ArgumentError("InputSpec", "inputs", rule, f"shape {got}")
        if not self.shift:
            return torch.as_tensor(inputs, dtype=torch.float32)
        wide = torch.as_tensor(inputs, dtype=torch.float64)
        shift, spread = (wide.new_tensor(values) for values in (self.shift, self.spread))
        scaled = (wide - shift) / spread
        if self.encoding is not None:
            # A missing number is replaced by the centre of its column.
            scaled = scaled.nan_to_num(nan=0.0)
        return scaled.float()

    def to_dict(self) -> dict[str, Any]:
        """Converts the specification to plain lists and numbers, for JSON."""
        entries = asdict(replace(self, encoding=None))
        entries["tolerance"] = ["free" if t == FREE else t for t in self.tolerance]
        entries["encoding"] = None if self.encoding is None else self.encoding.to_json()
        return entries

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> "InputSpec":
        """The inverse of `to_dict`."""
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()
        }
        plain["tolerance"] = tuple(FREE if t == "free" else t for t in plain.get("tolerance", ()))
        if plain.get("encoding") is not None:
            plain["encoding"] = Encoding.from_json(plain["encoding"])
        return cls(**plain)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs `(n, *shape)` with labels `(n,)`."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Examples":
        """Moves the examples to a device and the inputs to a dtype."""
        return Examples(self.inputs.to(device, dtype), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Prepared:
    """The parts of a data set, prepared for a network.

    Attributes:
        train: training examples.
        validation: validation examples; None if nothing is held out.
        test: test examples.
        spec: preparation of the inputs.
        fingerprint: checksum over all numbers of the source.
    """

    train: Examples
    validation: Examples | None
    test: Examples
    spec: InputSpec
    fingerprint: str


def load_data(config: TrainConfig) -> LabelledData:
    """Loads the data set of a configuration."""
    options: dict[str, Any] = {
        name: parse_columns(text)
        for name in ("names", "columns", "drop", "categorical")
        if (text := getattr(config, name))
    }
    if "names" in options:
        options["names"] = [str(name) for name in options["names"]]
    return load_labelled(
        config.data, data_dir=config.data_dir, label=config.label, test=config.test, **options
    )


def with_absolute_paths(config: AnyConfig) -> AnyConfig:
    """Makes the paths of existing files and folders absolute."""
    return replace(
        config,
        **{
            name: os.path.abspath(Path(path).expanduser())
            for name in ("data", "test", "data_dir")
            if (path := getattr(config, name, None)) and Path(path).expanduser().exists()
            if name != "data" or path.lower() not in ("digits", *OFFICIAL_SETS)
        },
    )


def prepare(config: TrainConfig, data: LabelledData, spec: InputSpec | None = None) -> Prepared:
    """Holds out validation rows and standardises tables by the remaining training rows.

    Columns of a table have units of their own, so each is shifted to mean 0 and divided by its
    standard deviation; a constant column is only shifted. Images are not changed. With tolerances, a
    column that may change is divided by its tolerance, so that a distance of 1 is its tolerance. A fixed
    column may have any scale, and is made as wide as the widest of the others, or wide enough to decide a
    prediction by itself. Encoded categories keep their stated unit.

    Args:
        config: share and random seed of the validation rows.
        data: labelled data.
        spec: preparation of the inputs of a trained network, instead of a new one.
    """
    if len(data.classes) < 2:
        rule = f"{data.name}: there must be at least two classes to tell apart"
        raise DataError("train", rule=rule, got=str(list(data.classes)))
    fit, held_out = data.train, None
    if config.validation:
        fit, held_out = data.train.split(config.validation, config.seed)
    input_spec = _spec(data.name, fit, config.tolerance) if spec is None else spec

    def ready(rows: LabelledSet) -> Examples:
        return Examples(input_spec.apply(rows.inputs), torch.as_tensor(rows.labels))

    validation = None if held_out is None else ready(held_out)
    return Prepared(ready(fit), validation, ready(data.test), input_spec, fingerprint_of(data))


def _spec(name: str, rows: LabelledSet, tolerance: str | None) -> InputSpec:
    plain = InputSpec(
        shape=tuple(rows.inputs.shape[1:]),
        classes=tuple(rows.classes),
        columns=tuple(rows.columns),
        low=rows.low,
        high=rows.high,
        encoding=rows.encoding,
    )
    if rows.image_shape is not None or rows.low is not None:
        if tolerance:
            raise ArgumentError("train", "tolerance", "is for the columns of a table", name)
        return plain
    wide = rows.inputs.astype(np.float64)
    _warn_of_lost_columns(name, rows)
    centre, width = _measure(name, rows, wide)
    if tolerance:
        by_column = parse_tolerances(tolerance)
        tolerances = feature_tolerances(by_column, rows.columns, wide.shape[1], rows.encoding)
        units = np.array(tolerances)
        changing = (units > 0) & (units < FREE)
        widest = max(_FIXED_WIDTH, (width[changing] / units[changing]).max())
        width = np.where(changing, units, width / widest)
        plain = replace(plain, tolerance=tolerances)
    return replace(plain, shift=tuple(centre.tolist()), spread=tuple(width.tolist()))


def _measure(name: str, rows: LabelledSet, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature; 0 and 1 for features with a stated unit."""
    if rows.encoding is not None:
        # A feature that is always missing has no statistics.
        wide = np.where(np.isnan(wide).all(0), 0.0, wide)
    low, high = np.nanmin(wide, 0), np.nanmax(wide, 0)
    # The mean of equal numbers is rounded, so they would have a positive standard deviation.
    changes = high - low > 2**-48 * np.maximum(abs(low), abs(high))
    same = [column_label(rows.columns, int(i)) for i in np.flatnonzero(~changes)]
    if not changes.any():
        rule = f"at least one column must vary in the training rows; all {len(same)} are constant"
        raise DataError(f"train: {name}", rule=rule, remedy="Give other columns or more rows.")
    if same and rows.encoding is None:
        some = ", ".join(same[:8]) + (f" and {len(same) - 8} more" if len(same) > 8 else "")
        _warn(
            f"train: {name}: column {some} is constant in the training rows, so the network is "
            "untested where it changes. Drop it from the table if it carries no information."
        )
    centre = np.where(changes, np.nanmean(wide, 0), low)
    width = np.where(changes, np.nanstd(wide, 0), 1.0)
    if rows.encoding is not None:
        fixed = rows.encoding.fixed
        centre, width = np.where(fixed, 0.0, centre), np.where(fixed, 1.0, width)
    return centre, width


def _warn_of_lost_columns(name: str, rows: LabelledSet) -> None:
    lost = [] if rows.encoding is None else rows.encoding.left_out
    reasons = [f"{c.name}: {c.reason}" for c in lost if c.reason not in ("dropped", "not selected")]
    if reasons:
        _warn(
            f"train: {name}: columns are left out: {'; '.join(reasons)}. Name categories with "
            "`categorical`, or drop the columns."
        )


def _warn(text: str) -> None:
    warnings.warn(text, TautWarning, stacklevel=6)


def fingerprint_of(data: LabelledData) -> str:
    """A checksum over all numbers, labels and classes of both parts."""
    digest = hashlib.sha256()
    for part in (data.train, data.test):
        for array in (part.inputs, part.labels):
            digest.update(f"{array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(part.classes).encode())
    return digest.hexdigest()
