"""What is proven of functions and tensor methods that appear in a forward.

Each rule is given the `Step` at hand: the traced arguments, with `Value` for tensors that follow
the network's input and plain numbers or tensors for everything that does not.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut import functional as taut_functional
from taut.audit.constants import Constants, Value, product_up, root_up
from taut.audit.rules import linear_constants, refuse_batch_dim, slope_of
from taut.errors import NoRuleError
from taut.linalg.rounding import exact_double

__all__ = ["FUNCTIONS", "METHODS", "Step"]


@dataclass(frozen=True)
class Step:
    """One call in the graph.

    Attributes:
        args: positional arguments.
        kwargs: named arguments.
        shape: the shape of the result without the batch, where known; for several results, None.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...] | None

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """The argument at `place` or called `name`."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


FunctionRule = Callable[[Step], Constants]


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) or (isinstance(x, Tensor) and x.dim() == 0)


def _spread(x: Any, step: Step) -> Constants:
    """The constants of an operand after broadcasting to the shape of the result."""
    if not isinstance(x, Value):
        return Constants(0.0, 0.0, 0.0)
    if step.shape is None or x.shape is None:
        raise NoRuleError(
            "two tensors meet and their shapes are not known, so one may be copied along the "
            "other. Give `input_shape`."
        )
    return x.constants.repeated(math.prod(step.shape) // max(1, math.prod(x.shape)))


def _operands(step: Step) -> tuple[Any, Any]:
    if len(step.args) > 2:
        raise NoRuleError("more than two operands are not followed.")
    return step.argument(0, "input"), step.argument(1, "other")


def _add(step: Step) -> Constants:
    a, b = _operands(step)
    alpha = _largest(step.kwargs.get("alpha", 1))
    if _is_number(b):
        return a.constants
    if _is_number(a):
        return b.constants.scaled(alpha)
    return Constants.added([_spread(a, step), _spread(b, step).scaled(alpha)])


def _multiply(step: Step) -> Constants:
    a, b = _operands(step)
    if isinstance(a, Value) and isinstance(b, Value):
        raise NoRuleError(
            "the product of two tensors that both follow the input has no global constant."
        )
    value, other = (a, b) if isinstance(a, Value) else (b, a)
    constants = value.constants if _is_number(other) else _spread(value, step)
    return constants.scaled(_largest(other))


def _divide(step: Step) -> Constants:
    a, b = _operands(step)
    if isinstance(b, Value):
        raise NoRuleError("division by a tensor that follows the input has no global constant.")
    if step.kwargs.get("rounding_mode") is not None:
        raise NoRuleError("division with rounding is not continuous.")
    inverse = 1 / exact_double("division", torch.as_tensor(b, dtype=torch.float64))
    constants = a.constants if _is_number(b) else _spread(a, step)
    return constants.scaled(math.nextafter(_largest(inverse), math.inf))


def _largest(x: Any) -> float:
    if isinstance(x, Tensor) and not x.is_complex():
        return float(exact_double("factor", x.double()).abs().amax()) if x.numel() else 0.0
    if not isinstance(x, Real) or not math.isfinite(x):
        raise NoRuleError(f"a factor of {x!r} has no constant.")
    return abs(float(x))


def _matmul(step: Step) -> Constants:
    a, b = _operands(step)
    if isinstance(a, Value) and isinstance(b, Tensor) and b.dim() == 2:
        return linear_constants(b.detach().mT, a.constants)
    raise NoRuleError("of matrix products only `x @ weight` with a fixed matrix is followed.")


def _linear(step: Step) -> Constants:
    x, weight, bias = (step.argument(i, n) for i, n in enumerate(("input", "weight", "bias")))
    if isinstance(weight, Value) or isinstance(bias, Value):
        raise NoRuleError("a weight that depends on the input has no constant.")
    return linear_constants(weight.detach(), x.constants)


def _concatenate(step: Step) -> Constants:
    tensors, dim = step.args[0], step.argument(1, "dim", 0)
    values = [x for x in tensors if isinstance(x, Value)]
    refuse_batch_dim(dim, Value(values[0].constants, step.shape))
    return Constants.joined(x.constants for x in values)


def _larger(step: Step) -> Constants:
    a, b = step.argument(0, "input"), step.argument(1, "other")
    return Constants.joined([_spread(a, step), _spread(b, step)])


def _same(step: Step) -> Constants:
    return step.args[0].constants


def _clamp(step: Step) -> Constants:
    if any(isinstance(limit, Value) for limit in (*step.args[1:], *step.kwargs.values())):
        raise NoRuleError("limits that follow the input are not followed.")
    return _spread(step.args[0], step) if _has_tensor(step) else _same(step)


def _has_tensor(step: Step) -> bool:
    return any(isinstance(x, Tensor) for x in (*step.args, *step.kwargs.values()))


def _rearranged(step: Step) -> Constants:
    """A new order or shape of the same entries; the walker has seen that samples stay apart."""
    if step.shape is None:
        raise NoRuleError("whether samples stay apart is not known. Give `input_shape`.")
    return step.args[0].constants


def _along(place: int, name: str = "dim", default: int | None = -1) -> FunctionRule:
    """A map that keeps or drops entries along one dimension, which must not be the batch."""

    def bound(step: Step) -> Constants:
        dims = step.argument(place, name, default)
        if dims is None:
            raise NoRuleError("an operation over all dimensions mixes the batch. Give `dim`.")
        for dim in dims if isinstance(dims, (tuple, list)) else (dims,):
            refuse_batch_dim(dim, step.args[0])
        return step.args[0].constants

    return bound


def _reduce(mean: bool) -> FunctionRule:
    def bound(step: Step) -> Constants:
        constants = _along(1, default=None)(step)
        x = step.args[0]
        if x.shape is None or step.shape is None:
            raise NoRuleError("how many entries are summed is not known. Give `input_shape`.")
        count = math.prod(x.shape) // max(1, math.prod(step.shape))
        summed = Constants(
            constants.l1,
            product_up(constants.l2, root_up(count)),
            product_up(constants.linf, count),
        )
        return summed.scaled(math.nextafter(1 / count, 1)) if mean else summed

    return bound


def _slope(module: Callable[[Step], nn.Module]) -> FunctionRule:
    """An activation that works entry by entry, as the module of the same name has it."""

    def bound(step: Step) -> Constants:
        if step.kwargs.get("inplace") or any(argument is True for argument in step.args[1:]):
            raise NoRuleError("work in place may change tensors that are used elsewhere.")
        return step.args[0].constants.scaled(slope_of(module(step)))

    return bound


def _plain(kind: type[nn.Module]) -> FunctionRule:
    return _slope(lambda step: kind())


def _softmax(step: Step) -> Constants:
    return _along(1, default=None)(step).scaled(0.5)


def _vector_norm(step: Step) -> Constants:
    order = step.argument(1, "ord", step.kwargs.get("p", 2))
    if order not in (2, 2.0):
        raise NoRuleError(f"of vector norms only the Euclidean is followed; got order {order}.")
    constants = _along(2, default=None)(step)
    # One entry of the result may move by the length of a whole vector, not of an entry.
    return Constants(constants.l1, constants.l2, constants.l2)


def _dropout(step: Step) -> Constants:
    if step.argument(2, "training", True):
        raise NoRuleError("dropout in training mode is random. Pass training=self.training.")
    return step.args[0].constants


FUNCTIONS: dict[Any, FunctionRule] = {
    operator.add: _add,
    operator.sub: _add,
    operator.mul: _multiply,
    operator.truediv: _divide,
    operator.neg: _same,
    operator.matmul: _matmul,
    torch.add: _add,
    torch.sub: _add,
    torch.mul: _multiply,
    torch.div: _divide,
    torch.neg: _same,
    torch.matmul: _matmul,
    F.linear: _linear,
    torch.cat: _concatenate,
    torch.concat: _concatenate,
    torch.stack: _concatenate,
    torch.maximum: _larger,
    torch.minimum: _larger,
    torch.flatten: _along(1, "start_dim", 0),
    torch.reshape: _rearranged,
    torch.permute: _rearranged,
    torch.transpose: _rearranged,
    torch.squeeze: _along(1, default=None),
    torch.unsqueeze: _along(1),
    torch.amax: _along(1, default=None),
    torch.amin: _along(1, default=None),
    torch.chunk: _along(2, default=0),
    torch.split: _along(2, default=0),
    torch.sum: _reduce(mean=False),
    torch.mean: _reduce(mean=True),
    torch.logsumexp: _along(1, default=None),
    torch.linalg.vector_norm: _vector_norm,
    torch.abs: _same,
    torch.sin: _same,
    torch.cos: _same,
    torch.clamp: _clamp,
    torch.relu: _plain(nn.ReLU),
    torch.tanh: _plain(nn.Tanh),
    torch.sigmoid: _plain(nn.Sigmoid),
    torch.softmax: _softmax,
    F.softmax: _softmax,
    F.relu: _plain(nn.ReLU),
    F.relu6: _plain(nn.ReLU6),
    F.tanh: _plain(nn.Tanh),
    F.sigmoid: _plain(nn.Sigmoid),
    F.hardtanh: _plain(nn.Hardtanh),
    F.leaky_relu: _slope(lambda step: nn.LeakyReLU(step.argument(1, "negative_slope", 0.01))),
    F.elu: _slope(lambda step: nn.ELU(step.argument(1, "alpha", 1.0))),
    F.selu: _plain(nn.SELU),
    F.silu: _plain(nn.SiLU),
    F.mish: _plain(nn.Mish),
    F.gelu: _slope(lambda step: nn.GELU(step.kwargs.get("approximate", "none"))),
    F.softplus: _slope(
        lambda step: nn.Softplus(step.argument(1, "beta", 1.0), step.argument(2, "threshold", 20.0))
    ),
    F.softsign: _plain(nn.Softsign),
    F.logsigmoid: _plain(nn.LogSigmoid),
    F.hardswish: _plain(nn.Hardswish),
    F.hardsigmoid: _plain(nn.Hardsigmoid),
    F.dropout: _dropout,
    taut_functional.max_min: _along(1),
    taut_functional.group_sort: _along(2),
    taut_functional.full_sort: _along(1),
    taut_functional.maxout: _along(2),
}

METHODS: dict[str, FunctionRule] = {
    "add": _add,
    "sub": _add,
    "mul": _multiply,
    "div": _divide,
    "neg": _same,
    "matmul": _matmul,
    "maximum": _larger,
    "minimum": _larger,
    "abs": _same,
    "clamp": _clamp,
    "relu": _plain(nn.ReLU),
    "tanh": _plain(nn.Tanh),
    "sigmoid": _plain(nn.Sigmoid),
    "softmax": _softmax,
    "flatten": _along(1, "start_dim", 0),
    "unflatten": _along(1),
    "view": _rearranged,
    "reshape": _rearranged,
    "permute": _rearranged,
    "transpose": _rearranged,
    "contiguous": _same,
    "clone": _same,
    "float": _same,
    "double": _same,
    "to": _rearranged,
    "squeeze": _along(1, default=None),
    "unsqueeze": _along(1),
    "amax": _along(1, default=None),
    "amin": _along(1, default=None),
    "chunk": _along(2, default=0),
    "split": _along(2, default=0),
    "sum": _reduce(mean=False),
    "mean": _reduce(mean=True),
    "logsumexp": _along(1, default=None),
}
