"""Selection of the critic: each kind gets a short trial, and the best one the full training."""

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
from taut.transport.skewness import pursue_centres

CriticName = Literal["linear", "cones", "network"]
CRITICS: tuple[CriticName, ...] = get_args(CriticName)
OnProgress = Callable[[str, int, int], None]

# Candidates by family; one of each family at most gets a second round.
_FAMILIES = {
    "linear": ("linear",),
    "cones": ("cones up", "cones down"),
    "pursuit": ("pursuit up", "pursuit down"),
    "network": ("network",),
}
_BATCH = 256
_SHORTEST = 100
_PROGRESS = 1e-2
# Fits of at most this many steps have half the width: they end before the rest would matter.
_SMALL = 250
_MOST_CENTRES = 1024
# From this dimension on, data points are too far apart to be the only start of cones, and they learn more
# with a higher learning rate.
_HIGH = 16
# A family this far behind the best does not get another round.
_HOPELESS = 0.7
_LARGEST = 500  # as a power of two: squares of more overflow float64


@dataclass(frozen=True)
class SelectedCritic:
    """The critic with the largest dual value on rows that it was not trained on.

    Attributes:
        kind: "linear", "cones", "network", or "transport potential" for one that was not trained.
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
    r"""Rounds of fits, each with more steps than the one before, until more steps do not help.

    The first round gives each candidate an eighth of the steps, but at least 100: cones that start
    at points of x or of y, in 16 dimensions and more also cones that start along directions in which
    one of the two is skewed (`skewed_directions`), and a network. The second, of half of the steps,
    is for those that came near the best, one of each family, and the last for the best alone. A round whose
    best value on `validation` is not 1 % above all before it counts as one without progress; `patience`
    of these end the selection.

    The linear critic needs no steps: $f(z) = u \cdot z$ with $u$ along the difference of means is the best
    linear one. It wins where rows are few.

    Rows are centred and scaled; `on_progress` is called with the kind, the steps done and their total.
    """
    unit = _unit(torch.cat([*train, *validation]))
    best = SelectedCritic("linear", linear_critic(*train)) if "linear" in critics else None
    train, validation = _as_floats(train, unit), _as_floats(validation, unit)
    if best is not None:
        best = replace(best, value=_value(best, validation))
    candidates = _candidates(train, critics)
    pursued: dict[str, Tensor] = {}
    waited = 0
    for number, steps in enumerate(_rounds(num_steps) if candidates else ()):
        fits = {
            name: _fit(name, train, validation, steps, pursued, generator, on_progress)
            for name in candidates
        }
        fits = {name: replace(fit, value=_value(fit, validation)) for name, fit in fits.items()}
        leader = max(fits.values(), key=lambda fit: fit.value)
        waited += 1
        if best is None or leader.value > best.value + _PROGRESS * abs(best.value):
            waited = 0
        if best is None or leader.value > best.value:
            best = leader
        # The first round says which families are worth another, the second says which one is.
        behind = (1 - _HOPELESS) * abs(leader.value) if number == 0 else 0.0
        ascending = sorted(fits.items(), key=lambda item: item[1].value)
        ahead = {n.split()[0]: n for n, fit in ascending if fit.value >= leader.value - behind}
        candidates = list(ahead.values())
        if waited >= patience:
            break
    assert best is not None
    _enlarge(best.critic, unit)
    history = tuple(unit * value for value in best.history)
    return replace(best, history=history, value=unit * best.value)


def linear_critic(x: Tensor, y: Tensor) -> nn.Linear:
    """The best linear critic: along the difference of means, of length 1."""
    towards = x.double().mean(0) - y.double().mean(0)
    largest = towards.abs().max()
    # On the meta device, initial weights are not drawn from the global generator.
    critic = nn.Linear(len(towards), 1, bias=False, dtype=torch.float64, device="meta")
    critic = critic.to_empty(device=towards.device)
    with torch.no_grad():
        # Squares of numbers up to 1 do not overflow.
        critic.weight.copy_(torch.nn.functional.normalize(towards / (largest or 1.0), dim=0))
    return critic.eval()


def _candidates(train: Samples, critics: tuple[CriticName, ...]) -> list[str]:
    """The candidates of the first round; few or low-dimensional rows are not searched for skewness."""
    dim = train[0].shape[1]
    left_out = {"linear"}
    if dim < _HIGH or min(map(len, train)) < 8 * dim:
        left_out.add("pursuit")
    families = [f for f in _FAMILIES if _kind_of(f) in critics and f not in left_out]
    return [name for family in families for name in _FAMILIES[family]]


def _kind_of(family: str) -> str:
    return "cones" if family == "pursuit" else family


def _rounds(num_steps: int) -> list[int]:
    """Numbers of steps: an eighth, half and all of them, but at least 100."""
    return sorted({min(num_steps, max(_SHORTEST, num_steps // part)) for part in (8, 2, 1)})


def _fit(
    name: str,
    train: Samples,
    validation: Samples,
    num_steps: int,
    pursued: dict[str, Tensor],
    generator: Generator,
    on_progress: OnProgress | None,
) -> SelectedCritic:
    """The candidate `name` after training, not yet evaluated; `pursued` caches centres."""
    family, _, way = name.partition(" ")
    kind = _kind_of(family)

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
        high = train[0].shape[1] >= _HIGH
        num_centres = min(_MOST_CENTRES, max(64, num_steps), *map(len, train))
        tips, centres, lr = ("p" if way == "up" else "q"), None, 0.3 if high else 0.1
        if family == "pursuit":
            if way not in pursued:
                ahead, behind = (0, 1) if way == "up" else (1, 0)
                fresh = validation[ahead], validation[behind]
                sides = train[ahead], train[behind]
                pursued[way] = pursue_centres(*sides, generator=generator, fresh=fresh)
            centres = pursued[way]
        options |= {"num_centres": num_centres, "tips": tips, "centres": centres, "lr": lr}
        fit = fit_cones(resampler(*train), **options)
        critic = fit.critic
    return SelectedCritic(kind, critic.double().eval(), fit.history)


def _value(fit: SelectedCritic, samples: Samples) -> float:
    """The dual value on `samples`; that of the first process counts for all."""
    x, y = (score_points(fit.critic, side.double()).mean() for side in samples)
    value = parallel.gather((x - y).reshape(1))[0].item()
    return value if math.isfinite(value) else -math.inf


def _unit(points: Tensor) -> float:
    """The power of two to train in: float32 squares, and Adam's epsilon, need sizes near 1."""
    largest = check_squares(points)
    exponent = math.frexp(largest)[1] - 1
    ordinary = largest == 0 or -10 <= exponent <= 20
    return 1.0 if ordinary else 2.0 ** max(exponent, -_LARGEST)


def check_squares(points: Tensor) -> float:
    """The largest absolute value; raises where distances could overflow."""
    largest = points.abs().max().item()
    if math.frexp(largest)[1] - 1 > _LARGEST:
        rule = "features must be at most 2**500 about their mean, so that their squares are finite"
        remedy = "Divide them by a constant, or use scaling."
        raise DataError("wasserstein", rule=rule, got=f"{largest:.3g}", remedy=remedy)
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
    elif isinstance(critic, nn.Sequential):
        before, after = critic[0], critic[-1]
        assert isinstance(before, Scale) and isinstance(after, Scale)
        before.factor /= unit
        after.factor *= unit
