"""`QuantileLoss`: the loss whose minimiser is a quantile."""

from typing import final

import torch
from torch import Tensor, nn

from taut.errors import check_within


@final
class QuantileLoss(nn.Module):
    r"""The mean of $\max(\tau (y - f), (\tau - 1)(y - f))$, least at the quantile $\tau$ of $y$.

    Also called pinball loss. Two quantiles, such as 0.05 and 0.95, make an interval.

    Args:
        quantile: $\tau$, between 0 and 1.

    Example:
        >>> QuantileLoss(0.9)(torch.zeros(2), torch.tensor([1.0, -1.0]))
        tensor(0.5000)
    """

    def __init__(self, quantile: float = 0.5) -> None:
        super().__init__()
        check_within("QuantileLoss", "quantile", quantile, "(0, 1)")
        self.quantile = float(quantile)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of `outputs` for `targets`, two tensors of one shape."""
        above = targets - outputs
        return torch.maximum(self.quantile * above, (self.quantile - 1) * above).mean()

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"quantile={self.quantile}"
