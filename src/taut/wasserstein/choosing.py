"""Which critic: every kind has a short trial, and the best one gets the steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from taut import parallel
from taut.errors import DataError
from taut.nn import ConstrainedLinear, Scale, mlp
from taut.wasserstein.cone_fit import fit_cones
from taut.wasserstein.cones import ConeCritic
from taut.wasserstein.critics import fit_critic

__all__ = ["KINDS", "Chosen", "OnProgress", "choose_critic"]

KINDS = ("cones", "network")
OnProgress = Callable[[str, int, int], None]

_BATCH = 256
_SHORTEST = 100
_PROGRESS = 1e-2
# Fits of at most so many steps have half the width: they end before the rest would tell.
_SMALL = 250
# A kind this far behind the best is not given the next round.
_HOPELESS = 0.7
_LARGEST = 500  # as a power of two: squares of more are past float64
Sides = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Chosen:
    """The critic with the largest dual value on rows it was not trained on.

    Attributes:
        kind: "cones" or "network".
        critic: in evaluation mode and float64.
        history: the dual value along its training.
        value: the dual value it was chosen by.
    """

    kind: str
    critic: nn.Module
    history: tuple[float, ...]
    value: float


def choose_critic(
    train: Sides,
    choose: Sides,
    *,
    kinds: tuple[str, ...],
    num_steps: int,
    patience: int,
    generator: Generator,
    on_progress: OnProgress | None = None,
) -> Chosen:
    """Rounds of fits, each of twice the steps of the one before, until more steps bring no more.

    The first round gives each candidate (cones with their tips in x, cones with their tips in y, a
    network) an eighth of the steps, but 100 at least. The second is for those that came near the
    best, one of a kind, and further ones for the best alone. A round whose best value on `choose`
    is not 1 % above all before it counts as one without progress; `patience` of these end it.

    Args:
        train: rows of x and of y, in units and about an origin of their own.
        choose: other rows of each.
        kinds: some of "cones", "network".
        num_steps: of the last round.
        patience: rounds without progress.
        generator: the source of every draw.
        on_progress: told the kind, the steps done and those of the round.
    """
    unit = _unit(torch.cat([*train, *choose]))
    train, choose = _as_floats(train, unit), _as_floats(choose, unit)
    best: Chosen | None = None
    candidates = [name for name in _CANDIDATES if _CANDIDATES[name] in kinds]
    waited = 0
    for number, steps in enumerate(_rounds(num_steps)):
        fits = {}
        for name in candidates:
            critic, history = _fit(name, train, steps, generator, on_progress)
            fits[name] = Chosen(
                _CANDIDATES[name], critic.double().eval(), history, _value(critic, choose)
            )
        leader = max(fits.values(), key=lambda fit: fit.value)
        waited += 1
        if best is None or leader.value > best.value + _PROGRESS * abs(best.value):
            waited = 0
        if best is None or leader.value > best.value:
            best = leader
        # The first round says which kinds are worth another, the second says which one is.
        behind = (1 - _HOPELESS) * abs(leader.value) if number == 0 else 0.0
        ahead = {}
        for name, fit in sorted(fits.items(), key=lambda item: item[1].value):
            if fit.value >= leader.value - behind:
                ahead[fit.kind] = name
        candidates = list(ahead.values())
        if waited >= patience:
            break
    assert best is not None
    _enlarge(best.critic, unit)
    history = tuple(unit * value for value in best.history)
    return Chosen(best.kind, best.critic, history, unit * best.value)


_CANDIDATES = {"cones up": "cones", "cones down": "cones", "network": "network"}


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
    name: str, train: Sides, num_steps: int, generator: Generator, on_progress: OnProgress | None
) -> tuple[nn.Module, tuple[float, ...]]:
    kind = _CANDIDATES[name]

    def tell(step: int, _: float) -> None:
        if on_progress is not None:
            on_progress(kind, step, num_steps)

    if kind == "network":
        net = _network(torch.cat(train), 128 if num_steps <= _SMALL else 256, generator)
        fit = fit_critic(
            net,
            _resampler(*train),
            num_steps=num_steps,
            batch_size=_BATCH,
            generator=generator,
            num_fresh=1,
            on_step=tell,
        )
        return net.eval(), fit.history
    tips: Literal["p", "q"] = "p" if name == "cones up" else "q"
    cones = fit_cones(
        _resampler(*train),
        num_steps=num_steps,
        # Many cones learn slowly: as many as there are steps to place them.
        num_centres=min(1024, max(64, num_steps), *map(len, train)),
        batch_size=_BATCH,
        tips=tips,
        generator=generator,
        num_fresh=1,
        on_step=tell,
    )
    return cones.critic, cones.history


@torch.no_grad()
def _value(critic: nn.Module, choose: Sides) -> float:
    """The dual value on `choose`; the first process decides for all."""
    means = [
        torch.cat([critic(part).flatten() for part in side.double().split(8192)]).mean()
        for side in choose
    ]
    value = parallel.gather((means[0] - means[1]).reshape(1))[0].item()
    return value if math.isfinite(value) else -math.inf


def _unit(points: Tensor) -> float:
    """The power of two to train in: float32 squares, and Adam's epsilon, fit sizes near 1 alone.

    Example:
        >>> _unit(torch.tensor([0.5, -3.0])), _unit(torch.tensor([2.0**100])) == 2.0**100
        (1.0, True)
    """
    largest = points.abs().max().item()
    exponent = math.frexp(largest)[1] - 1
    if exponent > _LARGEST:
        raise DataError(
            "wasserstein: features must be at most 2**500 about their mean, so that their squares "
            f"are finite; got {largest:.3g}. Divide them by a constant, or use scaling."
        )
    ordinary = largest == 0 or -10 <= exponent <= 20
    return 1.0 if ordinary else 2.0 ** max(exponent, -_LARGEST)


def _as_floats(sides: Sides, unit: float) -> Sides:
    return (sides[0] / unit).float(), (sides[1] / unit).float()


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


def _resampler(x: Tensor, y: Tensor) -> Callable[[int, Generator], Sides]:
    def sample(n: int, generator: Generator) -> Sides:
        return (
            x[torch.randint(len(x), (n,), generator=generator)],
            y[torch.randint(len(y), (n,), generator=generator)],
        )

    return sample


def _network(points: Tensor, width: int, generator: Generator) -> nn.Sequential:
    """A 1-Lipschitz network that sees the data centred and of length about 1."""
    centre = points.mean(0)
    length = (points - centre).norm(dim=1).mean().clamp_min(torch.finfo(points.dtype).tiny).item()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        net = mlp([points.shape[1], width, width, 1], activation="groupsort8")
    first = net[0]
    assert isinstance(first, ConstrainedLinear) and first.bias is not None
    with torch.no_grad():
        first.bias.sub_(first.effective_weight() @ (centre / length))
    return nn.Sequential(Scale(1 / length), net, Scale(length))
