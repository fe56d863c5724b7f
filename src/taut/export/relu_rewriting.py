"""Sorting written with ReLU alone, for verifiers that know no other activation."""

from collections.abc import Iterator

import torch
from torch import nn

from taut.errors import ArgumentError
from taut.export.folding import fold
from taut.rules import find_record


def rewrite_relu(model: nn.Module) -> nn.Sequential:
    r"""The same function made of `torch.nn.Linear`, `ReLU` and `Flatten` alone.

    Every MaxMin becomes linear, ReLU, linear; GroupSort and FullSort become one such step for each
    stage of a sorting network, Maxout one for each member after the first; Abs, Householder and
    Scale have forms of their own. The new weights are 0 and ±1 (but for Householder and Scale), so
    in real arithmetic the function is the same, and in floating point it differs by the rounding
    of one subtraction and one addition per comparator.

    The proof of the constant does not survive: the norms of the new layers are above 1 (2.3 and
    2.2 in L2 for MaxMin), and their product says nothing of the function, which is as it was. Keep
    the certificate of the model itself.

    Args:
        model: a `torch.nn.Sequential`, nested or not, of dense layers, the activations of
            `taut.nn` over the last dimension, ReLU, Scale, Flatten, Identity and Dropout; not
            changed.

    Returns:
        A flat `torch.nn.Sequential` in evaluation mode.

    Raises:
        ArgumentError: a module has no such form; the text names it.

    Example:
        >>> rewrite_relu(torch.nn.Sequential(torch.nn.Linear(3, 4), taut.nn.MaxMin()))
        Sequential(
          (0): Linear(in_features=3, out_features=4, bias=True)
          (1): Linear(in_features=4, out_features=8, bias=False)
          (2): ReLU()
          (3): Linear(in_features=8, out_features=4, bias=False)
        )
    """
    layers = _Rewriter().rewrite("", fold(model))
    return nn.Sequential(*layers).eval().requires_grad_(False)


class _Rewriter:
    """Walks through a folded model and remembers how wide the last layer was, and its dtype."""

    def __init__(self) -> None:
        self.width: int | None = None
        self.like = torch.empty(0)

    def rewrite(self, path: str, module: nn.Module) -> Iterator[nn.Module]:
        if type(module) is nn.Sequential:
            for name, child in module.named_children():
                yield from self.rewrite(f"{path}.{name}" if path else name, child)
        elif type(module) is nn.Linear:
            self.width, self.like = module.out_features, module.weight
            yield module
        elif type(module) is nn.ReLU:
            yield nn.ReLU()
        elif type(module) is nn.Flatten:
            self.width = None
            yield module
        elif type(module) not in (nn.Identity, nn.Dropout):
            yield from self._activation(path, module)

    def _activation(self, path: str, module: nn.Module) -> Iterator[nn.Module]:
        subject = f"rewrite_relu: `{path or 'model'}` ({type(module).__name__})"
        record = find_record(module)
        if record is None or record.relu is None:
            raise ArgumentError(
                rule=f"{subject} must be a layer with an exact form in ReLU",
                remedy="Use Linear, MaxMin, GroupSort, FullSort, Maxout, Abs, Householder, "
                "Scale or ReLU in a Sequential.",
            )
        if self.width is None:
            rule = f"{subject} must come after a dense layer, which tells its width"
            raise ArgumentError(rule=rule)
        if getattr(module, "dim", -1) not in (-1, None):
            rule = f"{subject} must work over the last dimension"
            raise ArgumentError(rule=rule, got=f"dim={module.dim}", remedy="Use dim=-1.")
        for matrix in record.relu(module, self.width, subject):
            if matrix is None:
                yield nn.ReLU()
                continue
            self.width = matrix.shape[0]
            layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, device="meta")
            layer.weight = nn.Parameter(matrix.to(self.like))
            yield layer
