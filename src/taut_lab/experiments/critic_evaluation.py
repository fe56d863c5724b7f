"""Evaluation of a critic: its value on fresh samples, and the lower bound they prove."""

import math
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from taut.audit import bound_lipschitz
from taut.transport import Sampler, bound_difference, bound_mean

__all__ = ["CriticEvaluation", "critic_values", "evaluate_critic"]


@dataclass(frozen=True)
class CriticEvaluation:
    """The value of a critic on fresh samples, and a lower bound of the distance."""

    estimate: float
    lower: float
    confidence: float


def evaluate_critic(
    critic: nn.Module,
    sample: Sampler,
    *,
    generator: Generator,
    num_fresh: int,
    confidence: float = 0.95,
) -> CriticEvaluation:
    r"""The dual value on fresh samples, and the lower bound of $W_1$ they prove.

    A copy in float64 is evaluated and audited, so that rounding does not matter. Values are
    clamped to the range of the critic on a separate sample: clamping is 1-Lipschitz, and the bound
    needs a range that is independent of the samples.

    Args:
        critic: `(n, dim) -> (n, 1)`, with a constant that can be proven.
        sample: sampler of both sides; a side that is a single point may be one row, and its mean is
            then exact.
        generator: random generator.
        num_fresh: number of samples of each side.
        confidence: confidence level of the lower bound.

    Example:
        >>> from taut.transport import ConeCritic, cone
        >>> best = ConeCritic(1, 2).requires_grad_(False)
        >>> best.centres.zero_()
        Parameter containing:
        tensor([[0., 0.]])
        >>> draws = torch.Generator().manual_seed(0)
        >>> evaluation = evaluate_critic(best, cone(2).sample, generator=draws, num_fresh=1000)
        >>> round(evaluation.estimate, 6), evaluation.lower < 1
        (1.0, True)
    """
    exact = deepcopy(critic).double().eval()
    ranged = torch.cat(
        [critic_values(exact, side) for side in sample(max(2, num_fresh // 4), generator)]
    )
    low, high = ranged.min().item(), ranged.max().item()
    points = sample(num_fresh, generator)
    constant = bound_lipschitz(exact, "l2", points[0].shape[1:]).value
    x, y = (critic_values(exact, side) for side in points)
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
    return CriticEvaluation(estimate, lower, confidence)


@torch.no_grad()
def critic_values(critic: nn.Module, points: Tensor) -> Tensor:
    """The value of the critic at each point, in its own precision: `(n, dim) -> (n,)`."""
    dtype = next(critic.parameters()).dtype
    return torch.cat([critic(part.to(dtype)).flatten() for part in points.split(8192)])
