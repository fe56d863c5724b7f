"""`TrainedRun`: a finished training, in memory and from its folder."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from taut.data import LabelledData
from taut.errors import ArgumentError
from taut.export import load
from taut.training.config import TrainConfig
from taut.training.data_preparation import InputSpec, Prepared, fingerprint_of, load_data, prepare
from taut.training.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A finished training run.

    Attributes:
        config: the resolved configuration.
        model: the network, in evaluation mode, on the CPU.
        history: one row for each epoch: epoch, loss, accuracy on training batches, clean and
            certified accuracy on validation rows, the proven constant, lr, seconds.
        result: the numbers on test rows, the proven constant, times and versions.
        inputs: inputs of the network.
        folder: folder of the run, or None.
        source: the data it was trained on, if still in memory.
    """

    config: TrainConfig
    model: nn.Module = field(repr=False)
    history: tuple[dict[str, Any], ...] = field(repr=False)
    result: dict[str, Any]
    inputs: InputSpec = field(repr=False)
    folder: Path | None = None
    source: LabelledData | None = field(default=None, repr=False)

    def data(self) -> Prepared:
        """The examples prepared for the network: `.train`, `.validation`, `.test`.

        Raises:
            ArgumentError: the data is missing or has changed.
        """
        if self.source is not None:
            return prepare(self.config, self.source, self.inputs)
        subject, data = str(self.folder or "run"), f"the data of the run, {self.config.data},"
        remedy = "Restore it, or give other examples, as with taut certify --data."
        try:
            loaded = load_data(self.config)
        except ArgumentError as error:
            rule, got = f"{data} must be where training read it", "none"
            raise ArgumentError(subject, rule=rule, got=got, remedy=f"{error} {remedy}") from error
        if fingerprint_of(loaded) != self.result["fingerprint"]:
            rule = f"{data} must hold the numbers that training read; it holds others"
            raise ArgumentError(subject, rule=rule, remedy=remedy)
        return prepare(self.config, loaded, self.inputs)


def load_run(out: str | os.PathLike[str]) -> TrainedRun:
    """Loads a finished run from its folder; the constant of its network is proven again.

    Raises:
        ArgumentError: the folder holds no finished run.
        DamagedFileError: the network in it is not what was written.
    """
    folder = RunFolder(out)
    result, config, model = folder.result(), folder.config(), load(folder.model_file)
    return TrainedRun(config, model, tuple(folder.history()), result, folder.spec(), folder.path)
