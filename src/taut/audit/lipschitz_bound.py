"""`bound_lipschitz`: a proven Lipschitz constant of a module."""

import math
from collections.abc import Sequence
from functools import partial

from torch import nn

from taut.audit.container_tracing import find_input_shape, is_structural, trace
from taut.audit.eval_mode_copy import Prepared, prepare
from taut.audit.lipschitz_interpreter import Audit, ConstantsInterpreter
from taut.audit.program import Program
from taut.audit.torch_export_capture import capture
from taut.bounds import Bound, Hypotheses
from taut.errors import ArgumentError, NoRuleError
from taut.linalg.rounding import check_arithmetic
from taut.norms import Norm, NormLike, as_norm

_SUBJECT = "bound_lipschitz"


def bound_lipschitz(
    model: nn.Module,
    norm: NormLike = "l2",
    input_shape: Sequence[int] | None = None,
    output_norm: NormLike | None = None,
) -> Bound:
    r"""A proven upper bound on the Lipschitz constant of a network, with a breakdown by layer.

    $$\|f(x) - f(x')\|_q \le K \|x - x'\|_p \quad\text{for all } x, x'$$

    for the network in evaluation mode with its stored weights, in real arithmetic (`taut.certify`
    also covers floating-point execution). Modules with a custom `forward` are captured by
    `torch.export`, so residual additions, in-place operations, functional calls, concatenations and
    reshapes are supported. Constants are propagated in all three norms, and only matching norms are
    composed. An operation without a rule is an error; `taut.rules.register` adds a rule.

    Args:
        model: maps a batch of inputs to a batch of outputs, one tensor each.
        norm: norm `p` of the input: "l1", "l2" or "linf".
        input_shape: shape of one input, without the batch dimension. By default a vector of the size
            of the first layer if that is dense; otherwise required for custom forwards and where a
            constant depends on it. Convolutions on inputs of known size have tighter constants.
        output_norm: norm `q` of the output, by default `p`. For a single output all are equal.

    Returns:
        The bound; `print(bound.layers)` shows the factor of each layer, `print(bound.hypotheses)` the
        assumptions.

    Raises:
        NoRuleError: an operation has no proven constant; the message names it and its layer.

    Example:
        >>> import taut
        >>> bound_lipschitz(taut.nn.mlp([2, 8, 1], lipschitz=3.0))
        Bound(<= 3.0, l2, proven)
    """
    p = as_norm(norm, _SUBJECT)
    q = p if output_norm is None else as_norm(output_norm, _SUBJECT)
    check_arithmetic(_SUBJECT)
    prepared = prepare(model, _SUBJECT)
    shape = _check_shape(input_shape)
    free = None
    if shape is None and is_structural(prepared.model):
        free = _without_shape(prepared, p)
    if free is not None and find_input_shape(prepared.model) is None:
        bound = bound_of(free, q)
    else:
        program = find_program(prepared, shape, _SUBJECT)
        if free is not None:
            program.proofs.update(free.program.proofs)
        audited = audit_program(program, p)
        # A constant that holds for every shape says more than an equal one for an assumed shape.
        if free is not None and free.output.constants[q] <= audited.output.constants[q] * (
            1 + 1e-6
        ):
            audited = free
        bound = bound_of(audited, q)
    if math.isinf(bound.value):
        rule = f"no constant from {p} to {q} is known, though every layer has a record"
        remedy = "Give `input_shape`, or ask for another pair of norms."
        raise NoRuleError(_SUBJECT, rule=rule, remedy=remedy)
    return bound


def _without_shape(prepared: Prepared, norm: Norm) -> Audit | None:
    """The network on inputs of any shape; None if a shape is assumed and decides something."""
    try:
        return audit_program(trace(prepared, None), norm)
    except NoRuleError:
        if find_input_shape(prepared.model) is None:
            raise
        return None


def _check_shape(shape: Sequence[int] | None) -> tuple[int, ...] | None:
    if shape is None:
        return None
    listed = isinstance(shape, Sequence) and not isinstance(shape, str)
    if not listed or not all(isinstance(n, int) and n > 0 for n in shape):
        rule = "must be the positive sizes of one input, without the batch"
        got = f"input_shape={shape!r}"
        raise ArgumentError(_SUBJECT, "input_shape", rule, got, "Use a tuple such as (1, 28, 28).")
    return tuple(shape)


def bound_of(audited: Audit, output_norm: Norm | None = None) -> Bound:
    """The Lipschitz constant of an audited network, with its hypotheses."""
    p, q = audited.norm, output_norm or audited.norm
    value = audited.output.constants[q]
    return Bound(
        value,
        p,
        method="composition of proven layers",
        layers=audited.table(p),
        output_norm=q,
        hypotheses=_hypotheses(audited, q),
    )


def _hypotheses(audited: Audit, q: Norm) -> Hypotheses:
    program, p = audited.program, audited.norm
    shape = program.input_shape
    statements = [
        f"distances of inputs are measured in {p}, those of outputs in {q}",
        "inputs may have any shape that the network takes"
        if shape is None
        else f"one input has shape {shape}",
        "the network runs in evaluation mode, on the weights stored when this was proven",
        "it computes in real arithmetic; taut.certify covers rounding",
    ]
    if program.exported:
        statements.append(
            "its forward reads nothing but its input and stored tensors (checked on attributes and "
            "buffers, and by a comparison on three random batches, which is a test and no proof)"
        )
    digest_of = partial(_digest, input_shape=shape)
    return Hypotheses(tuple(statements), shape, program.digest(), digest_of)


def _digest(model: nn.Module, input_shape: tuple[int, ...] | None) -> str:
    prepared = prepare(model, "holds_for")
    if input_shape is None and is_structural(prepared.model):
        return trace(prepared, None).digest()
    return find_program(prepared, input_shape, "holds_for").digest()


def audit(
    model: nn.Module, norm: NormLike = "l2", input_shape: Sequence[int] | None = None
) -> Audit:
    """Carries the constants of its input through an evaluation copy of `model`."""
    p = as_norm(norm, "audit")
    check_arithmetic(_SUBJECT)
    shape = _check_shape(input_shape)
    return audit_program(find_program(prepare(model, _SUBJECT), shape, _SUBJECT), p)


def audit_program(program: Program, norm: Norm) -> Audit:
    """Carries the constants of its input through a program."""
    return ConstantsInterpreter(program, _SUBJECT).audit(norm)


def find_program(prepared: Prepared, input_shape: tuple[int, ...] | None, subject: str) -> Program:
    """The operations of a network: read off its layers, or captured from its forward."""
    try:
        return _find_program(prepared, input_shape)
    except (ArgumentError, NoRuleError) as error:
        raise error.replace(subject=subject) from error.__cause__


def _find_program(prepared: Prepared, input_shape: tuple[int, ...] | None) -> Program:
    assumed = find_input_shape(prepared.model) if input_shape is None else input_shape
    if is_structural(prepared.model):
        try:
            return trace(prepared, assumed)
        except ArgumentError:
            if input_shape is not None:
                raise
            return trace(prepared, None)
    if assumed is None:
        raise NoRuleError(
            rule=f"{type(prepared.model).__name__} has a forward of its own, which can be "
            "captured only for inputs of a known shape",
            remedy="Give `input_shape`.",
        )
    return capture(prepared, assumed)
