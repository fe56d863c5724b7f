"""Programs of networks that consist of containers and layers with records."""

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from taut.audit.eval_mode_copy import Prepared
from taut.audit.program import Program, target_name
from taut.errors import ArgumentError, NoRuleError
from taut.rules import Record, find_record

_BATCH = 3
# Python's operators, which containers use, have no arguments with names.
_OPERATORS: dict[Any, Any] = {
    operator.add: torch.ops.aten.add.Tensor,
    operator.sub: torch.ops.aten.sub.Tensor,
    operator.mul: torch.ops.aten.mul.Tensor,
    torch.cat: torch.ops.aten.cat.default,
}


def is_structural(model: nn.Module) -> bool:
    """Whether every module is a container or has a record, so that no forward must be captured."""
    record = find_record(model)
    if record is None:
        return False
    if record.structure:
        return all(
            is_structural(child) for child in model.children()
        ) and not _modifies_shared_tensor(model)
    return record.call is not None or record.constants is not None or bool(record.refusal)


def _modifies_shared_tensor(model: nn.Module) -> bool:
    """Whether an in-place operation may modify a tensor that another branch also uses."""
    branches = type(model) is not nn.Sequential
    return branches and any(getattr(module, "inplace", False) for module in model.modules())


class _Tracer(fx.Tracer):
    """Follows containers; every other module becomes the one call that its record names."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.prepared = prepared

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """The call of a module: looked into if it is a container."""
        record = find_record(m) or Record()
        if record.structure:
            return forward(*args, **kwargs)
        path = self.path_of_module(m)
        meta = {"place": path, "kind": self.prepared.kind(m)}
        operation: Any = ("call_module", path, args, {})
        if record.call is not None:
            try:
                target, more = record.call(m)
                operation = ("call_function", target, args, more)
            except NoRuleError as error:
                meta["refusal"] = str(error)
        made = self.create_proxy(*operation)
        made.node.meta.update(meta)
        return made


def trace(prepared: Prepared, input_shape: tuple[int, ...] | None) -> Program:
    """The program of a network of containers and layers with records."""
    model = prepared.model
    record = find_record(model)
    if record is None or not record.structure:
        model = nn.Sequential(model)
    graph = _Tracer(prepared).trace(model)
    for node in graph.nodes:
        if node.op in ("call_function", "call_module"):
            node.meta.setdefault("place", target_name(node.target))
            node.meta.setdefault("kind", target_name(node.target))
            node.target = _OPERATORS.get(node.target, node.target)
    program = Program(fx.GraphModule(model, graph), input_shape, exported=False)
    if input_shape is not None:
        _Shapes(program).run_on(input_shape)
    return program


class _Shapes(fx.Interpreter):
    """Runs a program without numbers, and writes the shape of each result into its graph."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.module)
        self.extra_traceback = False

    def run_on(self, shape: tuple[int, ...]) -> None:
        """For inputs of this shape."""
        self.shape = shape
        like = stored_like(self.module)
        with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
            self.run(torch.empty(_BATCH, *shape, dtype=like.dtype, device=like.device))

    def run_node(self, n: fx.Node) -> Any:
        """One step; what it gives has one sample for each of the batch."""
        if "refusal" in n.meta:
            # What is refused anyway needs no shape; the refusal itself comes later, by name.
            args: Any = self.map_nodes_to_values(n.args, n)
            return args[0]
        try:
            result = super().run_node(n)
        except Exception as error:
            raise ArgumentError(
                argument="input_shape",
                rule="must be one that the model takes",
                got=f"input_shape={self.shape}, and `{n.meta.get('place', n)}` failed: "
                f"{' '.join(str(error).split())[:300].rstrip('.')}",
            ) from error
        if n.op in ("call_function", "call_module", "placeholder"):
            n.meta["shape"] = sample_shape(result, _BATCH, n.meta.get("place", n))
        return result


def sample_shape(result: Any, batch: Any, place: object) -> Any:
    """The shape of one sample of a result, or a list of them for several results."""
    if isinstance(result, (tuple, list)):
        return [sample_shape(part, batch, place) for part in result if part.is_floating_point()]
    if not isinstance(result, Tensor):
        return None
    if not result.is_floating_point():
        raise NoRuleError(
            rule=f"`{place}` gives {result.dtype}; only real floating-point tensors are supported, "
            "and rounding to whole numbers jumps"
        )
    check_one_row_a_sample(result, batch, place)
    return tuple(result.shape[1:])


def check_one_row_a_sample(result: Tensor, batch: Any, place: object) -> None:
    """Raises unless the first dimension, and no other, is that of the batch."""
    sizes = list(result.shape)
    if not sizes or str(sizes[0]) != str(batch) or not all(isinstance(n, int) for n in sizes[1:]):
        raise NoRuleError(
            rule=f"`{place}` mixes the samples of a batch: its result has shape {tuple(sizes)} for "
            f"{batch} inputs",
            remedy="Samples must pass through a network on their own.",
        )


def stored_like(model: nn.Module) -> Tensor:
    """A tensor of the dtype and on the device of the model's inputs, as its stored tensors tell."""
    stored = (*model.parameters(), *model.buffers())
    return next((t for t in stored if t.is_floating_point()), torch.empty(0))


def find_input_shape(model: nn.Module) -> tuple[int, ...] | None:
    """The shape of one input, when the first layer that has parameters is dense.

    Example:
        >>> find_input_shape(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 4)))
        (3,)
    """
    for module in model.modules():
        if next(module.parameters(recurse=False), None) is not None:
            features = getattr(module, "in_features", None)
            return (features,) if isinstance(features, int) else None
    return None
