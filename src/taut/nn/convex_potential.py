r"""Residual layers that are non-expansive as a whole: gradient steps of a convex potential.

**Theorem.** Let $\varphi$ act entry by entry with slopes in $[0, 1]$. Then
$$f(x) = x - 2 W^\top \varphi(W x + b)$$
is Lipschitz in L2 with $\max(1, 2\|W\|_2^2 - 1)$, so 1-Lipschitz if $\|W\|_2 \le 1$.

*Proof.* For any two points there is a diagonal $D$ with entries in $[0, 1]$ and
$\varphi(Wx + b) - \varphi(Wx' + b) = D W (x - x')$. So $f(x) - f(x') = (I - 2 W^\top D W)(x - x')$
with a symmetric matrix whose eigenvalues lie in $[1 - 2\|W\|_2^2, 1]$. $\square$

With ReLU, which commutes with positive factors, both layers of the literature are of this form:
$2 W^\top T^{-1} \varphi(Wx + b) = 2 V^\top \varphi(Vx + T^{-1/2} b)$ with $V = T^{-1/2} W$. What is
proven is the norm of the stored $V$, not that the map which made it did its work. Adding up the
constants of the two ways instead would prove no more than 3.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.linalg import bound_operator_norm
from taut.linalg.rounding import float_up
from taut.nn.relu_pairs import (
    ConstrainedReluPair,
    FixedReluPair,
    ReluPair,
    register_pairs,
    rounding_of_pair,
)
from taut.nn.row_rescaling import rescale_rows
from taut.nn.spectral import divide_by_norm, divide_by_norm_traceable
from taut.norms import L1, L2, LINF, Norm
from taut.rules import Call, Constants, register
from taut.rules.dense import PRODUCTS
from taut.rules.file_schema import with_bias
from taut.rules.shared_rules import in_each_norm


class _Potential(ReluPair):
    size_names = ("features", "hidden_features")
    residual = True

    def __init__(
        self,
        features: int,
        hidden_features: int | None = None,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        hidden = features if hidden_features is None else hidden_features
        self._set_sizes(features=features, hidden_features=hidden)
        self._create_parameters((hidden, features), bias, hidden, device, dtype)

    @staticmethod
    def lift(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """$W x + b$."""
        return F.linear(x, weight, bias)

    @staticmethod
    def pull(hidden: Tensor, weight: Tensor) -> Tensor:
        r"""$W^\top h$."""
        return F.linear(hidden, weight.mT)


@final
class PotentialStep(_Potential, FixedReluPair):
    r"""$x - 2 W^\top \mathrm{relu}(W x + b)$ with a fixed weight: what the layers here fold to.

    Lipschitz in L2 with $\max(1, 2\|W\|_2^2 - 1)$, for any weight `(hidden_features, features)`;
    it starts at zero, as the identity.

    The arguments are those of `SLLResidual`.

    Example:
        >>> step = PotentialStep(2, 2, bias=False)
        >>> step.weight.data = torch.eye(2)
        >>> step(torch.tensor([3.0, -1.0])).detach()
        tensor([-3., -1.])
        >>> taut.bound_lipschitz(step).value < 1 + 1e-14
        True
    """


@final
class SLLResidual(_Potential, ConstrainedReluPair):
    r"""$x - 2 W^\top T^{-1} \mathrm{relu}(W x + b)$ with $T_{ii} = \sum_j |WW^\top|_{ij}$.

    The SDP-based layer of Araujo et al. (2023), 1-Lipschitz in L2: see `taut.nn.convex_potential` for the
    theorem and `taut.nn.row_rescaling.rescale_rows` for $\|T^{-1/2} W\|_2 \le 1$. The weights $q$ of the
    published $T_{ii} = \sum_j |WW^\top|_{ij}\, q_j / q_i$ are the lengths of the rows of $W$ here,
    and $T^{-1/2} b$ is learned as it is, so rows of zeros divide nothing.

    Args:
        features: size of input and output.
        hidden_features: rows of the weight; by default as many.
        bias: whether to learn an offset before ReLU.
        device: where the parameters live.
        dtype: float32 or float64.

    Example:
        >>> layer = SLLResidual(4, 16)
        >>> taut.bound_lipschitz(layer).value
        1.0
    """

    plain_type = PotentialStep

    def constrain(self, weight: Tensor) -> Tensor:
        r"""$T^{-1/2} W$."""
        return rescale_rows(weight)


@final
class CPLResidual(_Potential, ConstrainedReluPair):
    r"""$x - (2 / \bar\sigma^2)\, W^\top \mathrm{relu}(W x + b)$ with a proven $\bar\sigma \ge \|W\|_2$.

    The convex potential layer of Meunier et al. (2022), 1-Lipschitz in L2: see `taut.nn.convex_potential`
    for the theorem. Published layers divide by an iterate below the norm, and pass 1; here the
    divisor is that of `taut.nn.SpectralLinear`. $b / \bar\sigma$ is learned as it is. The arguments are
    those of `SLLResidual`.

    Example:
        >>> layer = CPLResidual(4, 16)
        >>> taut.bound_lipschitz(layer).value
        1.0
    """

    plain_type = PotentialStep

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight divided by a proven bound of its norm; zeros stay."""
        return divide_by_norm(weight, self._derived)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The weight divided by its norm."""
        return divide_by_norm_traceable(weight)


def register_potential(
    step: type[FixedReluPair],
    norm_of: Callable[[Call, Norm], float],
    terms: Callable[[Call], int],
    assumes: str,
) -> None:
    """Registers the theorem of this module for a step whose linear map has the norms `norm_of`.

    Args:
        step: the module.
        norm_of: proven bounds of the map from each norm to itself.
        terms: the most roundings that any term of both products undergoes.
        assumes: as in `Rounding`.
    """

    def both_ways(call: Call) -> float:
        r"""$1 + 2 \|W\|_1 \|W\|_\infty$: bounds $I + 2|W|^\top|W|$ in L1 and L-inf, hence in L2."""
        return float_up(1 + 2 * Fraction(norm_of(call, L1)) * Fraction(norm_of(call, LINF)))

    def constants(call: Call) -> Constants:
        def bound(norm: Norm) -> float:
            if norm != L2:
                return both_ways(call)
            return max(1.0, float_up(2 * Fraction(norm_of(call, L2)) ** 2 - 1))

        return in_each_norm(call, bound)

    rounding = rounding_of_pair(
        terms,
        both_ways,
        lambda call: max(norm_of(call, L1), norm_of(call, LINF)),
        lambda call: norm_of(call, L1),  # that of the transposed map in L-inf
        assumes,
    )
    register(step, proof="step of a convex potential", constants=constants, rounding=rounding)


register_potential(
    PotentialStep,
    lambda call, norm: bound_operator_norm(call.module.weight, norm).value,
    lambda call: sum(call.module.weight.shape),
    PRODUCTS,
)
register_pairs(
    PotentialStep,
    SLLResidual,
    CPLResidual,
    sizes={"features": 1, "hidden_features": 1},
    shapes=lambda a: with_bias(a, (a["hidden_features"], a["features"]), a["hidden_features"]),
)
