"""Converts the graph of `torch.export` to a `Program`, with stored tensors as attributes."""

import operator
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from taut.audit.container_tracing import check_one_row_a_sample, sample_shape
from taut.audit.eval_mode_copy import Prepared
from taut.audit.program import Program
from taut.errors import NoRuleError
from taut.linalg.convolution_axis import padding_sides
from taut.rules import find_record
from taut.rules.batch_normalisation import batch_norm
from taut.rules.convolution import padded_convolution
from taut.rules.operation_registry import bind_arguments
from taut.rules.shape import EXACT_ON_STORED
from taut.rules.shared_rules import each_dimension

aten = torch.ops.aten
_CASTS = (aten._to_copy.default, aten.to.dtype, aten.to.device, aten.type_as.default)
_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
# What export writes for one size of the batch and leaves out for another.
_COPIES = (aten.clone.default, aten.alias.default, aten.contiguous.default)
_WHOLE_BATCH = ((), (0,), (0, 0), (0, 0, 2**63 - 1))
_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_SIZED = (
    *_RESHAPES, aten.expand.default, aten.repeat.default, aten.unflatten.int,
)  # fmt: skip


def _is_check(node: fx.Node) -> bool:
    """Whether a node only checks or states something."""
    name = getattr(node.target, "__name__", str(node.target))
    return not node.users and ("assert" in name or "sym_constrain" in name)


def _is_size(node: fx.Node) -> bool:
    """Whether a node is the size of the batch, or a number computed from it."""
    return node.op == "call_function" and isinstance(node.meta.get("val"), (int, torch.SymInt))


def _replaces_all(node: fx.Node) -> bool:
    """Whether work in place on a view replaced every entry, by a tensor of the same shape."""
    if node.target is aten.copy.default:
        before, after = (n.meta["val"] for n in node.all_input_nodes[-2:])
        return len(node.all_input_nodes) == 2 and before.shape[1:] == after.shape[1:]
    return node.target is aten.slice_scatter.default and tuple(node.args[2:]) in _WHOLE_BATCH


def _is_copy(node: fx.Node) -> bool:
    whole = node.target is aten.slice.Tensor and tuple(node.args[1:]) in _WHOLE_BATCH
    return whole or node.target in _COPIES


