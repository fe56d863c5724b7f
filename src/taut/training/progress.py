"""Progress of a run: reported to a callback, logged as JSON lines, and sent to TensorBoard."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut import parallel
from taut.errors import require
from taut.export import write_atomically
from taut.training.run_folder import RunFolder

__all__ = ["Log", "Progress", "Reporter"]


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
    """The rows of a run, written as they come.

    Args:
        path: JSONL file; its content is replaced by `history`.
        history: rows of the finished epochs.
        tensorboard: whether to write events into the folder `tensorboard` beside it; for finished
            epochs too, if there are none yet.
    """

    def __init__(self, path: Path, history: list[dict[str, Any]], tensorboard: bool) -> None:
        self.path = path
        # A process may have died between a checkpoint and its line: the checkpoint is right.
        write_atomically(path, "".join(_line(row) for row in history).encode())
        self._writer: Any = None
        if tensorboard:
            require("tensorboard", "track", "train: `tensorboard`")
            from torch.utils.tensorboard import SummaryWriter

            folder = path.parent / "tensorboard"
            new = not folder.exists()
            self._writer = SummaryWriter(folder, purge_step=len(history) + 1)
            for row in history if new else ():
                self._add_event(row)

    def add(self, row: dict[str, Any]) -> None:
        """Appends the row of one epoch."""
        with open(self.path, "a", encoding="utf-8") as file:
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


class Reporter:
    """Reports progress to the log and to a callback, in the first process alone.

    Args:
        folder: folder of the log, or None.
        history: rows of the finished epochs.
        on_progress: the callback, or None.
        tensorboard: whether to write TensorBoard events.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        history: list[dict[str, Any]],
        on_progress: Callable[[Progress], None] | None,
        tensorboard: bool,
    ) -> None:
        first = parallel.is_first()
        self._on_progress = on_progress if first else None
        self._log = Log(folder.log_file, history, tensorboard) if folder and first else None

    def report(self, progress: Progress, row: dict[str, Any] | None = None) -> None:
        """Reports one step, or the end of an epoch with its row."""
        if self._log is not None and row is not None:
            self._log.add(row)
        if self._on_progress is not None:
            self._on_progress(progress)

    def close(self) -> None:
        """Closes the log."""
        if self._log is not None:
            self._log.close()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"
