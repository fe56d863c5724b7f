"""`Centering`: batch normalisation without the division, so that no slope grows."""

from typing import final

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, check_count
from taut.linalg.transforms import in_transform
from taut.rules import FileSchema, register
from taut.rules.normalisation import subtract_mean

__all__ = ["Centering"]


@final
class Centering(nn.Module):
    r"""$y = x - \mu + b$ with the mean $\mu$ of each channel: 1-Lipschitz in every norm.

    Batch normalisation also divides by deviations, which may make a network arbitrarily steep. In
    training $\mu$ is the mean of the batch, taken as a constant, and a running mean follows it; in
    evaluation $\mu$ is the running mean, so that samples do not depend on one another. Under
    `torch.func`, whose functions must not write, the running mean stays as it is.

    Args:
        num_features: channels, dimension 1 of the input.
        momentum: the weight of a new batch in the running mean, in (0, 1]; None for the plain mean
            of all batches so far.
        bias: whether to add a learned offset for each channel.
        device, dtype: those of the tensors.

    Example:
        >>> layer = Centering(2, momentum=1.0)
        >>> layer(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]], grad_fn=<AddBackward0>)
        >>> layer.eval()(torch.zeros(1, 2)).tolist()
        [[-2.0, -5.0]]
    """

    running_mean: Tensor
    num_batches_tracked: Tensor
    bias: nn.Parameter | None

    def __init__(
        self,
        num_features: int,
        momentum: float | None = 0.1,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("Centering", "num_features", num_features)
        if momentum is not None and not 0 < momentum <= 1:
            raise ArgumentError(
                f"Centering: `momentum` must lie in (0, 1]; got momentum={momentum!r}. "
                "It is the weight of the newest batch; 0.1 is usual."
            )
        self.num_features = num_features
        self.momentum = None if momentum is None else float(momentum)
        zeros = torch.zeros(num_features, device=device, dtype=dtype)
        self.register_buffer("running_mean", zeros)
        if momentum is None:
            count = torch.zeros((), dtype=torch.long, device=device)
            self.register_buffer("num_batches_tracked", count)
        self.register_parameter("bias", nn.Parameter(zeros.clone()) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(batch, channels, ...)` to the same shape."""
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ArgumentError(
                f"Centering: `num_features` must be the channel count, dimension 1 of the input; "
                f"got num_features={self.num_features}, input shape {tuple(x.shape)}."
            )
        column = (1, -1, *(1,) * (x.dim() - 2))
        mean = self.running_mean
        if self.training and x.numel() > 0:  # an empty batch has no mean
            mean = x.detach().transpose(0, 1).flatten(1).mean(1)
            if not in_transform():
                self.running_mean.lerp_(mean.to(self.running_mean), self._share())
        y = x - mean.view(column)
        return y if self.bias is None else y + self.bias.view(column)

    def _share(self) -> float | Tensor:
        """The weight of this batch in the running mean."""
        if self.momentum is not None:
            return self.momentum
        self.num_batches_tracked += 1
        return 1 / self.num_batches_tracked.to(self.running_mean)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{self.num_features}, momentum={self.momentum}, bias={self.bias is not None}"


register(
    Centering,
    call=lambda m: (subtract_mean, {"mean": m.running_mean, "bias": m.bias}),
    file=FileSchema(
        Centering,
        {"num_features": int, "momentum": float | None, "bias": bool},
        {"num_features": 1},
        lambda a: {
            "running_mean": (a["num_features"],),
            **({"bias": (a["num_features"],)} if a["bias"] else {}),
        },
        {"bias": lambda m: m.bias is not None},
    ),
)
