"""`ScaledAvgPool2d`: means of windows that use all of their slope."""

import math
from collections.abc import Sequence
from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from taut.linalg.axes import per_dimension
from taut.nn.scale import Scale
from taut.rules import FileSchema, register
from taut.rules.schema import Sizes

__all__ = ["ScaledAvgPool2d"]


@final
class ScaledAvgPool2d(nn.Module):
    r"""The mean of each window of $n$ cells times $\sqrt n$; windows stand side by side.

    Each output is the product with a unit vector, and no two read the same cell: a projection up to
    rotation, of norm 1 in L2, where plain average pooling has $1 / \sqrt n$. In L1 the constant is
    $1 / \sqrt n$, in L-inf $\sqrt n$.

    Args:
        kernel_size: cells of a window.

    Example:
        >>> ScaledAvgPool2d(2)(torch.tensor([[[[1.0, 2.0], [2.0, 3.0]]]]))
        tensor([[[[4.]]]])
    """

    def __init__(self, kernel_size: int | Sequence[int]) -> None:
        super().__init__()
        self.kernel_size = per_dimension("ScaledAvgPool2d", "kernel_size", kernel_size, 2)
        # A hair below the root, so that rounding a proof upwards does not pass 1.
        self.factor = math.sqrt(math.prod(self.kernel_size)) * (1 - 2.0**-50)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., channels, height, width)` to as many channels and one cell a window."""
        return F.avg_pool2d(x, self.kernel_size) * self.factor

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"kernel_size={self.kernel_size}"


register(
    ScaledAvgPool2d,
    plain=lambda m: nn.Sequential(nn.AvgPool2d(m.kernel_size), Scale(m.factor)),
    file=FileSchema(ScaledAvgPool2d, {"kernel_size": Sizes(2)}),
)
