r"""What families of operations have in common: their rounding, and where boxes go.

A sum of products with at most `k` roundings on the way of any term is off by at most
$\gamma_k \sum |w||x|$ (Higham, section 3.1), whatever the order of summation, with or without fused
multiply-add. So the rounding of a linear map is bounded by the same map of magnitudes.
"""

import math
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from taut.errors import NoRuleError
from taut.norms import Norm
from taut.rules.lipschitz_constants import Constants, Value
from taut.rules.operation_registry import Bounds, Call, Rounding, register, signature_of
from taut.rules.upward_rounding import multiply_up, sqrt_up

ELEMENTARY = "elementary functions (exp, log, tanh, erf, ...) within 4 units in the last place"
# Roundings of an activation's formula, with elementary functions that are off by four units each.
_FORMULA = 32
# Covers the rounding of a centre, a radius and a product.
_OUTWARD = 1 + 2.0**-50
Image = Callable[[Call, list[Tensor], list[Tensor]], Bounds]


def call_with_attributes(function: Any) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
    """The call of a module whose attributes are the arguments of `function` behind its input.

    Only arguments of its constructor and tensors count: any other attribute is the user's own.
    """

    def call(module: Any) -> tuple[Any, dict[str, Any]]:
        own = {*signature(type(module).__init__).parameters, *module._parameters, *module._buffers}
        own.update(name for name, value in vars(module).items() if isinstance(value, Tensor))
        names = signature_of(function)[0][1:]
        return function, {name: getattr(module, name) for name in names if name in own}

    return call


def register_selection(
    *operations: Any, proof: str, constants: Callable[[Call], Constants]
) -> None:
    """Registers maps that compute nothing: each entry of the result is one of the input, or fixed.

    Growing with every entry of their input, they take the ends of a box to the ends of its image.
    """
    register(*operations, proof=proof, constants=constants, exact=True, image="monotone")


def register_linear(
    *operations: Any,
    proof: str,
    constants: Callable[[Call], Constants],
    terms: Callable[[Call], int],
    offset: str | None = None,
    assumes: str = "",
) -> None:
    r"""Registers linear maps, plus an offset, that are computed by sums in any order.

    The map of magnitudes has the norms of the map itself in L1 and L-inf, and in L2 at most
    $\sqrt{\|\cdot\|_1 \|\cdot\|_\infty}$ (Riesz and Thorin). A box with centre $c$ and radius $r$
    goes to $Wc + b \mp |W| r$.

    Args:
        operations: functions of tensors.
        proof: as in `Record`.
        constants: as in `Record`.
        terms: the most roundings that any term undergoes.
        offset: the argument that is added and not multiplied, if there is one.
        assumes: as in `Rounding`.
    """

    def growth(call: Call) -> Constants:
        shape = call.x.shape
        inf = math.inf

        def norm_of(*unit: float) -> Constants:
            return constants(call.with_values([Value(Constants(*unit), shape)]))

        l1, linf = norm_of(1.0, 1.0, 1.0).values[0], norm_of(inf, inf, 1.0).values[2]
        l2 = sqrt_up(multiply_up(l1, linf))
        return call.x.constants.in_each_norm(float(l1), float(l2), float(linf))

    def magnitude(call: Call, *tensors: Tensor) -> Tensor:
        return call.absolute(offset).run(*(tensor.abs() for tensor in tensors))

    def image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
        centre, radius = _centre_and_radius(lower[0], upper[0])
        middle = call.run(centre)
        spread = call.absolute(offset, keep_offset=False).run(radius)
        return middle - spread, middle + spread

    rounding = Rounding(terms, magnitude, growth, assumes)
    register(*operations, proof=proof, constants=constants, rounding=rounding, image=image)


def _centre_and_radius(lower: Tensor, upper: Tensor) -> Bounds:
    centre = (lower + upper) / 2
    return centre, torch.maximum(upper - centre, centre - lower) * _OUTWARD


