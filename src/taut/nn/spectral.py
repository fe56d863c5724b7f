r"""Dense layers with $\|W\|_2 \le 1$ that leave the smaller singular values alone."""

from functools import partial
from typing import final

import torch
from torch import Tensor

from taut.errors import check_within
from taut.linalg import bound_spectral_norm, even_vector, gram, power_iteration, rounding_margin
from taut.linalg.func_transforms import call_on_numbers
from taut.nn.constrained import ConstrainedLinear
from taut.nn.weight_cache import WeightCache
from taut.norms import L2
from taut.rules import FileSchema, register


@final
class SpectralLinear(ConstrainedLinear):
    r"""$y = x (W / \bar\sigma)^\top + b$ where $\bar\sigma \ge \|W\|_2$ is proven, not iterated.

    1-Lipschitz in L2, really: power iteration approaches the norm from below, so dividing by its
    result leaves a norm above 1. Here the divisor is the Cholesky-proven bound, rounding included;
    power iteration only points the gradient of the divisor. The arguments are those of
    `torch.nn.Linear`.

    Example:
        >>> layer = SpectralLinear(3, 2)
        >>> bool(torch.linalg.matrix_norm(layer.effective_weight().double(), 2) <= 1)
        True
    """

    input_norm = L2
    output_norm = L2

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight divided by a proven bound of its norm; zeros stay."""
        return divide_by_norm(weight, self._derived)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The weight divided by its norm."""
        return divide_by_norm_traceable(weight)


@final
class ParsevalLinear(ConstrainedLinear):
    r"""A dense layer with $\|W\|_2 \le 1$, drawn towards orthonormality by Parseval steps.

    After each change of the weight, the next forward in training scales it to norm at most 1 if
    it exceeds that, then takes one step $W \leftarrow (1 + \beta) W - \beta W W^\top W$, which maps
    singular values of $[0, 1]$ into $[0, 1]$ and lifts them. Published Parseval networks omit the
    scaling, so their norm may pass 1; with it the layer is 1-Lipschitz in L2 at any learning rate.
    A copied or loaded weight counts as changed.

    Args:
        in_features, out_features, bias, device, dtype: those of `torch.nn.Linear`.
        beta: step size, in (0, 0.5]; 0.5 is one Björck step.

    Example:
        >>> layer = ParsevalLinear(3, 2, beta=0.01)
        >>> bool(torch.linalg.matrix_norm(layer.effective_weight().double(), 2) <= 1)
        True
    """

    input_norm = L2
    output_norm = L2
    projects_in_place = True
    _shown = ("beta",)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        beta: float = 0.01,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        remedy = "Published networks use 0.0003 to 0.5."
        check_within("ParsevalLinear", "beta", beta, "(0, 0.5]", remedy)
        self.beta = beta
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight, divided by a proven bound of its norm where that is above 1."""
        bound = call_on_numbers(_bound_for_division, weight)
        largest = weight.detach().abs().amax()
        below = bound <= 1 + _rounding_of_division(weight)
        shrunk = (weight / torch.where(below, 1.0, largest)) / (bound / largest).to(weight.dtype)
        return torch.where(below, weight, shrunk)

    def constrain_in_training(self, weight: Tensor) -> Tensor:
        """The same, and one Parseval step."""
        return self._step(self.constrain(weight))

    def _step(self, feasible: Tensor) -> Tensor:
        wide = self.out_features < self.in_features
        square = gram(feasible.mT if wide else feasible)
        cube = square @ feasible if wide else feasible @ square
        step = (1 + self.beta) * feasible - self.beta * cube
        return step * (1 - rounding_margin(feasible.dtype))

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The weight divided by its norm where that is above 1."""
        return weight / _norm_for_division(weight).clamp_min(1)

    def constrain_traceable_in_training(self, weight: Tensor) -> Tensor:
        """The same, and one Parseval step."""
        return self._step(self.constrain_traceable(weight))


def divide_by_norm(weight: Tensor, bounds: WeightCache) -> Tensor:
    """The weight divided by a proven bound of its norm, which `bounds` remembers; zeros stay."""
    bound = call_on_numbers(partial(bounds.recall_or_make, make=_bound_for_division), weight)
    largest = weight.detach().abs().amax()
    largest = torch.where(largest > 0, largest, 1.0)
    scaled, bound = weight / largest, (bound / largest).to(weight.dtype)
    sigma, _, _ = power_iteration(scaled, even_vector(scaled.shape[1], scaled), num_steps=10)
    # The value is that of the proven bound, the derivative that of the norm.
    return scaled / (bound + (sigma - sigma.detach()))


def divide_by_norm_traceable(weight: Tensor) -> Tensor:
    """The weight divided by its norm, without looking at values."""
    norm = _norm_for_division(weight)
    return weight / torch.where(norm > 0, norm, 1.0)


def _bound_for_division(weight: Tensor) -> Tensor:
    """A number in float64 that leaves a norm of at most 1, rounding included; 1 for zeros."""
    bound = bound_spectral_norm(weight).value * (1 + _rounding_of_division(weight))
    return torch.tensor(bound or 1.0, dtype=torch.float64, device=weight.device)


def _norm_for_division(weight: Tensor) -> Tensor:
    """The same as computed by torch, which looks at no values: not proven, and 0 for zeros."""
    return torch.linalg.matrix_norm(weight, 2) * (1 + 2 * _rounding_of_division(weight))


def _rounding_of_division(weight: Tensor) -> float:
    """How much of the norm rounding may give back when a matrix is divided by its norm.

    Each entry is off by a few units of rounding of itself, and the matrix of magnitudes has at
    most sqrt(n) times the norm of the matrix.
    """
    return 4 * torch.finfo(weight.dtype).eps * min(weight.shape) ** 0.5


register(SpectralLinear, file=FileSchema.dense(SpectralLinear))
register(ParsevalLinear, file=FileSchema.dense(ParsevalLinear, beta=float))
