"""Progress of a run: reported to a callback, logged as JSON lines, and sent to TensorBoard."""

import json
from dataclasses import dataclass
from typing import Any

from taut import parallel
from taut.errors import require
from taut.export import write_atomically
from taut.training.run_folder import RunFolder


@dataclass(frozen=True)
class Progress:
    """Progress of a run, reported after each step, and after each epoch with its row.

    Attributes:
        epoch: present epoch, from 1.
        epochs: largest number of epochs.
        step: number of steps of the epoch that are done.
        steps: number of steps of an epoch.
        loss: mean objective over the epoch so far.
        accuracy: accuracy on training batches over the epoch so far.
        lr: learning rate.
        row: row of the last finished epoch, or None.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    lr: float
    row: dict[str, Any] | None


class Log:
    """Writes the rows of a run to its log, in the first process, if the run has a folder.

    The rows so far, `history`, replace the content of the log. With `tensorboard`, events are written to
    the folder `tensorboard` beside it, including the rows so far if it has none yet.
    """

    def __init__(
        self,
        folder: RunFolder[Any] | None,
        history: list[dict[str, Any]],
        tensorboard: bool = False,
    ) -> None:
        self._path = folder.log_file if folder is not None and parallel.is_first() else None
        self._writer: Any = None
        if self._path is None:
            return
        # A process may have died between a checkpoint and its log line: the checkpoint counts.
        write_atomically(self._path, "".join(_line(row) for row in history).encode())
        if tensorboard:
            require("tensorboard", "track", "train: `tensorboard`")
            from torch.utils.tensorboard import SummaryWriter

            events = self._path.parent / "tensorboard"
            new = not events.exists()
            self._writer = SummaryWriter(events, purge_step=len(history) + 1)
            for row in history if new else ():
                self._add_event(row)

    def add(self, row: dict[str, Any]) -> None:
        """Appends one row."""
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(_line(row))
            self._add_event(row)

    def _add_event(self, row: dict[str, Any]) -> None:
        if self._writer is not None:
            for name, value in row.items():
                if name != "epoch" and value is not None:
                    self._writer.add_scalar(name, value, row["epoch"])

    def close(self) -> None:
        """Flushes the events."""
        if self._writer is not None:
            self._writer.close()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"
