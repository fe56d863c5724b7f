r"""`save` and `load`: one safetensors file with a network, its proven constant and what proves it.

The file is an ordinary safetensors file, readable by any tool for them. Its metadata has one entry,
`taut`: a JSON header with the architecture as data, the norms, the proven constant, the witnesses
from which `taut.checker` proves it, the versions that wrote it, and the SHA-256 of the whole file
with those 64 digits read as zeros. That checksum protects from accidents, not from people: who
alters a file can compute it again. Authenticity needs a digest from elsewhere (`sha256=`).
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from taut import checker
from taut.audit import bound_lipschitz, copy_for_evaluation
from taut.bounds import Bound
from taut.errors import ArgumentError, DamagedFileError, TautError
from taut.export.architecture import build, describe
from taut.export.folding import fold as fold_model
from taut.export.norm_witnesses import (
    EVALUATION,
    check_evaluation,
    evaluation_tensors,
    make_witnesses,
)
from taut.export.quantised_weights import StoredWeights, restore_weights, round_weights
from taut.export.resource_limits import check_arguments, check_intermediates
from taut.export.safetensors_file import (
    FORMAT,
    digest,
    digest_span,
    read_header,
    read_tensors,
    write_atomically,
)
from taut.nn import ConstrainedLayer, ConstrainedLinear, Residual
from taut.norms import L2, Norm, NormLike, as_norm
from taut.rules import find_schema, registered_modules

# The proof is a float64 computation whose last digits depend on the machine.
_PROOF_TOL = 1e-6
# No tensor of a layer has such a name, for a colon is no part of an attribute.
_EXTRA = "extra:"
# By how much witnesses are enlarged where the checker, which rounds otherwise, needs more room.
_SLACKS = (0.0, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9)


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
        metadata: what the writer said about the network, as JSON holds it.
        extra_tensors: tensors that the writer stored beside the network.
    """

    model: nn.Module
    bound: Bound
    output_norm: Norm
    input_shape: tuple[int, ...] | None
    claimed: float
    versions: dict[str, str]
    metadata: dict[str, Any] = field(default_factory=dict)
    extra_tensors: dict[str, Tensor] = field(default_factory=dict)


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    fold: bool = False,
    weights: StoredWeights | None = None,
    norm: NormLike | None = None,
    output_norm: NormLike | None = None,
    input_shape: Sequence[int] | None = None,
    metadata: Mapping[str, Any] | None = None,
    extra_tensors: Mapping[str, Tensor] | None = None,
) -> Bound:
    """Writes a network and the proof of its constant to one safetensors file.

    The file is either complete or absent: it is written to a temporary file beside `path`, read back with
    every check that `load` makes, and only then renamed.

    Args:
        model: a `torch.nn.Sequential`, nested or not, of the layers of `taut.nn`, `torch.nn.Linear`
            and the usual activations, or one such layer; not changed. For anything else, an error names
            the layer.
        path: the file; an existing file is replaced.
        fold: store plain layers (see `taut.fold`) instead of constrained ones. By default the
            constraints are kept, so that training can go on after `load`.
        weights: store plain layers whose matrices and kernels are rounded to "bfloat16" or "int8"
            (half or a quarter of the size); the network still computes in float32, and its constant
            is proven for the rounded weights.
        norm: the norm of the input in which the constant is proven; by default that of the first
            constrained layer, or L2.
        output_norm: likewise of the output; by default that of the last constrained layer, or, when
            `norm` is given, the same.
        input_shape: the shape of one input, without the batch; stored, and needed where the proof
            needs it (see `taut.bound_lipschitz`).
        metadata: anything else about the network that JSON can hold.
        extra_tensors: finite floating-point tensors to store beside it, by name. Both are covered
            by the checksum, and `open_file` returns them; what they mean is up to their writer.

    Returns:
        The proven constant that the file states: that of `taut.bound_lipschitz`, or that of the
        checker if it is larger. `taut verify` proves it from the file alone, or refuses the file by the
        name of a layer that it does not know.

    Raises:
        ArgumentError: a layer cannot be described in a file.
        NoRuleError: no constant can be proven; every file needs one.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "critic.safetensors"
        >>> save(taut.nn.mlp([2, 8, 1], lipschitz=3.0), path)
        Bound(<= 3.0, l2, proven, inputs (2,))
        >>> load(path)[2]
        MaxMin(dim=-1)
    """
    path = Path(path)
    first, last = _norms_of(model)
    p = first if norm is None else as_norm(norm, "save")
    q = as_norm(output_norm, "save") if output_norm is not None else last if norm is None else p
    shape = _first_shape(model) if input_shape is None else _check_shape("save", list(input_shape))
    plain = fold or weights is not None
    twin = fold_model(model) if plain else copy_for_evaluation(model, "save", _plain_forms(model))
    stored = {} if weights is None else round_weights(twin, weights)
    architecture, tensors = describe(twin)
    check_arguments("save", architecture)
    check_intermediates("save", twin, shape)
    bound = bound_lipschitz(twin, p, shape, q)
    tensors |= evaluation_tensors(twin)
    header = {
        "format": FORMAT,
        "sha256": "0" * 64,
        "model": architecture,
        "frozen": [name for name, value in twin.named_parameters() if not value.requires_grad],
        "norm": str(p),
        "output_norm": str(q),
        "constant": bound.value,
        "method": bound.method,
        "input_shape": None if shape is None else list(shape),
        "witnesses": make_witnesses(twin, shape),
        "versions": {name: version(name) for name in ("taut", "torch", "safetensors")},
        "metadata": dict(metadata or {}),
    }
    if weights is not None:
        header["weights"] = weights
    bound = replace(bound, value=_settle_claim(header, tensors))
    for name, value in (extra_tensors or {}).items():
        tensors[f"{_EXTRA}{name}"] = value.detach().cpu().contiguous()
    tensors |= stored
    text = json.dumps(header, separators=(",", ":"), allow_nan=False)
    data = safetensors.torch.save(tensors, {"taut": text})
    digits = digest_span(data)
    data = data[: digits.start] + digest(data, digits).encode() + data[digits.stop :]
    _open(data)
    write_atomically(path, data)
    return bound


