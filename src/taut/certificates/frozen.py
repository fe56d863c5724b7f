"""The network as evaluation runs it, on float64 copies of its weights."""

import copy
import math
from functools import cached_property

from torch import Tensor, nn
from torch.nn.utils import parametrize

from taut.audit import Constants, Value, rule
from taut.audit.rules import find_rule
from taut.certificates.spread import gains_of, norms_up
from taut.linalg import bound_gram_iteration, bound_operator_norm
from taut.linalg.rounding import exact_double
from taut.nn import (
    ConstrainedConv,
    ConstrainedLinear,
    L1Linear,
    LinfLinear,
    MixedLinear,
    OrthonormalLinear,
    ParsevalLinear,
    SpectralLinear,
)
from taut.norms import L1, L2, LINF, Norm

__all__ = ["Affine", "freeze"]

_NORMS = (L1, L2, LINF)
# By exact type: the forward of a subclass may do anything.
_CONSTRAINED = {
    OrthonormalLinear,
    SpectralLinear,
    ParsevalLinear,
    LinfLinear,
    L1Linear,
    MixedLinear,
}


class Affine(nn.Linear):
    """A dense layer with its final numbers in float64 and what is proven of them.

    Args:
        weight: `(out, in)`, what evaluation multiplies by.
        bias: `(out,)` or None.
        kind: the name of the layer that this one stands for.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, kind: str) -> None:
        super().__init__(1, 1, bias=False, device="meta")
        self.out_features, self.in_features = weight.shape
        self.kind = kind
        self.weight = _fixed(exact_double(kind, weight))
        self.bias = None if bias is None else _fixed(exact_double(kind, bias))

    @cached_property
    def proven(self) -> dict[tuple[Norm, Norm], float]:
        """The norms of the weight from p to q, for the pairs that have a closed form."""
        pairs = [(p, q) for p in _NORMS for q in _NORMS if p == q or p == L1 or q == LINF]
        return {(p, q): bound_operator_norm(self.weight, p, q).value for p, q in pairs}

    @cached_property
    def gains(self) -> Tensor:
        """The same as a table `gains[q, p]`."""
        return gains_of(lambda unit: unit.through(self.gain)).to(self.weight.device)

    @cached_property
    def magnitude_gains(self) -> Tensor:
        """The table for the matrix of magnitudes: the same but for L2, where Frobenius bounds it."""
        proven = self.proven | {(L2, L2): bound_gram_iteration(self.weight, num_steps=0).value}
        table = [[proven.get((p, q), math.inf) for p in _NORMS] for q in _NORMS]
        return self.weight.new_tensor(table)

    @cached_property
    def offset_norms(self) -> Tensor:
        """The norms of the bias, `(3, 1)`."""
        if self.bias is None:
            return self.weight.new_zeros(3, 1)
        return norms_up(self.bias.detach()[None])

    def gain(self, p: Norm, q: Norm) -> float:
        """The norm of the weight from p to q, infinity for a pair without a closed form."""
        return self.proven.get((p, q), math.inf)


def _fixed(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


@rule(Affine, method="operator norm")
def _bound_affine(module: Affine, incoming: Value) -> Constants:
    return incoming.constants.through(module.gain)


def freeze(model: nn.Module) -> nn.Module:
    """A CPU copy in evaluation mode and float64, dense layers made `Affine`; `model` is left alone.

    Constrained convolutions become plain ones.
    """
    frozen: dict[int, nn.Module] = {}
    for module in model.modules():
        changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        if not changed and (made := _as_affine(module) or _as_plain(module)) is not None:
            frozen[id(module)] = made
    return copy.deepcopy(model, frozen).eval().cpu().double()


def _as_affine(module: nn.Module) -> Affine | None:
    kind = parametrize.type_before_parametrizations(module)
    if isinstance(module, ConstrainedLinear) and kind in _CONSTRAINED and kind is type(module):
        return Affine(module.evaluation_weight(), module.bias, kind.__name__)
    if isinstance(module, nn.Linear) and kind is nn.Linear:
        if kind is not type(module):
            # Reading a parametrised weight may run code that writes, as power iterations do.
            module = copy.deepcopy(module).eval()
        return Affine(module.weight, module.bias, kind.__name__)
    return None


def _as_plain(module: nn.Module) -> nn.Module | None:
    """A constrained convolution as the plain one that evaluation amounts to."""
    if isinstance(module, ConstrainedConv) and find_rule(module) is not None:
        plain = module.as_plain(module.evaluation_weight())
        # A copy of its own: freezing changes dtypes, and the model must not follow.
        return copy.deepcopy(plain).requires_grad_(False)
    return None
