"""Provenance of a number: code, package versions and machine."""

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).resolve().parents[2]


def version_of(distribution: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def describe_versions(*distributions: str) -> dict[str, str | None]:
    """The versions of Python and of these distributions; None for one that is not installed.

    Example:
        >>> list(describe_versions("taut", "torch"))
        ['python', 'taut', 'torch']
    """
    return {"python": platform.python_version(), **{d: version_of(d) for d in distributions}}


def describe_machine() -> dict[str, Any]:
    """Processor, number of cores, operating system and load average."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else None
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": None if load is None else [round(part, 2) for part in load],
    }


# Once per process: the process runs the code that it loaded, whatever the files have become.
@cache
def describe_code() -> dict[str, Any]:
    """Version of taut; in a git checkout also the commit, and whether files differ from it ("dirty").

    Only files of the two packages count: other changes cannot affect a number.
    """
    commit = dirty = None
    # An installed copy may be inside an unrelated repository, which does not track it.
    if _git("ls-files", "--error-unmatch", __file__) is not None:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--", "taut", "taut_lab")
        dirty = None if changes is None else bool(changes)
    return {"taut": version_of("taut"), "commit": commit, "dirty": dirty}


def _git(*words: str) -> str | None:
    command = ["git", "-C", str(_SOURCE), *words]
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=20
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"
