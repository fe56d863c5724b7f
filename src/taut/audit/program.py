"""`Program`: a network as a graph of operations that have records."""

import hashlib
import itertools
import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg


@dataclass(frozen=True)
class Program:
    """The graph of a network in evaluation: one input, stored tensors, operations, one output.

    Each node that depends on the input carries in its `meta` the name of its `place` in the model, its
    `kind` and, where known, the `shape` of one sample.

    Attributes:
        module: holds the graph and the stored tensors.
        input_shape: of one sample, where known.
        exported: whether the graph was captured from a forward of the model's own.
        proofs: bounds of stored tensors, each proven once.
    """

    module: fx.GraphModule
    input_shape: tuple[int, ...] | None
    exported: bool
    proofs: dict[Any, Any] = field(default_factory=dict, repr=False)

    def digest(self) -> str:
        """A checksum over the operations, their arguments and all stored numbers."""
        summary = hashlib.sha256()
        steps = itertools.count()
        # A size of the batch reads as 1, so that the program is the same for all sizes.
        numbers: dict[fx.Node, Any] = {
            node: 1 if node.meta.get("size") else f"%{next(steps)}"
            for node in self.module.graph.nodes
        }
        for node in self.module.graph.nodes:
            if node.meta.get("size"):
                continue
            args = map_arg((node.args, node.kwargs), lambda n: numbers[n])
            target = target_name(node.target) if node.op != "get_attr" else ""
            summary.update(f"{node.op} {target} {args}\n".encode())
            if node.op == "get_attr":
                tensor = operator.attrgetter(str(node.target))(self.module)
                summary.update(_bytes_of(tensor))
            elif node.op == "call_module":
                module = self.module.get_submodule(str(node.target))
                summary.update(f"{type(module).__module__}.{type(module).__qualname__}\n".encode())
                for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                    summary.update(name.encode() + _bytes_of(tensor))
                for name, value in sorted(vars(module).items()):
                    if isinstance(value, (bool, int, float, str, tuple, list)):
                        summary.update(f"{name}={value!r}\n".encode())
        return summary.hexdigest()


def _bytes_of(tensor: Tensor) -> bytes:
    # In float64 every narrower number is exact, so that equal numbers have equal bytes.
    wide = tensor.detach().cpu().to(torch.float64 if tensor.is_floating_point() else tensor.dtype)
    return f"{tuple(wide.shape)} ".encode() + wide.contiguous().numpy().tobytes()


def target_name(target: Any) -> str:
    """The name of an operation or a module of a graph in messages and checksums."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))
