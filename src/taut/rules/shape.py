"""New shapes and orders of the same entries, copies, padding, joining: nothing is computed."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from taut import functional
from taut.errors import NoRuleError
from taut.linalg import bound_padding
from taut.norms import Norm
from taut.rules.file_schema import FileSchema, Sizes
from taut.rules.lipschitz_constants import Constants, Value
from taut.rules.operation_registry import Call, register
from taut.rules.shared_rules import (
    along_dim,
    batch_free_dims,
    call_with_attributes,
    in_each_norm,
    input_shape,
    output_shape,
    refuse_batch_dim,
    register_selection,
    same_constants,
)

aten = torch.ops.aten


def identity(input: Tensor) -> Tensor:
    """Its argument: what dropout is in evaluation."""
    return input


def _shape_known(call: Call) -> Constants:
    """A new shape of the same entries; that the batch stays in front is seen in the graph."""
    output_shape(call)
    return call.first.constants


def _keeps_batch_first(call: Call) -> Constants:
    rank = len(input_shape(call)) + 1
    if call["dims"] is not None:
        moved = call["dims"][1:]
    else:
        names = ("dim0", "dim1", "source", "destination")
        moved = tree_leaves([call[name] for name in names if call[name] is not None])
    if 0 in [dim % rank for dim in moved]:
        raise NoRuleError(rule="moving the batch away from the front mixes the samples of a batch")
    return call.first.constants


def _flatten(call: Call) -> Constants:
    refuse_batch_dim(call["start_dim"], call.first)
    return call.first.constants


def _unsqueeze(call: Call) -> Constants:
    x = call.first
    dim = call["dim"]
    if (
        dim == 0
        or (x.shape is None and dim < -1)
        or (x.shape is not None and dim == -len(x.shape) - 2)
    ):
        raise NoRuleError(rule="a new dimension in front of the batch mixes its samples")
    return x.constants


def _slice(call: Call) -> Constants:
    x = call.first
    dims = None if x.shape is None else len(x.shape) + 1
    if call["dim"] == 0 or call["dim"] == -(dims or math.inf):
        whole = (
            call["start"] in (None, 0) and call["end"] in (None, 2**63 - 1) and call["step"] == 1
        )
        if not whole:
            raise NoRuleError(rule="only slices that keep the batch are supported: use x[:, ...]")
        return x.constants
    return along_dim(call)


def _evaluating(call: Call) -> Constants:
    if call["train"]:
        rule = "dropout in training mode is random"
        raise NoRuleError(rule=rule, remedy="Pass training=self.training.")
    return call.first.constants


for _rule, _operations in {
    same_constants: (
        identity, aten.clone.default, aten.contiguous.default, aten.alias.default,
        aten.detach.default, aten.lift_fresh_copy.default,
        aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.channel_shuffle.default,
    ),
    _shape_known: (aten.view.default, aten.reshape.default, aten._unsafe_view.default),
    _keeps_batch_first: (
        aten.permute.default, aten.transpose.int, aten.movedim.int, aten.movedim.intlist,
    ),
    _flatten: (aten.flatten.using_ints,),
    _unsqueeze: (aten.unsqueeze.default,),
    _slice: (aten.slice.Tensor,),
    along_dim: (
        aten.unflatten.int, aten.squeeze.dim, aten.squeeze.dims, aten.select.int,
        aten.chunk.default, aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default,
        aten.unbind.int, aten.narrow.default, aten.roll.default, aten.flip.default,
    ),
    _evaluating: (aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default),
}.items():  # fmt: skip
    register_selection(*_operations, proof="permutation", constants=_rule)


def _copies(call: Call) -> Constants:
    before, after = input_shape(call), output_shape(call)
    return call.first.constants.repeated(math.prod(after) // max(1, math.prod(before)))


def _repeats(call: Call) -> Constants:
    times = call["repeats"] if call["repeats"] is not None else call["dims"]
    shape = call.first.shape
    # Copies of the whole batch, or a new dimension in front of it, would mix its samples.
    if shape is not None and (len(times) != len(shape) + 1 or times[0] != 1):
        rule = "repeating the batch mixes its samples"
        raise NoRuleError(rule=rule, remedy="Repeat 1 times along dim 0.")
    return _copies(call)


def _interleaved(call: Call) -> Constants:
    batch_free_dims(call, call["dim"])
    return _copies(call)


def _indexed(call: Call) -> Constants:
    """Of entries at stored places; the number of times that each is read is counted."""
    before = input_shape(call)
    indices = call["indices"]
    if indices is None:
        batch_free_dims(call, call["dim"])
        indices = [None, call["index"]]
    stored = [index for index in indices if index is not None]
    if indices[0] is not None or any(index.dtype == torch.bool for index in stored):
        rule = "only whole numbers may choose entries, and the batch must stay whole"
        raise NoRuleError(rule=rule)
    numbers = torch.arange(math.prod(before), dtype=torch.float64, device=stored[0].device)
    reads = call.run(numbers.view(1, *before)).long().flatten().bincount()
    return call.first.constants.repeated(int(reads.max()) if reads.numel() else 0)


def _joined(call: Call) -> Constants:
    """Of tensors side by side; work in place on a slice, too, leaves entries of both."""
    refuse_batch_dim(call["dim"] or 0, Value(call.values[0].constants, call.shape))
    return Constants.joined([value.constants for value in call.values])


def _pad(call: Call) -> Constants:
    x, amounts = call.first, list(call["pad"])
    mode = call["mode"] or "constant"
    if x.shape is not None and len(amounts) > 2 * len(x.shape):
        raise NoRuleError(rule="padding along the batch mixes its samples")
    dims = len(amounts) // 2

    def bound(norm: Norm) -> float:
        size = None if x.shape is None else x.shape[len(x.shape) - dims :]
        return bound_padding(amounts, mode, norm, size).value

    return in_each_norm(call, bound)


_COPIED = "how often entries are copied"
for _proof, _rule, _operations in (
    (_COPIED, _copies, (aten.expand.default,)),
    (_COPIED, _repeats, (aten.repeat.default, aten.tile.default)),
    (_COPIED, _interleaved, (aten.repeat_interleave.self_int,)),
    (_COPIED, _indexed, (aten.index.Tensor, aten.index_select.default)),
    (_COPIED, _pad, (aten.pad.default, aten.constant_pad_nd.default, functional.pad)),
    ("side by side", _joined, (
        aten.cat.default, aten.stack.default,
        aten.slice_scatter.default, aten.select_scatter.default,
    )),
    ("constant", lambda call: call.first.constants.scaled(0.0), (
        aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
        aten.new_zeros.default, aten.new_ones.default, aten.new_full.default,
    )),
):  # fmt: skip
    register_selection(*_operations, proof=_proof, constants=_rule)

_PADDING = {
    "reflect": (nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d),
    "replicate": (nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d),
    "circular": (nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d),
    "constant": (
        nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d,
        nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d,
    ),
}  # fmt: skip


def _call_of_padding(mode: str) -> Any:
    def call(module: Any) -> Any:
        value = float(getattr(module, "value", 0.0)) if mode == "constant" else None
        return aten.pad.default, {"pad": list(module.padding), "mode": mode, "value": value}

    return call


for _mode, _kinds in _PADDING.items():
    for _kind in _kinds:
        register(_kind, call=_call_of_padding(_mode))
        if "Constant" not in _kind.__name__:
            _sides = Sizes(2 * int(_kind.__name__[-2]), 0)
            register(_kind, file=FileSchema(_kind, {"padding": _sides}))

for _kind in (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
    nn.FeatureAlphaDropout,
):  # fmt: skip
    _arguments = {} if _kind is nn.Identity else {"p": float}
    register(_kind, call=lambda m: (identity, {}), file=FileSchema(_kind, _arguments))
register(
    nn.Unflatten,
    call=lambda m: (aten.unflatten.int, {"dim": m.dim, "sizes": list(m.unflattened_size)}),
    file=FileSchema(nn.Unflatten, {"unflattened_size": Sizes(None), "dim": int}),
)
for _kind, _target, _arguments in (
    (nn.Flatten, aten.flatten.using_ints, {"start_dim": int, "end_dim": int}),
    (nn.PixelShuffle, aten.pixel_shuffle.default, {"upscale_factor": int}),
    (nn.PixelUnshuffle, aten.pixel_unshuffle.default, {"downscale_factor": int}),
    (nn.ChannelShuffle, aten.channel_shuffle.default, {"groups": int}),
):
    register(_kind, call=call_with_attributes(_target), file=FileSchema(_kind, _arguments))

# What may be done to a stored tensor on its way to an operation, since it changes no number.
EXACT_ON_STORED = {
    aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.unflatten.int,
    aten.permute.default, aten.transpose.int, aten.movedim.int, aten.movedim.intlist,
    aten.t.default, aten.mT.default, aten.numpy_T.default, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.expand.default,
    aten.slice.Tensor, aten.select.int, aten.detach.default, aten.clone.default,
    aten.contiguous.default, aten.alias.default, aten.lift_fresh_copy.default, aten.neg.default,
    aten.abs.default, aten.cat.default, aten.stack.default, aten.chunk.default,
    aten.split.Tensor, aten.unbind.int, aten.sym_size.int, aten.full.default, aten.zeros.default,
    aten.ones.default, aten.eye.default, aten.arange.default, aten.scalar_tensor.default,
    aten.zeros_like.default, aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default,
}  # fmt: skip
