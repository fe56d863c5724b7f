"""Softmax, log-softmax and log-sum-exp."""

import math

import torch

from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Call, Rounding, register
from taut.rules.shared_rules import ELEMENTARY, along_dim, length_along

aten = torch.ops.aten


def _softmax(call: Call) -> Constants:
    # diag(p) - pp' has rows of l1 norm 2 p (1 - p) <= 1/2 and is symmetric.
    return along_dim(call).scaled(0.5)


def _log_softmax(call: Call) -> Constants:
    r"""The Jacobian is $I - 1 p^\top$, an oblique projection: norm $\sqrt n \|p\|_2$ in L2."""
    n = length_along(call)
    root = math.nextafter(math.sqrt(n), math.inf)
    return call.first.constants.in_each_norm(max(1.0, n - 1.0), root, 2.0)


def _largest_in_all_places(call: Call) -> Constants:
    return call.first.constants.repeated(length_along(call)) if call.shape else call.first.constants


# Each probability is off by its share of a sum of n, and by t exp(-t) < 1 for the rounded
# difference t to the largest entry.
register(
    aten.softmax.int,
    aten._softmax.default,
    proof="Jacobian norm 1/2",
    constants=_softmax,
    rounding=Rounding(
        lambda call: length_along(call) + 32,
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
        lambda call: length_along(call) + 32,
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
