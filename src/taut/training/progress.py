"""`Progress`: what a run tells while it goes on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taut import parallel
from taut.training.folder import RunFolder
from taut.training.log import Log

__all__ = ["Progress", "Reporter"]


@dataclass(frozen=True)
class Progress:
    """A moment of a run: told after each step, and after each epoch together with its row.

    Attributes:
        epoch: the present epoch, from 1.
        epochs: how many there are at most.
        step: steps of it that are over.
        steps: steps of an epoch.
        loss: the mean objective over the epoch so far.
        accuracy: the share classified rightly when seen, over the epoch so far.
        lr: the learning rate.
        row: what the history holds of the last epoch that is over, or None; it is of the present
            epoch once that is over.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    lr: float
    row: dict[str, Any] | None


class Reporter:
    """Passes on what happens, in the first process alone.

    Args:
        folder: where the log is kept, or None.
        history: the rows of the epochs that are over.
        on_progress: who else is told.
        tensorboard: whether TensorBoard is.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        history: list[dict[str, Any]],
        on_progress: Callable[[Progress], None] | None,
        tensorboard: bool,
    ) -> None:
        self._tell = on_progress if parallel.is_first() else None
        self._log: Log | None = None
        if folder is not None and parallel.is_first():
            self._log = Log(folder.log_file, history, tensorboard)

    def after_step(self, progress: Progress) -> None:
        """Tells of one step."""
        if self._tell is not None:
            self._tell(progress)

    def after_epoch(self, progress: Progress) -> None:
        """Tells of one epoch, and keeps its row."""
        if self._log is not None and progress.row is not None:
            self._log.add(progress.row)
        if self._tell is not None:
            self._tell(progress)

    def close(self) -> None:
        """Ends the log."""
        if self._log is not None:
            self._log.close()
