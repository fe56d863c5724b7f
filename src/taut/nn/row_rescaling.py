r"""Dense layers whose rows are rescaled by one formula, without an iteration."""

from typing import final

import torch
from torch import Tensor

from taut.linalg import gamma
from taut.nn.constrained import ConstrainedLinear
from taut.norms import L2, LINF
from taut.rules import FileSchema, register


def rescale_rows(weight: Tensor) -> Tensor:
    r"""$D W$ with $D_{ii} = (\sum_j |W W^\top|_{ij})^{-1/2}$, of norm at most 1.

    **Theorem** (Prach and Lampert 2022). $T = \mathrm{diag}(|WW^\top| 1)$ has
    $WW^\top \preceq T$, since $T - WW^\top$ is diagonally dominant; so
    $\|T^{-1/2} W\|_2^2 = \|T^{-1/2} WW^\top T^{-1/2}\|_2 \le 1$. Any positive weights $q$ in
    $T_{ii} = \sum_j |WW^\top|_{ij}\, q_j / q_i$ would do as well, and give the rows of
    $\mathrm{diag}(q) W$: the lengths of the free rows are those weights.

    Rows of zeros stay. The sums are taken in float64, where the Gram matrix, divided by
    $T^{1/2}$ on both sides, is off by $\gamma$ in each entry; that and the rounding of what is
    returned are less than the margin by which it is shrunk.

    Args:
        weight: `(rows, columns)`, finite, float32 or float64; differentiable.

    Example:
        >>> rescale_rows(torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 0.0]]))
        tensor([[0.7071, 0.0000],
                [0.7071, 0.0000],
                [0.0000, 0.0000]])
    """
    scaled = weight.double()
    largest = scaled.detach().abs().amax()
    scaled = scaled / torch.where(largest > 0, largest, 1.0)
    sums = (scaled @ scaled.mT).abs().sum(-1, keepdim=True)
    # Squares near the smallest number lose digits, and a sum that is too low stretches too far.
    least = torch.finfo(sums.dtype).tiny * 2**20
    factors = torch.where(sums > 0, sums.clamp_min(least), 1.0).rsqrt()
    rounding = torch.finfo(weight.dtype).eps * (4 + min(weight.shape) ** 0.5)
    return (scaled * factors * (1 - rounding - 4 * gamma(weight.numel() + 16))).to(weight.dtype)


@final
class AOLLinear(ConstrainedLinear):
    r"""$y = x\,C(W)^\top + b$ with rows or columns, whichever are fewer, rescaled to norm at most 1.

    1-Lipschitz in L2 (`rescale_rows`). One matrix product and no iteration, in training as in
    evaluation. Orthonormal matrices, with one of which training begins, come back as they are; the
    norm of those far from orthonormal is below 1, and `taut.bound_lipschitz` tells it.
    `taut.nn.AOLConv2d` is the same for convolutions. The arguments are those of
    `torch.nn.Linear`.

    Example:
        >>> layer = AOLLinear(3, 2)
        >>> bool(torch.linalg.matrix_norm(layer.effective_weight().double(), 2) <= 1)
        True
    """

    input_norm = L2
    output_norm = L2

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight with its rows or columns rescaled."""
        wide = self.out_features <= self.in_features
        return rescale_rows(weight) if wide else rescale_rows(weight.mT).mT


@final
class UnitNormLinear(ConstrainedLinear):
    r"""$y = x\,C(W)^\top + b$ with every row of $W$ divided by its Euclidean length.

    Each output is 1-Lipschitz in L2 on its own, so the layer is 1-Lipschitz from L2 to L-inf: a last
    layer for logits that are scores one by one. As a map from L2 to L2 its norm lies between 1 and
    $\sqrt{\text{out}}$, and `taut.bound_lipschitz` proves the value. `MixedLinear` keeps rows *in*
    the ball instead. Rows of zeros stay. The arguments are those of `torch.nn.Linear`.

    Example:
        >>> layer = UnitNormLinear(3, 5)
        >>> torch.allclose(layer.effective_weight().norm(dim=1), torch.ones(5))
        True
    """

    input_norm = L2
    output_norm = LINF

    def constrain(self, weight: Tensor) -> Tensor:
        """The weight with its rows divided by their lengths."""
        largest = weight.detach().abs().amax(1, keepdim=True)
        rows = weight / torch.where(largest > 0, largest, 1.0)
        squares = rows.square().sum(1, keepdim=True)
        # A length from n squares, a root, a division and a product, each rounded.
        margin = gamma(self.in_features + 16, weight.dtype)
        return rows * torch.where(squares > 0, squares, 1.0).rsqrt() * (1 - margin)


for _layer in (AOLLinear, UnitNormLinear):
    register(_layer, file=FileSchema.dense(_layer))
