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

from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import check_count
from taut.linalg import bound_operator_norm
from taut.linalg.rounding import float_up
from taut.nn.aol import rescale_rows
from taut.nn.constrained import ConstrainedLayer
from taut.nn.spectral import divide_by_norm, divide_by_norm_traceable
from taut.nn.weight_cache import WeightCache
from taut.norms import L1, L2, LINF, Norm
from taut.rules import Call, Constants, FileSchema, Rounding, register
from taut.rules.dense import PRODUCTS
from taut.rules.forms import in_each_norm
from taut.rules.schema import Arguments, Shapes

__all__ = ["CPLResidual", "PotentialStep", "SLLResidual"]


def _step(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x - 2 * F.linear(F.linear(x, weight, bias).relu(), weight.mT)


def _shown(layer: "PotentialStep | _PotentialResidual") -> str:
    sizes = f"features={layer.features}, hidden_features={layer.hidden_features}"
    return f"{sizes}, bias={layer.bias is not None}"


@final
class PotentialStep(nn.Module):
    r"""$x - 2 W^\top \mathrm{relu}(W x + b)$ with a fixed weight: what the layers here fold to.

    Lipschitz in L2 with $\max(1, 2\|W\|_2^2 - 1)$, for any weight `(hidden_features, features)`;
    it starts at zero, as the identity.

    Args:
        features: size of input and output.
        hidden_features: rows of the weight.
        bias: whether there is an offset before ReLU.
        device: where the parameters live.
        dtype: of the parameters.

    Example:
        >>> step = PotentialStep(2, 2, bias=False)
        >>> step.weight.data = torch.eye(2)
        >>> step(torch.tensor([3.0, -1.0])).detach()
        tensor([-3., -1.])
        >>> taut.bound_lipschitz(step).value < 1 + 1e-14
        True
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        features: int,
        hidden_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("PotentialStep", "features", features)
        check_count("PotentialStep", "hidden_features", hidden_features)
        self.features, self.hidden_features = features, hidden_features
        weight = torch.zeros(hidden_features, features, device=device, dtype=dtype)
        self.weight = nn.Parameter(weight)
        offset = nn.Parameter(weight.new_zeros(hidden_features)) if bias else None
        self.register_parameter("bias", offset)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., features)` to the same shape."""
        return _step(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(self)


class _PotentialResidual(ConstrainedLayer):
    """A potential step whose weight is kept at norm 1 or less."""

    input_norm = L2
    output_norm = L2

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
        check_count(type(self).__name__, "features", features)
        check_count(type(self).__name__, "hidden_features", hidden)
        self.features, self.hidden_features = features, hidden
        self._create_parameters((hidden, features), hidden if bias else None, device, dtype)
        self.reset_parameters()

    def _affine(self, x: Tensor) -> Tensor:
        return _step(x, self._weight_in_use(), self.bias)

    def as_plain(self, weight: Tensor) -> PotentialStep:
        """The step with this weight and the bias of the layer."""
        plain = PotentialStep(self.features, self.hidden_features, False, device="meta")
        plain.weight = nn.Parameter(weight)
        plain.register_parameter("bias", self.bias)
        return plain

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return _shown(self)


@final
class SLLResidual(_PotentialResidual):
    r"""$x - 2 W^\top T^{-1} \mathrm{relu}(W x + b)$ with $T_{ii} = \sum_j |WW^\top|_{ij}$.

    The SDP-based layer of Araujo et al. (2023), 1-Lipschitz in L2: see `taut.nn.potential` for the
    theorem and `taut.nn.aol.rescale_rows` for $\|T^{-1/2} W\|_2 \le 1$. The weights $q$ of the
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

    def constrain(self, weight: Tensor) -> Tensor:
        r"""$T^{-1/2} W$."""
        return rescale_rows(weight)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same map, which looks at no values."""
        return rescale_rows(weight)


@final
class CPLResidual(_PotentialResidual):
    r"""$x - (2 / \bar\sigma^2)\, W^\top \mathrm{relu}(W x + b)$ with a proven $\bar\sigma \ge \|W\|_2$.

    The convex potential layer of Meunier et al. (2022), 1-Lipschitz in L2: see `taut.nn.potential`
    for the theorem. Published layers divide by an iterate below the norm, and pass 1; here the
    divisor is that of `taut.nn.SpectralLinear`. $b / \bar\sigma$ is learned as it is.

    Args:
        features: size of input and output.
        hidden_features: rows of the weight; by default as many.
        bias: whether to learn an offset before ReLU.
        device: where the parameters live.
        dtype: float32 or float64.

    Example:
        >>> layer = CPLResidual(4, 16)
        >>> taut.bound_lipschitz(layer).value
        1.0
    """

    def __init__(
        self,
        features: int,
        hidden_features: int | None = None,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._bounds = WeightCache()
        super().__init__(features, hidden_features, bias, device=device, dtype=dtype)

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight divided by a proven bound of its norm; zeros stay."""
        return divide_by_norm(weight, self._bounds)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The weight divided by its norm."""
        return divide_by_norm_traceable(weight)


def _both_ways(call: Call) -> float:
    r"""$1 + 2 \|W\|_1 \|W\|_\infty$: bounds $I + 2|W|^\top|W|$ in L1 and L-inf, hence in L2."""
    there, back = (bound_operator_norm(call.module.weight, p).value for p in (L1, LINF))
    return float_up(1 + 2 * Fraction(there) * Fraction(back))


def _constants(call: Call) -> Constants:
    def bound(norm: Norm) -> float:
        if norm != L2:
            return _both_ways(call)
        squared = Fraction(bound_operator_norm(call.module.weight, L2).value) ** 2
        return max(1.0, float_up(2 * squared - 1))

    return in_each_norm(call, bound)


def _magnitude(call: Call, x: Tensor) -> Tensor:
    weight = call.module.weight.to(x).abs()
    bias = None if call.module.bias is None else call.module.bias.to(x).abs()
    return x.abs() + 2 * F.linear(F.linear(x.abs(), weight, bias), weight.mT)


register(
    PotentialStep,
    proof="step of a convex potential",
    constants=_constants,
    # Two products in a row, whose numbers of roundings add up, and a difference.
    rounding=Rounding(
        lambda call: sum(call.module.weight.shape) + 8,
        _magnitude,
        lambda call: call.x.constants.scaled(_both_ways(call)),
        PRODUCTS,
    ),
)


def _shapes(a: Arguments) -> Shapes:
    hidden = {"bias": (a["hidden_features"],)} if a["bias"] else {}
    return {"weight": (a["hidden_features"], a["features"]), **hidden}


_ARGUMENTS = {"features": int, "hidden_features": int, "bias": bool}
_SIZES = {"features": 1, "hidden_features": 1}
for _kind in (PotentialStep, SLLResidual, CPLResidual):
    register(
        _kind,
        file=FileSchema(_kind, _ARGUMENTS, _SIZES, _shapes, {"bias": lambda m: m.bias is not None}),
    )
register(SLLResidual, CPLResidual, plain=lambda layer: layer.as_plain(layer.evaluation_weight()))
