"""`L2Pool2d`: the length of each window."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from taut import functional
from taut.linalg.axes import per_dimension
from taut.rules import register
from taut.rules.pooling import pooling_schema

__all__ = ["L2Pool2d"]


@final
class L2Pool2d(nn.Module):
    r"""$y_t = \|x_{\text{window } t}\|_2$, channel by channel.

    1-Lipschitz in L2 for windows that do not overlap, and it keeps the length of its input if they
    cover it; `taut.linalg.bound_pooling` has the constants of the others and of other norms. Its
    derivative is a unit vector in each window, 0 where the whole window is 0 (where that of
    `torch.nn.LPPool2d` is not a number).

    Args:
        kernel_size: cells of a window.
        stride: by default `kernel_size`.
        ceil_mode: whether a last window that sticks out is kept.

    Example:
        >>> L2Pool2d(2)(torch.tensor([[[[3.0, 0.0], [0.0, -4.0]]]]))
        tensor([[[[5.]]]])
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = per_dimension("L2Pool2d", "kernel_size", kernel_size, 2)
        steps = self.kernel_size if stride is None else stride
        self.stride = per_dimension("L2Pool2d", "stride", steps, 2)
        self.ceil_mode = bool(ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., channels, height, width)` to as many channels and one cell a window."""
        return functional.l2_pool2d(x, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{text}, ceil_mode=True" if self.ceil_mode else text


register(
    L2Pool2d,
    call=lambda m: (
        functional.l2_pool2d,
        {"kernel_size": list(m.kernel_size), "stride": list(m.stride), "ceil_mode": m.ceil_mode},
    ),
    file=pooling_schema(L2Pool2d),
)
