"""Roundoff of monotone networks: from which distance on it cannot reverse the order of two outputs."""

import math

import torch
from torch import Tensor, nn

from taut.certificates.input_checks import check_float32
from taut.certificates.rounded_execution import RoundedExecution, dtype_of, program_in_double
from taut.certificates.rounded_tensor import up
from taut.errors import check_nonnegative, check_positive
from taut.linalg.rounding import check_arithmetic
from taut.names import Arithmetic
from taut.norms import LINF

_SUBJECT = "bound_order_gap"


@torch.no_grad()
def bound_order_gap(
    model: nn.Module,
    increase: float,
    centre: Tensor,
    radius: float,
    arithmetic: Arithmetic = "float32",
) -> float:
    r"""A proven distance from which on executed outputs are in the order of the exact ones.

    If the exact outputs satisfy $g(x') - g(x) \ge \rho \|x' - x\|_1$ for ordered inputs, and every
    execution is off by at most $e$, then $\|x' - x\|_1 > 2e/\rho$ leaves
    $\tilde g(x') > \tilde g(x)$, for any order of summation on either side.

    Args:
        model: maps `(n, features)` to `(n, outputs)`, such as a `taut.nn.Monotone`.
        increase: $\rho$, a proven lower bound of the slope, as `Monotone.bound_increase` gives.
        centre: `(features,)`, the middle of the inputs that the statement is about.
        radius: largest distance of an input from `centre`, in L-inf.
        arithmetic: "float32", "float64" or "real", of the execution.

    Returns:
        $2e/\rho$, rounded up; infinity where an execution could overflow.

    Example:
        >>> net = taut.nn.Monotone(taut.nn.mlp([2, 16, 1]), [1, 0])
        >>> gap = bound_order_gap(net, net.bound_increase().value, torch.zeros(2), 1.0)
        >>> 0 < gap < 0.01
        True
    """
    check_positive(_SUBJECT, "increase", increase)
    check_nonnegative(_SUBJECT, "radius", radius)
    check_arithmetic(_SUBJECT)
    dtype = dtype_of(arithmetic, _SUBJECT)
    if arithmetic == "float32":
        check_float32(_SUBJECT, model)
    program = program_in_double(model, tuple(centre.shape), _SUBJECT, centre.device)
    execution = RoundedExecution(program, LINF, dtype, _SUBJECT)
    run, limit = execution(centre.double()[None])
    if not radius < float(limit.amin()):
        return math.inf
    bound = run.bound
    # Outputs are compared one by one, so the largest error of an entry counts.
    error = up(bound.far.values[2].amax() + up(bound.slope.values[2].amax() * radius))
    return float(up(2 * error / increase))
