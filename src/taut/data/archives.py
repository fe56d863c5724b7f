"""Archives, read in memory: nothing is unpacked to disk, no link is followed."""

import io
import tarfile
import zlib
from collections.abc import Collection
from pathlib import PurePosixPath

from taut.errors import DamagedFileError

__all__ = ["read_members"]

_LARGEST = 2**28


def read_members(subject: str, archive: bytes, wanted: Collection[str]) -> dict[str, bytes]:
    """The wanted files of a tar archive, by the last part of their names.

    An archive with a member that is neither file nor folder, or whose name leads out of the
    archive, is refused as a whole: no honest one has any.

    Args:
        subject: who speaks in an error.
        archive: the bytes of a tar file, packed or not.
        wanted: names without folders; those that are not there are left out.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                _check(subject, member)
                name = PurePosixPath(member.name).name
                if not member.isfile() or name not in wanted:
                    continue
                if name in found:
                    raise DamagedFileError(f"{subject}: {name} must be there once; it is twice.")
                file = tar.extractfile(member)
                found[name] = file.read() if file else b""
                if len(found[name]) != member.size:
                    raise DamagedFileError(f"{subject}: the archive ends inside {name}.")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DamagedFileError(
            f"{subject}: the archive is cut short or altered ({error}). Fetch it again."
        ) from error
    return found


def _check(subject: str, member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.as_posix():
        reason = "its name leads out of the archive"
    elif not (member.isreg() or member.isdir()):
        reason = "it is neither file nor folder"
    elif member.size > _LARGEST:
        reason = f"it would take {member.size} bytes"
    else:
        return
    raise DamagedFileError(
        f"{subject}: an archive of data must hold plain files; {member.name!r} is refused, "
        f"since {reason}."
    )
