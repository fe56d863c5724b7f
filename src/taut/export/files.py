r"""`save` and `load`: one safetensors file that says what it is, what is proven of it, and checks out.

The file is an ordinary safetensors file, readable by any tool for them. Its metadata has one entry,
`taut`: a JSON object with the architecture as data, the norms, the proven constant, the versions
that wrote it, and the SHA-256 of the whole file with those 64 digits read as zeros. So every byte
is covered: no single altered one goes unseen.
"""

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.bounds import Bound
from taut.errors import ArgumentError, DamagedFileError, TautError
from taut.export.architecture import build, describe
from taut.export.fold import copy_for_evaluation
from taut.export.fold import fold as fold_model
from taut.nn import ConstrainedLayer
from taut.norms import L2, Norm, NormLike, as_norm

__all__ = ["SavedModel", "load", "open_file", "save", "write_atomically"]

FORMAT = 1
_DIGEST = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LARGEST_HEADER = 100_000_000
# The proof is a float64 computation whose last digits depend on the machine.
_PROOF_TOL = 1e-6
_LARGEST_INPUT = 2**22
# No tensor of a layer has such a name, for a colon is no part of an attribute.
_ATTACHED = "attached:"


@dataclass(frozen=True)
class SavedModel:
    """What a file holds, after every check.

    Attributes:
        model: the network, in evaluation mode.
        bound: its constant, proven anew when the file was opened.
        output_norm: the norm of the output that `bound` speaks of; `bound.norm` is the input's.
        input_shape: the shape of one input, where it was given.
        claimed: the constant proven by the writer.
        versions: the packages that wrote the file.
        facts: what the writer said about the network, as JSON holds it.
        attached: tensors that the writer gave it to take along.
    """

    model: nn.Module
    bound: Bound
    output_norm: Norm
    input_shape: tuple[int, ...] | None
    claimed: float
    versions: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)
    attached: dict[str, Tensor] = field(default_factory=dict)


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    fold: bool = False,
    norm: NormLike | None = None,
    output_norm: NormLike | None = None,
    input_shape: Sequence[int] | None = None,
    facts: Mapping[str, Any] | None = None,
    attached: Mapping[str, Tensor] | None = None,
) -> Bound:
    """Writes a network and the proof of its constant to one safetensors file.

    The file is complete or not there: it is written beside `path`, read back with every check that
    `load` makes, and only then given its name.

    Args:
        model: a `torch.nn.Sequential`, nested or not, of the layers of `taut.nn`, `torch.nn.Linear`
            and the usual activations, or one such layer; not changed. Anything else is refused with
            its name.
        path: the file; one that is there is replaced.
        fold: store plain layers (see `taut.fold`) instead of constrained ones. By default the
            constraints are kept, so that training can go on after `load`.
        norm: the norm of the input in which the constant is proven; by default that of the first
            constrained layer, or L2.
        output_norm: likewise of the output; by default that of the last constrained layer, or, when
            `norm` is given, the same.
        input_shape: the shape of one input, without the batch; stored, and needed where the proof
            needs it (see `taut.bound_lipschitz`).
        facts: what else to say about the network, in what JSON knows.
        attached: finite floating-point tensors to take along, by name. Both are covered by the
            checksum, and `open_file` gives them back; what they mean is their writer's affair.

    Returns:
        The proven constant that the file states.

    Raises:
        ArgumentError: a module that no file can describe.
        NoRuleError: no constant is proven; every file has one.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "critic.safetensors"
        >>> save(taut.nn.mlp([2, 8, 1], lipschitz=3.0), path)
        Bound(<= 3.0, l2, proven)
        >>> load(path)[2]
        MaxMin(dim=-1)
    """
    path = Path(path)
    first, last = _norms_of(model)
    p = first if norm is None else as_norm(norm, "save")
    q = as_norm(output_norm, "save") if output_norm is not None else last if norm is None else p
    shape = None if input_shape is None else _check_shape("save", list(input_shape))
    twin = fold_model(model) if fold else copy_for_evaluation(model, "save")
    architecture, tensors = describe(twin)
    bound = bound_lipschitz(twin, p, shape, q)
    story = {
        "format": FORMAT,
        "sha256": "0" * 64,
        "model": architecture,
        "frozen": [name for name, value in twin.named_parameters() if not value.requires_grad],
        "norm": str(p),
        "output_norm": str(q),
        "constant": bound.value,
        "method": bound.method,
        "input_shape": shape,
        "versions": {name: version(name) for name in ("taut", "torch", "safetensors")},
        "facts": dict(facts or {}),
    }
    for name, value in (attached or {}).items():
        tensors[f"{_ATTACHED}{name}"] = value.detach().cpu().contiguous()
    text = json.dumps(story, separators=(",", ":"), allow_nan=False)
    data = safetensors.torch.save(tensors, {"taut": text})
    place = _digest_place(data)
    data = data[: place.start] + _digest(data, place).encode() + data[place.stop :]
    _open(data)
    write_atomically(path, data)
    return bound


def load(path: str | os.PathLike[str]) -> nn.Module:
    """Reads a network that `save` wrote, believing nothing.

    No code of the file is run: layers are made from a list of known ones, and tensors are plain
    numbers. The checksum over every byte, the layers' arguments, shapes and dtypes, and the
    finiteness of all numbers are checked, and the constant is proven again: it must be what the
    file states (to six digits, since machines round their proofs differently).

    Args:
        path: a file that `save` wrote.

    Returns:
        The network in evaluation mode, on the CPU. Call `.train()` to go on training.

    Raises:
        DamagedFileError: the file is truncated, altered, not a taut file, or does not hold what it
            states; the text says which.
    """
    return open_file(path).model


