"""What `save` writes beside a network so that others can prove its constant without this library.

A witness is a number that bounds the L2 norm of one layer and, for a convolution, how to see it. The
numbers are those of `taut.linalg`; `taut.checker` proves them by its own means. Where evaluation does
not multiply by the parameter itself, the numbers that it multiplies by are stored as well.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError
from taut.linalg import bound_autocorrelation, bound_convolution, bound_spectral_norm
from taut.nn import ConstrainedConv, ConstrainedLayer, ConstrainedLinear, PotentialStep2d
from taut.nn.relu_pairs import ReluPair
from taut.norms import L2

EVALUATION = "evaluation:"

_DENSE = (nn.Linear, ConstrainedLinear, ReluPair)
_CONVOLUTIONS = (nn.modules.conv._ConvNd, ConstrainedConv, PotentialStep2d)


def evaluation_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The weights of evaluation that differ from the parameters they are made of, by their names."""
    tensors = {}
    for path, layer in model.named_modules():
        if isinstance(layer, ConstrainedLayer):
            weight, evaluated = layer.weight.detach(), layer.evaluation_weight().detach()
            if weight.shape != evaluated.shape or not torch.equal(weight, evaluated):
                tensors[f"{EVALUATION}{path}"] = evaluated.cpu().contiguous()
    return tensors


def check_evaluation(model: nn.Module, stored: dict[str, Tensor]) -> None:
    """Raises unless every constrained layer evaluates to the weight that a file states.

    The maps from parameters to weights are iterations, which another machine rounds differently, by
    more where they are ill-conditioned: half of the digits must agree.
    """
    left = set(stored)
    for path, layer in model.named_modules():
        if isinstance(layer, ConstrainedLayer):
            name = f"{EVALUATION}{path}"
            left.discard(name)
            made, wanted = layer.evaluation_weight(), stored.get(name, layer.weight.detach())
            tolerance = torch.finfo(made.dtype).eps ** 0.5 * float(made.abs().amax())
            fits = wanted.shape == made.shape and wanted.dtype == made.dtype
            if not fits or float((wanted - made).abs().amax()) > tolerance:
                rule = "does not evaluate to the weight that is stored for it"
                raise ArgumentError(argument=path or "model", rule=rule)
    if left:
        raise ArgumentError(rule=f"tensor `{min(left)}` belongs to no layer")


@torch.no_grad()
def make_witnesses(
    model: nn.Module, input_shape: Sequence[int] | None
) -> dict[str, dict[str, Any]]:
    """For each layer with a weight, by its path, what `taut.checker` needs to prove its L2 norm.

    Args:
        model: in evaluation mode.
        input_shape: of one input, or None for proofs that hold for every size.
    """
    sizes = _input_sizes(model, input_shape)
    witnesses: dict[str, dict[str, Any]] = {}
    for path, layer in model.named_modules():
        if not isinstance(layer, (*_DENSE, *_CONVOLUTIONS)):
            continue
        constrained = isinstance(layer, ConstrainedLayer)
        weight = layer.evaluation_weight() if constrained else layer.weight.detach()
        if not isinstance(layer, _CONVOLUTIONS):
            witnesses[path] = {"l2": bound_spectral_norm(weight).value, "route": "dense"}
        elif (witness := _witness(layer, weight, sizes.get(layer))) is not None:
            witnesses[path] = witness
    return witnesses


def _input_sizes(
    model: nn.Module, input_shape: Sequence[int] | None
) -> dict[nn.Module, tuple[int, ...]]:
    """The spatial size that enters each convolution, at its first use."""
    sizes: dict[nn.Module, tuple[int, ...]] = {}
    layers = [layer for layer in model.modules() if isinstance(layer, _CONVOLUTIONS)]
    if input_shape is None or not layers:
        return sizes

    def note(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        sizes.setdefault(layer, tuple(args[0].shape[2:]))

    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        model(layers[0].weight.new_zeros(1, *input_shape))
    finally:
        for handle in handles:
            handle.remove()
    return sizes


def _witness(layer: Any, kernel: Tensor, size: tuple[int, ...] | None) -> dict[str, Any] | None:
    steps: dict[str, Any] = {}
    ends: dict[str, Any] = {"padding": kernel.shape[-1] // 2}
    if not isinstance(layer, PotentialStep2d):
        steps = {name: getattr(layer, name) for name in ("stride", "dilation", "groups")}
        names = ("padding", "padding_mode", "transposed", "output_padding")
        ends = {name: getattr(layer, name) for name in names}
    bound = bound_convolution(kernel, L2, input_size=size, **steps, **ends)
    route = "zeros"
    if ends.get("padding_mode", "zeros") != "zeros":
        route = "circle" if bound.method.startswith("circle") else "padding"
    if grid := re.search(r"(\d+(?: x \d+)*) frequencies", bound.method):
        points = [int(number) for number in grid[1].split(" x ")]
        return {"l2": bound.value, "route": route, "frequencies": points}
    if "autocorrelation" in bound.method:
        return {"l2": bound.value, "route": route}
    if "Schur" in bound.method or route != "zeros" or not kernel.any():
        return None  # the checker sees Schur's bound by itself
    return {"l2": bound_autocorrelation(kernel, **steps), "route": route}
