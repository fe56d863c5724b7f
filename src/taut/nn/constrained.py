r"""`ConstrainedLayer`: which weight a forward uses, and when that weight is recomputed.

A constrained layer computes $y = C(W) x + b$, where $W$ is its parameter and the map $C$
(`constrain`) turns any finite weight into a feasible one. A layer is in one of three states:

- *projected in place* (training, `projects_in_place`): a forward uses $W$ itself. If the values of
  $W$ have changed since the last projection, it first writes $W \leftarrow C(W)$. Derivatives are
  those of $W$.
- *reparametrised* (training, otherwise): a forward computes $C(W)$ and is differentiated through it.
- *cached* (evaluation, and free weights that need no gradient): a forward uses $C(W)$, computed once
  for the current values of $W$. Nothing is written; derivatives go through $C$ when needed.

Three callers need pure functions. Under `torch.func`, a weight that is differentiated or batched is
reparametrised, any other is cached. Under `torch.export`, `constrain_traceable` replaces $C$. Under
`torch.compile` it does so as well, there is no cache, and training projects the parameter in every
forward, by `constrain_traceable_in_training`: graphs have no breaks and wait for no device. They
cannot raise an error for a weight that is not finite; the output is then not finite either.

Forwards use the cache and the parameter themselves; `effective_weight` and `evaluation_weight`
return copies, so that writing into them cannot change a network that was proven.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, DtypeError, NonFiniteError, check_count
from taut.linalg.func_transforms import (
    call_on_numbers,
    call_uncompiled,
    in_transform,
    is_wrapped,
    numbers_of,
)
from taut.nn.weight_cache import WeightCache, compares_numbers
from taut.norms import Norm
from taut.rules import register


class ConstrainedLayer(nn.Module, ABC):
    r"""A layer whose weight is feasible in every forward, whatever was done to it.

    A new kind of layer sets `input_norm` and `output_norm`, creates its parameters
    (`_create_parameters`, when all that `constrain` needs is set) and defines `constrain` and
    `_affine`. It defines `constrain_traceable`, too, if `constrain` looks at values. It may also
    define `constrain_in_training`, and set `projects_in_place` if training is to keep the
    parameter itself feasible; the module `taut.nn.constrained` describes both ways of training.

    Half precision: a weight rounded to 16 bits leaves its constraint by up to a percent, so the
    parameters must be float32 or float64, and under `torch.autocast` the layer computes in the
    dtype of its weight.

    Accelerators: on the CPU every change of the values of a weight is seen by the next forward.
    Elsewhere comparing values would make each forward wait for the device, so a forward looks for
    the usual causes instead: steps of `torch.optim`, in-place operations, `load_state_dict`, casts
    and new tensors. Other writes (in place through ``.data``, or by foreign code) take effect with the
    next `train()` or `eval()`. `evaluation_weight`, on which folding and proofs rest, always
    compares values.
    """

    input_norm: Norm
    output_norm: Norm
    weight: nn.Parameter
    bias: nn.Parameter | None
    projects_in_place: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._projected = WeightCache()
        self._evaluated = WeightCache()
        self._checked = WeightCache()
        self._derived = WeightCache()

    def _create_parameters(
        self,
        weight: tuple[int, ...],
        bias: bool,
        outputs: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Creates and draws a `weight` of this shape and, if wanted, a `bias` of `outputs` numbers."""
        if not isinstance(bias, bool):
            rule, remedy = "must be True or False", "Give other arguments by name."
            raise ArgumentError(type(self).__name__, "bias", rule, f"bias={bias!r}", remedy)
        self.weight = nn.Parameter(torch.empty(weight, device=device, dtype=dtype))
        self._check_dtype()
        offset = nn.Parameter(self.weight.detach().new_empty(outputs)) if bias else None
        self.register_parameter("bias", offset)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a random weight that uses its slope, and a small uniform bias."""
        self._draw_weight()
        if self.bias is not None:
            # An orthonormal weight spreads the length of its input over all outputs: offsets as
            # large as those of torch.nn.Linear would drown the rest behind a widening layer.
            reach = 1 / math.sqrt(max(self._fan_in(), len(self.bias)))
            nn.init.uniform_(self.bias, -reach, reach)
        if not self.weight.is_meta:
            with torch.no_grad():
                self.weight.copy_(self.constrain(self.weight))

    def _draw_weight(self) -> None:
        nn.init.orthogonal_(self.weight)

    def _fan_in(self) -> int:
        return math.prod(self.weight.shape[1:])

    @abstractmethod
    def constrain(self, weight: Tensor) -> Tensor:
        """A feasible weight made from any finite one, differentiably.

        Plain operations of torch work under all of `torch.func`. What must look at numbers goes
        through `taut.linalg.func_transforms.call_on_numbers`.
        """

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same map in plain tensor operations without looking at values, for `torch.export`."""
        return self.constrain(weight)

    def constrain_in_training(self, weight: Tensor) -> Tensor:
        """The map of training mode: the same, unless another feasible one is cheaper or wanted."""
        return self.constrain(weight)

    def constrain_traceable_in_training(self, weight: Tensor) -> Tensor:
        """The map of training mode under `torch.compile`, in plain tensor operations likewise."""
        return self.constrain_traceable(weight)

    def effective_weight(self) -> Tensor:
        """A copy of the weight that a forward pass uses now, in the shape of a plain layer's.

        Feasible, made from the parameter's current values, and part of the autograd graph.
        """
        with self._without_autocast():
            return self._weight_in_use().clone()

    def evaluation_weight(self) -> Tensor:
        """A copy of the weight that evaluation uses now, in whatever mode the layer is, as numbers."""
        self._forget_stamps()
        return call_on_numbers(self._evaluate, self.weight).clone()

    def _weight_in_use(self) -> Tensor:
        """The weight of this forward, in the autograd graph; it must not be written to."""
        weight = self.weight
        free = self.training and not self.projects_in_place
        if self._has_no_numbers():
            return self.constrain_traceable(weight)
        if torch.compiler.is_dynamo_compiling():
            if free:
                return self.constrain_traceable_in_training(weight)
            return (
                self._project_traceable() if self._may_write() else self.constrain_traceable(weight)
            )
        if is_wrapped(weight) or (free and weight.requires_grad):
            call_uncompiled(self._check_weight)
            return self.constrain_in_training(weight) if free else self.constrain(weight)
        value = self._feasible_numbers()
        if self._may_write():
            return weight
        return self._with_derivative(value, self.constrain)

    def _with_derivative(self, value: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The constant `value` of `function(weight)`, in the graph of the weight."""
        return _CachedWeight.apply(self.weight, value, function)  # type: ignore[return-value]

    def _feasible_numbers(self) -> Tensor:
        """The feasible weight as a constant: the projected parameter, or what the cache holds."""
        if torch.compiler.is_dynamo_compiling():
            if self._may_write():
                return self._project_traceable().detach()
            return self.constrain_traceable(self.weight.detach())
        if self._may_write():
            return call_uncompiled(self._project)
        return call_on_numbers(self._evaluate, self.weight)

    def _has_no_numbers(self) -> bool:
        """Whether only shapes are known: while a program is exported, and on the device `meta`."""
        return torch.compiler.is_exporting() or self.weight.is_meta

    def _may_write(self) -> bool:
        # Functions under torch.func must not write, and what stands in for a parameter (as in
        # functional_call, or behind a parametrization) is a passing value.
        owned = isinstance(self.weight, nn.Parameter)
        return self.training and self.projects_in_place and owned and not in_transform()

    def _project(self) -> Tensor:
        """Makes the parameter feasible, if its numbers have changed, and returns them."""
        if self._projected.recall(self.weight) is None:
            self._check_weight()
            with torch.inference_mode(False), torch.no_grad():
                source = self.weight.detach()
                value = self.constrain_in_training(source)
                if value is not source:
                    self.weight.copy_(value)
                self._projected.keep(self.weight, self.weight)
        return self.weight.detach()

    def _project_traceable(self) -> Tensor:
        """Makes the parameter feasible in every forward, whether it has changed or not."""
        with torch.no_grad():
            self.weight.copy_(self.constrain_traceable_in_training(self.weight.detach()))
        return self.weight

    def _evaluate(self, weight: Tensor) -> Tensor:
        """The weight that evaluation makes of these numbers, from the cache if it is there."""

        def make(weight: Tensor) -> Tensor:
            self._check_weight()
            return self.constrain(weight)

        return self._evaluated.recall_or_make(weight, make)

    def _check_weight(self) -> None:
        self._check_dtype()
        weight = numbers_of(self.weight)
        if self._checked.recall(weight) is not None:
            return
        if not math.isfinite(weight.abs().amax()):
            rule = "the weight must be finite"
            got = "NaN or infinity, so a gradient or a step overflowed"
            remedy = "Lower the learning rate, clip gradients, or restore a checkpoint."
            raise NonFiniteError(str(self), rule=rule, got=got, remedy=remedy)
        if not compares_numbers(weight):
            self._checked.keep(weight, weight)

    def _check_dtype(self) -> None:
        if self.weight.dtype not in (torch.float32, torch.float64):
            rule = "the weight must be float32 or float64"
            got = f"{self.weight.dtype}, in which the constraint cannot hold"
            remedy = "Keep the module in float32 and use torch.autocast, or fold it first."
            raise DtypeError(type(self).__name__, rule=rule, got=got, remedy=remedy)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode, as torch does, and has the next forward compare the values of the weight."""
        self._forget_stamps()
        return super().train(mode)

    def _forget_stamps(self) -> None:
        for cache in vars(self).values():
            if isinstance(cache, WeightCache):
                cache.forget_stamp()

    def forward(self, x: Tensor) -> Tensor:
        """What the plain layer with the effective weight computes."""
        if not x.is_meta and torch.is_autocast_enabled(x.device.type):
            x = x.to(self.weight.dtype)
        with self._without_autocast():
            return self._affine(x)

    @abstractmethod
    def _affine(self, x: Tensor) -> Tensor:
        """The output for an input in the dtype of the weight."""

    def as_plain(self, weight: Tensor) -> nn.Module:
        """The plain layer that evaluation amounts to, with the given weight, where there is one."""
        raise NotImplementedError

    def _without_autocast(self) -> torch.autocast:
        kind = "cpu" if self.weight.is_meta else self.weight.device.type
        return torch.autocast(kind, enabled=False)


class ConstrainedLinear(ConstrainedLayer):
    """A dense `ConstrainedLayer` with the arguments of `torch.nn.Linear`.

    A new one sets its other attributes before it calls this constructor, which draws the weight.
    """

    _shown: ClassVar[tuple[str, ...]] = ()

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
        check_count(type(self).__name__, "in_features", in_features)
        check_count(type(self).__name__, "out_features", out_features)
        self.in_features = in_features
        self.out_features = out_features
        self._create_parameters((out_features, in_features), bias, out_features, device, dtype)

    def _affine(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight_in_use(), self.bias)

    def as_plain(self, weight: Tensor) -> nn.Linear:
        """The layer of torch with the arguments and the bias of this one and the given weight."""
        plain = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        plain.weight = nn.Parameter(weight, requires_grad=False)
        plain.register_parameter("bias", self.bias)
        return plain

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        more = "".join(f", {name}={getattr(self, name)!r}" for name in self._shown)
        return f"{sizes}, bias={self.bias is not None}{more}"


class _CachedWeight(torch.autograd.Function):
    """A cached value in the graph, whose derivative is computed only when it is needed."""

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

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise AssertionError("a batched weight is reparametrised, never cached")


register(ConstrainedLayer, plain=lambda layer: layer.as_plain(layer.evaluation_weight()))
