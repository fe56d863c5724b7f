r"""Parseval's retraction: plain layers drawn towards orthonormality after each step."""

import torch
from torch import nn

__all__ = ["parseval_step"]


@torch.no_grad()
def parseval_step(model: nn.Module, beta: float) -> None:
    r"""Moves every plain dense and convolutional weight by one step of $\beta$, in place.

    $$W \leftarrow (1 + \beta) W - \beta W W^\top W$$

    with kernels as matrices `(out, in * taps)`: the descent on $\|W W^\top - I\|^2$ of Parseval
    networks. It proves nothing: kernels that are orthonormal as matrices may have larger norms as
    convolutions, and the step only approaches orthonormality. The proven layers are those of
    `taut.nn`.

    Args:
        model: layers of `taut.nn` in it are left alone.
        beta: in (0, 0.5].

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> for _ in range(200):
        ...     parseval_step(layer, 0.1)
        >>> torch.allclose(layer.weight @ layer.weight.mT, torch.eye(2), atol=1e-5)
        True
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            matrix = module.weight.flatten(1)
            step = (1 + beta) * matrix - beta * (matrix @ matrix.mT) @ matrix
            module.weight.copy_(step.view_as(module.weight))
