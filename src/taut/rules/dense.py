"""Dense layers, matrix products and linear einsums."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import NoRuleError
from taut.linalg import bound_operator_norm
from taut.norms import L1, LINF, Norm
from taut.rules.file_schema import FileSchema
from taut.rules.lipschitz_constants import Constants
from taut.rules.operation_registry import Call, register
from taut.rules.shared_rules import (
    call_with_attributes,
    in_each_norm,
    input_shape,
    register_linear,
)

aten = torch.ops.aten
PRODUCTS = "sums of products in any order, in full precision (no TF32, no 16-bit products)"


def linear_constants(call: Call, weight: Tensor, key: object) -> Constants:
    """After multiplication by `weight`, `(out, in)`, every pair of norms with a closed form proven."""

    def gain(p: Norm, q: Norm) -> float:
        if not (p == q or q == LINF or p == L1):
            return math.inf
        proof_key = (key, p, q)
        if proof_key not in call.proofs:
            call.proofs[proof_key] = bound_operator_norm(weight, p, q).value
        return call.proofs[proof_key]

    return call.x.constants.through(gain)


def _linear(call: Call) -> Constants:
    _ = call.first  # a weight that depends on the input has no constant
    return linear_constants(call, call["weight"].detach(), ("linear", id(call["weight"])))


register_linear(
    aten.linear.default,
    proof="operator norm",
    constants=_linear,
    terms=lambda call: call["weight"].shape[1] + 2,
    offset="bias",
    assumes=PRODUCTS,
)
register(
    nn.Linear,
    call=call_with_attributes(aten.linear.default),
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
        raise NoRuleError(rule="only matrix products with one constant matrix are supported")
    return fixed, on_right, id(fixed)


def _matmul(call: Call) -> Constants:
    weight, on_right, key = _sides(call)
    if not on_right and (call.x.shape is None or len(call.x.shape) < 2):
        rule = "a matrix times the batch mixes its samples"
        raise NoRuleError(rule=rule, remedy="Use x @ weight.")
    if on_right:
        return linear_constants(call, weight.detach().mT, ("matmul", key))
    # Columns stand behind one another here, so only pairs of equal norms are blocks of one kind.
    return in_each_norm(call, lambda p: bound_operator_norm(weight.detach(), p).value)


def _matmul_terms(call: Call) -> int:
    weight, on_right, _ = _sides(call)
    return weight.shape[0 if on_right else 1] + 2


register_linear(
    aten.matmul.default,
    aten.mm.default,
    aten.mv.default,
    proof="operator norm",
    constants=_matmul,
    terms=_matmul_terms,
    assumes=PRODUCTS,
)


def _addmm(call: Call) -> Constants:
    fixed = isinstance(call["self"], Tensor) and isinstance(call["mat2"], Tensor)
    if call["alpha"] != 1 or call["beta"] != 1 or not fixed:
        raise NoRuleError(rule="addmm is supported only as a constant offset plus x @ weight")
    return linear_constants(call, call["mat2"].detach().mT, ("addmm", id(call["mat2"])))


register_linear(
    aten.addmm.default,
    proof="operator norm",
    constants=_addmm,
    terms=lambda call: call["mat2"].shape[0] + 2,
    offset="self",
    assumes=PRODUCTS,
)


def _blocks(call: Call) -> Tensor:
    """The matrices `(blocks, out, in)` of a linear einsum: one operand fixed, the batch kept."""
    equation, operands = call["equation"].replace(" ", ""), call["tensors"]
    if "." in equation or "->" not in equation or len(operands) != 2:
        raise NoRuleError(rule="only einsums of two operands with named indices are supported")
    inputs, output = equation.split("->")
    names = inputs.split(",")
    fixed_index = 0 if isinstance(operands[0], Tensor) else 1
    fixed, mine, theirs = operands[fixed_index], names[fixed_index], names[1 - fixed_index]
    if not isinstance(fixed, Tensor) or any(len(set(n)) < len(n) for n in (mine, theirs, output)):
        raise NoRuleError(rule="an einsum must have one fixed operand, and each index once in each")
    batch = theirs[0]
    if batch in mine or output[:1] != batch or not set(theirs) <= set(mine) | set(output):
        rule = "an einsum must keep the batch in front, and sum over shared indices"
        raise NoRuleError(rule=rule)
    if not set(mine) <= set(theirs) | set(output):
        raise NoRuleError(rule="an einsum must not sum over indices of the fixed operand alone")
    shape = input_shape(call)
    sizes = dict(zip(mine, fixed.shape, strict=True))
    if any(sizes.get(i, n) != n for i, n in zip(theirs[1:], shape, strict=True)):
        rule = "an einsum that repeats entries of size 1 is not supported"
        raise NoRuleError(rule=rule, remedy="Expand them.")
    shared = [i for i in mine if i in theirs and i in output]
    free = [i for i in mine if i not in theirs]
    summed = [i for i in mine if i not in output]
    order = [mine.index(i) for i in (*shared, *free, *summed)]
    moved = fixed.detach().permute(order)
    ends = len(shared), len(shared) + len(free)
    parts = moved.shape[: ends[0]], moved.shape[ends[0] : ends[1]], moved.shape[ends[1] :]
    return moved.reshape([math.prod(part) for part in parts])


def _einsum(call: Call) -> Constants:
    blocks = _blocks(call)
    return in_each_norm(
        call, lambda p: max(bound_operator_norm(block, p).value for block in blocks)
    )


register_linear(
    aten.einsum.default,
    proof="operator norm",
    constants=_einsum,
    terms=lambda call: _blocks(call).shape[2] + 2,
    assumes=PRODUCTS,
)
