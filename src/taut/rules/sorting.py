"""Sorting and choosing: a permutation of the entries, or some of them, at every point."""

import math

import torch
from torch import Tensor

from taut import functional
from taut.errors import NoRuleError
from taut.linalg.rounding import exact_double
from taut.norms import L2
from taut.rules.constants import Constants
from taut.rules.forms import (
    ELEMENTARY,
    along_dim,
    batch_free_dims,
    input_shape,
    refuse_batch_dim,
    register_selection,
)
from taut.rules.record import Call, Rounding, register

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
    return call.first.constants.through(
        lambda p, q: 1.0 if p == q == L2 else steep if p == q else math.inf
    )


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


def _softmax(call: Call) -> Constants:
    # diag(p) - pp' has rows of l1 norm 2 p (1 - p) <= 1/2 and is symmetric.
    return along_dim(call).scaled(0.5)


def _classes(call: Call) -> int:
    (place,) = batch_free_dims(call, call["dim"])
    return input_shape(call)[place]


def _log_softmax(call: Call) -> Constants:
    r"""The Jacobian is $I - 1 p^\top$, an oblique projection: norm $\sqrt n \|p\|_2$ in L2."""
    n = _classes(call)
    gains = {"l1": max(1.0, n - 1.0), "l2": math.nextafter(math.sqrt(n), math.inf), "linf": 2.0}
    return call.first.constants.through(lambda p, q: gains[p.name] if p == q else math.inf)


def _largest_in_all_places(call: Call) -> Constants:
    return call.first.constants.repeated(_classes(call)) if call.shape else call.first.constants


# Each probability is off by its share of a sum of n, and by t exp(-t) < 1 for the rounded
# difference t to the largest entry.
register(
    aten.softmax.int,
    aten._softmax.default,
    proof="Jacobian norm 1/2",
    constants=_softmax,
    rounding=Rounding(
        lambda call: _classes(call) + 32,
        lambda call, x: torch.ones_like(x),
        lambda call: call.first.constants.scaled(0.0),
        ELEMENTARY,
    ),
)
register(
    aten.log_softmax.int,
    aten._log_softmax.default,
    proof="oblique projection",
    constants=_log_softmax,
    rounding=Rounding(
        lambda call: _classes(call) + 32,
        lambda call, x: (x.abs().amax(call["dim"], keepdim=True) + 8).expand_as(x),
        _largest_in_all_places,
        ELEMENTARY,
    ),
)
register(
    aten.logsumexp.default,
    proof="convex combination",
    constants=along_dim,
    rounding=Rounding(
        lambda call: math.prod(call.first.shape or ()) + 32,
        lambda call, x: x.abs().amax(call["dim"], keepdim=bool(call["keepdim"])) + 8,
        along_dim,
        ELEMENTARY,
    ),
    image="monotone",
)


def _vector_norm(call: Call) -> Constants:
    if call["ord"] not in (2, 2.0):
        raise NoRuleError(rule="only the Euclidean vector norm is supported", got=str(call["ord"]))
    constants = along_dim(call)
    # One entry of the result may move by the length of a whole vector, not of an entry.
    return Constants(constants.values[0], constants.values[1], constants.values[1])


register(
    aten.linalg_vector_norm.default,
    proof="norm",
    constants=_vector_norm,
    rounding=Rounding(
        lambda call: math.prod(call.first.shape or ()) + 8,
        lambda call, x: call.run(x),
        _vector_norm,
        squares=True,
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
