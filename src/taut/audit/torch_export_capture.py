"""Custom forwards, captured by `torch.export` as a graph of operations for every batch size."""

import copy
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from taut import functional
from taut.audit.container_tracing import stored_like
from taut.audit.eval_mode_copy import Prepared, content_of, copy_for_evaluation
from taut.audit.program import Program
from taut.audit.torch_export_conversion import Rewriter
from taut.errors import NoRuleError
from taut.rules import find_record
from taut.rules.batch_normalisation import batch_norm
from taut.rules.convolution import padded_convolution
from taut.rules.elementwise import softshrink, softsign, tanhshrink
from taut.rules.operation_registry import bind_arguments
from taut.rules.pooling import adaptive_average, adaptive_maximum
from taut.rules.shape import identity

_LOCK = threading.Lock()
# Layers and functions that stay one operation; only the capture under way, which holds the lock,
# adds to the list.
_WHOLE: list[Any] = []
# Functions of ours that stand for modules of torch; those are traced as torch runs them.
_ACTIVATIONS = {F.softsign: softsign, F.softshrink: softshrink, F.tanhshrink: tanhshrink}
_TRACED = (batch_norm, padded_convolution, identity, adaptive_average, adaptive_maximum)


def _layer(x: Tensor, index: int) -> Tensor:
    return _WHOLE[index](x).clone()


def _layer_without_numbers(x: Tensor, index: int) -> Tensor:
    with unset_fake_temporarily():
        sizes = [n if isinstance(n, int) else 2 for n in x.shape]
        shape = _WHOLE[index](torch.zeros(sizes, dtype=x.dtype)).shape
    return x.new_empty((x.shape[0], *shape[1:]))


_OPERATION = torch.library.custom_op(
    "taut::layer", _layer, mutates_args=(), schema="(Tensor x, int index) -> Tensor"
)
_OPERATION.register_fake(_layer_without_numbers)


class _Whole(nn.Module):
    """Stands for a layer with a record of its own, as one operation of the graph."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.taut.layer(x, self.index)


def capture(prepared: Prepared, input_shape: tuple[int, ...]) -> Program:
    """The program of a network with custom forwards, valid for every batch size.

    `torch.export` runs the forward once on tensors without numbers, with the size of the batch as
    a symbol, and records plain operations: in-place work, keyword arguments, functional calls,
    asserts and branches on fixed sizes are resolved. A second run with a batch of one must give the
    same operations, since one is a special case to the exporter.

    Raises:
        NoRuleError: the forward branches on values of its input or on the batch size, writes
            attributes or buffers, or mixes samples.
    """
    with _LOCK, _whole_functions():
        _WHOLE.clear()
        try:
            model = _with_whole_layers(prepared.model)
            program, single = (
                Rewriter(
                    prepared, _export(model, input_shape, batch), input_shape, _WHOLE
                ).program()
                for batch in (None, 1)
            )
            if program.digest() != single.digest():
                rule = "the forward computes another function for a batch of one"
                remedy = "Make the result of a sample independent of the batch size."
                raise NoRuleError(rule=rule, remedy=remedy)
        finally:
            _WHOLE.clear()
    _compare(prepared, program)
    return program


@contextmanager
def _whole_functions() -> Iterator[None]:
    """Sorting functions, and activations that export would take apart, stay whole as well."""

    def keep(function: Any, x: Any, more: dict[str, Any]) -> Any:
        # Other tensors, such as angles, stay in sight: they may depend on the input.
        if not isinstance(x, FakeTensor) or any(isinstance(v, FakeTensor) for v in more.values()):
            return None
        _WHOLE.append(partial(function, **more))
        return torch.ops.taut.layer(x, len(_WHOLE) - 1)

    class WholeActivations(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            kwargs = kwargs or {}
            if (function := _ACTIVATIONS.get(func)) is not None:
                arguments = bind_arguments(function, args, kwargs)
                answer = keep(function, arguments.pop("input"), arguments)
                if answer is not None:
                    return answer
            return func(*args, **kwargs)

    functional.keep_whole(keep)
    try:
        with WholeActivations():
            yield
    finally:
        functional.keep_whole(None)


def _with_whole_layers(model: nn.Module) -> nn.Module:
    """A copy in which every layer that ATen's operations do not describe is one operation."""
    stand_ins: dict[int, nn.Module] = {}
    for module in model.modules():
        record = find_record(module)
        if record is not None and record.call is not None and record.call(module)[0] is identity:
            # Dropout returns its argument itself, which export takes for a copy.
            stand_ins[id(module)] = nn.Identity()
            continue
        if record is None or record.structure or record.refusal:
            continue
        native = record.call is not None and _is_native(record.call, module)
        if not native and (record.call is not None or record.constants is not None):
            _WHOLE.append(module)
            stand_ins[id(module)] = _Whole(len(_WHOLE) - 1)
    return copy.deepcopy(model, stand_ins).eval()