def lipschitz_image(slope: Callable[[Call], float]) -> Image:
    """The image of a box under a map of single entries, by its largest slope."""

    def image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
        centre, radius = _centre_and_radius(lower[0], upper[0])
        reach = radius * (slope(call) * _OUTWARD)
        middle = call.run(centre)
        return middle - reach, middle + reach

    return image


def smooth_rounding(slope: Callable[[Call], float], size: Callable[[Call], float]) -> Rounding:
    """The rounding of an activation's formula: some units of its slope times `|x|` and its size."""

    def steepest(call: Call) -> float:
        return max(1.0, slope(call))

    return Rounding(
        lambda call: _FORMULA,
        lambda call, x: x.abs() * steepest(call) + size(call),
        lambda call: call.x.constants.scaled(steepest(call)),
        ELEMENTARY,
    )


def in_each_norm(call: Call, bound: Callable[[Norm], float]) -> Constants:
    """After a map whose constant is known from each norm to itself; proven once for a call."""

    def identity(leaf: object) -> object:
        # Stored tensors live as long as the proofs, so that no other has the same identity.
        if isinstance(leaf, Tensor):
            return ("stored", id(leaf))
        return None if isinstance(leaf, Value) else leaf

    def gain(p: Norm, q: Norm) -> float:
        if p != q:
            return math.inf
        arguments = repr(tree_map(identity, call.arguments))
        key = (id(call.target), arguments, call.x.shape, p)
        if key not in call.proofs:
            call.proofs[key] = bound(p)
        return call.proofs[key]

    return call.x.constants.through(gain)


def same_constants(call: Call) -> Constants:
    """Of a map that moves its result by no more than its input, in every norm."""
    return call.first.constants


def along_dim(call: Call) -> Constants:
    """Of a map that rearranges or drops entries along `dim` or `dims`, none of them the batch."""
    batch_free_dims(call, call["dim"] if call["dims"] is None else call["dims"])
    return call.first.constants


_NO_SHAPE = {
    "rule": "its constant depends on a size that is not known",
    "remedy": "Give `input_shape`.",
}


def input_shape(call: Call) -> tuple[int, ...]:
    """The shape of one sample of the input, on which the constant depends."""
    if call.x.shape is None:
        raise NoRuleError(**_NO_SHAPE)
    return call.x.shape


def length_along(call: Call) -> int:
    """The size of the input along the argument `dim`, which must not be the batch."""
    (dim,) = batch_free_dims(call, call["dim"])
    return input_shape(call)[dim]


def each_dimension(given: Any, dims: int) -> tuple[int, ...]:
    """An argument as torch takes it, one number for all dimensions or one for each."""
    amounts = list(given) if isinstance(given, (list, tuple)) else [given]
    return tuple(amounts * dims if len(amounts) == 1 else amounts)


def output_shape(call: Call) -> tuple[int, ...]:
    """The shape of one sample of the only result, on which the constant depends."""
    if call.shape is None:
        raise NoRuleError(**_NO_SHAPE)
    return call.shape


def refuse_batch_dim(dim: int, incoming: Value) -> None:
    """Raises where an operation along `dim` would mix the samples of a batch."""
    dims = None if incoming.shape is None else len(incoming.shape) + 1
    if dim == 0 or (dim < -1 and dims is None) or (dims is not None and dim == -dims):
        raise NoRuleError(
            rule=f"an operation along dim={dim} mixes the samples of a batch, or may: samples "
            "must pass through a network on their own",
            remedy="Give `input_shape`, or use another dim.",
        )


def batch_free_dims(call: Call, dims: object) -> list[int]:
    """The dimensions as places in one sample, none of them the batch."""
    if dims is None or dims == []:
        rule = "an operation over all dimensions mixes the batch"
        raise NoRuleError(rule=rule, remedy="Give `dim`.")
    places = []
    for dim in dims if isinstance(dims, (tuple, list)) else [dims]:
        if not isinstance(dim, int):
            raise NoRuleError(rule="named dimensions are not supported", remedy="Use numbers.")
        refuse_batch_dim(dim, call.x)
        count = None if call.x.shape is None else len(call.x.shape)
        places.append(dim - 1 if dim > 0 else -1 if count is None else dim + count)
    return places
