"""What is left of layer and batch normalisation when no slope may pass 1."""

import math
from fractions import Fraction
from typing import final

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, NoRuleError, check_count, check_positive
from taut.linalg.rounding import float_up
from taut.linalg.transforms import in_transform
from taut.norms import L2, Norm
from taut.rules import Call, Constants, FileSchema, Rounding, register
from taut.rules.forms import batch_free_dims
from taut.rules.normalisation import batch_norm

__all__ = ["LayerCentering", "LipschitzBatchNorm"]


def subtract_own_mean(x: Tensor, dim: int) -> Tensor:
    """Each vector along `dim` without its mean."""
    return x - x.mean(dim, keepdim=True)


@final
class LayerCentering(nn.Module):
    r"""Each sample without its own mean over the channels: $x - \tfrac1n 1 1^\top x$.

    An orthogonal projection, so 1-Lipschitz in L2; in L1 and L-inf the constant is
    $2 - 2/n$. Layer normalisation goes on to divide by the deviation, which has no constant.

    Args:
        dim: where the channels are.

    Example:
        >>> LayerCentering()(torch.tensor([[1.0, 2.0, 6.0]]))
        tensor([[-2., -1.,  3.]])
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = int(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return subtract_own_mean(x, self.dim)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"dim={self.dim}"


def _size(call: Call) -> int | None:
    (place,) = batch_free_dims(call, call["dim"])
    return None if call.first.shape is None else call.first.shape[place]


def _projection(call: Call) -> Constants:
    n = _size(call)
    wide = 2.0 if n is None else float_up(2 - Fraction(2, n))

    def gain(p: Norm, q: Norm) -> float:
        return math.inf if p != q else 1.0 if p == L2 else wide

    return call.first.constants.through(gain)


def _terms(call: Call) -> int:
    n = _size(call)
    if n is None:
        raise NoRuleError("how many channels there are is not known. Give `input_shape`.")
    return n + 6


register(
    subtract_own_mean,
    proof="orthogonal projection",
    constants=_projection,
    rounding=Rounding(
        _terms,
        lambda call, x: x.abs() + x.abs().mean(call["dim"], keepdim=True),
        lambda call: call.first.constants.scaled(2.0),
    ),
)
register(
    LayerCentering,
    call=lambda m: (subtract_own_mean, {"dim": m.dim}),
    file=FileSchema(LayerCentering, {"dim": int}),
)


@final
class LipschitzBatchNorm(nn.Module):
    r"""$y = (x - \mu) / \sqrt{\max(1, \max_c v_c) + \epsilon} + b$: one factor for all channels.

    The factor shrinks what has grown and never stretches, so the layer is 1-Lipschitz in every norm,
    in training and in evaluation, and channels keep their proportions. In training $\mu$ and $v$
    are mean and variance of the batch, taken as constants, which running statistics follow; in
    evaluation they are those, so samples pass on their own. Under `torch.func`, whose functions must
    not write, the running statistics stay as they are.

    Args:
        num_features: channels, dimension 1 of the input.
        momentum: the weight of a new batch in the running statistics, in (0, 1].
        eps: what is added to the variance.
        bias: whether to add a learned offset for each channel.
        device: where the tensors live.
        dtype: of the tensors.

    Example:
        >>> layer = LipschitzBatchNorm(2, momentum=1.0, eps=1e-9, bias=False)
        >>> layer(torch.tensor([[0.0, 3.0], [8.0, 3.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
        >>> taut.bound_lipschitz(layer, input_shape=(2,)).value < 0.251
        True
    """

    running_mean: Tensor
    running_var: Tensor
    bias: nn.Parameter | None

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.1,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("LipschitzBatchNorm", "num_features", num_features)
        check_positive("LipschitzBatchNorm", "eps", eps)
        if not 0 < momentum <= 1:
            raise ArgumentError(
                f"LipschitzBatchNorm: `momentum` must lie in (0, 1]; got momentum={momentum!r}. "
                "It is the weight of the newest batch; 0.1 is usual."
            )
        self.num_features, self.momentum, self.eps = num_features, float(momentum), float(eps)
        zeros = torch.zeros(num_features, device=device, dtype=dtype)
        self.register_buffer("running_mean", zeros)
        self.register_buffer("running_var", torch.ones_like(zeros))
        self.register_parameter("bias", nn.Parameter(zeros.clone()) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(batch, channels, ...)` to the same shape."""
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ArgumentError(
                "LipschitzBatchNorm: `num_features` must be the channel count, dimension 1 of the "
                f"input; got num_features={self.num_features}, input shape {tuple(x.shape)}."
            )
        if not self.training or x.numel() == 0:  # an empty batch has no mean
            # One operation, whose eps an exporter does not take for nothing.
            return batch_norm(x, None, self.bias, self.running_mean, self._variance(), self.eps)
        channels = x.detach().transpose(0, 1).flatten(1)
        mean, var = channels.mean(1), channels.var(1, correction=0)
        if not in_transform():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(var.to(self.running_var.dtype), self.momentum)
        column = (1, -1, *(1,) * (x.dim() - 2))
        y = (x - mean.view(column)) * (var.amax(0).clamp_min(1.0) + self.eps).rsqrt()
        return y if self.bias is None else y + self.bias.view(column)

    def _variance(self) -> Tensor:
        """The largest running variance, at least 1, for each channel: no number is rounded."""
        return self.running_var.amax(0).clamp_min(1.0).repeat(self.num_features)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"{self.num_features}, momentum={self.momentum}, eps={self.eps}"
        return f"{text}, bias={self.bias is not None}"


register(
    LipschitzBatchNorm,
    call=lambda m: (
        batch_norm,
        {
            "weight": None,
            "bias": m.bias,
            "running_mean": m.running_mean,
            "running_var": m._variance(),
            "eps": m.eps,
        },
    ),
    file=FileSchema(
        LipschitzBatchNorm,
        {"num_features": int, "momentum": float, "eps": float, "bias": bool},
        {"num_features": 1},
        lambda a: dict.fromkeys(
            ("running_mean", "running_var", *(("bias",) if a["bias"] else ())),
            (a["num_features"],),
        ),
        {"bias": lambda m: m.bias is not None},
    ),
)
