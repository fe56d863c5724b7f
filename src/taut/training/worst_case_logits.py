r"""Training on interval bounds: the worst logits that a box of inputs may have.

Boxes go through the network as in `taut.bound_outputs`, here in the arithmetic of training and with
derivatives: a linear map takes centre and radius to $Wc + b$ and $|W| r$, and so does batch normalisation,
by the statistics of the centres; all else in these networks grows with its input and takes ends to ends.
The last layer is merged with the margins: of the label $t$
against $i$, the smallest margin is bounded as one linear map of the features,
$(w_t - w_i) c + b_t - b_i - |w_t - w_i| r$.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_GRADIENT = 8.0  # norm to which gradients are clipped
_BEYOND = (1.2, 0.02)  # training radius in target radii, and the most by which it exceeds them
_RAMP = 0.3  # share of the run in which the radius grows to it


def training_radius(radius: float, progress: float) -> float:
    """The radius of the boxes after a share of the run, for a target radius.

    Example:
        >>> [round(training_radius(0.1, t), 4) for t in (0.0, 0.15, 0.3, 1.0)]
        [0.0, 0.06, 0.12, 0.12]
    """
    factor, most = _BEYOND
    return min(factor * radius, radius + most) * min(1.0, progress / _RAMP)


def worst_logits(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    radius: float,
    low: float | None,
    high: float | None,
) -> Tensor:
    r"""Minus the smallest margin of each label over each class, for inputs anywhere in a box.

    Args:
        model: layers in order, as `build_network` makes them for the architecture ibp.
        x: `(n, *shape)`, centres of the boxes.
        labels: `(n,)`.
        radius: radius of the boxes in L-inf.
        low: smallest possible value of an input, or None.
        high: largest possible value of an input, or None.

    Returns:
        `(n, classes)`, 0 at the label. If all else is negative, no input in the box is misclassified,
        but for the rounding of this computation.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 2, bias=False))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
        >>> worst_logits(model, torch.tensor([[1.0]]), torch.tensor([0]), 0.25, None, None).tolist()
        [[0.0, -1.5]]
    """
    assert isinstance(model, nn.Sequential)
    *layers, last = model
    assert isinstance(last, nn.Linear)
    lower = (x - radius).clamp(min=-math.inf if low is None else low)
    upper = (x + radius).clamp(max=math.inf if high is None else high)
    middle, radii = _propagate(layers, (lower + upper) / 2, (upper - lower) / 2)
    logits = last(middle)
    # For every pair of classes, since there are far fewer than rows: (classes^2, features).
    apart = (last.weight.unsqueeze(1) - last.weight).abs().flatten(0, 1)
    spread = F.linear(radii, apart).unflatten(1, (-1, len(last.weight)))
    spread = spread[torch.arange(len(labels)), labels]
    return logits - logits.gather(1, labels.unsqueeze(1)) + spread


def _propagate(
    layers: Sequence[nn.Module], middle: Tensor, radius: Tensor
) -> tuple[Tensor, Tensor]:
    for layer in layers:
        if isinstance(layer, nn.Linear):
            radius = F.linear(radius, layer.weight.abs())
        elif isinstance(layer, nn.Conv2d):
            radius = F.conv2d(radius, layer.weight.abs(), None, layer.stride, layer.padding)  # type: ignore[arg-type]
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            radius = radius * _factors(layer, middle)
        else:
            lower, upper = layer(middle - radius), layer(middle + radius)
            middle = lower.lerp(upper, 0.5)
            radius = upper - middle
            continue
        middle = layer(middle)
    return middle, radius


def _factors(layer: nn.BatchNorm1d | nn.BatchNorm2d, middle: Tensor) -> Tensor:
    """The factors of batch normalisation; in training mode, those of the batch of centres."""
    others = [axis for axis in range(middle.dim()) if axis != 1]
    variance = layer.running_var
    if layer.training:  # torch.var takes several times as long
        variance = (middle - middle.mean(others, keepdim=True)).square().mean(others)
    assert variance is not None
    factors = layer.weight.abs() * (variance + layer.eps).rsqrt()
    return factors.view(-1, *(1,) * (middle.dim() - 2))
