r"""What all constrained layers share.

A constrained layer computes $y = C(W) x + b$, where $W$ is the parameter and $C$ maps any finite
weight to a feasible one. There are two ways to train it:

- *kept*: the parameter itself is feasible. Whenever its numbers have changed, the next forward in
  training mode replaces them by $C(W)$; the optimiser may do what it likes in between.
- *mapped*: the parameter is free and $C$ is part of the graph.

In evaluation nothing is written: $C(W)$ is computed once and remembered until $W$ changes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, DtypeError, NonFiniteError, check_count
from taut.nn.memory import Memory
from taut.norms import Norm

__all__ = ["ConstrainedLayer", "ConstrainedLinear", "outside_graphs"]

_T = TypeVar("_T")


class ConstrainedLayer(nn.Module, ABC):
    r"""A layer whose weight is feasible in every forward, whatever was done to it.

    To write a new kind, make `weight` and `bias`, and give `_constrain`, `_constrain_traceable`,
    `_affine` and, if the parameter is to be kept feasible rather than mapped, set `_kept`.

    Half precision: a weight rounded to 16 bits leaves its constraint by up to a percent, so the
    parameters must be float32 or float64, and under `torch.autocast` the layer computes in the
    dtype of its weight.
    """

    input_norm: Norm
    output_norm: Norm
    weight: nn.Parameter
    bias: nn.Parameter | None
    _kept: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory()
        self._written = Memory()

    def _hold(
        self,
        weight: tuple[int, ...],
        bias: int | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Makes the parameters, their numbers still undefined."""
        self.weight = nn.Parameter(torch.empty(weight, device=device, dtype=dtype))
        self._check_dtype()
        made = None if bias is None else torch.empty(bias, device=device, dtype=dtype)
        self.register_parameter("bias", None if made is None else nn.Parameter(made))

    @abstractmethod
    def _constrain(self, weight: Tensor) -> Tensor:
        """A feasible weight made from any finite one; differentiable unless the layer is kept."""

    @abstractmethod
    def _constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same map in plain tensor operations without looking at values, for `torch.export`."""

    def effective_weight(self) -> Tensor:
        """The weight that a forward pass uses now, in the shape of a plain layer's.

        Feasible, made from the parameter's present numbers, and part of the autograd graph.
        """
        with self._without_autocast():
            if torch.compiler.is_exporting():
                return self._constrain_traceable(self.weight)
            if self.training and not self._kept and self.weight.requires_grad:
                return self._mapped()
            return self._linked(self._settled())

    def _linked(self, value: Tensor) -> Tensor:
        """The settled weight `value` as a function of the parameter, for autograd."""
        if self._writes():
            return self.weight
        return _Recomputed.apply(self.weight, value, self._constrain)  # type: ignore[return-value]

    def evaluation_weight(self) -> Tensor:
        """The weight that evaluation uses now, in whatever mode the layer is; plain numbers."""
        return self._settle(writes=False)

    def _settled(self) -> Tensor:
        """The feasible weight as plain numbers; written into the parameter when that is kept."""
        return outside_graphs(partial(self._settle, writes=self._writes()))

    def _writes(self) -> bool:
        # Only a parameter can be kept, and only outside torch.func, whose functions must not write:
        # elsewhere the weight is a passing value, which is replaced instead.
        owned = isinstance(self.weight, nn.Parameter)
        return self.training and self._kept and owned and not in_function_transform()

    def _settle(self, writes: bool) -> Tensor:
        weight = self.weight
        value = self._written.recall(weight)
        if value is None and not writes:
            value = self._memory.recall(weight)
        if value is None:
            self._check_weight()
            # What is remembered must serve training too, wherever it was first needed.
            with torch.inference_mode(False), torch.no_grad():
                source = weight.detach()
                value = self._constrain_in_training(source) if writes else self._constrain(source)
                if writes:
                    if value is not source:
                        weight.copy_(value)
                    value = weight
                    self._written.keep(weight, weight)
                else:
                    self._memory.keep(source, value)
        return value.detach()

    def _mapped(self) -> Tensor:
        outside_graphs(self._check_weight)
        return self._constrain_in_training(self.weight)

    def _constrain_in_training(self, weight: Tensor) -> Tensor:
        """The map of training mode: the same, unless another feasible one is cheaper or wanted."""
        return self._constrain(weight)

    def _check_weight(self) -> None:
        self._check_dtype()
        if not math.isfinite(self.weight.detach().abs().amax()):
            raise NonFiniteError(
                f"{self}: the weight must be finite; got NaN or infinity, so a gradient or a step "
                "overflowed. Lower the learning rate, clip gradients, or restore a checkpoint."
            )

    def _check_dtype(self) -> None:
        if self.weight.dtype not in (torch.float32, torch.float64):
            raise DtypeError(
                f"{type(self).__name__}: the weight must be float32 or float64; got "
                f"{self.weight.dtype}, in which the constraint cannot hold. Keep the module in "
                "float32 and use torch.autocast, or fold it first."
            )

    def forward(self, x: Tensor) -> Tensor:
        """What the plain layer with the effective weight computes."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(self.weight.dtype)
        with self._without_autocast():
            return self._affine(x)

    @abstractmethod
    def _affine(self, x: Tensor) -> Tensor:
        """The output for an input in the dtype of the weight."""

    def _without_autocast(self) -> torch.autocast:
        return torch.autocast(self.weight.device.type, enabled=False)


