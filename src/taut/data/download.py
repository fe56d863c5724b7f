"""Downloads of official files: from several mirrors, resumed after an interruption, verified."""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from taut.data.official_sets import OfficialFile, OfficialSet
from taut.errors import DamagedFileError, DataError, TautError

# Name of the file, bytes received, total bytes.
Progress = Callable[[str, int, int], None]

_STEP = 2**18
_TRIES = 3
_NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class FetchError(TautError, OSError):
    """No mirror gave the file."""


class _MirrorError(Exception):
    """A mirror failed to provide the file; the next one may succeed."""


def fetch(
    known: OfficialSet, folder: Path, *, on_progress: Progress | None = None, timeout: float = 30.0
) -> list[Path]:
    """Downloads all files of an official set into a folder, each as `fetch_file` does.

    Args:
        known: the set.
        folder: target folder; created if it does not exist.
        on_progress: called with the name of a file, the bytes received and its size.
        timeout: seconds without a byte after which a mirror is abandoned.
    """
    return [
        fetch_file(file, known.mirrors, folder, on_progress=on_progress, timeout=timeout)
        for file in known.files
    ]


def fetch_file(
    file: OfficialFile,
    mirrors: tuple[str, ...],
    folder: Path,
    *,
    on_progress: Progress | None = None,
    timeout: float = 30.0,
) -> Path:
    """Downloads one file and verifies its checksum; one that exists is only verified.

    The download is written to `NAME.part` and renamed once its SHA-256 is right. An interrupted
    download is resumed, now or by a later call, from whichever mirror answers. Processes that fetch
    the same file at once wait for the first.

    Raises:
        FetchError: no mirror provided the file; lists the error of each.
        DamagedFileError: another file of that name exists; it is not changed.
        DataError: the folder cannot be written to.
    """
    report = on_progress or (lambda name, done, total: None)
    target = folder / file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            with open(folder / f"{file.name}.part", "ab+") as part:
                with suppress(ImportError, OSError):  # not every system can lock a file
                    import fcntl

                    fcntl.flock(part, fcntl.LOCK_EX)
                # Another process may have downloaded it in the meantime.
                if not target.exists():
                    _Download(part, file, report, timeout).run(mirrors)
                    os.replace(part.name, target)
    except FetchError:
        raise
    except OSError as error:
        rule = f"{folder} must be a folder that can be written to"
        remedy = "Pass another data_dir or set TAUT_DATA."
        raise DataError("data fetch", rule=rule, got=str(error.strerror), remedy=remedy) from error
    with open(target, "rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
    if digest != file.sha256:
        rule = (
            f"{target} must have the SHA-256 {file.sha256[:16]}...; it has {digest[:16]}... "
            f"and {target.stat().st_size} bytes instead of {file.size}"
        )
        raise DamagedFileError("data fetch", rule=rule, remedy="Delete it and fetch again.")
    report(file.name, file.size, file.size)
    return target


@dataclass(frozen=True)
class _Download:
    """A partially downloaded file, open for reading and appending."""

    part: IO[bytes]
    file: OfficialFile
    report: Progress
    timeout: float

    def run(self, mirrors: tuple[str, ...]) -> None:
        """Completes the part, or raises with the error of every mirror."""
        failures = []
        for mirror in mirrors:
            try:
                return self._complete(mirror + self.file.name)
            except _MirrorError as error:
                failures.append(f"{mirror}: {error}")
        there = self._size()
        rule = f"no mirror provides {self.file.name}: {'; '.join(failures)}"
        remedy = f"{there} of {self.file.size} bytes are kept for the next try." * bool(there)
        raise FetchError("data fetch", rule=rule, remedy=remedy)

    def _size(self) -> int:
        return self.part.seek(0, os.SEEK_END)

    def _complete(self, url: str) -> None:
        """Completes the part from one mirror and verifies it."""
        inherited = self._size() > 0
        self._extend(url)
        digest = self._digest()
        if digest != self.file.sha256 and inherited:
            # The bytes of an earlier download may be wrong: start again.
            self.part.truncate(0)
            self._extend(url)
            digest = self._digest()
        if digest != self.file.sha256:
            self.part.truncate(0)
            raise _MirrorError(f"wrong checksum, SHA-256 {digest[:16]}...")
        self.part.flush()
        os.fsync(self.part.fileno())

    def _digest(self) -> str:
        self.part.seek(0)
        return hashlib.file_digest(self.part, "sha256").hexdigest()  # type: ignore[arg-type]

    def _extend(self, url: str) -> None:
        """Requests the missing bytes repeatedly, as long as bytes arrive."""
        tries = 0
        while (before := self._size()) < self.file.size:
            reason = self._append(url, before)
            tries = 0 if self._size() > before else tries + 1
            if tries >= (_TRIES if before else 1):
                raise _MirrorError(reason)

    def _append(self, url: str, there: int) -> str:
        """Appends the reply to one request; returns the error if it ended early."""
        try:
            body, there = self._request(url, there)
            with body:
                self.part.truncate(there)
                while there < self.file.size:
                    piece = body.read(min(_STEP, self.file.size - there))
                    if not piece:
                        break
                    self.part.write(piece)
                    there += len(piece)
                    self.report(self.file.name, there, self.file.size)
        except urllib.error.HTTPError as error:
            error.close()
            raise _MirrorError(f"HTTP {error.code} {error.reason}") from error
        except _NETWORK as error:
            return str(getattr(error, "reason", error)) or type(error).__name__
        return f"broke off after {there} of {self.file.size} bytes"

    def _request(self, url: str, start: int) -> tuple[http.client.HTTPResponse, int]:
        """Requests all bytes from `start`; returns the reply and its actual start."""
        request = urllib.request.Request(url, headers={"User-Agent": "taut"})
        if start:
            request.add_header("Range", f"bytes={start}-")
        body = urllib.request.urlopen(request, timeout=self.timeout)
        content_range = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+|\*)", body.headers.get("Content-Range", "")
        )
        if body.status == 206 and content_range and int(content_range[1]) == start:
            total = content_range[2]
        else:  # a mirror that cannot resume sends all
            start, total = 0, body.headers.get("Content-Length") or "*"
        if (body.status, start) == (206, 0) or total not in ("*", str(self.file.size)):
            body.close()
            raise _MirrorError(f"offers {total} bytes instead of {self.file.size}")
        return body, start
