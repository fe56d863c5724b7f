"""Dense layers, matrix products and linear einsums."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import NoRuleError
from taut.linalg import bound_operator_norm
from taut.norms import L1, LINF, Norm
from taut.rules.constants import Constants
from taut.rules.forms import in_each_norm, linear_image, linear_rounding
from taut.rules.record import Call, register
from taut.rules.schema import FileSchema

__all__ = ["PRODUCTS", "linear_constants"]

aten = torch.ops.aten
PRODUCTS = "sums of products in any order, in full precision (no TF32, no 16-bit products)"


def linear_constants(call: Call, weight: Tensor, key: object) -> Constants:
    """After multiplication by `weight`, `(out, in)`, every pair of norms with a closed form proven."""

    def gain(p: Norm, q: Norm) -> float:
        if not (p == q or q == LINF or p == L1):
            return math.inf
        place = (key, p, q)
        if place not in call.proofs:
            call.proofs[place] = bound_operator_norm(weight, p, q).value
        return call.proofs[place]

    return call.x.constants.through(gain)


def _fixed(call: Call, name: str) -> Tensor:
    held = call[name]
    if not isinstance(held, Tensor):
        raise NoRuleError("a weight that depends on the input has no constant.")
    return held.detach()


def _linear(call: Call) -> Constants:
    _ = call.first
    weight = _fixed(call, "weight")
    return linear_constants(call, weight, ("linear", id(call["weight"])))


register(
    aten.linear.default,
    proof="operator norm",
    constants=_linear,
    rounding=linear_rounding(lambda call: call["weight"].shape[1] + 2, _linear, "bias", PRODUCTS),
    image=linear_image(),
)
register(
    nn.Linear,
    call=lambda m: (aten.linear.default, {"weight": m.weight, "bias": m.bias}),
    file=FileSchema.dense(nn.Linear),
)


def _sides(call: Call) -> tuple[Tensor, bool, Any]:
    """The fixed matrix of a product, whether it stands on the right, and what it is known by."""
    left, right = list(call.arguments.values())[:2]
    on_right = isinstance(right, Tensor)
    fixed = right if on_right else left
    if isinstance(fixed, Tensor) and fixed.dim() == 1:
        return fixed[:, None] if on_right else fixed[None], on_right, id(fixed)
    if not isinstance(fixed, Tensor) or fixed.dim() != 2:
        raise NoRuleError("of matrix products only those with one fixed matrix are followed.")
    return fixed, on_right, id(fixed)


def _matmul(call: Call) -> Constants:
    weight, on_right, key = _sides(call)
    if not on_right and (call.x.shape is None or len(call.x.shape) < 2):
        raise NoRuleError("a matrix times the batch mixes its samples. Use x @ weight.")
    matrix = weight.detach().mT if on_right else weight.detach()
    if on_right:
        return linear_constants(call, matrix, ("matmul", key))
    # Columns stand behind one another here, so only pairs of equal norms are blocks of one kind.
    return in_each_norm(call, lambda p: bound_operator_norm(matrix, p).value)


def _matmul_terms(call: Call) -> int:
    weight, on_right, _ = _sides(call)
    return weight.shape[0 if on_right else 1] + 2


register(
    aten.matmul.default,
    aten.mm.default,
    aten.mv.default,
    proof="operator norm",
    constants=_matmul,
    rounding=linear_rounding(_matmul_terms, _matmul, None, PRODUCTS),
    image=linear_image(None),
)


def _blocks(call: Call) -> Tensor:
    """The matrices `(blocks, out, in)` of a linear einsum: one operand fixed, the batch kept."""
    equation, operands = call["equation"].replace(" ", ""), call["tensors"]
    if "." in equation or "->" not in equation or len(operands) != 2:
        raise NoRuleError("of einsums only those of two operands with named indices are followed.")
    inputs, output = equation.split("->")
    names = inputs.split(",")
    place = 0 if isinstance(operands[0], Tensor) else 1
    fixed, mine, theirs = operands[place], names[place], names[1 - place]
    if not isinstance(fixed, Tensor) or any(len(set(n)) < len(n) for n in (mine, theirs, output)):
        raise NoRuleError("an einsum must have one fixed operand, and each index once in each.")
    batch = theirs[0]
    if batch in mine or output[:1] != batch or not set(theirs) <= set(mine) | set(output):
        raise NoRuleError("an einsum must keep the batch in front, and sum over shared indices.")
    if not set(mine) <= set(theirs) | set(output):
        raise NoRuleError("an einsum must not sum over indices of the fixed operand alone.")
    shared = [i for i in mine if i in theirs and i in output]
    free = [i for i in mine if i not in theirs]
    summed = [i for i in mine if i not in output]
    order = [mine.index(i) for i in (*shared, *free, *summed)]
    size = {i: fixed.shape[mine.index(i)] for i in mine}

    def count(indices: Sequence[str]) -> int:
        return math.prod(size[i] for i in indices)

    moved = fixed.detach().permute(order)
    return moved.reshape(count(shared), count(free), count(summed))


def _einsum(call: Call) -> Constants:
    blocks = _blocks(call)
    return in_each_norm(
        call, lambda p: max(bound_operator_norm(block, p).value for block in blocks)
    )


register(
    aten.einsum.default,
    proof="operator norm",
    constants=_einsum,
    rounding=linear_rounding(lambda call: _blocks(call).shape[2] + 2, _einsum, None, PRODUCTS),
    image=linear_image(None),
)
