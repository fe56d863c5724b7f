r"""Training of distance networks: their start, the exponents of their norms, and their means.

A maximum passes its gradient to one coordinate, so training starts with distances in $\ell_8$ and
raises the exponent until they are maxima. A network that is good at a small exponent is worthless at
infinity until it was trained there: only the last epochs are evaluated.
"""

import math

import torch
from torch import Tensor, nn

from taut.nn import Centering, LinfDistance, SortDistance
from taut.nn.distance import StoredPoints

_LOWEST, _HIGHEST = 8.0, 1024.0
_RISE = (0.3, 0.92)  # shares of the run between which the exponent rises
_WEIGHTS = (0.5, 0.002)  # of the cross-entropy, first and last
# In deviations of the inputs. On MNIST in 15 epochs -4 certifies more than the authors' -10.
_FAR = -4.0
_MOST_ROWS = 4096


def exponent_at(progress: float) -> float:
    """The exponent of distances after a share of the run: it rises geometrically, then to infinity.

    Example:
        >>> [round(exponent_at(t), 1) for t in (0.0, 0.3, 0.6, 0.9)], exponent_at(0.95)
        ([8.0, 8.0, 83.7, 875.6], inf)
    """
    first, last = _RISE
    if progress >= last:
        return math.inf
    risen = max(0.0, progress - first) / (last - first)
    return _LOWEST * (_HIGHEST / _LOWEST) ** risen


def cross_entropy_weight(progress: float) -> float:
    """The weight of the cross-entropy beside the ramp: it falls geometrically.

    Example:
        >>> cross_entropy_weight(0.0), round(cross_entropy_weight(1.0), 6)
        (0.5, 0.002)
    """
    first, last = _WEIGHTS
    return first * (last / first) ** progress


def set_exponent(model: nn.Module, exponent: float) -> None:
    """Sets the exponent of every distance layer in training mode."""
    for layer in model.modules():
        if isinstance(layer, StoredPoints):
            layer.exponent = exponent


def _some_rows(inputs: Tensor, model: nn.Module) -> Tensor:
    count = min(len(inputs), _MOST_ROWS)
    weight = next(model.parameters())
    return inputs[torch.arange(count) * len(inputs) // count].to(weight.device, weight.dtype)


@torch.no_grad()
def start_distances(model: nn.Sequential, inputs: Tensor) -> None:
    """Initialises each unit to depend on its own input, one of those with the largest variance.

    The stored points are moved to the mean of what a layer receives, and one coordinate of each so
    far away that its distance is the largest. Networks without distances are left alone.

    Args:
        model: layers in order, as `build_network` makes them.
        inputs: training inputs `(n, *shape)`.
    """
    if not any(isinstance(layer, StoredPoints) for layer in model.modules()):
        return
    x = _some_rows(inputs, model)
    for layer in model.train():
        if isinstance(layer, LinfDistance | SortDistance):
            most_varying = x.var(0).argsort(descending=True, stable=True)[: layer.out_features]
            layer.weight.add_(x.mean())
            layer.weight[torch.arange(len(most_varying)), most_varying] = x.mean() + _FAR
        x = layer(x)


@torch.no_grad()
def update_means(model: nn.Module, inputs: Tensor) -> bool:
    """Sets the running means of a distance network from many rows, with maxima as distances.

    Returns:
        Whether the network was last trained as it is evaluated, with maxima; others always are.
    """
    layers = [m for m in model.modules() if isinstance(m, StoredPoints)]
    exact = all(math.isinf(layer.exponent) for layer in layers)
    if layers and any(isinstance(m, Centering) for m in model.modules()):
        set_exponent(model, math.inf)
        model.train()(_some_rows(inputs, model))
    return exact
