"""`Scale`: multiplication by a constant, which sets the Lipschitz constant of a network."""

from typing import final

import torch
from torch import Tensor, nn

from taut.errors import check_finite
from taut.rules import FileSchema, register, relu_forms


@final
class Scale(nn.Module):
    """Multiplies by a constant: Lipschitz with exactly `|factor|` in every norm.

    Args:
        factor: any finite number.

    Example:
        >>> Scale(3.0)(torch.tensor([1.0, -2.0]))
        tensor([ 3., -6.])
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        check_finite("Scale", "factor", factor)
        self.factor = float(factor)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return x * self.factor

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"factor={self.factor}"


register(
    Scale,
    call=lambda m: (torch.ops.aten.mul.Tensor, {"other": m.factor}),
    relu=relu_forms.scale,
    file=FileSchema(Scale, {"factor": float}),
)
