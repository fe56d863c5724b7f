"""One line for each epoch, in JSON, and the same numbers for TensorBoard if it is asked for."""

import json
from pathlib import Path
from typing import Any

from taut.errors import MissingExtraError
from taut.export.files import write_atomically

__all__ = ["Log"]


class Log:
    """The rows of a run, on disk as they come.

    Args:
        path: the JSONL file; what it holds is replaced by `history`.
        history: the rows of the epochs that are over.
        tensorboard: whether to write events into the folder `tensorboard` beside it; of the epochs
            that are over too, if there is none yet.
    """

    def __init__(self, path: Path, history: list[dict[str, Any]], tensorboard: bool) -> None:
        self.path = path
        # A process may have died between a checkpoint and its line: the checkpoint is right.
        write_atomically(path, "".join(_line(row) for row in history).encode())
        self._writer: Any = None
        if tensorboard:
            new = not (path.parent / "tensorboard").exists()
            self._writer = _open_tensorboard(path.parent, len(history))
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
        """Writes what is still to be written."""
        if self._writer is not None:
            self._writer.close()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _open_tensorboard(folder: Path, epochs: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError(
            "train: `tensorboard` needs the package tensorboard. Install taut[track]."
        ) from error
    return SummaryWriter(folder / "tensorboard", purge_step=epochs + 1)
