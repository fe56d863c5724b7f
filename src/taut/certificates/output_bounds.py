"""Where the output of a network may lie when its input moves: proven, rounding included."""

import math

import torch
from torch import Tensor, nn

from taut.certificates.rounded_execution import RoundedExecution, program_in_double
from taut.certificates.rounded_tensor import up
from taut.norms import L2, NormLike, as_norm


class BoundedEvaluation:
    r"""A network that has one output, evaluated in float64 with proven error bounds.

    The error bound $e(x) \ge |\hat f(x) - f(x)|$ follows from the weights and the row: the
    magnitudes of all terms that evaluation adds up, so it is large where large terms cancel.

    Args:
        model: maps `(n, features)` to `(n, 1)`, in evaluation mode; not changed.
        features: the length of a row.

    Example:
        >>> shift = torch.nn.Linear(1, 1).double()
        >>> _ = shift.weight.data.fill_(1), shift.bias.data.fill_(1e8)
        >>> values, errors = BoundedEvaluation(shift, 1)(torch.tensor([[0.1]]).double())
        >>> values.item(), 1e-9 < errors.item() < 1e-6
        (100000000.1, True)
    """

    def __init__(self, model: nn.Module, features: int) -> None:
        subject = "BoundedEvaluation"
        device = next((value.device for value in model.parameters()), torch.device("cpu"))
        program = program_in_double(model, (features,), subject, device)
        self._execution = RoundedExecution(program, L2, None, subject)

    @torch.no_grad()
    def __call__(self, x: Tensor, batch_size: int = 8192) -> tuple[Tensor, Tensor]:
        """The values at `(n, features)` rows and the bounds of their errors, `(n,)` both."""
        values, errors = [x.new_zeros(0)], [x.new_zeros(0)]
        for rows in x.split(batch_size) if len(x) else ():
            run, _ = self._execution(rows)
            values.append(run.value.flatten())
            # Of one number all three norms are the same, so the smallest bound counts.
            errors.append(run.bound.error.values.amin(0))
        return torch.cat(values), torch.cat(errors)


@torch.no_grad()
def bound_output(
    model: nn.Module, x: Tensor, radius: Tensor, norm: NormLike, batch_size: int = 1024
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
    program = program_in_double(model, tuple(x.shape[1:]), "bound_output", x.device)
    execution = RoundedExecution(program, as_norm(norm), torch.float64, "bound_output")
    ends: list[tuple[Tensor, Tensor]] = []
    for rows, within in zip(x.split(batch_size), radius.split(batch_size), strict=True):
        run, limit = execution(rows)
        bound, value = run.bound, run.value.flatten()
        # Of one number all three norms are the same, so the smallest bound counts.
        rate = up(bound.reach.values.amin() + bound.slope.values.amin())
        errors = up(bound.error.values.amin(0) + bound.far.values.amin(0))
        width = up(errors + up(rate * within))
        width = torch.where(within < limit, width, math.inf)
        inf = torch.tensor(math.inf, dtype=torch.float64)
        ends.append((torch.nextafter(value - width, -inf), torch.nextafter(value + width, inf)))
    low, high = zip(*ends, strict=True)
    return torch.cat(low), torch.cat(high)
