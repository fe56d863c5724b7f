"""Selection of the critic: every kind has a short trial, and the best one gets the steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Generator, Tensor, nn

from taut import parallel
from taut.errors import DataError
from taut.nn import ConeCritic, Scale
from taut.transport.cone_fit import fit_cones
from taut.transport.critics import Samples, fit_critic, network_critic, resampler, score_points

__all__ = [
    "CRITICS",
    "CriticName",
    "OnProgress",
    "SelectedCritic",
    "check_squares",
    "select_critic",
]

CriticName = Literal["cones", "network"]
CRITICS: tuple[CriticName, ...] = get_args(CriticName)
OnProgress = Callable[[str, int, int], None]

_CANDIDATES: dict[str, CriticName] = {
    "cones up": "cones",
    "cones down": "cones",
    "network": "network",
}
_BATCH = 256
_SHORTEST = 100
_PROGRESS = 1e-2
# Fits of at most this many steps have half the width: they end before the rest would matter.
_SMALL = 250
# A kind this far behind the best does not get another round.
_HOPELESS = 0.7
_LARGEST = 500  # as a power of two: squares of more overflow float64


@dataclass(frozen=True)
class SelectedCritic:
    """The critic with the largest dual value on rows that it was not trained on.

    Attributes:
        kind: "cones", "network", or "transport potential" for one that was not trained.
        critic: in evaluation mode and float64.
        history: dual value of each training step.
        value: dual value on the validation rows; -inf before their evaluation.
    """

    kind: str
    critic: nn.Module
    history: tuple[float, ...] = ()
    value: float = -math.inf


def select_critic(
    train: Samples,
    validation: Samples,
    *,
    critics: tuple[CriticName, ...],
    num_steps: int,
    patience: int,
    generator: Generator,
    on_progress: OnProgress | None = None,
) -> SelectedCritic:
    """Rounds of fits, each with twice the steps of the one before, until more steps do not help.

    The first round gives each candidate (cones with their tips in x, cones with their tips in y, a
    network) an eighth of the steps, but at least 100. The second is for those that came near the
    best, one of each kind, and further ones for the best alone. A round whose best value on
    `validation` is not 1 % above all before it counts as one without progress; `patience` of these
    end the selection.

    Args:
        train: rows of x and of y, centred and scaled.
        validation: other rows of each.
        critics: kinds of critics to try.
        num_steps: training steps of the last round.
        patience: number of rounds without progress.
        generator: source of all randomness.
        on_progress: called with the kind, the steps done and the steps of the round.
    """
    unit = _unit(torch.cat([*train, *validation]))
    train, validation = _as_floats(train, unit), _as_floats(validation, unit)
    best: SelectedCritic | None = None
    candidates = [name for name in _CANDIDATES if _CANDIDATES[name] in critics]
    waited = 0
    for number, steps in enumerate(_rounds(num_steps)):
        fits = {name: _fit(name, train, steps, generator, on_progress) for name in candidates}
        fits = {name: replace(fit, value=_value(fit, validation)) for name, fit in fits.items()}
        leader = max(fits.values(), key=lambda fit: fit.value)
        waited += 1
        if best is None or leader.value > best.value + _PROGRESS * abs(best.value):
            waited = 0
        if best is None or leader.value > best.value:
            best = leader
        # The first round says which kinds are worth another, the second says which one is.
        behind = (1 - _HOPELESS) * abs(leader.value) if number == 0 else 0.0
        ascending = sorted(fits.items(), key=lambda item: item[1].value)
        ahead = {fit.kind: name for name, fit in ascending if fit.value >= leader.value - behind}
        candidates = list(ahead.values())
        if waited >= patience:
            break
    assert best is not None
    _enlarge(best.critic, unit)
    history = tuple(unit * value for value in best.history)
    return replace(best, history=history, value=unit * best.value)


def _rounds(num_steps: int) -> list[int]:
    """Numbers of steps, each twice the one before, the last of them `num_steps`.

    Example:
        >>> _rounds(1000), _rounds(40)
        ([125, 250, 500, 1000], [40])
    """
    steps = [num_steps]
    while len(steps) < 4 and steps[0] // 2 >= _SHORTEST:
        steps.insert(0, steps[0] // 2)
    return steps


def _fit(
    name: str, train: Samples, num_steps: int, generator: Generator, on_progress: OnProgress | None
) -> SelectedCritic:
    """The candidate `name` after training, not yet evaluated."""
    kind = _CANDIDATES[name]

    def on_step(step: int, _: float) -> None:
        if on_progress is not None:
            on_progress(kind, step, num_steps)

    options: dict[str, Any] = {"num_steps": num_steps, "batch_size": _BATCH, "num_fresh": 1}
    options |= {"generator": generator, "on_step": on_step}
    if kind == "network":
        points = torch.cat(train)
        centre = points.mean(0)
        length = (points - centre).norm(dim=1).mean().clamp_min(torch.finfo(points.dtype).tiny)
        width = 128 if num_steps <= _SMALL else 256
        critic: nn.Module = network_critic(
            points.shape[1], width, generator, centre=centre, length=length.item()
        )
        fit = fit_critic(critic, resampler(*train), **options)
    else:
        # Many cones learn slowly: as many as there are steps to place them.
        num_centres = min(1024, max(64, num_steps), *map(len, train))
        tips = "p" if name == "cones up" else "q"
        fit = fit_cones(resampler(*train), num_centres=num_centres, tips=tips, **options)
        critic = fit.critic
    return SelectedCritic(kind, critic.double().eval(), fit.history)


def _value(fit: SelectedCritic, samples: Samples) -> float:
    """The dual value on `samples`; that of the first process counts for all."""
    x, y = (score_points(fit.critic, side.double()).mean() for side in samples)
    value = parallel.gather((x - y).reshape(1))[0].item()
    return value if math.isfinite(value) else -math.inf


def _unit(points: Tensor) -> float:
    """The power of two to train in: float32 squares, and Adam's epsilon, need sizes near 1.

    Example:
        >>> _unit(torch.tensor([0.5, -3.0])), _unit(torch.tensor([2.0**100])) == 2.0**100
        (1.0, True)
    """
    largest = check_squares(points)
    exponent = math.frexp(largest)[1] - 1
    ordinary = largest == 0 or -10 <= exponent <= 20
    return 1.0 if ordinary else 2.0 ** max(exponent, -_LARGEST)


def check_squares(points: Tensor) -> float:
    """The largest absolute value; raises where distances could overflow."""
    largest = points.abs().max().item()
    if math.frexp(largest)[1] - 1 > _LARGEST:
        raise DataError(
            subject="wasserstein",
            rule="features must be at most 2**500 about their mean, so that their squares are "
            "finite",
            got=f"{largest:.3g}",
            remedy="Divide them by a constant, or use scaling.",
        )
    return largest


def _as_floats(samples: Samples, unit: float) -> Samples:
    return (samples[0] / unit).float(), (samples[1] / unit).float()


@torch.no_grad()
def _enlarge(critic: nn.Module, unit: float) -> None:
    """Makes a critic $f$ of this file into $u f(z / u)$, which has the same constant."""
    if isinstance(critic, ConeCritic):
        critic.centres.mul_(unit)
        critic.offsets.mul_(unit)
        critic.temperature *= unit
        return
    assert isinstance(critic, nn.Sequential)
    before, after = critic[0], critic[-1]
    assert isinstance(before, Scale) and isinstance(after, Scale)
    before.factor /= unit
    after.factor *= unit
