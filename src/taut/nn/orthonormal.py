r"""`OrthonormalLinear`: all singular values 1, so that gradients keep their length.

The default keeps the parameter on the Stiefel manifold. There the derivative of the nearest
orthonormal matrix is the tangent projection, and that projection comes almost for free from the
products of backpropagation: with $y = x Q^\top$, $D = \partial L / \partial y$ and
$\partial L / \partial x = D Q$, the tangent part of the Euclidean gradient $G = D^\top x$ is

- square: $\tfrac12 (D^\top x - y^\top\, \partial x)$,
- tall: $D^\top x - \tfrac12 (\partial x\, Q^\top)^\top x - \tfrac12 y^\top\, \partial x$,
- wide: $D^\top x - \tfrac12 D^\top (y Q) - \tfrac12 y^\top\, \partial x$,

since $Q G^\top Q = y^\top \partial x$. No product of three weight-sized matrices is ever formed.
"""

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

from taut.errors import check_choice, check_count
from taut.linalg import (
    ORTHONORMALISATIONS,
    SCALINGS,
    bjorck,
    follow_tangent,
    polar,
    project_tangent,
    retract,
    retract_once,
    rounding_margin,
)
from taut.linalg.func_transforms import call_on_numbers
from taut.nn.constrained import ConstrainedLinear
from taut.norms import L2
from taut.rules import FileSchema, register

METHODS = ("retract", "bjorck", *ORTHONORMALISATIONS)
# How far below 1 singular values may stay in training: one round after a usual step of Adam.
_TRAINING_TOL = 2e-2


@final
class OrthonormalLinear(ConstrainedLinear):
    r"""$y = x Q^\top + b$ with $Q$ orthonormal: 1-Lipschitz in L2 and, if not narrowing, an isometry.

    There are six methods:

    - `"retract"` (default): the parameter itself is orthonormal. Gradients are projected to the
      tangent space, and the first forward pass after an optimizer step moves the weight back to the
      orthonormal matrices. Singular values lie within `[0.98, 1)` in training and `[0.999, 1)` in
      evaluation, at any learning rate, with any optimizer.
    - `"bjorck"` (the paper's): the parameter is unconstrained, and Björck's iteration is part of the
      graph: `num_steps` steps in training (the norm is at most 1, but small singular values may not
      have reached 1 yet), and until convergence in evaluation.
    - `"cayley"`, `"exponential"`, `"qr"`, `"cholesky"`, for comparison: the parameter is unconstrained,
      and the map of that name (see `taut.linalg.cayley`) is part of the graph, in float64.

    Second derivatives through the input (gradient penalties, Jacobian norms) are exact for all.

    Args:
        in_features, out_features, bias, device, dtype: those of `torch.nn.Linear`.
        method: one of the names above.
        order: degree of the Björck series; only for `"bjorck"`.
        num_steps: Björck steps in training; only for `"bjorck"`.
        scaling: bound by which the matrix is divided before the iteration (see
            `taut.linalg.bound_by_scaling`); only for `"bjorck"`.

    Example:
        >>> layer = OrthonormalLinear(3, 8)
        >>> x = torch.randn(5, 3)
        >>> torch.allclose((layer(x) - layer.bias).norm(dim=1), x.norm(dim=1), rtol=1e-3)
        True
    """

    input_norm = L2
    output_norm = L2
    _shown = ("method",)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        method: str = "retract",
        *,
        order: int = 1,
        num_steps: int = 3,
        scaling: str = "gram",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("OrthonormalLinear", "method", method, METHODS)
        check_count("OrthonormalLinear", "order", order)
        check_count("OrthonormalLinear", "num_steps", num_steps)
        check_choice("OrthonormalLinear", "scaling", scaling, SCALINGS)
        self.method = method
        self.order = order
        self.num_steps = num_steps
        self.scaling = scaling
        self.projects_in_place = method == "retract"
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)

    def constrain(self, weight: Tensor) -> Tensor:
        """An orthonormal matrix by the method, for `"retract"` the argument itself if it will do."""
        if self.projects_in_place:
            return retract(weight)
        return _below_one(ORTHONORMALISATIONS.get(self.method, polar)(weight))

    def constrain_in_training(self, weight: Tensor) -> Tensor:
        """A point near it with norm below 1: the lower singular values may stay a little behind."""
        if self.projects_in_place:
            return retract(weight, _TRAINING_TOL)
        return self._iterate(weight)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """An orthonormal matrix by the method, the nearest for `"retract"` and `"bjorck"`."""
        chosen = self.method in ORTHONORMALISATIONS
        return self.constrain(weight) if chosen else nearest_orthonormal(weight)

    def _feasible_numbers(self) -> Tensor:
        if not self.training or self._may_write() or torch.compiler.is_dynamo_compiling():
            return super()._feasible_numbers()
        # What training has made feasible stays as it is, also where it stands in for the parameter.
        return call_on_numbers(self._constrain_stand_in, self.weight)

    def _constrain_stand_in(self, weight: Tensor) -> Tensor:
        self._check_weight()
        with torch.inference_mode(False), torch.no_grad():
            return self.constrain_in_training(weight).detach()

    def constrain_traceable_in_training(self, weight: Tensor) -> Tensor:
        """One round of the retraction, or the map of the other methods."""
        return retract_once(weight) if self.projects_in_place else self._iterate(weight)

    def _iterate(self, weight: Tensor) -> Tensor:
        if self.method in ORTHONORMALISATIONS:
            return self.constrain(weight)
        made = bjorck(weight, order=self.order, num_steps=self.num_steps, scaling=self.scaling)
        return _below_one(made)

    def _weight_in_use(self) -> Tensor:
        if not self.projects_in_place or self._has_no_numbers():
            return super()._weight_in_use()
        return follow_tangent(self._feasible_numbers(), self.weight)

    def _affine(self, x: Tensor) -> Tensor:
        if not self.projects_in_place or self._has_no_numbers():
            return super()._affine(x)
        # A compiler takes no function with forward-mode derivatives.
        product = _Product if torch.compiler.is_dynamo_compiling() else _OnManifold
        y = product.apply(x, self.weight, self._feasible_numbers())
        # The derivative needs y as it is; what leaves the layer may be changed in place.
        return y.clone() if self.bias is None else y + self.bias  # type: ignore[union-attr]


