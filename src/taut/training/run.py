"""`TrainedRun`: a finished training, in memory and from its folder."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from taut.data import LabelledData
from taut.export import load
from taut.training.config import TrainConfig
from taut.training.folder import RunFolder
from taut.training.inputs import InputSpec, Prepared, load_data, prepare

__all__ = ["TrainedRun", "load_run"]


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """What a training gave.

    Attributes:
        config: the configuration, with nothing left open.
        model: the network, in evaluation mode, on the CPU.
        history: one row for each epoch: epoch, loss, accuracy on training batches, clean and
            certified accuracy on validation rows, the proven constant, lr, seconds.
        result: the numbers on test rows, the proven constant, times and versions.
        inputs: what the network expects of its inputs.
        folder: where it is stored, or None.
        source: the data it was trained on, where that is still in memory.
    """

    config: TrainConfig
    model: nn.Module = field(repr=False)
    history: tuple[dict[str, Any], ...] = field(repr=False)
    result: dict[str, Any]
    inputs: InputSpec = field(repr=False)
    folder: Path | None = None
    source: LabelledData | None = field(default=None, repr=False)

    def data(self) -> Prepared:
        """The examples as the network takes them: `.train`, `.validation`, `.test`."""
        source = load_data(self.config) if self.source is None else self.source
        return prepare(self.config, source)


def load_run(out: str | os.PathLike[str]) -> TrainedRun:
    """A finished run from its folder; the constant of its network is proven again.

    Raises:
        ArgumentError: the folder holds no finished run.
        DamagedFileError: the network in it is not what was written.
    """
    folder = RunFolder(out)
    result = folder.result()
    return TrainedRun(
        config=folder.config(),
        model=load(folder.model_file),
        history=tuple(folder.history()),
        result=result,
        inputs=folder.spec(),
        folder=folder.path,
    )
