"""How a network answers small moves of its input: Jacobians, their norms, and gradients."""

import torch
from torch import Tensor, nn

from taut.norms import Norm

__all__ = ["input_gradients", "jacobian_norms", "jacobian_singular_values", "jacobians"]


def jacobians(model: nn.Module, x: Tensor) -> Tensor:
    """The Jacobian at each input, `(n, outputs, inputs)`, by a reverse pass for each output.

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
    """The operator norm of the Jacobian at each input, `(n,)`: how steep the network is there.

    Computed, not proven.

    Example:
        >>> from taut.norms import L2
        >>> jacobian_norms(torch.nn.Identity(), torch.ones(2, 3), L2)
        tensor([1., 1.])
    """
    return norm.operator(jacobians(model, x))


def jacobian_singular_values(model: nn.Module, x: Tensor) -> Tensor:
    """The singular values of the Jacobian at each input, falling, `(n, outputs)`; computed.

    Example:
        >>> jacobian_singular_values(torch.nn.Identity(), torch.ones(2, 3))
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    return torch.linalg.svdvals(jacobians(model, x))


def input_gradients(model: nn.Module, x: Tensor) -> Tensor:
    """The gradient of the lead of the predicted class over the next one, the shape of `x`."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        outputs = model(x).reshape(len(x), -1)
        if outputs.shape[1] == 1:
            lead = outputs.abs()
        else:
            first = outputs.topk(2, dim=1).values
            lead = first[:, 0] - first[:, 1]
        return torch.autograd.grad(lead.sum(), x)[0]
