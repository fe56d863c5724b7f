"""Which classes a conformal score excludes wherever the input may have come from."""

import math

import torch
from torch import Tensor, nn

from taut.audit import audit_program
from taut.certificates.radii import PairRadii, differences, vector_radii
from taut.certificates.rounded_execution import RoundedExecution, program_in_double
from taut.errors import check_nonnegative
from taut.linalg.rounding import check_arithmetic
from taut.norms import NormLike, as_norm

_SUBJECT = "certify_exclusions"


@torch.no_grad()
def certify_exclusions(
    model: nn.Module,
    x: Tensor,
    threshold: float,
    radius: float,
    norm: NormLike = "l2",
    batch_size: int = 1024,
) -> Tensor:
    r"""Classes whose score $s(x, y) = \max_{i \ne y} f_i(x) - f_y(x)$ is above a threshold all around.

    A class is excluded at $x$ if some $i \ne y$ satisfies $f_i(x') - f_y(x') > q$ at every
    $x'$ with $\|x' - x\| \le r$, executed in float64, which is proven as a certified radius is.

    Args:
        model: maps `(n, ...)` to `(n, classes)`, in float64; not changed.
        x: `(n, ...)`, float64.
        threshold: $q$, of any sign; infinity excludes nothing.
        radius: $r \ge 0$.
        norm: "l1", "l2" or "linf", of the radius.
        batch_size: rows at a time; bounds the memory.

    Returns:
        `(n, classes)`, True where the score exceeds `threshold` at every point within `radius`.

    Example:
        >>> model = torch.nn.Linear(1, 2, bias=False).double()
        >>> _ = model.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
        >>> certify_exclusions(model, torch.tensor([[1.0]]).double(), 1.0, 0.4)
        tensor([[False,  True]])
        >>> certify_exclusions(model, torch.tensor([[1.0]]).double(), 1.0, 0.6)
        tensor([[False, False]])
    """
    check_nonnegative(_SUBJECT, "radius", radius)
    check_arithmetic(_SUBJECT)
    program = program_in_double(model, tuple(x.shape[1:]), _SUBJECT, x.device)
    audit = audit_program(program, as_norm(norm, _SUBJECT))
    execution = RoundedExecution(program, audit.norm, torch.float64, _SUBJECT)
    pairs = PairRadii()
    # A difference above q rounds to at least q: one float further and it rounds above it.
    limit_score = math.nextafter(threshold, math.inf)
    parts: list[Tensor] = []
    for rows in x.split(batch_size):
        run, limit = execution(rows)
        excluded = torch.zeros_like(run.value, dtype=torch.bool)
        for i in range(run.value.shape[1]):
            label = torch.full((len(rows),), i, device=x.device)
            margins = differences(run.value, label)
            # Both subtractions round, each by far less than this.
            margins = margins - limit_score - 2.0**-50 * (margins.abs() + abs(limit_score))
            margins = torch.where(margins.isfinite(), margins, -math.inf)
            margins[:, i] = -math.inf
            if run.last is None:
                radii = vector_radii(run, audit.output.constants, margins)
            else:
                radii = pairs(run.last, label, margins)
            excluded |= radii > radius
        usual = run.value.isfinite().all(1) & rows.flatten(1).isfinite().all(1) & (limit > radius)
        parts.append(excluded & usual[:, None])
    return torch.cat(parts)