class ConstrainedLinear(ConstrainedLayer):
    r"""A dense layer whose weight is feasible in every forward, whatever was done to it.

    To write a new one, give `input_norm`, `output_norm`, `_constrain` and, if the parameter is to
    be kept feasible rather than mapped, set `_kept`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(bias, bool):
            raise ArgumentError(
                f"{type(self).__name__}: `bias` must be True or False; got bias={bias!r}. "
                "Give other arguments by name."
            )
        check_count(type(self).__name__, "in_features", in_features)
        check_count(type(self).__name__, "out_features", out_features)
        self.in_features = in_features
        self.out_features = out_features
        self._hold((out_features, in_features), out_features if bias else None, device, dtype)

    def reset_parameters(self) -> None:
        """Draws a random weight that uses its slope, and a small uniform bias."""
        self._draw_weight()
        if self.bias is not None:
            # An orthonormal weight spreads the length of its input over all outputs: offsets as
            # large as those of torch.nn.Linear would drown the rest behind a widening layer.
            reach = 1 / math.sqrt(max(self.in_features, self.out_features))
            nn.init.uniform_(self.bias, -reach, reach)
        if not self.weight.is_meta:
            with torch.no_grad():
                self.weight.copy_(self._constrain(self.weight))

    def _draw_weight(self) -> None:
        nn.init.orthogonal_(self.weight)

    def _affine(self, x: Tensor) -> Tensor:
        return F.linear(x, self.effective_weight(), self.bias)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class _Recomputed(torch.autograd.Function):
    """A remembered value in the graph; its derivative is worked out only if someone asks for it."""

    @staticmethod
    def forward(weight: Tensor, value: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        weight, _, ctx.function = inputs
        ctx.save_for_backward(weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        twice = torch.is_grad_enabled()
        with torch.enable_grad():
            source = weight if twice else weight.detach().requires_grad_()
            made = ctx.function(source)
            (result,) = torch.autograd.grad(made, source, grad, create_graph=twice)
        return result, None, None


def in_function_transform() -> bool:
    """Whether a transform of `torch.func` (grad, vmap, ...) is under way."""
    return torch._C._are_functorch_transforms_active()


def outside_graphs(look: Callable[[], _T]) -> _T:
    """Calls what must see real numbers; a compiler breaks its graph here."""
    # Decorating with torch.compiler.disable would load the compiler with every `import taut`.
    if torch.compiler.is_dynamo_compiling():
        look = torch.compiler.disable(look)  # type: ignore[assignment]
    return look()