class Rewriter:
    """Turns an exported graph into a program.

    Args:
        prepared: the network that was exported.
        exported: what `torch.export` made of it.
        input_shape: of one input.
        whole: the layers and functions that stayed one operation, by their numbers.
    """

    def __init__(
        self,
        prepared: Prepared,
        exported: Any,
        input_shape: tuple[int, ...],
        whole: list[Any],
    ) -> None:
        self.prepared, self.exported = prepared, exported
        self.input_shape = input_shape
        self.whole = whole
        self.root = nn.Module()
        self.graph = fx.Graph()
        self.made: dict[fx.Node, Any] = {}
        self.following: set[fx.Node] = set()
        self.sized: set[fx.Node] = set()
        self.batch: Any = None
        self.stored: dict[int, str] = {}

    def program(self) -> Program:
        """The program itself."""
        signature = self.exported.graph_signature
        stored = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        tensors = {**self.exported.state_dict, **self.exported.constants}
        for node in self.exported.graph.nodes:
            if node.op == "placeholder" and node.name in stored:
                self._refuse_other_weight(node, stored[node.name])
                self.made[node] = self._store(tensors[stored[node.name]])
            elif node.op == "placeholder":
                self._input(node)
            elif node.op == "output":
                self._output(node, signature.user_outputs)
            elif node.op == "call_function" and node.users:
                self._call(node)
        module = fx.GraphModule(self.root, self.graph)
        # Padding that became part of a convolution, and sizes that reshapes do not need.
        module.graph.eliminate_dead_code()
        module.recompile()
        return Program(module, self.input_shape, exported=True)

    def _refuse_other_weight(self, node: fx.Node, name: str) -> None:
        """What a constrained layer multiplies by is not what it holds: only its forward may use it."""
        modules = dict(self.prepared.model.named_modules(remove_duplicate=False))
        path, _, attribute = name.rpartition(".")
        layer = modules.get(path, self.root)
        original = self.prepared.originals.get(layer, self.root)
        record = find_record(original)
        if record is None or record.plain is None:
            return
        held = original._parameters.get(attribute)
        if held is not None and torch.equal(held, getattr(layer, attribute)):
            return
        inside = {place for place, module in modules.items() if module is layer}
        for user in node.users:
            stack = (user.meta.get("nn_module_stack") or {}).values()
            if inside.isdisjoint(place.partition("@")[0] for place, _ in stack):
                rule = f"the forward uses `{name}`, which is not what `{path}` multiplies by"
                raise NoRuleError(rule=rule, remedy=f"Call `{path}` instead.")

    def _store(self, tensor: Tensor) -> fx.Node:
        name = self.stored.setdefault(id(tensor), f"stored{len(self.stored)}")
        if not hasattr(self.root, name):
            self.root.register_buffer(name, tensor.detach())
        return self.graph.get_attr(name)

    def _input(self, node: fx.Node) -> None:
        if self.batch is not None or not isinstance(node.meta.get("val"), Tensor):
            rule = f"the forward must take one tensor; `{node.target}` is another input"
            raise NoRuleError(rule=rule, remedy="Wrap the model so that only one varies.")
        self.batch = node.meta["val"].shape[0]
        made = self.graph.placeholder("x")
        made.meta["shape"] = self.input_shape
        self.made[node] = made
        self.following.add(node)

    def _output(self, node: fx.Node, wanted: Any) -> None:
        (outputs,) = node.args
        results = [out for out in outputs if getattr(out, "name", None) in wanted]  # type: ignore[union-attr]
        if len(results) != 1 or len(wanted) != 1 or results[0] not in self.following:
            rule = "the forward must return one tensor that depends on its input"
            raise NoRuleError(rule=rule, got=f"{len(wanted)} results")
        self.graph.output(self.made[results[0]])

    def _call(self, node: fx.Node) -> None:
        place, kind = self._place(node)
        target: Any = node.target
        if _is_size(node):
            self.made[node] = self.graph.call_function(target, self._args(node)[0])
            self.made[node].meta["size"] = True
            self.sized.add(node)
            self._refuse_batch_as_number(node)
            return
        if not any(n in self.following for n in node.all_input_nodes):
            self._stored_only(node, place)
            return
        self.following.add(node)
        self._refuse_narrowing(node, place)
        args, kwargs = self._args(node)
        result = node.meta["val"]
        if target in _CASTS or _is_copy(node):
            self.made[node] = args[0]
            return
        if _replaces_all(node) and node.args[1] in self.following:
            self.made[node] = args[1]
            return
        if target is operator.getitem and args[0].target is batch_norm:
            if args[1] != 0:
                rule = f"`{place}`: statistics of batch normalisation are not supported"
                raise NoRuleError(rule=rule)
            self.made[node] = args[0]
            return
        if target is aten.squeeze.default:
            self._squeeze(node, args[0], place)
            return
        if target is torch.ops.taut.layer.default:
            made = self._whole(args[0], args[1])
        elif target is aten._native_batch_norm_legit_no_training.default:
            x, weight, bias, mean, var, _, eps = args
            made = self.graph.call_function(batch_norm, (x, weight, bias, mean, var, eps))
            result = result[0]
        else:
            joined = self._padded_convolution(node) if target in _CONVOLUTIONS else None
            made = joined or self.graph.call_function(target, args, kwargs)
        shape = sample_shape(result, self.batch, place)
        if target in _RESHAPES and 0 not in shape:
            # Sizes may be written in many ways; what counts is the shape that they give.
            made.target, made.args = aten.reshape.default, (args[0], [-1, *shape])
        made.meta.update(place=place, kind=kind, shape=shape)
        self.made[node] = made

    def _args(self, node: fx.Node) -> tuple[Any, Any]:
        return map_arg((node.args, node.kwargs), lambda n: self.made[n])  # type: ignore[return-value]

    def _stored_only(self, node: fx.Node, place: str) -> None:
        target: Any = node.target
        if target not in EXACT_ON_STORED and target is not operator.getitem:
            rule = "computes a constant in the forward, and what rounding makes of it is not proven"
            remedy = "Compute it once, in __init__, and keep it as a buffer."
            raise NoRuleError(argument=place, rule=rule, remedy=remedy)
        if not self.sized.isdisjoint(node.all_input_nodes):
            # Its rows are equal as long as there is one for each sample; else it tells how many.
            self.sized.add(node)
            for part in tree_leaves(node.meta["val"]):
                check_one_row_a_sample(part, self.batch, place)
        args, kwargs = self._args(node)
        self.made[node] = self.graph.call_function(target, args, kwargs)

    def _squeeze(self, node: fx.Node, x: fx.Node, place: str) -> None:
        """Without `dim` it drops a batch of one, too, which is the same result only at the end."""
        shape = x.meta["shape"]
        dims = [dim for dim, size in enumerate(shape, 1) if size == 1]
        if self.batch == 1 and any(user.op != "output" for user in node.users):
            rule = "drops the dimension of a batch of one as well"
            raise NoRuleError(argument=place, rule=rule, remedy="Use squeeze(dim).")
        self.made[node] = x
        if dims:
            self.made[node] = self.graph.call_function(aten.squeeze.dims, (x, dims))
            kept = tuple(size for size in shape if size != 1)
            self.made[node].meta.update(place=place, kind="squeeze", shape=kept)

    def _whole(self, x: fx.Node, index: int) -> fx.Node:
        layer = self.whole[index]
        if isinstance(layer, partial):
            target, more = layer.func, layer.keywords
        else:
            record = find_record(layer)
            assert record is not None
            if record.call is None:
                name = f"layer{index}"
                self.root.add_module(name, layer)
                return self.graph.call_module(name, (x,))
            target, more = record.call(layer)
        more = {n: self._store(v) if isinstance(v, Tensor) else v for n, v in more.items()}
        return self.graph.call_function(target, (x,), more)

    def _padded_convolution(self, node: fx.Node) -> fx.Node | None:
        """A convolution and the `pad` before it as one operation, where a module of torch's is both."""
        source, given = node.args[0], bind_arguments(node.target, node.args, node.kwargs)
        if not isinstance(source, fx.Node) or source.target is not aten.pad.default:
            return None
        pad = bind_arguments(aten.pad.default, source.args, source.kwargs)
        amounts, kernel = pad["pad"], given["weight"].meta["val"].shape[2:]
        alone = len(source.users) == 1 and not any(given["padding"])
        if pad["mode"] == "constant" or not alone or len(amounts) != 2 * len(kernel):
            return None
        pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
        dilation, stride = each_dimension(given["dilation"], len(kernel)), given["stride"]
        # torch has no "same" padding with a stride.
        named = ["same"] if max(stride) == 1 else []
        for padding in ([front for front, _ in pairs], *named):
            if pairs == padding_sides("convolution", padding, kernel, stride, dilation):
                given |= {"input": pad["self"], "padding": padding, "padding_mode": pad["mode"]}
                arguments: Any = map_arg(given, lambda n: self.made[n])
                return self.graph.call_function(padded_convolution, (), arguments)
        return None  # padding that torch's own modules do not know is a step of its own

    def _refuse_narrowing(self, node: fx.Node, place: str) -> None:
        sources = [n.meta["val"] for n in node.all_input_nodes if n in self.following]
        after = node.meta["val"].dtype if isinstance(node.meta["val"], Tensor) else None
        if after is None or not all(isinstance(source, Tensor) for source in sources):
            return
        before = min((s.dtype for s in sources), key=lambda dtype: torch.finfo(dtype).eps)
        if not after.is_floating_point or torch.finfo(after).eps > torch.finfo(before).eps:
            rule = f"casts {before} to {after}, which rounds, or jumps between whole numbers"
            remedy = "Only casts to wider floating-point types are supported."
            raise NoRuleError(argument=place, rule=rule, remedy=remedy)

    def _refuse_batch_as_number(self, node: fx.Node) -> None:
        """The size of the batch may only be passed on as a size."""
        for user in node.users:
            if _is_check(user) or _is_size(user):
                continue
            sized = user.target in EXACT_ON_STORED or user.target in _SIZED
            inside = any(
                isinstance(a, (list, tuple)) and node in a
                for a in (*user.args, *user.kwargs.values())
            )
            if not (sized and inside):
                place, _ = self._place(user)
                raise NoRuleError(
                    argument=place,
                    rule="computes with the size of the batch",
                    remedy="It may only be passed on as a size: samples must pass through a "
                    "network on their own.",
                )

    def _place(self, node: fx.Node) -> tuple[str, str]:
        """Path of an operation in the model, as errors name it, and its kind."""
        target = node.target
        name = getattr(target, "_opname", None) or getattr(target, "__name__", str(target))
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if target is torch.ops.taut.layer.default:
            layer = self.whole[node.args[1]]  # type: ignore[index]
            if isinstance(layer, partial):
                name = layer.func.__name__
            else:
                path = stack[-1][0] if stack else ""
                return path or "model", self.prepared.kind(layer)
        if not stack:
            return name, name
        path, kind = stack[-1][0], str(stack[-1][1])
        is_torch_layer = kind.startswith("torch.nn.modules.") and not kind.endswith("Sequential")
        short = kind.rpartition(".")[2]
        if is_torch_layer and path:
            module = dict(self.prepared.model.named_modules(remove_duplicate=False)).get(path)
            return path, short if module is None else self.prepared.kind(module)
        return f"{name} in {path or short}" + (f" ({short})" if path else ""), name
