r"""The contribution of each feature to the difference of scores."""

import torch
from torch import Generator, Tensor, nn

from taut.transport import exact_transport


def attribute(
    critic: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    num_pairs: int = 256,
    num_steps: int = 16,
    generator: Generator,
) -> tuple[Tensor, float]:
    r"""Attributes the difference of mean scores of x and y to the features.

    Rows of x and y are matched by exact transport, so that mass travels along the straight line from
    $y_i$ to $x_i$. The increase of the critic along a line is the sum over features of

    $$c_j = \int_0^1 \partial_j f(y + t (x - y))\,(x_j - y_j)\,dt.$$

    The line is cut into steps $\delta$ from $a$ to $b$, and in each the gradient $g$ at the middle
    is corrected to $g + \delta\,(f(b) - f(a) - g \cdot \delta) / \|\delta\|^2$, the least change
    after which $g \cdot \delta = f(b) - f(a)$ (Gonzalez 1996). So nothing is lost to the steps:

    $$\sum_j c_j = \frac1n \sum_i f(x_i) - \frac1n \sum_i f(y_i)$$

    up to rounding, for any critic and any number of steps. Contributions do not depend on the units
    of their features. A negative contribution belongs to a feature that reduces the difference.

    At most `num_pairs` rows are drawn from each side. Returns the contributions, `(d,)` in float64,
    and the difference of scores itself.

    Example:
        >>> linear = nn.Linear(2, 1)
        >>> x, y = torch.tensor([[3.0, 1.0]]), torch.zeros(1, 2)
        >>> parts, total = attribute(linear, x, y, generator=torch.Generator())
        >>> torch.allclose(parts, (linear.weight[0] * x[0]).double())
        True
    """
    count = min(num_pairs, len(x), len(y))
    x, y = (z[torch.randperm(len(z), generator=generator)[:count]] for z in (x, y))
    plan = exact_transport(x, y)
    start, end = y[plan.columns], x[plan.rows]
    like = next(critic.parameters(), x)
    step = (end - start).to(like) / num_steps
    length = step.square().sum(-1).clamp_min(torch.finfo(step.dtype).tiny)
    parts = torch.zeros_like(step, dtype=torch.float64)
    here = start.to(like)
    first = at = _values(critic, here)
    for _ in range(num_steps):
        middle = (here + step / 2).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(critic(middle).sum(), middle)
        here = here + step
        then = _values(critic, here)
        missing = (then - at - (slope * step).sum(-1)) / length
        parts += (slope * step + missing[:, None] * step.square()).double()
        at = then
    mass = plan.mass[:, None]
    return (parts * mass).sum(0), float(((at - first).double() * plan.mass).sum())


@torch.no_grad()
def _values(critic: nn.Module, points: Tensor) -> Tensor:
    return critic(points).flatten()