def open_file(path: str | os.PathLike[str]) -> SavedModel:
    """Like `load`, with what the file says about its network."""
    path = Path(path)
    try:
        return _open(path.read_bytes())
    except DamagedFileError as error:
        raise DamagedFileError(f"load: {path.name}: {error}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file that is complete or not there, whatever happens in between."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _norms_of(model: nn.Module) -> tuple[Norm, Norm]:
    layers = [m for m in model.modules() if isinstance(m, ConstrainedLayer)]
    return (layers[0].input_norm, layers[-1].output_norm) if layers else (L2, L2)


def _open(data: bytes) -> SavedModel:
    story = _read_story(data)
    place = _digest_place(data)
    if data[place.start : place.stop].decode() != _digest(data, place):
        raise DamagedFileError(
            "the checksum does not match, so at least one byte was altered. Fetch the file again."
        )
    try:
        # What is left to go wrong was written on purpose, by another program or with ill will.
        return _rebuild(story, _read_tensors(data))
    except DamagedFileError:
        raise
    except (
        TautError,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        ArithmeticError,
    ) as error:
        kind = "" if isinstance(error, TautError) else f"{type(error).__name__}: "
        raise DamagedFileError(f"it does not hold a network: {kind}{error}") from error


def _read_story(data: bytes) -> dict[str, Any]:
    """The metadata of a taut file, as yet unverified."""
    # The length of a header may begin with the same bytes, so a header must be missing, too.
    if data[8:9] != b"{" and (data[:2] == b"PK" or data[:1] == b"\x80"):
        raise DamagedFileError(
            "this is an archive or a pickle of torch, not a taut file. Pickles can run any code, "
            "so they are not opened; write the model with taut.save."
        )
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= size <= min(len(data) - 8, _LARGEST_HEADER):
        raise DamagedFileError("it is truncated, or not a safetensors file.")
    try:
        header = json.loads(data[8 : 8 + size])
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
        whole = 8 + size + max(ends, default=0)
        text = header.get("__metadata__", {}).get("taut")
        story = None if text is None else json.loads(text)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise DamagedFileError("its header is not that of a safetensors file.") from error
    if not isinstance(story, dict):
        raise DamagedFileError(
            "this safetensors file was not written by taut.save: it names no layers. Build the "
            "model in code and load its state dict."
        )
    if story.get("format") != FORMAT:
        raise DamagedFileError(
            f"its format is {str(story.get('format'))[:20]}, and this version of taut reads "
            f"{FORMAT}. Use a version of taut that knows it."
        )
    if whole != len(data):
        raise DamagedFileError(
            f"it has {len(data)} bytes and should have {str(whole)[:20]}: truncated, or added to. "
            "Fetch it again."
        )
    return story


def _digest_place(data: bytes) -> slice:
    size = int.from_bytes(data[:8], "little")
    places = [match.span(1) for match in _DIGEST.finditer(data[: 8 + size])]
    if len(places) != 1:
        raise DamagedFileError("it must state one checksum. Fetch it again.")
    return slice(*places[0])


def _digest(data: bytes, place: slice) -> str:
    digest = hashlib.sha256(data[: place.start])
    digest.update(b"0" * (place.stop - place.start))
    digest.update(data[place.stop :])
    return digest.hexdigest()


def _read_tensors(data: bytes) -> dict[str, Tensor]:
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:
        raise DamagedFileError(f"its tensors cannot be read: {error}") from error
    for name, value in tensors.items():
        if value.dtype not in _DTYPES:
            raise DamagedFileError(
                f"tensor `{name}` is of dtype {value.dtype}; it must be a float."
            )
        if not value.isfinite().all():
            raise DamagedFileError(f"tensor `{name}` holds NaN or infinity.")
    return tensors


def _rebuild(story: dict[str, Any], tensors: dict[str, Tensor]) -> SavedModel:
    attached = {
        name.removeprefix(_ATTACHED): tensors.pop(name)
        for name in sorted(tensors)
        if name.startswith(_ATTACHED) and "." not in name
    }
    model = build(story["model"], tensors).eval()
    for name in story["frozen"]:
        if name not in tensors:
            raise ArgumentError(f"the frozen parameter {str(name)[:80]!r} is not there.")
        model.get_parameter(name).requires_grad_(False)
    shape = story["input_shape"]
    shape = None if shape is None else _check_shape("load", shape)
    claimed = story["constant"]
    if type(claimed) is not float or not 0 <= claimed < math.inf:
        raise ArgumentError(f"the constant must be a number; got {str(claimed)[:80]!r}.")
    p, q = as_norm(story["norm"], "load"), as_norm(story["output_norm"], "load")
    bound = bound_lipschitz(model, p, shape, q)
    if bound.value > claimed * (1 + _PROOF_TOL):
        raise DamagedFileError(
            f"it states a Lipschitz constant of {claimed}, but only {bound.value} is proven of the "
            "network in it."
        )
    versions = {str(k)[:80]: str(v)[:80] for k, v in dict(story["versions"]).items()}
    facts = story.get("facts", {})
    if not isinstance(facts, dict):
        raise ArgumentError(f"the facts must be named; got {str(facts)[:80]!r}.")
    return SavedModel(model, bound, q, shape, claimed, versions, facts, attached)


def _check_shape(subject: str, shape: Any) -> tuple[int, ...]:
    usual = isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)
    if not usual or not shape or math.prod(shape) > _LARGEST_INPUT:
        raise ArgumentError(
            f"{subject}: `input_shape` must be positive whole numbers, at most {_LARGEST_INPUT} "
            f"entries in all; got {str(shape)[:80]}."
        )
    return tuple(shape)
