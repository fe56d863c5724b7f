"""The container of a saved network: a safetensors file with a header of ours and a checksum."""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from taut.errors import DamagedFileError

FORMAT = 2
_DIGEST = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LARGEST_HEADER = 100_000_000


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Where to write a file that is complete or not there: beside it, until the end.

    Links are followed. A device or a pipe is written to as it is: a file in its place would end it.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file that is complete or not there, whatever happens in between."""
    with written_beside(path) as beside, open(beside, "wb") as file:
        file.write(data)
        file.flush()
        if beside.is_file():
            os.fsync(file.fileno())


def read_header(data: bytes) -> dict[str, Any]:
    """The header of a taut file, as yet unverified."""
    # The length of a header may begin with the same bytes, so a header must be missing, too.
    if data[8:9] != b"{" and (data[:2] == b"PK" or data[:1] == b"\x80"):
        rule = "this is an archive or a pickle of torch, not a taut file"
        remedy = "Pickles can run any code, so they are not opened; write the model with taut.save."
        raise DamagedFileError(rule=rule, remedy=remedy)
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= size <= min(len(data) - 8, _LARGEST_HEADER):
        raise DamagedFileError(rule="it is truncated, or not a safetensors file")
    try:
        entries = json.loads(data[8 : 8 + size])
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name[:2] != "__"]
        whole = 8 + size + max(ends, default=0)
        text = entries.get("__metadata__", {}).get("taut")
        header = None if text is None else json.loads(text)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise DamagedFileError(rule="its header is not that of a safetensors file") from error
    if not isinstance(header, dict):
        rule = "this safetensors file was not written by taut.save: it names no layers"
        raise DamagedFileError(rule=rule, remedy="Build the model in code and load its state dict.")
    if header.get("format") != FORMAT:
        raise DamagedFileError(
            rule=f"its format is {str(header.get('format'))[:20]}, and this version of taut "
            f"reads {FORMAT}, which stores what proves the constant",
            remedy="Load it with the version that wrote it and save its network again with this "
            "one.",
        )
    if whole != len(data):
        rule = f"it has {len(data)} bytes and should have {str(whole)[:20]}: truncated, or added to"
        raise DamagedFileError(rule=rule, remedy="Fetch it again.")
    return header


def digest_span(data: bytes) -> slice:
    """The span of the 64 digits of the checksum in the file."""
    size = int.from_bytes(data[:8], "little")
    spans = [match.span(1) for match in _DIGEST.finditer(data[: 8 + size])]
    if len(spans) != 1:
        raise DamagedFileError(rule="it must state one checksum", remedy="Fetch it again.")
    return slice(*spans[0])


def digest(data: bytes, digits: slice) -> str:
    """The checksum: SHA-256 of the whole file with its own digits read as zeros."""
    running = hashlib.sha256(data[: digits.start])
    running.update(b"0" * (digits.stop - digits.start))
    running.update(data[digits.stop :])
    return running.hexdigest()


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file by name, all of them finite floats, or int8."""
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:
        rule = f"its tensors cannot be read: {str(error).rstrip('.')}"
        raise DamagedFileError(rule=rule) from error
    for name, value in tensors.items():
        if value.dtype not in _DTYPES and value.dtype != torch.int8:
            raise DamagedFileError(
                rule=f"tensor `{name}` is of dtype {value.dtype}; it must be a float, or int8 with "
                "a scale"
            )
        if not value.isfinite().all():
            raise DamagedFileError(rule=f"tensor `{name}` holds NaN or infinity")
    return tensors
