r"""`SandwichLinear`: two dense layers and the ReLU between them, proven as one.

**Theorem** (after Wang and Manchester 2023). Let $\varphi$ act entry by entry with slopes in
$[0, 1]$, and $M = [A\ B]$. Then $f(x) = 2 A^\top \varphi(B x + b)$ is Lipschitz in L2 with
$\|M\|_2^2$, so 1-Lipschitz for orthonormal rows of $M$.

*Proof.* Between any two points $f$ moves by $2 A^\top D B$, $D$ diagonal with entries in $[0, 1]$.
That is twice the corner of $P = M^\top D M$, which has eigenvalues in $[0, \|M\|_2^2]$. So
$P - \tfrac12 \|M\|_2^2 I$ has norm at most $\tfrac12 \|M\|_2^2$, and so has its corner, which is
that of $P$. $\square$

The product of the norms of the two layers would prove $2 \|A\|_2 \|B\|_2$, up to twice as much.
"""

from fractions import Fraction
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.linalg import bound_operator_norm, follow_tangent, retract, retract_once
from taut.linalg.rounding import float_up
from taut.nn.orthonormal import nearest_orthonormal
from taut.nn.relu_pairs import (
    ConstrainedReluPair,
    FixedReluPair,
    ReluPair,
    register_pairs,
    rounding_of_pair,
)
from taut.norms import L1, L2, LINF, Norm
from taut.rules import Call, Constants, register
from taut.rules.dense import PRODUCTS
from taut.rules.file_schema import with_bias
from taut.rules.shared_rules import in_each_norm


def _halves(weight: Tensor) -> tuple[Tensor, Tensor]:
    """$A$ `(out, out)` and $B$ `(out, in)`."""
    rows = weight.shape[0]
    return weight[:, :rows], weight[:, rows:]


class _Sandwich(ReluPair):
    size_names = ("in_features", "out_features")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_sizes(in_features=in_features, out_features=out_features)
        shape = (out_features, out_features + in_features)
        self._create_parameters(shape, bias, out_features, device, dtype)

    @staticmethod
    def lift(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """$B x + b$."""
        return F.linear(x, _halves(weight)[1], bias)

    @staticmethod
    def pull(hidden: Tensor, weight: Tensor) -> Tensor:
        r"""$A^\top h$."""
        return F.linear(hidden, _halves(weight)[0].mT)


@final
class SandwichStep(_Sandwich, FixedReluPair):
    r"""$2 A^\top \mathrm{relu}(B x + b)$ with a fixed $M = [A\ B]$: what `SandwichLinear` folds to.

    Lipschitz in L2 with $\|M\|_2^2$, for any weight; it starts at zero.

    The arguments are those of `SandwichLinear`.

    Example:
        >>> step = SandwichStep(2, 1, bias=False)
        >>> step.weight.data = torch.tensor([[0.8, 0.6, 0.0]])
        >>> step(torch.tensor([1.0, 5.0])).detach()
        tensor([0.9600])
    """


@final
class SandwichLinear(_Sandwich, ConstrainedReluPair):
    r"""$\sqrt 2 A^\top \Psi\,\mathrm{relu}(\sqrt 2\, \Psi^{-1} B x + b)$ with $AA^\top + BB^\top = I$.

    1-Lipschitz in L2: see `taut.nn.sandwich`. ReLU commutes with positive factors, so the diagonal
    $\Psi$ is part of the offset: the layer computes $2 A^\top \mathrm{relu}(B x + b)$, and $[A\ B]$ is
    kept orthonormal as the weight of `OrthonormalLinear` is. The activation is inside: use it in place
    of a dense layer and the activation behind it.

    Args:
        in_features: size of each input.
        out_features: size of each output, and number of hidden units.
        bias: whether to learn an offset before ReLU.
        device: where the parameters live.
        dtype: float32 or float64.

    Example:
        >>> layer = SandwichLinear(3, 8)
        >>> layer(torch.randn(5, 3)).shape
        torch.Size([5, 8])
        >>> 0.99 < taut.bound_lipschitz(layer).value <= 1
        True
    """

    projects_in_place = True
    plain_type = SandwichStep

    def constrain(self, weight: Tensor) -> Tensor:
        """The nearest matrix with orthonormal rows, or one near it."""
        return retract(weight)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The nearest matrix with orthonormal rows."""
        return nearest_orthonormal(weight)

    def constrain_traceable_in_training(self, weight: Tensor) -> Tensor:
        """One round of the retraction."""
        return retract_once(weight)

    def _weight_in_use(self) -> Tensor:
        if self._has_no_numbers():
            return super()._weight_in_use()
        return follow_tangent(self._feasible_numbers(), self.weight)


def _norms(call: Call, norm: Norm) -> tuple[float, float]:
    """The norms of both maps; in L1 and L-inf also those of their magnitudes."""
    outer, inner = _halves(call.module.weight.detach())
    return bound_operator_norm(inner, norm).value, bound_operator_norm(outer.mT, norm).value


def _product(call: Call, norm: Norm) -> float:
    lift, pull = _norms(call, norm)
    return float_up(2 * Fraction(lift) * Fraction(pull))


def _constants(call: Call) -> Constants:
    def bound(norm: Norm) -> float:
        if norm != L2:
            return _product(call, norm)
        return float_up(Fraction(bound_operator_norm(call.module.weight, L2).value) ** 2)

    return in_each_norm(call, bound)


register(
    SandwichStep,
    proof="two layers as one",
    constants=_constants,
    rounding=rounding_of_pair(
        lambda call: call.module.weight.shape[1],
        # What bounds a matrix of magnitudes in L1 and in L-inf bounds it in L2, too.
        lambda call: max(_product(call, L1), _product(call, LINF)),
        lambda call: max(_norms(call, L1)[0], _norms(call, LINF)[0]),
        lambda call: _norms(call, LINF)[1],
        PRODUCTS,
    ),
)
register_pairs(
    SandwichStep,
    SandwichLinear,
    sizes={"in_features": 1, "out_features": 1},
    shapes=lambda a: with_bias(
        a, (a["out_features"], a["out_features"] + a["in_features"]), a["out_features"]
    ),
)
