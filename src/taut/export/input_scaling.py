"""`standardise`: a network on standardised columns becomes one on columns as the table has them."""

from collections.abc import Sequence

import torch
from torch import nn

from taut.errors import ArgumentError
from taut.export.folding import fold

_SUBJECT = "standardise"
# What rounding in float32 may move a standardised column by, in standard deviations.
_TOLERATED = 1e-4


def standardise(model: nn.Module, shift: Sequence[float], spread: Sequence[float]) -> nn.Sequential:
    r"""$x \mapsto f\big((x - c)/s\big)$ as one network: the folded $f$ behind a diagonal layer.

    The layer is a plain `torch.nn.Linear` of weight $w = 1/s$ and bias $-cw$, entry by entry, so
    every runtime has it, and its norm $\max_i 1/s_i$ is part of the proven constant: distances, and
    so radii, are in units of the columns of $x$, no longer in standard deviations.

    In float32 a column whose mean lies $m$ standard deviations from 0 is rounded by about
    $2^{-24} m$ of them. Where that exceeds 0.0001, the whole network is given in float64.

    Args:
        model: $f$, on inputs `(n, columns)`; not changed.
        shift: $c$, a number for each column.
        spread: $s$, a positive number for each column.

    Returns:
        A network in evaluation mode that asks for no gradients.

    Example:
        >>> net = standardise(torch.nn.Identity(), [10.0, 0.0], [2.0, 0.5])
        >>> net(torch.tensor([[14.0, 1.0]]))
        tensor([[2., 2.]])
    """
    centre = torch.tensor(shift, dtype=torch.float64)
    length = torch.tensor(spread, dtype=torch.float64)
    usual = centre.isfinite().all() and length.isfinite().all() and (length > 0).all()
    if centre.ndim != 1 or centre.shape != length.shape or not len(centre) or not usual:
        rule = (
            "`shift` and `spread` must be finite, one of each for a column, and `spread` positive"
        )
        raise ArgumentError(_SUBJECT, rule=rule, got=f"shift={shift!r}, spread={spread!r}")
    plain = fold(model)
    dtype = next((value.dtype for value in plain.parameters()), torch.get_default_dtype())
    if dtype == torch.float32 and (centre.abs() / length).max() * 2**-24 > _TOLERATED:
        dtype = torch.float64
    layer = nn.Linear(len(centre), len(centre), device="meta")
    weight = (1 / length).to(dtype)
    layer.weight = nn.Parameter(weight.diag())
    # From the weight as it is rounded: then the mean of a column still goes to 0.
    layer.bias = nn.Parameter((-centre * weight.double()).to(dtype))
    layers = plain if type(plain) is nn.Sequential else [plain]
    return nn.Sequential(layer, *layers).to(dtype).eval().requires_grad_(False)
