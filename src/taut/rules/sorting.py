"""Sorting and choosing: a permutation of the entries, or some of them, at every point."""

import math

import torch
from torch import Tensor

from taut import functional
from taut.linalg.rounding import exact_double
from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Call, Rounding, register
from taut.rules.shared_rules import (
    ELEMENTARY,
    along_dim,
    input_shape,
    refuse_batch_dim,
    register_selection,
)

aten = torch.ops.aten


register_selection(
    functional.max_min,
    functional.group_sort,
    functional.full_sort,
    functional.maxout,
    aten.sort.default,
    aten.amax.default,
    aten.amin.default,
    aten.max.dim,
    aten.min.dim,
    proof="permutation",
    constants=along_dim,
)


def _householder(call: Call) -> Constants:
    refuse_batch_dim(call["dim"], call.first)
    exact_double("Householder", call["angle"])
    # The rows and columns of a plane reflection have l1 norm |cos| + |sin| <= sqrt(2).
    steep = math.nextafter(math.sqrt(2), math.inf)
    return call.first.constants.in_each_norm(steep, 1.0, steep)


def _magnitude_of_reflection(call: Call, x: Tensor) -> Tensor:
    """Of each pair the sum of both: beside the line of reflection execution may choose either side."""
    a, b = x.abs().chunk(2, call["dim"])
    return torch.cat([a + b, a + b], call["dim"])


register(
    functional.householder,
    proof="reflection",
    constants=_householder,
    # Two trigonometric factors and a sum of two products; where rounding picks the wrong side of
    # the line, both sides agree up to the same error.
    rounding=Rounding(
        lambda call: 48,
        _magnitude_of_reflection,
        lambda call: call.first.constants.scaled(2.0),
        ELEMENTARY,
    ),
)


def _peer(call: Call) -> Constants:
    """A sorting layer of another library, over dimension 1 or all features, times a factor."""
    x = call.x
    input_shape(call)  # tells where its groups lie
    axis = getattr(call.module, "axis", getattr(call.module, "_dim", None))
    refuse_batch_dim(1 if axis is None else axis, x)
    return x.constants.scaled(abs(float(getattr(call.module, "_coefficient_lip", 1.0))))


register(
    "deel.torchlip.modules.activation.GroupSort",
    "deel.torchlip.modules.activation.GroupSort2",
    "deel.torchlip.modules.activation.FullSort",
    "deel.torchlip.modules.activation.MaxMin",
    "orthogonium.layers.custom_activations.MaxMin",
    proof="permutation",
    constants=_peer,
    # One product with the factor, which is 1 as a rule.
    rounding=Rounding(lambda call: 2, lambda call, x: call.run(x).abs(), _peer),
    image="monotone",
)
