"""Labelled data made ready: what to learn from, what to choose by, what to test on."""

import hashlib
import os
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taut.data import LabelledData, LabelledSet, load_labelled
from taut.data.columns import label
from taut.data.known import KNOWN
from taut.errors import ArgumentError, DataError, TautWarning
from taut.training.config import TrainConfig
from taut.training.toml import Kind

__all__ = [
    "Examples",
    "InputSpec",
    "Prepared",
    "fingerprint_of",
    "in_full",
    "load_data",
    "prepare",
]


# Tables are read with a choice of columns; a configuration has none, so no error may advise it.
_WORDS = {
    "; columns=[...] selects": "",
    "choose the others with columns=[...], or name it": "drop it, or name it",
    ", or choose one of each by position with columns=[...]": "",
}


@dataclass(frozen=True)
class InputSpec:
    r"""What a network expects of its inputs, and what its outputs mean.

    Attributes:
        shape: of one input.
        classes: the names of the outputs.
        columns: the names of the columns of a table, where they have names.
        low: the least value of an input, or None.
        high: the greatest.
        shift: of each column of a table, taken off first; empty for images.
        spread: of each column, divided by then: radii are in units of it.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    shift: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    def apply(self, inputs: np.ndarray | Tensor) -> Tensor:
        r"""Inputs as the source has them, `(n, *shape)`, as the network takes them; float32.

        Columns are shifted and divided in float64, and rounded only then: of what is left,
        $z = (x - shift) / spread$, at most $2^{-24} |z|$ is lost, whatever the units.
        """
        if tuple(inputs.shape[1:]) != self.shape:
            raise ArgumentError(
                f"InputSpec: `inputs` must be (n, {', '.join(map(str, self.shape))}); got shape "
                f"{tuple(inputs.shape)}."
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
        train: what to learn from.
        validation: what to choose by; None if nothing is held out.
        test: what neither learning nor choosing sees.
        spec: how inputs were made ready.
        fingerprint: a checksum over all numbers of the source.
    """

    train: Examples
    validation: Examples | None
    test: Examples
    spec: InputSpec
    fingerprint: str


def load_data(config: TrainConfig) -> LabelledData:
    """The data that a configuration names."""
    try:
        return load_labelled(
            config.data, data_dir=config.data_dir, label=config.label, test=config.test
        )
    except DataError as error:
        sentence = str(error)
        for there, here in _WORDS.items():
            sentence = sentence.replace(there, here)
        raise type(error)(sentence) from error


def in_full(config: Kind) -> Kind:
    """The same with paths that hold in every folder, where files or folders are there."""
    return replace(
        config,
        **{
            name: os.path.abspath(Path(path).expanduser())
            for name in ("data", "test", "data_dir")
            if (path := getattr(config, name, None)) and Path(path).expanduser().exists()
            if name != "data" or path.lower() not in ("digits", *KNOWN)
        },
    )


def prepare(config: TrainConfig, data: LabelledData, spec: InputSpec | None = None) -> Prepared:
    """Holds validation rows out and standardises tables, by the rows that are left to learn from.

    Columns of a table have units of their own, so each is shifted to mean 0 and divided by its
    standard deviation. Images are left as they are. A column that never changes is only shifted.

    Args:
        config: says how many rows are held out, and which.
        data: labelled.
        spec: of a network that is there already, instead.
    """
    if len(data.classes) < 2:
        raise DataError(
            f"train: {data.name}: there must be at least two classes to tell apart; got "
            f"{list(data.classes)}."
        )
    fit, held_out = data.train, None
    if config.validation:
        fit, held_out = data.train.split(config.validation, config.seed)
    known = _spec(fit) if spec is None else spec
    if spec is None and known.shift:
        _tell_constant(data.name, fit)

    def ready(rows: LabelledSet) -> Examples:
        return Examples(known.apply(rows.inputs), torch.as_tensor(rows.labels))

    return Prepared(
        train=ready(fit),
        validation=None if held_out is None else ready(held_out),
        test=ready(data.test),
        spec=known,
        fingerprint=fingerprint_of(data),
    )


def _spec(rows: LabelledSet) -> InputSpec:
    shift: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    if rows.image_shape is None and rows.low is None:
        wide = rows.inputs.astype(np.float64)
        # The mean of equal numbers is rounded too, and would be away from them by a "deviation".
        changes = _changes(wide)
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


def _changes(wide: np.ndarray) -> np.ndarray:
    """Which columns change by more than rounding."""
    return np.ptp(wide, 0) > 2**-48 * abs(wide).max(0)


def _tell_constant(name: str, rows: LabelledSet) -> None:
    changes = _changes(rows.inputs.astype(np.float64))
    same = [label(rows.columns, int(i)) for i in np.flatnonzero(~changes)]
    if not changes.any():
        raise DataError(
            f"train: {name}: a column must change for a network to learn from it; none does, of "
            f"{len(same)}. Give other columns or more rows."
        )
    if same:
        some = ", ".join(same[:8]) + (f" and {len(same) - 8} more" if len(same) > 8 else "")
        warnings.warn(
            f"train: {name}: column {some} never changes in the rows to learn from, so nothing is "
            "known of rows where it does. Drop it from the table if it says nothing.",
            TautWarning,
            stacklevel=3,
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
