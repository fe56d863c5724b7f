"""Fitting a minimum of cones: from data points, with a falling temperature."""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.optim import Adam

from taut.bounds import Estimate
from taut.errors import check_choice, check_count, check_positive
from taut.nn import ConeCritic
from taut.transport.critics import (
    CriticFit,
    OnStep,
    Sampler,
    Samples,
    check_finite,
    fresh_value,
    train_step,
)
from taut.transport.problems import Problem

_SUBJECT = "fit_cones"


@dataclass(frozen=True)
class ConeFit(CriticFit):
    """A fitted minimum of cones.

    Attributes:
        critic: the fitted critic, in evaluation mode.
    """

    critic: ConeCritic = field(repr=False)


def fit_cones(
    source: Problem | Sampler,
    *,
    generator: Generator,
    num_centres: int = 1024,
    num_steps: int = 2000,
    batch_size: int = 512,
    tips: Literal["p", "q", "best"] = "best",
    centres: Tensor | None = None,
    lr: float = 0.1,
    hot: float = 0.25,
    cold: float = 0.01,
    num_fresh: int = 16384,
    on_step: OnStep | None = None,
) -> ConeFit:
    r"""Fits a `ConeCritic` to maximise $\mathbb{E}_P f - \mathbb{E}_Q f$.

    Centres start at data points and offsets at zero; Adam moves both, its rate falling to zero along
    a half cosine while the temperature falls geometrically. Rates and temperatures are multiples of
    the data's own scale, so data in other units give the same fit in those units.

    Args:
        source: a `Problem`, or a sampler `(n, generator) -> (x, y)`.
        generator: source of all randomness: same generator, same fit.
        num_centres: number of cones.
        num_steps: number of training steps.
        batch_size: number of points of P, and of Q, per step.
        tips: where the cones start: "p" (upward cones, $\sigma = -1$), "q" (downward cones), or
            "best", which gives each a trial of an eighth of the steps and takes the better one on
            validation samples.
        centres: initial centres `(num_centres, dim)` in place of data points, for `tips` "p" or "q".
        lr: initial length of a centre's step, as a multiple of the data's scale.
        hot: initial temperature, likewise.
        cold: final temperature.
        num_fresh: number of samples of each side behind the estimate.
        on_step: called after each step with the number of steps done and the dual value of its
            batch (soft minimum), except in trials.

    Returns:
        The critic, the history, and an estimate from samples that took part in no step and no
        choice. Its expectation is at most $W_1(P, Q)$; by chance it may lie above.

    Raises:
        NonFiniteError: the dual value became NaN or infinite.

    Example:
        >>> from taut.transport import cone
        >>> seeded = torch.Generator().manual_seed(0)
        >>> fit = fit_cones(cone(2), num_centres=8, num_steps=100, generator=seeded)
        >>> 0.9 < fit.estimate.value < 1.001
        True
    """
    counts = {"num_centres": num_centres, "num_steps": num_steps, "batch_size": batch_size}
    for argument, count in (counts | {"num_fresh": num_fresh}).items():
        check_count(_SUBJECT, argument, count)
    for argument, value in {"lr": lr, "hot": hot, "cold": cold}.items():
        check_positive(_SUBJECT, argument, value)
    check_choice(_SUBJECT, "tips", tips, ("p", "q", "best"))

    sample = source.sample if isinstance(source, Problem) else source
    validation = sample(max(1, num_fresh // 4), generator)
    fresh, start = sample(num_fresh, generator), sample(num_centres, generator)
    ascent = _Ascent(sample, start, validation, batch_size, lr, hot, cold, generator)
    side = ascent.better_side(max(1, num_steps // 8)) if tips == "best" else tips
    critic = ascent.start(side, centres)
    history = ascent.run(critic, num_steps, on_step)
    method = f"cones on {num_fresh} fresh samples a side"
    return ConeFit(history, Estimate(fresh_value(_SUBJECT, critic, fresh), method=method), critic)


@dataclass(frozen=True)
class _Ascent:
    """Gradient ascent on the dual value from data points, in units of the data."""

    sample: Sampler
    points: Samples
    validation: Samples
    batch_size: int
    lr: float
    hot: float
    cold: float
    generator: Generator

    def scale(self, critic: ConeCritic) -> float:
        """The length on which heights differ: the size of a cell, or the spread of distances.

        In few dimensions many centres leave small cells. In many, every point is far from every
        other, and what tells the centres apart is how unequal those distances are.
        """
        other = self.points[0 if critic.sign > 0 else 1][:256].double()
        distances = torch.cdist(other, critic.centres.detach().double())
        spread = distances.std(correction=0) or distances.mean()
        cell = distances.amin(-1).mean() or spread
        return check_finite(_SUBJECT, torch.minimum(spread, cell), "at the start") or 1.0

    def better_side(self, num_steps: int) -> Literal["p", "q"]:
        values = []
        for side in ("p", "q"):
            critic = self.start(side)
            self.run(critic, num_steps)
            values.append(fresh_value(_SUBJECT, critic, self.validation))
        return "p" if values[0] >= values[1] else "q"

    def start(self, side: Literal["p", "q"], centres: Tensor | None = None) -> ConeCritic:
        at, sign = (0, -1) if side == "p" else (1, 1)
        return ConeCritic.from_points(self.points[at] if centres is None else centres, sign=sign)

    def run(
        self, critic: ConeCritic, num_steps: int, on_step: OnStep | None = None
    ) -> tuple[float, ...]:
        scale = self.scale(critic)
        rate = self.lr * scale / math.sqrt(critic.centres.shape[-1])
        optimizer = Adam(critic.parameters(), lr=rate)
        history = []
        critic.train()
        for step in range(1, num_steps + 1):
            done = (step - 1) / num_steps
            critic.temperature = scale * self.hot * (self.cold / self.hot) ** done
            optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * done)) / 2
            dual = train_step(critic, optimizer, self.sample(self.batch_size, self.generator))
            history.append(check_finite(_SUBJECT, dual, f"at step {step}"))
            if on_step is not None:
                on_step(step, history[-1])
        critic.eval()
        return tuple(history)
