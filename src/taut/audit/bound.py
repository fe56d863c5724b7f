"""From a module to a proven constant."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from taut.audit.trace import (
    SUBJECT,
    check_modules,
    compare,
    first_shape,
    refuse_unseen_forwards,
    trace,
)
from taut.audit.walk import Audit, Walk
from taut.bounds import Bound
from taut.errors import NoRuleError
from taut.norms import Norm, NormLike, as_norm

__all__ = ["audit", "bound_lipschitz"]

# What depends on the number of samples shows when it is counted twice.
_BATCHES = (11, 13)


def bound_lipschitz(
    model: nn.Module,
    norm: NormLike = "l2",
    input_shape: Sequence[int] | None = None,
    output_norm: NormLike | None = None,
) -> Bound:
    r"""A proven Lipschitz constant of any network, layer by layer, or a refusal that names the layer.

    $$\|f(x) - f(x')\|_q \le K \|x - x'\|_p \quad\text{for all } x, x'$$

    for the network as evaluation runs it on its stored weights, in real arithmetic (see
    `taut.certify` for what floating-point execution adds). The forward is traced, so residual
    additions, concatenations, splits, reshapes and scalar factors in a user's own forward are
    followed; constants are kept in all three norms and composed only where they match. What has no
    rule is refused: `taut.audit.rule` adds one.

    Args:
        model: maps a batch of inputs to a batch of outputs, one tensor each.
        norm: the norm `p` of the input: "l1", "l2" or "linf".
        input_shape: the shape of one input, without the batch. When the first layer is dense, one
            vector of its size is assumed; otherwise needed where shapes decide (convolutions over
            known sizes are tighter, sums of tensors must not broadcast unseen) and for forwards
            of your own, which are run to see that the traced graph does the same.
        output_norm: the norm `q` of the output, by default `p`. For one output all are the same.

    Returns:
        The bound; `print(bound.layers)` shows where it comes from.

    Raises:
        NoRuleError: something in the network has no proven constant; the text says what and where.

    Example:
        >>> import taut
        >>> bound_lipschitz(taut.nn.mlp([2, 8, 1], lipschitz=3.0))
        Bound(<= 3.0, l2, proven)
    """
    p = as_norm(norm, SUBJECT)
    q = p if output_norm is None else as_norm(output_norm, SUBJECT)
    found = audit(model, p, input_shape)
    value = found.output.constants[q]
    if value == float("inf"):
        raise NoRuleError(
            f"{SUBJECT}: no constant from {p} to {q} is known, though every layer has a rule. "
            "Give `input_shape`, or ask for another pair of norms."
        )
    method = "composition of proven layers"
    return Bound(value, p, method=method, layers=found.table(p), output_norm=q)


def audit(model: nn.Module, norm: Norm, input_shape: Sequence[int] | None = None) -> Audit:
    """Traces an evaluation copy of `model` and carries the constants of its input through it."""
    check_modules(model)
    model, graph = trace(copy.deepcopy(model).eval())
    shape = first_shape(graph, model) if input_shape is None else tuple(input_shape)
    if shape is None:
        refuse_unseen_forwards(model)
    known: dict[Any, Any] = {}
    walks = [Walk(model, graph, norm, shape, batch, known).run() for batch in _BATCHES]
    if len({walk.signature() for walk in walks}) > 1:
        raise NoRuleError(
            f"{SUBJECT}: what the model computes changes with the size of the batch, or from call "
            "to call. Samples must pass through a network on their own, and without chance."
        )
    if shape is not None:
        compare(model, graph, shape)
    return walks[0]
