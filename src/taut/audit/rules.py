"""What is proven of each module: one rule a type, and a way to add more.

A rule looks at a module as it is now and at the tensor that enters it, and answers with the
constants of what comes out. Rules are found by the exact type: a subclass may do anything in its
own forward, so it is followed inside instead of trusted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from taut import nn as taut_nn
from taut.audit.constants import Constants, Value
from taut.errors import NoRuleError
from taut.linalg import bound_operator_norm
from taut.linalg.rounding import exact_double
from taut.norms import L1, L2, LINF, Norm

__all__ = ["Rule", "find_rule", "linear_constants", "refuse_batch_dim", "rule", "slope_of"]

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Rule:
    """How to bound one type of module, and what proves it."""

    bound: Callable[[Any, Value], Constants]
    method: str


_RULES: dict[type[nn.Module], Rule] = {}


def rule(
    *kinds: type[M], method: str = "registered rule"
) -> Callable[[Callable[[M, Value], Constants]], Callable[[M, Value], Constants]]:
    """Registers what is proven of modules of exactly these types.

    The function is given the module and the `Value` that enters it (its `constants`, and its
    `shape` where known) and returns the `Constants` of the output. It answers for the proof.

    Args:
        kinds: module types.
        method: what proves it, in a few words, for the table of layers.

    Example:
        >>> class Halve(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.special.expit(x) * 2
        >>> @rule(Halve, method="slope 1/2")
        ... def _(module, incoming):
        ...     return incoming.constants.scaled(0.5)
    """

    def register(bound: Callable[[M, Value], Constants]) -> Callable[[M, Value], Constants]:
        for kind in kinds:
            _RULES[kind] = Rule(bound, method)
        return bound

    return register


def find_rule(module: nn.Module) -> Rule | None:
    """The rule for a module; parametrised modules count as what they were before."""
    kind = parametrize.type_before_parametrizations(module)
    return _RULES.get(kind) if type(module).forward is kind.forward else None


def linear_constants(weight: Tensor, incoming: Constants) -> Constants:
    """After multiplication by `weight`, `(out, in)`, every pair of norms with a closed form proven."""

    @cache
    def gain(p: Norm, q: Norm) -> float:
        known = p == q or q == LINF or p == L1
        return bound_operator_norm(weight, p, q).value if known else math.inf

    return incoming.through(gain)


@rule(nn.Linear, method="operator norm")
def _linear(module: nn.Linear, incoming: Value) -> Constants:
    return linear_constants(module.weight.detach(), incoming.constants)


@rule(
    taut_nn.OrthonormalLinear,
    taut_nn.SpectralLinear,
    taut_nn.ParsevalLinear,
    taut_nn.LinfLinear,
    taut_nn.L1Linear,
    taut_nn.MixedLinear,
    method="operator norm",
)
def _constrained(module: taut_nn.ConstrainedLinear, incoming: Value) -> Constants:
    return linear_constants(module.evaluation_weight(), incoming.constants)


@rule(taut_nn.Scale, method="factor")
def _scale(module: taut_nn.Scale, incoming: Value) -> Constants:
    return incoming.constants.scaled(abs(module.factor))


@rule(taut_nn.MaxMin, taut_nn.GroupSort, taut_nn.FullSort, taut_nn.Maxout, method="permutation")
def _sorting(module: nn.Module, incoming: Value) -> Constants:
    refuse_batch_dim(module.dim, incoming)  # type: ignore[arg-type]
    return incoming.constants


@rule(taut_nn.Householder, method="reflection")
def _householder(module: taut_nn.Householder, incoming: Value) -> Constants:
    refuse_batch_dim(module.dim, incoming)
    exact_double("Householder", module.angle)
    # The rows and columns of a plane reflection have l1 norm |cos| + |sin| <= sqrt(2).
    steep = math.nextafter(math.sqrt(2), math.inf)
    return incoming.constants.through(
        lambda p, q: 1.0 if p == q == L2 else steep if p == q else math.inf
    )


def refuse_batch_dim(dim: int, incoming: Value) -> None:
    """Raises where an operation along `dim` would mix the samples of a batch."""
    dims = None if incoming.shape is None else len(incoming.shape) + 1
    if dim == 0 or (dim < -1 and dims is None) or (dims is not None and dim == -dims):
        raise NoRuleError(
            f"an operation along dim={dim} mixes the samples of a batch, or may: samples must pass "
            "through a network on their own. Give `input_shape`, or use another dim."
        )


@rule(nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle, method="permutation")
def _identity(module: nn.Module, incoming: Value) -> Constants:
    return incoming.constants


@rule(nn.Flatten, nn.Unflatten, method="permutation")
def _reshape(module: nn.Module, incoming: Value) -> Constants:
    dim = module.start_dim if isinstance(module, nn.Flatten) else module.dim  # type: ignore[union-attr]
    if not isinstance(dim, int):
        raise NoRuleError("named dimensions are not followed. Use numbers.")
    refuse_batch_dim(dim, incoming)
    return incoming.constants


@rule(
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, method="identity in eval"
)
def _dropout(module: nn.Module, incoming: Value) -> Constants:
    return incoming.constants


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, method="largest channel factor")
def _batch_norm(
    module: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d, incoming: Value
) -> Constants:
    if module.running_var is None:
        raise NoRuleError(
            "BatchNorm without running statistics depends on the batch. "
            "Use track_running_stats=True."
        )
    variance = exact_double("BatchNorm", module.running_var)
    factor = (variance + module.eps).rsqrt()
    if module.weight is not None:
        factor = factor * exact_double("BatchNorm", module.weight).abs()
    if not torch.isfinite(factor).all():
        raise NoRuleError("a running variance below -eps has no root.")
    # Three operations in float64, each off by less than one part in 2^52.
    return incoming.constants.scaled(float(factor.amax()) * (1 + 2**-48))


# The largest slope of activations that work entry by entry. Those without a closed form are rounded
# up in the sixth decimal, and so are those whose kernels use constants of single precision.
_GELU = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)
_SLOPES: dict[type[nn.Module], Callable[[Any], float]] = {
    nn.ReLU: lambda m: 1.0,
    nn.ReLU6: lambda m: 1.0,
    nn.Hardtanh: lambda m: 1.0,
    nn.LeakyReLU: lambda m: _at_least_one(m.negative_slope),
    nn.PReLU: lambda m: _at_least_one(float(exact_double("PReLU", m.weight).abs().amax())),
    nn.RReLU: lambda m: _at_least_one((m.lower + m.upper) / 2),
    nn.ELU: lambda m: _at_least_one(m.alpha),
    nn.CELU: lambda m: 1.000001 if m.alpha > 0 else math.inf,
    nn.SELU: lambda m: 1.758100,
    nn.GELU: lambda m: _GELU * (1 + 1e-15) if m.approximate == "none" else 1.129000,
    nn.SiLU: lambda m: 1.099840,
    nn.Mish: lambda m: 1.088500,
    nn.Tanh: lambda m: 1.0,
    nn.Sigmoid: lambda m: 0.25,
    nn.Softplus: lambda m: _softplus(m),
    nn.Softsign: lambda m: 1.0,
    nn.LogSigmoid: lambda m: 1.0,
    nn.Hardsigmoid: lambda m: 0.166667,
    nn.Hardswish: lambda m: 1.500001,
    nn.Tanhshrink: lambda m: 1.0,
    nn.Softshrink: lambda m: 1.0,
    taut_nn.Abs: lambda m: 1.0,
}


@rule(*_SLOPES, method="largest slope")
def _elementwise(module: nn.Module, incoming: Value) -> Constants:
    return incoming.constants.scaled(slope_of(module))


def slope_of(module: nn.Module) -> float:
    """The largest slope of an activation that works entry by entry."""
    slope = _SLOPES[type(module)](module)
    if not math.isfinite(slope):
        raise NoRuleError(f"{module} has no proven constant with these arguments.")
    return slope


def _at_least_one(slope: float) -> float:
    return max(1.0, abs(slope)) if math.isfinite(slope) else math.inf


def _softplus(module: nn.Softplus) -> float:
    # Above the threshold torch returns its argument, a jump of log(1 + exp(-threshold)) / beta,
    # which only from 40 on is below the rounding of float64.
    return 1.0 if module.beta > 0 and module.threshold >= 40 else math.inf


@rule(nn.Softmax, method="Jacobian norm 1/2")
def _softmax(module: nn.Softmax, incoming: Value) -> Constants:
    # diag(p) - pp' has rows of l1 norm 2 p (1 - p) <= 1/2 and is symmetric.
    refuse_batch_dim(0 if module.dim is None else module.dim, incoming)
    return incoming.constants.scaled(0.5)
