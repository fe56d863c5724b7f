"""Labelled data as the network takes it: training, validation and test examples."""

import hashlib
import os
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taut.data import OFFICIAL_SETS, LabelledData, LabelledSet, column_label, load_labelled
from taut.errors import ArgumentError, DataError, TautWarning
from taut.training.config import TrainConfig
from taut.training.config_fields import AnyConfig

__all__ = [
    "Examples",
    "InputSpec",
    "Prepared",
    "fingerprint_of",
    "load_data",
    "prepare",
    "with_absolute_paths",
]


@dataclass(frozen=True)
class InputSpec:
    r"""The inputs that a network expects, and the classes of its outputs.

    Attributes:
        shape: shape of one input.
        classes: names of the outputs.
        columns: column names of a table, where it has some.
        low: smallest possible value of an input, or None.
        high: largest possible value of an input, or None.
        shift: what is subtracted from each column of a table; empty for images.
        spread: what each column is divided by then: radii are in this unit.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    shift: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    def apply(self, inputs: np.ndarray | Tensor) -> Tensor:
        r"""Inputs of the source, `(n, *shape)`, as the network takes them; float32.

        Columns are shifted and divided in float64, and rounded only then: of what is left,
        $z = (x - shift) / spread$, at most $2^{-24} |z|$ is lost, whatever the units.
        """
        if tuple(inputs.shape[1:]) != self.shape:
            raise ArgumentError(
                subject="InputSpec",
                argument="inputs",
                rule=f"must be (n, {', '.join(map(str, self.shape))})",
                got=f"shape {tuple(inputs.shape)}",
            )
        if not self.shift:
            return torch.as_tensor(inputs, dtype=torch.float32)
        wide = torch.as_tensor(inputs, dtype=torch.float64)
        shift, spread = (wide.new_tensor(values) for values in (self.shift, self.spread))
        return ((wide - shift) / spread).float()

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, held: dict[str, Any]) -> "InputSpec":
        """The inverse of `to_dict`."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in held.items()}
        return cls(**plain)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs `(n, *shape)` with labels `(n,)`."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Examples":
        """The same on a device, with inputs of a dtype."""
        return Examples(self.inputs.to(device, dtype), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Prepared:
    """The parts of one data set, as the network takes them.

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
    """The data set of a configuration."""
    try:
        return load_labelled(
            config.data, data_dir=config.data_dir, label=config.label, test=config.test
        )
    except DataError as error:
        # A configuration has no choice of columns.
        raise error.replace(option=None) from error


def with_absolute_paths(config: AnyConfig) -> AnyConfig:
    """The same with absolute paths, where the files or folders exist."""
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
    standard deviation. Images are left as they are. A column that never changes is only shifted.

    Args:
        config: share and random seed of the validation rows.
        data: labelled data.
        spec: preparation of the inputs of a trained network, instead of a new one.
    """
    if len(data.classes) < 2:
        raise DataError(
            subject="train",
            rule=f"{data.name}: there must be at least two classes to tell apart",
            got=str(list(data.classes)),
        )
    fit, held_out = data.train, None
    if config.validation:
        fit, held_out = data.train.split(config.validation, config.seed)
    known = _spec(data.name, fit) if spec is None else spec

    def ready(rows: LabelledSet) -> Examples:
        return Examples(known.apply(rows.inputs), torch.as_tensor(rows.labels))

    return Prepared(
        train=ready(fit),
        validation=None if held_out is None else ready(held_out),
        test=ready(data.test),
        spec=known,
        fingerprint=fingerprint_of(data),
    )


def _spec(name: str, rows: LabelledSet) -> InputSpec:
    shift: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    if rows.image_shape is None and rows.low is None:
        wide = rows.inputs.astype(np.float64)
        # The mean of equal numbers is rounded too, and would be away from them by a "deviation".
        changes = np.ptp(wide, 0) > 2**-48 * abs(wide).max(0)
        same = [column_label(rows.columns, int(i)) for i in np.flatnonzero(~changes)]
        if not changes.any():
            raise DataError(
                subject=f"train: {name}",
                rule="a column must change for a network to learn from it; none does, of "
                f"{len(same)}",
                remedy="Give other columns or more rows.",
            )
        if same:
            some = ", ".join(same[:8]) + (f" and {len(same) - 8} more" if len(same) > 8 else "")
            warnings.warn(
                f"train: {name}: column {some} is constant in the training rows, so the network is "
                "untested where it changes. Drop it from the table if it carries no information.",
                TautWarning,
                stacklevel=3,
            )
        shift = tuple(np.where(changes, wide.mean(0), wide[0]).tolist())
        spread = tuple(np.where(changes, wide.std(0), 1.0).tolist())
    return InputSpec(
        shape=tuple(rows.inputs.shape[1:]),
        classes=tuple(rows.classes),
        columns=tuple(rows.columns),
        low=rows.low,
        high=rows.high,
        shift=shift,
        spread=spread,
    )


def fingerprint_of(data: LabelledData) -> str:
    """A checksum over all numbers, labels and classes of both parts."""
    digest = hashlib.sha256()
    for part in (data.train, data.test):
        for array in (part.inputs, part.labels):
            digest.update(f"{array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(part.classes).encode())
    return digest.hexdigest()
