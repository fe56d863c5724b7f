"""`UnitNormLinear`: every row on the unit sphere."""

from typing import final

import torch
from torch import Tensor

from taut.linalg import gamma
from taut.nn.constrained import ConstrainedLinear
from taut.norms import L2, LINF
from taut.rules import FileSchema, register

__all__ = ["UnitNormLinear"]


@final
class UnitNormLinear(ConstrainedLinear):
    r"""$y = x\,C(W)^\top + b$ with every row of $W$ divided by its Euclidean length.

    Each output is 1-Lipschitz in L2 on its own, so the layer is 1-Lipschitz from L2 to L-inf: a last
    layer for logits that are scores one by one. As a map from L2 to L2 its norm lies between 1 and
    $\sqrt{\text{out}}$, and `taut.bound_lipschitz` proves the value. `MixedLinear` keeps rows *in*
    the ball instead. Rows of zeros stay.

    Args:
        in_features: size of each input.
        out_features: size of each output.
        bias: whether to add a learned offset.
        device: where the parameters live.
        dtype: float32 or float64.

    Example:
        >>> layer = UnitNormLinear(3, 5)
        >>> torch.allclose(layer.effective_weight().norm(dim=1), torch.ones(5))
        True
    """

    input_norm = L2
    output_norm = LINF

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.reset_parameters()

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight with its rows divided by their lengths."""
        largest = weight.detach().abs().amax(1, keepdim=True)
        rows = weight / torch.where(largest > 0, largest, 1.0)
        squares = rows.square().sum(1, keepdim=True)
        # A length from n squares, a root, a division and a product, each rounded.
        margin = gamma(self.in_features + 16, weight.dtype)
        return rows * torch.where(squares > 0, squares, 1.0).rsqrt() * (1 - margin)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same map, which looks at no values."""
        return self.constrain(weight)


register(UnitNormLinear, file=FileSchema.dense(UnitNormLinear))
