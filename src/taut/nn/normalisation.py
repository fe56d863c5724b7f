"""What is left of batch and layer normalisation when no slope may pass 1."""

from fractions import Fraction
from typing import Any, final

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, check_count, check_positive, check_within
from taut.linalg.func_transforms import in_transform
from taut.linalg.rounding import float_up
from taut.nn.function_layer import FunctionLayer
from taut.rules import Call, Constants, FileSchema, Rounding, register
from taut.rules.batch_normalisation import batch_norm, subtract_mean
from taut.rules.shared_rules import batch_free_dims, length_along


class _BatchLayer(nn.Module):
    """Statistics of each channel: those of the batch in training, running ones in evaluation."""

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
        name = type(self).__name__
        check_count(name, "num_features", num_features)
        if momentum is not None:
            remedy = "It is the weight of the newest batch; 0.1 is usual."
            check_within(name, "momentum", momentum, "(0, 1]", remedy)
        self.num_features = num_features
        self.momentum = None if momentum is None else float(momentum)
        zeros = torch.zeros(num_features, device=device, dtype=dtype)
        self.register_buffer("running_mean", zeros)
        if momentum is None:
            count = torch.zeros((), dtype=torch.long, device=device)
            self.register_buffer("num_batches_tracked", count)
        self.register_parameter("bias", nn.Parameter(zeros.clone()) if bias else None)

    def _check_channels(self, x: Tensor) -> None:
        if x.dim() < 2 or x.shape[1] != self.num_features:
            rule = "must be the channel count, dimension 1 of the input"
            got = f"num_features={self.num_features}, input shape {tuple(x.shape)}"
            raise ArgumentError(type(self).__name__, "num_features", rule, got)

    def _follow(self, **statistics: Tensor) -> None:
        """Moves running statistics towards those of a batch; not under `torch.func`."""
        if in_transform():
            return
        share: float | Tensor | None = self.momentum
        if share is None:
            self.num_batches_tracked += 1
            share = 1 / self.num_batches_tracked.to(self.running_mean)
        for name, value in statistics.items():
            running: Tensor = getattr(self, name)
            running.lerp_(value.to(running), share)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{self.num_features}, momentum={self.momentum}, bias={self.bias is not None}"


def _by_channel(x: Tensor) -> Tensor:
    return x.detach().transpose(0, 1).flatten(1)


def _schema(layer: type[_BatchLayer], *buffers: str, **more: Any) -> FileSchema:
    return FileSchema(
        layer,
        {"num_features": int, "momentum": float | None, "bias": bool, **more},
        {"num_features": 1},
        lambda a: dict.fromkeys((*buffers, *(["bias"] if a["bias"] else [])), (a["num_features"],)),
    )


@final
class Centering(_BatchLayer):
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

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(batch, channels, ...)` to the same shape."""
        self._check_channels(x)
        mean = self.running_mean
        if self.training and x.numel() > 0:  # an empty batch has no mean
            mean = _by_channel(x).mean(1)
            self._follow(running_mean=mean)
        return subtract_mean(x, mean, self.bias)


register(
    Centering,
    call=lambda m: (subtract_mean, {"mean": m.running_mean, "bias": m.bias}),
    file=_schema(Centering, "running_mean"),
)


@final
class LipschitzBatchNorm(_BatchLayer):
    r"""$y = (x - \mu) / \sqrt{\max(1, \max_c v_c) + \epsilon} + b$: one factor for all channels.

    The factor shrinks what has grown and never stretches, so the layer is 1-Lipschitz in every norm,
    in training and in evaluation, and channels keep their proportions. In training $\mu$ and $v$
    are mean and variance of the batch, taken as constants, which running statistics follow; in
    evaluation they are those, so samples pass on their own. Under `torch.func`, whose functions must
    not write, the running statistics stay as they are.

    Args:
        num_features, momentum, bias, device, dtype: those of `Centering`.
        eps: what is added to the variance.

    Example:
        >>> layer = LipschitzBatchNorm(2, momentum=1.0, eps=1e-9, bias=False)
        >>> layer(torch.tensor([[0.0, 3.0], [8.0, 3.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
        >>> taut.bound_lipschitz(layer, input_shape=(2,)).value < 0.251
        True
    """

    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, momentum, bias, device=device, dtype=dtype)
        check_positive("LipschitzBatchNorm", "eps", eps)
        self.eps = float(eps)
        self.register_buffer("running_var", torch.ones_like(self.running_mean))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(batch, channels, ...)` to the same shape."""
        self._check_channels(x)
        if not self.training or x.numel() == 0:  # an empty batch has no mean
            # One operation, whose eps an exporter does not take for nothing.
            return batch_norm(x, **self._statistics())
        channels = _by_channel(x)
        mean, var = channels.mean(1), channels.var(1, correction=0)
        self._follow(running_mean=mean, running_var=var)
        column = (1, -1, *(1,) * (x.dim() - 2))
        y = (x - mean.view(column)) * (var.amax(0).clamp_min(1.0) + self.eps).rsqrt()
        return y if self.bias is None else y + self.bias.view(column)

    def _statistics(self) -> dict[str, Any]:
        """The arguments of `batch_norm`: for each channel the largest variance, at least 1, unrounded."""
        variance = self.running_var.amax(0).clamp_min(1.0).repeat(self.num_features)
        return {
            "weight": None,
            "bias": self.bias,
            "running_mean": self.running_mean,
            "running_var": variance,
            "eps": self.eps,
        }

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, eps={self.eps}"


register(
    LipschitzBatchNorm,
    call=lambda m: (batch_norm, m._statistics()),
    file=_schema(LipschitzBatchNorm, "running_mean", "running_var", eps=float),
)


def subtract_own_mean(x: Tensor, dim: int) -> Tensor:
    """Each vector along `dim` without its mean."""
    return x - x.mean(dim, keepdim=True)


@final
class LayerCentering(FunctionLayer, function=subtract_own_mean, arguments={"dim": int}):
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


def _projection(call: Call) -> Constants:
    batch_free_dims(call, call["dim"])
    known = call.first.shape is not None
    wide = float_up(2 - Fraction(2, length_along(call))) if known else 2.0
    return call.first.constants.in_each_norm(wide, 1.0, wide)


register(
    subtract_own_mean,
    proof="orthogonal projection",
    constants=_projection,
    rounding=Rounding(
        lambda call: length_along(call) + 6,
        lambda call, x: x.abs() + x.abs().mean(call["dim"], keepdim=True),
        lambda call: call.first.constants.scaled(2.0),
    ),
)
