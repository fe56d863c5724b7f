r"""Gradient penalties: they encourage small or unit gradients and prove nothing.

A network trained with penalties alone has no certified constant; those of `taut.nn` have.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from taut.errors import ArgumentError, check_count, check_positive

__all__ = ["estimate_jacobian_norms", "gradient_penalty", "spectral_jacobian"]

Network = Callable[[Tensor], Tensor]


def spectral_jacobian(
    model: Network, x: Tensor, *, num_steps: int = 1, generator: Generator | None = None
) -> Tensor:
    r"""The mean spectral norm of the input-output Jacobian, as a term of a loss.

    $$\operatorname{mean}_x \; u^\top J(x)\, v \approx \operatorname{mean}_x \|J(x)\|_2$$

    with $u, v$ from power iteration, held fixed while differentiating: this is the derivative of a
    simple singular value, and what the paper does. A scalar, differentiable with respect to the
    parameters of `model`; the arguments are those of `estimate_jacobian_norms`.

    Example:
        >>> double = torch.nn.Linear(3, 3, bias=False)
        >>> _ = torch.nn.init.eye_(double.weight).data.mul_(2)
        >>> penalty = spectral_jacobian(double, torch.ones(5, 3))
        >>> round(penalty.item(), 6)
        2.0
        >>> penalty.backward()
        >>> round(double.weight.grad.trace().item(), 6)
        1.0
    """
    return _norms("spectral_jacobian", model, x, num_steps, generator, True).mean()


def estimate_jacobian_norms(
    model: Network, x: Tensor, *, num_steps: int = 20, generator: Generator | None = None
) -> Tensor:
    r"""The spectral norm of the Jacobian at each input, from below, by power iteration.

    $$v \leftarrow \frac{J^\top u}{\|J^\top u\|}, \quad u \leftarrow \frac{J v}{\|J v\|}, \quad
      \hat\sigma = u^\top J v \le \|J\|_2$$

    Both products are reverse passes: $J^\top u$ is linear in $u$, and the derivative of
    $v^\top J^\top u$ with respect to $u$ is $J v$.

    Args:
        model: `(n, ...) -> (n, ...)`, sample by sample: no batch statistics.
        x: `(n, ...)`.
        num_steps: steps of power iteration, each one product with $J^\top$ and one with $J$.
        generator: source of the initial $u$; None for torch's own.

    Returns:
        `(n,)`, without a graph. An estimate: never above the truth but for rounding, below it if
        the iteration has not converged.

    Example:
        >>> estimate_jacobian_norms(torch.abs, torch.ones(2, 3)).round(decimals=5)
        tensor([1., 1.])
    """
    return _norms("estimate_jacobian_norms", model, x, num_steps, generator, False)


def gradient_penalty(
    critic: Network,
    x: Tensor,
    y: Tensor,
    *,
    target: float = 1.0,
    one_sided: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    r"""How far gradient norms are from `target`, on segments between two samples.

    $$\operatorname{mean}_i \big(\|\nabla f(z_i)\|_2 - c\big)^2, \qquad
      z_i = t_i x_i + (1 - t_i) y_i, \quad t_i \sim U[0, 1]$$

    (WGAN-GP); with `one_sided` only what exceeds the target counts (WGAN-LP), as the theory asks:
    an optimal critic has slope at most 1, and exactly 1 only along transport rays.

    Args:
        critic: `(n, ...) -> (n, 1)` or `(n,)`, sample by sample.
        x: `(n, ...)`.
        y: the shape of `x`.
        target: $c > 0$.
        one_sided: whether slopes below the target are free.
        generator: source of the $t_i$; None for torch's own.

    Returns:
        A scalar, differentiable with respect to the parameters of `critic`.

    Example:
        >>> steep = lambda z: 3 * z.sum(1)
        >>> gradient_penalty(steep, torch.zeros(4, 1), torch.ones(4, 1))
        tensor(4.)
    """
    check_positive("gradient_penalty", "target", target)
    if x.shape != y.shape or x.dim() < 2:
        rule, got = "and `y` must be batches of one shape", f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ArgumentError("gradient_penalty", "x", rule, got, "Draw as many of each.")
    t = _draw(torch.rand, (len(x), *[1] * (x.dim() - 1)), x, generator)
    between = (t * x + (1 - t) * y).detach().requires_grad_()
    with torch.enable_grad():
        value = critic(between)
        if value.numel() != len(x):
            got = f"output of shape {tuple(value.shape)} for {len(x)} points"
            raise ArgumentError("gradient_penalty", "critic", "must give one number per point", got)
        (slope,) = torch.autograd.grad(value.sum(), between, create_graph=True)
        excess = torch.linalg.vector_norm(slope.flatten(1), dim=1) - target
        return (excess.relu() if one_sided else excess).square().mean()


def _norms(
    subject: str,
    model: Network,
    x: Tensor,
    num_steps: int,
    generator: Generator | None,
    differentiable: bool,
) -> Tensor:
    check_count(subject, "num_steps", num_steps)
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = model(x)
        u = _unit(_draw(torch.randn, y.shape, y, generator)).requires_grad_()
        # Linear in u, so its derivative gives J v for every v, wherever u stands.
        (pulled,) = torch.autograd.grad(y, x, u, create_graph=True, materialize_grads=True)
        v = _unit(pulled.detach())
        if not pulled.requires_grad:
            rule = "must be differentiable twice"
            raise ArgumentError(subject, "model", rule, "one whose backward pass has no graph")
        for _ in range(num_steps - 1):
            (pushed,) = torch.autograd.grad(pulled, u, v, retain_graph=True)
            (back,) = torch.autograd.grad(y, x, _unit(pushed), retain_graph=True)
            v = _unit(back)
        (pushed,) = torch.autograd.grad(pulled, u, v, create_graph=differentiable)
    return (_unit(pushed.detach()) * pushed).flatten(1).sum(1)


def _unit(v: Tensor) -> Tensor:
    """Each sample at length 1, and zero as zero."""
    tiny = torch.finfo(v.dtype).tiny
    return F.normalize(v.flatten(1), dim=1, eps=tiny).view_as(v)


def _draw(
    kind: Callable[..., Tensor],
    shape: tuple[int, ...],
    like: Tensor,
    generator: Generator | None,
) -> Tensor:
    device = like.device if generator is None else generator.device
    return kind(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)
