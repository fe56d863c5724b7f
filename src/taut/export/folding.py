"""`fold`: from layers that constrain their weights to plain layers that hold the constrained ones."""

from collections.abc import Callable
from typing import overload

import torch
from torch import Tensor, nn

from taut.audit import prepare
from taut.errors import NoRuleError, NotConvergedError
from taut.linalg import bound_autocorrelation, bound_convolution, bound_operator_norm
from taut.nn import ConstrainedConv, ConstrainedLayer, ConstrainedLinear
from taut.norms import L2


@overload
def fold(model: nn.Sequential) -> nn.Sequential: ...
@overload
def fold(model: ConstrainedLinear) -> nn.Linear: ...
@overload
def fold(model: nn.Module) -> nn.Module: ...
def fold(model: nn.Module) -> nn.Module:
    r"""A copy of the network in which every constrained layer is a plain one of `torch.nn`.

    The weight of each is the one that evaluation uses, and its norm, from the layer's input norm to
    its output norm, is *proven* at most 1 for the numbers as stored. Where rounding left it a hair
    above, it is multiplied by $(1 - \varepsilon) / \bar\sigma$, $\bar\sigma$ the proven norm and
    $\varepsilon$ a few units of rounding, and proven again. Parametrised layers of torch
    (`torch.nn.utils.parametrize`) become plain ones, too. Everything else is copied unchanged: `Scale`
    is not merged into the weights, because the products would be rounded.

    Convolutions become `torch.nn.Conv2d` and its kin (behind a `taut.nn.SymmetricPad2d` where they pad
    so), with kernels proven for every size of input that the layer accepts: with circular padding
    those that the stride divides, with padding by copies those whose two ends do not meet. The plain
    layer no longer checks that.

    Args:
        model: any module, including a single layer. It is not changed in any way, including its mode and
            the caches of its layers.

    Returns:
        A module of the same structure, names and shared parts, in evaluation mode, that computes
        what `model` computes in evaluation. Its parameters do not require gradients, since training
        would violate the constraint of plain layers.

    Example:
        >>> fold(taut.nn.mlp([2, 8, 1]))
        Sequential(
          (0): Linear(in_features=2, out_features=8, bias=True)
          (1): MaxMin(dim=-1)
          (2): Linear(in_features=8, out_features=1, bias=True)
        )
    """
    prepared = prepare(model, "fold")
    with torch.no_grad():
        for plain, original in prepared.originals.items():
            subject = f"fold: {type(original).__name__}"
            if isinstance(original, (ConstrainedLinear, ConstrainedConv)):
                # What pads by mirroring stands before the convolution.
                layer = plain[-1] if isinstance(plain, nn.Sequential) else plain
                stored = layer.get_parameter("weight").detach()
                weight = _proven(subject, stored, _bound_of(original))
                layer.weight = nn.Parameter(weight, requires_grad=False)
    for name, module in prepared.model.named_modules():
        if isinstance(module, ConstrainedLayer):
            rule = (
                f"({type(module).__name__}) has a forward of its own, which a plain layer "
                "cannot follow"
            )
            remedy = "Put what it adds into a module before or after the layer."
            raise NoRuleError("fold", name or "model", rule, remedy=remedy)
    return prepared.model


def _bound_of(layer: ConstrainedLinear | ConstrainedConv) -> Callable[[Tensor], float]:
    """From a weight to its proven norm, between the norms of the layer, for every size of input."""
    if isinstance(layer, ConstrainedConv):
        return lambda kernel: _bound_kernel(layer, kernel)
    norms = layer.input_norm, layer.output_norm
    return lambda matrix: bound_operator_norm(matrix, *norms).value


def _bound_kernel(layer: ConstrainedConv, kernel: Tensor) -> float:
    geometry = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    if layer.input_norm == L2:
        quick = bound_autocorrelation(kernel, **geometry) * layer.padding_norm()
        if quick <= 1:
            return quick
        return bound_convolution(kernel, L2, **geometry).value * layer.padding_norm()
    return bound_convolution(kernel, layer.input_norm, **geometry).value


def _proven(subject: str, weight: Tensor, bound_of: Callable[[Tensor], float]) -> Tensor:
    """The weight, shrunk as little as it takes to prove a norm of at most 1."""
    bound = bound_of(weight)
    if bound <= 1:
        return weight.clone(memory_format=torch.contiguous_format)
    margin = 2 * torch.finfo(weight.dtype).eps
    while margin < 1e-5:
        shrunk = weight.contiguous() * ((1 - margin) / bound)
        if bound_of(shrunk) <= 1:
            return shrunk
        margin *= 4
    rule = "the norm of the weight must be provable"
    got = f"{bound} and no proof of 1 after scaling"
    remedy = "Report the weight: this should not happen."
    raise NotConvergedError(subject, rule=rule, got=got, remedy=remedy)
