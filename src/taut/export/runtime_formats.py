"""Networks for other runtimes, `.pt2` and ONNX, each compared with the network it came from."""

import copy
import json
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from taut.audit import find_input_shape
from taut.errors import ArgumentError, NotConvergedError, require
from taut.export.folding import fold
from taut.export.relu_rewriting import rewrite_relu
from taut.export.safetensors_file import write_atomically
from taut.nn import Scale

_BATCHES = (1, 2, 5, 32)
# Of the largest output: what another order of summation may change.
_AGREEMENT = {torch.float32: 1e-6, torch.float64: 1e-13}


def export_pt2(
    model: nn.Module,
    path: str | os.PathLike[str],
    input_shape: Sequence[int] | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes the folded network as a `.pt2` program that `torch.export.load` reads without taut.

    The program takes batches of any size. It is read back from the file and compared with `model`
    before the file gets its name.

    Args:
        model: any module that `taut.fold` and `torch.export` can follow; not changed.
        path: the file.
        input_shape: the shape of one input, without the batch; found by itself when the first layer
            is dense.
        metadata: what to say about the network, in what JSON knows: each becomes a file of its name
            in the archive, which `torch.export.load` reads with `extra_files`.

    Raises:
        NotConvergedError: the program does not compute what the network computes.
    """
    folded, example = _prepare("export_pt2", model, input_shape)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        file = Path(folder) / "program.pt2"
        batch = torch.export.Dim("batch")
        program = torch.export.export(
            _with_tensor_factors(folded), (example,), dynamic_shapes=({0: batch},)
        )
        torch.export.save(program, file, extra_files=_as_texts(metadata))
        _compare("export_pt2", folded, torch.export.load(file).module(), example)
        write_atomically(Path(path), file.read_bytes())


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    input_shape: Sequence[int] | None = None,
    *,
    relu: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes the folded network as one ONNX file, input `input`, output `output`.

    Batches may be of any size. The file is run in onnxruntime on random inputs of several batch
    sizes and compared with `model` before it gets its name: within 1e-6 of the largest output in
    float32, 1e-13 in float64, or four times what float32 itself costs the network, if that is more.

    Args:
        model: any module that `taut.fold` and `torch.export` can follow; not changed.
        path: the file.
        input_shape: the shape of one input, without the batch; found by itself when the first layer
            is dense.
        relu: write every activation with ReLU and linear maps alone (see `rewrite_relu`). The
            additional roundings are allowed for: the comparison is ten times more lenient.
        metadata: what to say about the network, in what JSON knows: the metadata of the file.

    Raises:
        NotConvergedError: onnxruntime does not compute what the network computes.
        MissingExtraError: onnx, onnxscript or onnxruntime are not installed.
    """
    onnx, _, runtime = (
        require(package, "onnx", "export_onnx") for package in ("onnx", "onnxscript", "onnxruntime")
    )
    folded, example = _prepare("export_onnx", model, input_shape)
    exported = rewrite_relu(folded) if relu else _with_tensor_factors(folded)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            exported,
            (example,),
            file,
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["input"],
            output_names=["output"],
            external_data=False,
            verbose=False,
        )
        data = file.read_bytes()
    if metadata:
        onnx_model = onnx.load_model_from_string(data)
        onnx.helper.set_model_props(onnx_model, _as_texts(metadata))
        data = onnx_model.SerializeToString()
    _compare("export_onnx", folded, _onnx_function(runtime, data), example, 10.0 if relu else 1.0)
    write_atomically(Path(path), data)


def _as_texts(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: json.dumps(value, ensure_ascii=False) for name, value in (metadata or {}).items()}


def _onnx_function(runtime: Any, data: bytes) -> Callable[[Tensor], Tensor]:
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(["output"], {"input": x.numpy()})[0])


def _prepare(
    subject: str, model: nn.Module, input_shape: Sequence[int] | None
) -> tuple[nn.Module, Tensor]:
    """The folded model on the CPU, and a batch of two for the tracer."""
    folded = fold(model).cpu()
    shape = tuple(input_shape) if input_shape is not None else find_input_shape(folded)
    if shape is None:
        rule = "must be given, since the first layer of the model does not tell it"
        remedy = "Give the shape of one input without the batch, such as (1, 28, 28)."
        raise ArgumentError(subject, "input_shape", rule, remedy=remedy)
    dtypes = {value.dtype for value in folded.parameters()} or {torch.get_default_dtype()}
    if len(dtypes) > 1 or not dtypes <= _AGREEMENT.keys():
        raise ArgumentError(subject, "model", "must be float32 or float64 throughout", str(dtypes))
    example = torch.zeros(2, *shape, dtype=dtypes.pop())
    try:
        folded(example)
    except Exception as error:
        rule = "must be one that the model takes"
        got = f"input_shape={shape}, and the model failed: {str(error).rstrip('.')}"
        raise ArgumentError(subject, "input_shape", rule, got) from error
    return folded, example


@torch.no_grad()
def _compare(
    subject: str,
    model: nn.Module,
    exported: Callable[[Tensor], Tensor],
    example: Tensor,
    leniency: float = 1.0,
) -> None:
    generator = torch.Generator().manual_seed(0)
    tol = leniency * _AGREEMENT[example.dtype]
    exact = copy.deepcopy(model).double()
    largest, worst, own = 0.0, 0.0, 0.0
    for batch in _BATCHES:
        x = torch.randn(batch, *example.shape[1:], dtype=example.dtype, generator=generator)
        wanted, got = model(x), exported(x)
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            rule = (
                f"for a batch of {batch} the exported network gives shape "
                f"{tuple(got.shape)} ({got.dtype}) instead of {tuple(wanted.shape)} "
                f"({wanted.dtype})"
            )
            raise NotConvergedError(subject, rule=rule, remedy="Nothing was written.")
        errors = (wanted.abs(), (got - wanted).abs(), (exact(x.double()) - wanted).abs())
        if not all(error.isfinite().all() for error in errors):
            worst = math.inf
            break
        seen = (error.max().item() for error in errors)
        largest, worst, own = map(max, (largest, worst, own), seen)
    # Very deep networks in float32 are further than that from themselves in float64.
    if not worst <= max(tol * largest, 4 * leniency * own):
        rule = (
            f"the exported network must compute what the model computes, within {tol:g} of "
            f"its largest output {largest:g}; it is off by {worst:g}"
        )
        raise NotConvergedError(subject, rule=rule, remedy="Nothing was written.")


class _Factor(nn.Module):
    """`Scale` with its factor as a tensor, which exporters do not round to float32."""

    factor: Tensor

    def __init__(self, factor: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(factor, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def _with_tensor_factors(folded: nn.Module) -> nn.Module:
    """The same function; a new module, with nothing of the old one written to."""
    twin = fold(folded)
    dtype = next((value.dtype for value in twin.parameters()), torch.get_default_dtype())
    for parent in list(twin.modules()):
        for name, child in parent._modules.items():
            if isinstance(child, Scale):
                parent._modules[name] = _Factor(child.factor, dtype)
    return _Factor(twin.factor, dtype) if isinstance(twin, Scale) else twin


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps back what the tracer says about itself and about packages that are not needed here."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            yield
    finally:
        logger.setLevel(level)
