r"""The feasible set of an attack: $\|x' - x\| \le r$, within the range of the data."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from taut.norms import L2, LINF, Norm


def distances(x: Tensor, other: Tensor, norm: Norm) -> Tensor:
    """Between the samples of two batches, `(n,)`, in float64."""
    return norm.vector((other.double() - x.double()).flatten(1))


def per_input(values: Tensor, like: Tensor) -> Tensor:
    """One number for each input, `(n,)`, shaped to broadcast over inputs like these."""
    return values.view(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Ball:
    """A feasible set around each sample of a batch, in the dtype of the batch."""

    x: Tensor  # `(n, ...)`, the centres
    radius: Tensor  # `(n, 1, ...)`, in the dtype of `x`; in L2 lessened by what rounding may add
    lower: Tensor  # `(n, ...)`, no entry of a feasible point lies below
    upper: Tensor  # `(n, ...)`, nor above
    norm: Norm  # L2 or LINF

    @classmethod
    def around(
        cls, x: Tensor, radius: Tensor, norm: Norm, low: float | None, high: float | None
    ) -> Self:
        """The ball of radii `(n,)` in float64 around `(n, ...)`."""
        column = per_input(radius, x)
        if norm == LINF:
            lower, upper = _step_inside(x, -column), _step_inside(x, column)
        else:
            lower, upper = torch.full_like(x, -torch.inf), torch.full_like(x, torch.inf)
            # The sum of a point and a step is rounded, by an eps of its entries at most.
            eps = 2 * torch.finfo(x.dtype).eps
            length = L2.vector(x.double().flatten(1)).view_as(column)
            column = (column - eps * (length + 2 * column)).clamp(min=0)
        if low is not None:
            lower = lower.clamp(min=low)
        if high is not None:
            upper = upper.clamp(max=high)
        return cls(x, column.to(x.dtype), lower, upper, norm)

    def project(self, point: Tensor) -> Tensor:
        """A feasible point close to `point`; the nearest one, but for L2 with a range."""
        if self.norm == L2:
            step = point - self.x
            length = L2.vector(step.flatten(1)).view_as(self.radius)
            tiny = torch.finfo(step.dtype).tiny
            point = torch.where(
                length <= self.radius, point, self.x + step * (self.radius / length.clamp(min=tiny))
            )
        return torch.maximum(torch.minimum(point, self.upper), self.lower)

    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of length 1 along which a linear function with this gradient falls most."""
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        if self.norm == LINF:
            return -gradient.sign()
        tiny = torch.finfo(gradient.dtype).tiny
        # Squares of small gradients underflow long before the gradients do.
        scale = gradient.flatten(1).abs().amax(1).clamp(min=tiny).view_as(self.radius)
        return -F.normalize((gradient / scale).flatten(1), dim=1).view_as(gradient)

    def draw(self, share: float, generator: Generator | None) -> Tensor:
        """Random feasible points, at most `share` of the radius away from the centres."""
        device = self.x.device if generator is None else generator.device

        def drawn(kind, shape):
            made = kind(shape, dtype=self.x.dtype, device=device, generator=generator)
            return made.to(self.x)

        if self.norm == LINF:
            step = 2 * drawn(torch.rand, self.x.shape) - 1
        else:
            step = -self.steepest(drawn(torch.randn, self.x.shape))
            step = step * drawn(torch.rand, self.radius.shape)
        return self.project(self.x + share * self.radius * step)

    def rows(self, keep: Tensor) -> Self:
        """The balls of some of the samples, by mask or index."""
        lower, upper = self.lower[keep], self.upper[keep]
        return type(self)(self.x[keep], self.radius[keep], lower, upper, self.norm)


def _step_inside(x: Tensor, step: Tensor) -> Tensor:
    """The farthest number of the dtype of `x` that is not beyond `x + step`, as float64 measures."""
    end = (x.double() + step).to(x.dtype)
    beyond = (end.double() - x.double()).abs() > step.abs()
    return torch.where(beyond, torch.nextafter(end, x), end)
