"""The official data sets that taut knows by name; the table is in `official_sets.toml`."""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from taut.data.source_base import read_bytes
from taut.errors import DamagedFileError


@dataclass(frozen=True)
class OfficialFile:
    """One official file.

    Attributes:
        name: name on the mirrors.
        size: size in bytes.
        sha256: checksum of the file.
        content_sha256: checksum of the content of a .gz file, for files unpacked by hand.
    """

    name: str
    size: int
    sha256: str
    content_sha256: str | None = None


@dataclass(frozen=True)
class OfficialSet:
    """An official data set.

    Attributes:
        name: name in taut.
        title: its usual name.
        files: its files.
        mirrors: URLs that end in `/`, tried in turn.
        classes: names of the classes, in the order of the labels.
        folders: folders to search below the data folder, in turn.
    """

    name: str
    title: str
    files: tuple[OfficialFile, ...]
    mirrors: tuple[str, ...]
    classes: tuple[str, ...]
    folders: tuple[str, ...]

    def find(self, file: OfficialFile, folder: Path) -> Path | None:
        """The path of one of the files below a data folder, compressed or not; None if missing."""
        for inner in self.folders:
            for name in (file.name, file.name.removesuffix(".gz")):
                if (path := folder / inner / name).is_file():
                    return path
        return None

    def read(self, file: OfficialFile, path: Path) -> bytes:
        """Reads one of the files at `path` and verifies its checksum; .gz files are unpacked.

        Raises:
            DamagedFileError: the checksum differs.
        """
        if file.content_sha256 is None:
            content, expected = path.read_bytes(), file.sha256
        else:
            content, expected = read_bytes(path), file.content_sha256
        digest = hashlib.sha256(content).hexdigest()
        if digest == expected:
            return content
        got = f"SHA-256 {digest[:16]}... of {len(content)} bytes"
        remedy = "Fetch it again, or give the path to read your own data in this format."
        for other in OFFICIAL_SETS.values():
            for twin in other.files:
                if twin.content_sha256 == digest:
                    got = f"{other.title}'s {twin.name.removesuffix('.gz')}"
                    remedy = "Put it in the folder of its name."
        rule = f"must be the official file of {self.title}, whose SHA-256 is {expected[:16]}..."
        raise DamagedFileError(
            f"data: {path.name}", rule=rule, got=f"{got}, in {path.parent}", remedy=remedy
        )


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the given one, else `TAUT_DATA`, else the user's cache."""
    path = folder if folder is not None else os.environ.get("TAUT_DATA")
    if not path:
        path = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "taut")
    return Path(os.path.expanduser(path))


def _read_sets() -> dict[str, OfficialSet]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    sets = {}
    for name, entry in table.items():
        files = tuple(OfficialFile(*file) for file in entry["files"])
        lists = {key: tuple(entry[key]) for key in ("mirrors", "classes", "folders")}
        sets[name] = OfficialSet(name, entry["title"], files, **lists)
    return sets


OFFICIAL_SETS: Mapping[str, OfficialSet] = MappingProxyType(_read_sets())