class _Product(torch.autograd.Function):
    """`x @ point.T` with the tangent gradient at `point` for `weight`.

    `point` is what `weight` was pulled back to: the same numbers, except in evaluation of a weight
    that was changed since. The derivative is made of the same function, so it can be derived again.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, point: Tensor) -> Tensor:
        return x @ point.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, point, y = ctx.saved_tensors

        def times(a: Tensor, transposed: bool) -> Tensor:
            w, p = (weight.mT, point.mT) if transposed else (weight, point)
            return _OnManifold.apply(a, w, p) if torch.is_grad_enabled() else a @ p.mT  # type: ignore[return-value]

        dx = times(grad, True)
        if not ctx.needs_input_grad[1]:
            return dx, None, None
        rows, columns = point.shape
        if rows == columns:
            tangent = 0.5 * (_outer(grad, x) - _outer(y, dx))
        elif rows > columns:
            tangent = _outer(grad - 0.5 * times(dx, False), x) - 0.5 * _outer(y, dx)
        else:
            tangent = _outer(grad, x - 0.5 * times(y, True)) - 0.5 * _outer(y, dx)
        return dx, tangent, None


class _OnManifold(_Product):
    """The same under `torch.func`, too."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _Product.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], inputs[2])

    @staticmethod
    def jvp(ctx: Any, t_x: Tensor, t_weight: Tensor, _: Tensor) -> Tensor:
        x, point = ctx.saved_tensors
        if point.shape[0] == point.shape[1]:
            # The adjoint of what backward computes, also for a point that is orthonormal to 1e-3.
            tangent = 0.5 * (t_weight - point @ t_weight.mT @ point)
        else:
            tangent = project_tangent(point, t_weight)
        return t_x @ point.mT + x @ tangent.mT

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[Tensor, int]:
        if in_dims[1:] == (None, None) and in_dims[0] is not None:
            return _OnManifold.apply(args[0].movedim(in_dims[0], 0), *args[1:]), 0  # type: ignore[return-value]
        return torch.stack([_OnManifold.apply(*each) for each in _unbatch(info, in_dims, args)]), 0  # type: ignore[arg-type]


def _unbatch(
    info: Any, in_dims: tuple[int | None, ...], args: tuple[Tensor, ...]
) -> Iterable[tuple[Tensor, ...]]:
    """The arguments of each call that a batched one stands for."""
    lists = (
        [arg] * info.batch_size if dim is None else arg.unbind(dim)
        for arg, dim in zip(args, in_dims, strict=True)
    )
    return zip(*lists, strict=True)


def nearest_orthonormal(weight: Tensor) -> Tensor:
    """The nearest orthonormal matrix, without looking at values."""
    u, _, vh = torch.linalg.svd(weight.double(), full_matrices=False)
    return _below_one((u @ vh).to(weight.dtype))


def _below_one(weight: Tensor) -> Tensor:
    """The same matrix less a few units of rounding, so that its norm is at most 1 as stored."""
    return weight * (1 - rounding_margin(weight.dtype))


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """The sum over all leading dimensions of the outer products of rows."""
    return a.flatten(0, -2).mT @ b.flatten(0, -2) if a.ndim > 1 else torch.outer(a, b)


register(
    OrthonormalLinear,
    file=FileSchema.dense(
        OrthonormalLinear,
        {"order": 8, "num_steps": 1000},
        method=str,
        order=int,
        num_steps=int,
        scaling=str,
    ),
)