def _plain_forms(model: nn.Module) -> dict[int, nn.Module]:
    """Copies of the plain forms of modules that files do not name, by the modules' identities."""
    records = registered_modules()
    return {
        id(module): copy_for_evaluation(record.plain(module), "save")
        for module in model.modules()
        if (record := records.get(type(module))) is not None
        and record.plain is not None
        and find_schema(type(module).__name__) is None
    }


def _settle_claim(header: dict[str, Any], tensors: Mapping[str, Tensor]) -> float:
    """Sets the constant of a header to one that the checker proves from its witnesses.

    A network with a layer that the checker does not know keeps the constant of the audit: `load`
    proves that, and the checker refuses the file by the name of the layer.
    """
    arrays = {name: value.double().numpy() for name, value in tensors.items()}
    witnesses, constant = header["witnesses"], header["constant"]
    for slack in _SLACKS:
        header["witnesses"] = {
            path: {**witness, "l2": witness["l2"] * (1 + slack)}
            for path, witness in witnesses.items()
        }
        try:
            header["constant"] = max(constant, checker.prove(header, arrays))
            break
        except checker.NotProven:
            continue
        except checker.Refused:
            break
    return header["constant"]


def load(path: str | os.PathLike[str], sha256: str | None = None) -> nn.Module:
    """Reads a network that `save` wrote, without trusting anything in the file.

    No code from the file is run: layers are created from a list of known types, and tensors are plain
    numbers. The checksum over every byte, the layers' arguments, shapes and dtypes, and the
    finiteness of all numbers are checked, and the constant is proven again: it must be what the
    file states (to six digits, since machines round their proofs differently). Time and memory are
    bounded by the size of the file (see `taut.export.resource_limits`).

    Args:
        path: a file that `save` wrote.
        sha256: SHA-256 digest of the file in hexadecimal, from a source that you trust. The file's
            own checksum only protects against accidents: whoever alters a file can recompute it.

    Returns:
        The network in evaluation mode, on the CPU. Call ``.train()`` to go on training.

    Raises:
        DamagedFileError: the file is truncated, altered, not a taut file, or does not contain what it
            states; the message says which.
    """
    return open_file(path, sha256).model


