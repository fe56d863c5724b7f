"""Jacobians, their norms, and gradients, evaluated numerically, without proven error bounds."""

import torch
from torch import Tensor, nn

from taut.norms import Norm


def jacobians(model: nn.Module, x: Tensor) -> Tensor:
    """The Jacobian at each input, `(n, outputs, inputs)`, by one backward pass for each output.

    Example:
        >>> jacobians(torch.nn.Identity(), torch.ones(1, 2))
        tensor([[[1., 0.],
                 [0., 1.]]])
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        columns = model(x).reshape(len(x), -1).unbind(1)
        rows = [torch.autograd.grad(c.sum(), x, retain_graph=True)[0] for c in columns]
    return torch.stack([row.flatten(1) for row in rows], 1)


def jacobian_norms(model: nn.Module, x: Tensor, norm: Norm) -> Tensor:
    """The operator norm of the Jacobian at each input, `(n,)`.

    This is a local slope, not an upper bound on the Lipschitz constant.

    Example:
        >>> from taut.norms import L2
        >>> jacobian_norms(torch.nn.Identity(), torch.ones(2, 3), L2)
        tensor([1., 1.])
    """
    return norm.operator(jacobians(model, x))


def jacobian_singular_values(model: nn.Module, x: Tensor) -> Tensor:
    """The singular values of the Jacobian at each input, descending, `(n, outputs)`.

    Example:
        >>> jacobian_singular_values(torch.nn.Identity(), torch.ones(2, 3))
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    return torch.linalg.svdvals(jacobians(model, x))


def input_gradients(model: nn.Module, x: Tensor) -> Tensor:
    """The gradient of the margin of the predicted class over the runner-up, the shape of `x`."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        outputs = model(x).reshape(len(x), -1)
        if outputs.shape[1] == 1:
            margin = outputs.abs()
        else:
            first = outputs.topk(2, dim=1).values
            margin = first[:, 0] - first[:, 1]
        return torch.autograd.grad(margin.sum(), x)[0]


def values_and_gradient_norms(critic: nn.Module, points: Tensor) -> tuple[Tensor, Tensor]:
    """A scalar network and the l2 norm of its gradient, both `(...)` for points `(..., dim)`.

    Example:
        >>> net = torch.nn.Linear(1, 1, bias=False).requires_grad_(False)
        >>> _ = net.weight.fill_(-2.0)
        >>> values_and_gradient_norms(net, torch.ones(1, 1))
        (tensor([-2.]), tensor([2.]))
    """
    flat = points.flatten(0, -2).clone().requires_grad_()
    values = critic(flat).squeeze(-1)
    (gradient,) = torch.autograd.grad(values.sum(), flat)
    shape = points.shape[:-1]
    return values.detach().reshape(shape), gradient.norm(dim=-1).reshape(shape)
