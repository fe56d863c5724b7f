"""The verdict on a critic: its value on fresh samples, and what they prove."""

import math
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from taut.audit import bound_lipschitz
from taut.wasserstein import Sampler, bound_difference, bound_mean

__all__ = ["Verdict", "judge_critic", "score"]


@dataclass(frozen=True)
class Verdict:
    """What fresh samples say: the value of the critic, and a lower bound of the distance."""

    estimate: float
    lower: float
    confidence: float


def judge_critic(
    critic: nn.Module,
    sample: Sampler,
    *,
    generator: Generator,
    num_fresh: int,
    confidence: float = 0.95,
) -> Verdict:
    r"""The dual value on fresh samples, and the lower bound of $W_1$ they prove.

    A copy in float64 is scored and audited, so that rounding has no part in the verdict. Scores are
    clamped to the range that the critic had on a sample of its own, drawn before and used for
    nothing else: clamping is 1-Lipschitz, and the bound needs a range chosen beforehand.

    Args:
        critic: `(n, dim) -> (n, 1)`, with a constant that can be proven.
        sample: fresh draws of both sides; a side that is one point may come as one row, and its
            mean is then exact.
        generator: the source of the draws.
        num_fresh: points of each side.
        confidence: of the lower bound.

    Example:
        >>> from taut.wasserstein import ConeCritic, cone
        >>> best = ConeCritic(1, 2).requires_grad_(False)
        >>> best.centres.zero_()
        Parameter containing:
        tensor([[0., 0.]])
        >>> draws = torch.Generator().manual_seed(0)
        >>> verdict = judge_critic(best, cone(2).sample, generator=draws, num_fresh=1000)
        >>> round(verdict.estimate, 6), verdict.lower < 1
        (1.0, True)
    """
    exact = deepcopy(critic).double().eval()
    ranged = torch.cat([score(exact, side) for side in sample(max(2, num_fresh // 4), generator)])
    low, high = ranged.min().item(), ranged.max().item()
    points = sample(num_fresh, generator)
    constant = bound_lipschitz(exact, "l2", points[0].shape[1:]).value
    x, y = (score(exact, side) for side in points)
    estimate = (x.mean() - y.mean()).item() / constant
    lower = 0.0
    if high > low:
        x, y = x.clamp(low, high), y.clamp(low, high)
        if len(y) == 1:
            bound = bound_mean(x, low, high, confidence, generator=generator)
            difference = math.nextafter(bound.value - y.item(), -math.inf)
        else:
            difference = bound_difference(x, y, low, high, confidence, generator=generator).value
        lower = max(0.0, difference / constant * (1 - 1e-12))
    return Verdict(estimate, lower, confidence)


@torch.no_grad()
def score(critic: nn.Module, points: Tensor) -> Tensor:
    """The value of the critic at each point, in its own precision: `(n, dim) -> (n,)`."""
    dtype = next(critic.parameters()).dtype
    return torch.cat([critic(part.to(dtype)).flatten() for part in points.split(8192)])