def open_file(path: str | os.PathLike[str], sha256: str | None = None) -> SavedModel:
    """Like `load`, with what the file says about its network."""
    path = Path(path)
    try:
        data = path.read_bytes()
        checksum = hashlib.sha256(data).hexdigest()
        if sha256 is not None and sha256.lower() != checksum:
            raise DamagedFileError(
                rule=f"its SHA-256 is {checksum}, not the `sha256` given",
                remedy="It is another file than the one you were told of: fetch it again from "
                "its author.",
            )
        return _open(data)
    except DamagedFileError as error:
        raise error.replace(subject=f"load: {path.name}") from error


def _norms_of(model: nn.Module) -> tuple[Norm, Norm]:
    layers = [m for m in model.modules() if isinstance(m, ConstrainedLayer)]
    return (layers[0].input_norm, layers[-1].output_norm) if layers else (L2, L2)


def _first_shape(model: nn.Module) -> tuple[int, ...] | None:
    """The shape of one input where the first layer is dense, which a proof may assume."""
    while isinstance(model, (nn.Sequential, Residual)):
        model = next(model.children(), nn.Identity())
    return (model.in_features,) if isinstance(model, (nn.Linear, ConstrainedLinear)) else None


def _open(data: bytes) -> SavedModel:
    header = read_header(data)
    digits = digest_span(data)
    if data[digits.start : digits.stop].decode() != digest(data, digits):
        rule = "the checksum does not match, so at least one byte was altered"
        raise DamagedFileError(rule=rule, remedy="Fetch the file again.")
    try:
        # What is left to go wrong was written on purpose, by another program or with ill will.
        tensors = restore_weights(read_tensors(data), header.get("weights", "float32"))
        return _rebuild(header, tensors)
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
        rule = f"it does not hold a network: {kind}{str(error).rstrip('.')}"
        raise DamagedFileError(rule=rule) from error


def _rebuild(header: dict[str, Any], tensors: dict[str, Tensor]) -> SavedModel:
    extra = [name for name in sorted(tensors) if name.startswith(_EXTRA) and "." not in name]
    extra_tensors = {name.removeprefix(_EXTRA): tensors.pop(name) for name in extra}
    made = [name for name in sorted(tensors) if name.startswith(EVALUATION)]
    evaluation = {name: tensors.pop(name) for name in made}
    shape = header["input_shape"]
    shape = None if shape is None else _check_shape("load", shape)
    check_arguments("load", header["model"])
    model = build(header["model"], tensors).eval()
    check_intermediates("load", model, shape)
    for name in header["frozen"]:
        if name not in tensors:
            raise ArgumentError(rule=f"the frozen parameter {str(name)[:80]!r} is not there")
        model.get_parameter(name).requires_grad_(False)
    check_evaluation(model, evaluation)
    if not isinstance(header["witnesses"], dict):
        raise ArgumentError(rule="the witnesses must be named")
    claimed = header["constant"]
    if type(claimed) is not float or not 0 <= claimed < math.inf:
        raise ArgumentError(rule="the constant must be a number", got=repr(str(claimed)[:80]))
    p, q = as_norm(header["norm"], "load"), as_norm(header["output_norm"], "load")
    bound = bound_lipschitz(model, p, shape, q)
    if bound.value > claimed * (1 + _PROOF_TOL):
        raise DamagedFileError(
            rule=f"it states a Lipschitz constant of {claimed}, but only {bound.value} is proven "
            "of the network in it"
        )
    versions = {str(k)[:80]: str(v)[:80] for k, v in dict(header["versions"]).items()}
    metadata = header.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ArgumentError(rule="the metadata must be named", got=repr(str(metadata)[:80]))
    return SavedModel(model, bound, q, shape, claimed, versions, metadata, extra_tensors)


def _check_shape(subject: str, shape: Any) -> tuple[int, ...]:
    usual = isinstance(shape, list) and all(type(n) is int and 0 < n < 2**31 for n in shape)
    if not usual or not shape:
        rule = "must be positive whole numbers"
        raise ArgumentError(subject, "input_shape", rule, str(shape)[:80])
    return tuple(shape)
