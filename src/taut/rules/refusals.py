"""Operations without a bound, each with the reason that its refusal gives."""

import torch
from torch import nn

from taut.rules.operation_registry import register

aten = torch.ops.aten

_REASONS = {
    "it divides by a statistic of its input, so its slope has no useful bound. Use taut.nn.Centering.": (
        nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
        nn.RMSNorm, nn.LocalResponseNorm, nn.CrossMapLRN2d,
        aten.layer_norm.default, aten.group_norm.default, aten.instance_norm.default,
        aten.native_layer_norm.default, aten.native_group_norm.default, aten.rms_norm.default,
    ),
    "attention multiplies tensors that both depend on the input, so its slope is unbounded. Use "
    "fixed mixing matrices, such as OrthonormalLinear over positions.": (
        nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
        nn.Transformer, aten.scaled_dot_product_attention.default,
    ),
    "taut has no rule for recurrent layers. Unroll a recurrence of OrthonormalLinear and MaxMin "
    "instead.": (
        nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell,
        aten.lstm.input, aten.gru.input,
    ),
    "it multiplies two tensors that both depend on the input, so its slope is unbounded. Use "
    "OrthonormalLinear and MaxMin instead.": (nn.GLU, aten.glu.default),
    "it is discontinuous, so it has no Lipschitz constant. Use a continuous activation.": (
        nn.Hardshrink, nn.Threshold, aten.hardshrink.default, aten.round.default,
        aten.floor.default, aten.sign.default, aten.threshold.default,
    ),
    "its slope grows without bound. Clamp its input, or use another function.": (
        aten.exp.default, aten.log.default, aten.sqrt.default, aten.pow.Tensor_Scalar,
        aten.reciprocal.default, aten.rsqrt.default, aten.square.default,
    ),
    "taut has no rule for it. Apply torch.nn.Softmax to the negated input instead.": (nn.Softmin,),
    "it is random. Use dropout layers, which are the identity in evaluation.": (
        aten.rand.default, aten.randn.default, aten.bernoulli.default, aten.rand_like.default,
        aten.randn_like.default, aten.native_dropout.default,
    ),
}  # fmt: skip
for _reason, _operations in _REASONS.items():
    register(*_operations, refusal=_reason)
