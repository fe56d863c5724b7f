"""Networks taken apart into affine maps and activations, and put together again."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError
from taut.nn import ConstrainedLinear, Scale


class Affine(NamedTuple):
    """The map `x -> weight x + bias`, with weight `(out, in)` and bias `(out,)`."""

    weight: Tensor
    bias: Tensor


def take_apart(subject: str, network: nn.Module) -> list[Affine | nn.Module]:
    """The parts of a network in order: affine maps as numbers, all else as modules.

    A constrained layer gives the weight it uses now, a `Scale` joins the linear layer before it,
    and identities are left out.

    Raises:
        ArgumentError: a `Scale` without a linear layer right before it, or no linear layer at all.
    """
    parts: list[Affine | nn.Module] = []
    for module in _leaves(network):
        if isinstance(module, nn.Linear | ConstrainedLinear):
            parts.append(_affine_of(module))
        elif isinstance(module, Scale):
            if not parts or not isinstance(parts[-1], Affine):
                rule = "a Scale must stand right behind a linear layer"
                got = f"{module} as part {len(parts)}"
                remedy = "Move it there: sorting does not see a positive factor."
                raise ArgumentError(subject, rule=rule, got=got, remedy=remedy)
            weight, bias = parts[-1]
            parts[-1] = Affine(weight * module.factor, bias * module.factor)
        else:
            parts.append(module)
    if not any(isinstance(part, Affine) for part in parts):
        rule, got = "a network must have a linear layer", f"{type(network).__name__} without one"
        remedy = "Put torch.nn.Linear or a constrained layer of taut.nn into it."
        raise ArgumentError(subject, rule=rule, got=got, remedy=remedy)
    return parts


def _leaves(network: nn.Module) -> Iterator[nn.Module]:
    if isinstance(network, nn.Sequential):
        for child in network:
            yield from _leaves(child)
    elif not isinstance(network, nn.Identity):
        yield network


@torch.no_grad()
def _affine_of(module: nn.Linear | ConstrainedLinear) -> Affine:
    weight = module.weight if isinstance(module, nn.Linear) else module.effective_weight()
    bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias
    return Affine(weight.detach().clone(), bias.detach().clone())


def as_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A `torch.nn.Linear` that holds these numbers."""
    rows, columns = weight.shape
    # Without storage first: torch would draw an initial weight, and move its generator.
    layer = nn.Linear(columns, rows, bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer


def beside_zeros(weight: Tensor, first: bool = True) -> Tensor:
    """`[weight 0]`, or `[0 weight]`: reads one half of the channels and ignores the other."""
    zeros = torch.zeros_like(weight)
    return torch.cat([weight, zeros] if first else [zeros, weight], 1)
