"""AggMo: several velocities of different memory, averaged into one step."""

# torch keeps its kernels over lists of tensors under private names, its own optimisers' too.
# pyright: reportPrivateImportUsage=false

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from taut.errors import ArgumentError, check_nonnegative, check_positive, check_within

__all__ = ["AggMo"]


class AggMo(Optimizer):
    r"""Aggregated momentum (Lucas et al. 2018): fast as heavy momentum, damped as light momentum.

    $$v_i \leftarrow \beta_i v_i - g, \qquad
      \theta \leftarrow \theta + \frac{\eta}{K} \sum_{i=1}^{K} v_i$$

    for the gradient $g$, plus `weight_decay` times $\theta$. With one beta this is
    `torch.optim.SGD(lr, momentum=beta)`, bit for bit. On a constant gradient the step grows to
    $\frac{\eta}{K}\sum_i 1/(1 - \beta_i)$ times it, 37 times `lr` for the default betas.

    Args:
        params: parameters or parameter groups, as for any torch optimiser; every option below may
            be set per group.
        lr: the learning rate $\eta > 0$.
        betas: the damping factors $\beta_i$, each in `[0, 1)`. One buffer the size of the
            parameter is kept per factor above zero.
        weight_decay: L2 penalty, `>= 0`.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AggMo([weight], lr=0.3, betas=(0.0, 0.5, 0.9))
        >>> weight.square().sum().backward()
        >>> optimizer.step()
        >>> weight.data
        tensor([0.4000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        betas: Iterable[float] = (0.0, 0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters, its options checked like those of the constructor."""
        options = {**self.defaults, **param_group}
        betas = _check_betas(options["betas"])
        check_positive("AggMo", "lr", float(options["lr"]))
        check_nonnegative("AggMo", "weight_decay", options["weight_decay"])
        super().add_param_group({**param_group, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Takes one step; returns the loss of `closure` if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        grads = [_dense_gradient(p) for p in params]
        if group["weight_decay"] != 0:
            grads = torch._foreach_add(grads, params, alpha=group["weight_decay"])

        betas = group["betas"]
        share = float(group["lr"]) / len(betas)
        remembering = [beta for beta in betas if beta > 0]
        velocities = [self._velocity(p, len(remembering)).unbind(0) for p in params]
        # A factor of zero remembers nothing: its velocity is the gradient and needs no buffer.
        forgetful = len(betas) - len(remembering)
        if forgetful:
            torch._foreach_add_(params, grads, alpha=-share * forgetful)
        for beta, velocity in zip(remembering, zip(*velocities, strict=True), strict=True):
            torch._foreach_mul_(velocity, beta)
            torch._foreach_sub_(velocity, grads)
            torch._foreach_add_(params, velocity, alpha=share)

    def _velocity(self, param: Tensor, count: int) -> Tensor:
        """The velocities of one parameter, `(count, *param.shape)`, zero before the first step."""
        state = self.state[param]
        if "velocity" not in state:
            state["velocity"] = param.new_zeros((count, *param.shape))
        return state["velocity"]


def _check_betas(betas: Iterable[float]) -> tuple[float, ...]:
    if isinstance(betas, int | float):
        rule, got = "must be a sequence of damping factors", f"the single number {betas}"
        raise ArgumentError("AggMo", "betas", rule, got, f"Use betas=({betas},).")
    betas = tuple(float(beta) for beta in betas)
    if not betas:
        rule = "must hold at least one damping factor"
        remedy = "Use (0.0, 0.9, 0.99), or (0.0,) for plain gradient descent."
        raise ArgumentError("AggMo", "betas", rule, "none", remedy)
    for beta in betas:
        remedy = "A velocity with beta >= 1 never forgets and diverges."
        check_within("AggMo", "betas", beta, "[0, 1)", remedy)
    return betas


def _dense_gradient(param: Tensor) -> Tensor:
    assert param.grad is not None
    if param.grad.is_sparse:
        got = f"a sparse gradient for a parameter of shape {tuple(param.shape)}"
        remedy = "Build the layer with sparse=False, or use torch.optim.SparseAdam for it."
        raise ArgumentError("AggMo", "params", "must have dense gradients", got, remedy)
    return param.grad
