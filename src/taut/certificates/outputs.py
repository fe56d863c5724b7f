"""Where the output of a network may lie when its input moves: proven, rounding included."""

import math

import torch
from torch import Tensor, nn

from taut.audit import audit
from taut.certificates.execution import Execution
from taut.certificates.frozen import freeze
from taut.certificates.spread import up
from taut.norms import as_norm

__all__ = ["bound_output"]


@torch.no_grad()
def bound_output(
    model: nn.Module, x: Tensor, radius: Tensor, norm: str, batch_size: int = 1024
) -> tuple[Tensor, Tensor]:
    r"""The ends of $f(x) \mp K r$, widened by what float64 may lose at $x$ and at every $x'$.

    Args:
        model: maps `(n, features)` to `(n, 1)`.
        x: `(n, features)`, float64.
        radius: `(n,)`, float64, not negative.
        norm: "l1", "l2" or "linf", of the radius.
        batch_size: rows at a time; bounds the memory.

    Returns:
        Two tensors `(n,)` between which every output of the network lies, in real arithmetic and
        executed in float64, at every point within `radius` of its row.

    Example:
        >>> model = torch.nn.Linear(2, 1, bias=False).double()
        >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0]]))
        >>> x, radius = torch.ones(1, 2).double(), torch.ones(1).double()
        >>> low, high = bound_output(model, x, radius, "l2")
        >>> round(low.item(), 9), round(high.item(), 9)
        (2.0, 12.0)
    """
    network = freeze(model)
    start = audit(network, as_norm(norm), tuple(x.shape[1:])).input.constants
    reach = torch.tensor([start.l1, start.l2, start.linf], dtype=torch.float64)
    execution = Execution(network, reach, torch.float64)
    ends: list[tuple[Tensor, Tensor]] = []
    for rows, within in zip(x.split(batch_size), radius.split(batch_size), strict=True):
        run, limit = execution(rows)
        spread, value = run.spread, run.value.flatten()
        # Of one number all three norms are the same, so the smallest bound counts.
        rate = up(spread.reach.amin() + spread.slope.amin())
        width = up(up(spread.error.amin(0) + spread.far.amin(0)) + up(rate * within))
        width = torch.where(within < limit, width, math.inf)
        inf = torch.tensor(math.inf, dtype=torch.float64)
        ends.append((torch.nextafter(value - width, -inf), torch.nextafter(value + width, inf)))
    low, high = zip(*ends, strict=True)
    return torch.cat(low), torch.cat(high)
