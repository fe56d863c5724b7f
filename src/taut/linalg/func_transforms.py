"""Code that must see numbers, under the transforms of `torch.func` and under compilers.

A transform (`vmap`, `grad`, `jvp`, ...) wraps tensors, so that one tensor may stand for a batch of
them. An algorithm that decides by values, or writes, cannot run on such a tensor. It runs on the
tensors inside, one at a time, and its result is a constant for every derivative.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch  # type: ignore[attr-defined]

_T = TypeVar("_T")


def in_transform() -> bool:
    """Whether a transform of `torch.func` (grad, vmap, ...) is under way."""
    return torch._C._are_functorch_transforms_active()


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a transform of `torch.func` differentiates or batches this very tensor."""
    return in_transform() and _functorch.is_functorch_wrapped_tensor(tensor)


def numbers_of(tensor: Tensor) -> Tensor:
    """All numbers that a tensor stands for, whichever transforms have wrapped it, as a constant.

    A batched tensor has more dimensions inside: fit for looking at every number, as checks do.
    """
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor.detach()


def call_on_numbers(function: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """`function(tensor)` for a function of plain tensors that may look at their values.

    Under `vmap` it is called for each tensor of the batch; a compiler breaks its graph here. What
    comes back has no derivative.

    Example:
        >>> def floor_if_large(x):
        ...     return x.floor() if float(x) > 1 else x
        >>> torch.func.vmap(lambda x: call_on_numbers(floor_if_large, x))(torch.tensor([0.5, 1.5]))
        tensor([0.5000, 1.0000])
    """
    tensor = tensor.detach()
    if is_wrapped(tensor):
        return _OnNumbers.apply(tensor, function)  # type: ignore[return-value]
    return call_uncompiled(partial(function, tensor))


def call_uncompiled(call: Callable[[], _T]) -> _T:
    """`call()`, where a compiler breaks its graph instead of following."""
    # Decorating with torch.compiler.disable would load the compiler with every `import taut`.
    if torch.compiler.is_dynamo_compiling():
        call = torch.compiler.disable(call)  # type: ignore[assignment]
    return call()


class _OnNumbers(torch.autograd.Function):
    @staticmethod
    def forward(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        result = function(tensor)
        # Autograd marks what leaves here, and that must not be a tensor in a cache.
        return result.view_as(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, tensor: Tensor, function: Any) -> tuple[Tensor, int]:
        each = [_OnNumbers.apply(one, function) for one in tensor.unbind(in_dims[0])]
        return torch.stack(each), 0  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None
