"""`FolderLock`: at most one process at a time trains into a folder."""

import contextlib
import os
from pathlib import Path
from types import TracebackType

from taut.errors import ArgumentError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

__all__ = ["FolderLock"]


class FolderLock(contextlib.AbstractContextManager["FolderLock"]):
    """Holds a folder for this process; the system releases it when the process ends, however.

    Args:
        path: the folder; it need not exist yet.

    Raises:
        ArgumentError: on entry, if another process holds it.
    """

    name = ".lock"

    def __init__(self, path: Path) -> None:
        self.file = path / self.name
        self._held: int | None = None

    def __enter__(self) -> "FolderLock":
        if fcntl is None:
            return self
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._held = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._held)
            self._held = None
            if not isinstance(error, BlockingIOError):
                return self  # a file system without locks
            raise ArgumentError(
                subject="train",
                argument="out",
                rule="must be a folder that no other process is training into",
                got=f"{self.file.parent}, which another one has open",
                remedy="Wait for it, or choose another folder.",
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._held is not None:
            # The file stays: another process may have opened it, and would lock one without a name.
            os.close(self._held)
            self._held = None
