"""Sums, differences, products with constants, reductions (sum, mean, norm), and choices by a mask."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from taut.errors import NoRuleError
from taut.linalg.rounding import exact_double
from taut.rules.lipschitz_constants import Constants, Value
from taut.rules.operation_registry import Bounds, Call, Rounding, register
from taut.rules.shared_rules import (
    along_dim,
    batch_free_dims,
    input_shape,
    length_along,
    output_shape,
    register_linear,
    register_selection,
)

aten = torch.ops.aten


def _operands(call: Call) -> tuple[Any, Any]:
    first, second = list(call.arguments.values())[:2]
    return first, second


def _spread(x: Value, call: Call) -> Constants:
    """The constants of an operand after broadcasting to the shape of the result."""
    if call.shape is None or x.shape is None:
        rule = "the constant of an operation that broadcasts depends on shapes that are not known"
        raise NoRuleError(rule=rule, remedy="Give `input_shape`.")
    return x.constants.repeated(math.prod(call.shape) // max(1, math.prod(x.shape)))


def _is_number(x: Any) -> bool:
    return isinstance(x, Real) or (isinstance(x, Tensor) and x.dim() == 0)


def _add(call: Call) -> Constants:
    a, b = _operands(call)
    alpha = _largest(1 if call["alpha"] is None else call["alpha"])
    if _is_number(b):
        return a.constants
    if _is_number(a):
        return b.constants.scaled(alpha)
    parts = [(a, 1.0), (b, alpha)]
    return Constants.added(_spread(x, call).scaled(k) for x, k in parts if isinstance(x, Value))


def _multiply(call: Call) -> Constants:
    a, b = _operands(call)
    if isinstance(a, Value) and isinstance(b, Value):
        raise NoRuleError(
            rule="the product of two tensors that both depend on the input has no global "
            "Lipschitz constant"
        )
    value, other = (a, b) if isinstance(a, Value) else (b, a)
    constants = value.constants if _is_number(other) else _spread(value, call)
    return constants.scaled(_largest(other))


def _divide(call: Call) -> Constants:
    a, b = _operands(call)
    if isinstance(b, Value):
        rule = "division by a tensor that depends on the input has no global Lipschitz constant"
        raise NoRuleError(rule=rule)
    inverse = 1 / exact_double("division", torch.as_tensor(b, dtype=torch.float64))
    if not bool(inverse.isfinite().all()):
        raise NoRuleError(
            rule="division by zero, or by a number whose inverse overflows float64, has no Lipschitz "
            "constant"
        )
    constants = a.constants if _is_number(b) else _spread(a, call)
    return constants.scaled(math.nextafter(_largest(inverse), math.inf))


def _largest(x: Any) -> float:
    if isinstance(x, Tensor) and not x.is_complex():
        return float(exact_double("factor", x.double()).abs().amax()) if x.numel() else 0.0
    if not isinstance(x, Real) or not math.isfinite(x):
        raise NoRuleError(rule=f"a factor must be a finite real number; it is {x!r}")
    return abs(float(x))


def _magnitude_of_sum(call: Call, *tensors: Tensor) -> Tensor:
    a, b = _operands(call.absolute().with_values([tensor.abs() for tensor in tensors]))
    alpha = 1 if call["alpha"] is None else abs(call["alpha"])
    return abs(a) + alpha * abs(b)


def _image_of_sum(sign: int) -> Any:
    def image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
        alpha = sign * (1 if call["alpha"] is None else call["alpha"])
        ends = iter(zip(lower, upper, strict=True))
        (a_low, a_high), (b_low, b_high) = (
            next(ends) if isinstance(part, Value) else (part, part) for part in _operands(call)
        )
        if alpha < 0:
            b_low, b_high = b_high, b_low
        return a_low + alpha * b_low, a_high + alpha * b_high

    return image


_SUM = Rounding(lambda call: 4, _magnitude_of_sum, _add)
for _sign, _targets in (
    (1, (aten.add.Tensor, aten.add.Scalar)),
    (-1, (aten.sub.Tensor, aten.sub.Scalar)),
):
    register(*_targets, proof="sum", constants=_add, rounding=_SUM, image=_image_of_sum(_sign))


def _reverse_difference(call: Call) -> Constants:
    if call["alpha"] not in (None, 1):
        raise NoRuleError(rule="torch.rsub with `alpha` is not supported", remedy="Multiply first.")
    _ = call.first
    return _add(call)


register(
    aten.rsub.Scalar, aten.rsub.Tensor,
    proof="sum",
    constants=_reverse_difference,
    rounding=_SUM,
    image=lambda call, lower, upper: (call.run(upper[0]), call.run(lower[0])),
)  # fmt: skip
for _rule, _targets in {
    _multiply: (aten.mul.Tensor, aten.mul.Scalar),
    _divide: (aten.div.Tensor, aten.div.Scalar),
}.items():
    register_linear(*_targets, proof="factor", constants=_rule, terms=lambda call: 4)
register(
    aten.neg.default,
    proof="factor",
    constants=lambda call: call.first.constants,
    exact=True,
    image=lambda call, lower, upper: (-upper[0], -lower[0]),
)


def _count(call: Call) -> int:
    """How many entries are added up in each entry of the result."""
    batch_free_dims(call, call["dim"])
    before, after = input_shape(call), output_shape(call)
    return max(1, math.prod(before) // max(1, math.prod(after)))


def _sum(call: Call) -> Constants:
    return call.first.constants.summed(_count(call))


def _mean(call: Call) -> Constants:
    return _sum(call).scaled(math.nextafter(1 / _count(call), 1))


for _target, _rule in ((aten.sum.dim_IntList, _sum), (aten.mean.dim, _mean)):
    register_linear(_target, proof="sum", constants=_rule, terms=lambda call: _count(call) + 3)


def _running_sum(call: Call) -> Constants:
    r"""Of the triangular matrix of ones, whose inverse has differences of neighbours as rows.

    The singular values of that inverse are $2 \sin\frac{(2k - 1)\pi}{4n + 2}$, $k = 1 \dots n$.
    """
    n = max(1, length_along(call))
    steep = (1 + 2.0**-48) / (2 * math.sin(math.pi / (4 * n + 2)))
    return call.first.constants.in_each_norm(float(n), steep, float(n))


register_linear(
    aten.cumsum.default,
    proof="running sum",
    constants=_running_sum,
    terms=lambda call: length_along(call) + 3,
)


def _chosen(call: Call) -> Constants:
    """Of entries from one tensor or another, as a stored mask says."""
    if isinstance(call["mask" if call["condition"] is None else "condition"], Value):
        rule = "a mask that depends on the input makes the result discontinuous"
        raise NoRuleError(rule=rule, remedy="Use maximum or clamp.")
    if any(isinstance(x, float) and not math.isfinite(x) for x in call.arguments.values()):
        raise NoRuleError(rule="the fill value of masked entries must be finite")
    return _larger(call)


def _larger(call: Call) -> Constants:
    return Constants.joined([_spread(x, call) for x in call.values])


register_selection(aten.maximum.default, aten.minimum.default, proof="choice", constants=_larger)
register_selection(
    aten.where.self,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    proof="choice",
    constants=_chosen,
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