def _is_native(call: Any, module: nn.Module) -> bool:
    try:
        target, _ = call(module)
    except NoRuleError:
        return True
    return isinstance(target, torch._ops.OpOverload) or target in _TRACED


def _export(model: nn.Module, shape: tuple[int, ...], batch: int | None) -> Any:
    like = stored_like(model)
    example = torch.zeros(batch or 7, *shape, dtype=like.dtype, device=like.device)
    sizes = None if batch else ({0: torch.export.Dim("batch")},)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, (example,), dynamic_shapes=sizes, strict=False)
            program = program.run_decompositions({})
    except NoRuleError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise NoRuleError(
            rule=f"the forward of {type(model).__name__} cannot be captured on inputs of shape "
            f"{shape}: {reason.rstrip('.')}",
            remedy="A forward that branches on its input, or on the batch size, has no single graph. "
            "Split the model, or register a record for that part with taut.rules.register.",
        ) from error
    written = program.graph_signature.buffers_to_mutate
    if written:
        raise NoRuleError(
            rule=f"the forward writes the buffer {', '.join(sorted(set(written.values())))}, so "
            "a later call may return another result",
            remedy="Change no state in evaluation mode.",
        )
    return program


def _attributes(model: nn.Module) -> dict[str, Any]:
    """Python attributes of all modules, as values that can be compared."""
    attributes: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                attributes[f"`{name}` of `{path or 'model'}`"] = content_of(value)
    return attributes


def _compare(prepared: Prepared, program: Program) -> None:
    """Raises unless program and model agree on random batches, a test beside the proof.

    What the forward leaves behind in attributes of the model shows, too.
    """
    generator = torch.Generator().manual_seed(0)
    assert program.input_shape is not None
    # The network itself: its forward may tell its layers from the plain ones of the captured copy.
    model = copy_for_evaluation(prepared.source, "model")
    before = _attributes(model)
    with torch.no_grad():
        for batch, size in ((1, 1.0), (3, 1.0), (2, 1e3)):
            x = torch.randn(batch, *program.input_shape, generator=generator, dtype=torch.float64)
            x = (size * x).to(stored_like(model))
            with torch.set_grad_enabled(batch == 1):
                real = model(x.requires_grad_(batch == 1).clone())
            if not isinstance(real, Tensor):
                got = type(real).__name__
                raise NoRuleError(rule="the forward must return a tensor itself", got=got)
            real = real.detach()
            try:
                followed = program.module(x.clone())
            except RuntimeError as error:
                raise NoRuleError(
                    rule="the captured operations cannot be run on their own: "
                    f"{str(error).rstrip('.')}",
                    remedy="Use one dtype throughout the forward.",
                ) from error
            if batch == 1 and real.shape == followed.shape[1:]:
                real = real[None]  # a last squeeze() drops a batch of one
            scale = real.abs().amax().clamp_min(torch.finfo(real.dtype).tiny) if real.numel() else 1
            if real.shape != followed.shape or bool(((real - followed).abs() > 1e-4 * scale).any()):
                raise NoRuleError(
                    rule="the captured operations give another result than the forward: the model has "
                    "hidden state, draws random numbers, or looks at more than its input's numbers"
                )
    changed = {name for name, value in _attributes(model).items() if value != before.get(name)}
    if changed:
        raise NoRuleError(
            rule=f"the forward writes the attribute {', '.join(sorted(changed))}, so a later "
            "call may return another result",
            remedy="Change no state in the forward.",
        )
