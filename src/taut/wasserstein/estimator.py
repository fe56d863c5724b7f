r"""`taut.wasserstein`: how far apart two data sets are, with a guarantee."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate
from taut.data import check_pair, in_memory
from taut.errors import ArgumentError, check_choice, check_count
from taut.nn import ConstrainedLinear, Scale, mlp
from taut.wasserstein.bounding import bound_distance_below
from taut.wasserstein.cone_fit import fit_cones
from taut.wasserstein.cones import ConeCritic
from taut.wasserstein.confidence import Method, permutation_p_value
from taut.wasserstein.critics import dual_value, fit_critic
from taut.wasserstein.result import WassersteinResult
from taut.wasserstein.scaling import fit_scaling as _fit_scaling
from taut.wasserstein.transport import (
    bound_population_upper,
    coupling_upper_bound,
    exact_transport,
)

__all__ = ["wasserstein"]

_SUBJECT = "wasserstein"
_LEAST = 20
# Exact transport of finite sets up to this many pairs: about 300 MB, a minute or two.
_MOST_PAIRS = 40_000_000

OnProgress = Callable[[str, int, int], None]


def wasserstein(
    x: Any,
    y: Any,
    *,
    confidence: float = 0.95,
    population: bool = True,
    scaling: Literal["none", "standard", "robust"] = "none",
    method: Method = "betting",
    kinds: tuple[str, ...] = ("cones", "network"),
    num_steps: int = 1000,
    diameter: float | None = None,
    num_permutations: int = 999,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> WassersteinResult:
    r"""The Wasserstein-1 distance with a lower and an upper bound.

    $$W_1(P, Q) = \min_\pi \mathbb{E}_\pi \|X - Y\| = \max_{f\ \text{1-Lipschitz}}
      \mathbb{E}_P f - \mathbb{E}_Q f$$

    With `population=True` the samples stand for populations. Half of each trains critics, a tenth
    chooses between them, and the rest, unseen, carries the lower bound: the difference of mean
    scores less a confidence slack, divided by the critic's *proven* constant. The upper bound is
    the mean cost of exact transport between independent batches, whose expectation is never below
    the distance, plus a deviation term; it is loose in high dimension. Each bound gets half of
    `1 - confidence`.

    With `population=False` the two finite sets are compared as they are: a feasible coupling from
    above, a critic from below, both proven, no statistics.

    Args:
        x: the first data set: an array, tensor, data frame, or iterable of batches.
        y: the second, with the same features.
        confidence: that both bounds hold.
        population: whether to speak of the populations or of the two sets.
        scaling: "none" measures in the data's own units; "standard" (mean and deviation) and
            "robust" (median and quartiles) make features comparable, by the training half alone.
        method: the confidence bound of means: "betting", "bernstein" or "hoeffding".
        kinds: which critics to try: "cones", "network".
        num_steps: training steps of each.
        diameter: a bound of the support's width, for the upper bound; by default the data's own
            width is taken for it, and the bound says so.
        num_permutations: behind the p-value.
        seed: of every draw: equal data and seed give equal answers.
        on_progress: called with a stage's name, the steps done and their number.

    Returns:
        Prints as `0.42, in [0.37, 0.61] at 95 %`.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(400, 2, generator=g), torch.rand(400, 2, generator=g) + 1
        >>> result = wasserstein(x, y, num_steps=100)
        >>> result.lower.value <= 2**0.5 <= result.upper.value
        True
    """
    check_choice(_SUBJECT, "scaling", scaling, ("none", "standard", "robust"))
    check_count(_SUBJECT, "num_steps", num_steps)
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"{_SUBJECT}: `confidence` must lie strictly between 0 and 1; got {confidence}."
        )
    if not kinds or set(kinds) - {"cones", "network"}:
        raise ArgumentError(
            f"{_SUBJECT}: `kinds` must be some of 'cones', 'network'; got kinds={kinds!r}."
        )
    pair = check_pair(in_memory(x, "x"), in_memory(y, "y"))
    px, py = (torch.from_numpy(side.values).double() for side in pair[:2])
    columns = pair.first.columns or pair.second.columns or None
    run = _Run(px, py, Generator().manual_seed(seed), num_steps, kinds, on_progress)
    run.notes = pair.notes
    run.image_shape = pair.first.image_shape or pair.second.image_shape
    if population:
        return run.populations(confidence, scaling, method, diameter, num_permutations, columns)
    return run.finite_sets(scaling, columns)


class _Run:
    """One comparison: the data, the draws, and the critics tried on them."""

    notes: tuple[str, ...] = ()
    image_shape: tuple[int, ...] | None = None

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        generator: Generator,
        num_steps: int,
        kinds: tuple[str, ...],
        on_progress: OnProgress | None,
    ) -> None:
        self.x, self.y = x, y
        self.generator = generator
        self.num_steps = num_steps
        self.kinds = kinds
        self.on_progress = on_progress

    def populations(
        self,
        confidence: float,
        scaling: str,
        method: Method,
        diameter: float | None,
        num_permutations: int,
        columns: tuple[str, ...] | None,
    ) -> WassersteinResult:
        if min(len(self.x), len(self.y)) < _LEAST:
            raise ArgumentError(
                f"{_SUBJECT}: `x` and `y` must have at least {_LEAST} rows for bounds on "
                f"populations; got {len(self.x)} and {len(self.y)}. Use population=False to compare "
                "the two sets as they are."
            )
        (x1, x2, x3), (y1, y2, y3) = self._split(self.x), self._split(self.y)
        scale = _fit_scaling(scaling, torch.cat([x1, y1]))
        x1, x2, x3, y1, y2, y3 = map(scale, (x1, x2, x3, y1, y2, y3))
        kind, critic, history = self._best_critic((x1, y1), (x2, y2))
        lipschitz = bound_lipschitz(critic, "l2", (self.x.shape[1],))
        each = (1 + confidence) / 2
        with torch.no_grad():
            seen = torch.cat([_scores(critic, x1), _scores(critic, y1)])
            sx, sy = _scores(critic, x3), _scores(critic, y3)
        # Clamping is 1-Lipschitz, and its limits come from the training half.
        low, high = seen.min().item(), seen.max().item()
        lower = bound_distance_below(
            sx,
            sy,
            (low, high),
            lipschitz.value,
            confidence=each,
            method=method,
            generator=self.generator,
        )
        p_value = permutation_p_value(sx, sy, num_permutations, generator=self.generator)
        self._tell("transport", 0, 1)
        # Features are scaled by the training half, on which the batches then must not depend.
        pools = (
            (self.x, self.y) if scaling == "none" else (torch.cat([x2, x3]), torch.cat([y2, y3]))
        )
        smaller = min(map(len, pools))
        size = min(512, smaller)
        upper = bound_population_upper(
            *pools,
            confidence=each,
            batch_size=size,
            generator=self.generator,
            diameter=diameter,
            num_batches=min(smaller // size, 16),
        )
        self._tell("transport", 1, 1)
        value = (sx.mean() - sy.mean()).item() / lipschitz.value
        return WassersteinResult(
            estimate=Estimate(value, method=f"{kind} critic, held-out"),
            lower=lower,
            upper=upper,
            critic=critic,
            kind=kind,
            lipschitz=lipschitz,
            p_value=p_value,
            history=history,
            scaling=scale,
            columns=columns,
            population=True,
            scores=(sx, sy),
            rows=(len(self.x), len(self.y)),
            limits=(low, high),
            image_shape=self.image_shape,
            notes=self.notes,
        )

    def finite_sets(self, scaling: str, columns: tuple[str, ...] | None) -> WassersteinResult:
        scale = _fit_scaling(scaling, torch.cat([self.x, self.y]))
        x, y = scale(self.x), scale(self.y)
        self._tell("transport", 0, 1)
        history: tuple[float, ...] = ()
        if len(x) * len(y) <= _MOST_PAIRS:
            transport = exact_transport(x, y)
            kind, critic = "transport potential", _from_cones(transport.anchors, -transport.offsets)
            lower, upper = transport.interval.lower, transport.interval.upper
            lipschitz = bound_lipschitz(critic, "l2", (x.shape[1],))
        else:
            kind, critic, history = self._best_critic((x, y), (x, y))
            lipschitz = bound_lipschitz(critic, "l2", (x.shape[1],))
            with torch.no_grad():
                dual = (_scores(critic, x).mean() - _scores(critic, y).mean()).item()
            # The scores are rounded in float32: a part in a million of their size is taken off.
            slack = 1e-6 * float(torch.cat([x, y]).norm(dim=1).amax())
            lower = Bound(
                max(0.0, (dual - slack) / lipschitz.value), None, "lower", f"{kind} critic"
            )
            upper = coupling_upper_bound(x, y, generator=self.generator)
        self._tell("transport", 1, 1)
        with torch.no_grad():
            sx, sy = _scores(critic, x), _scores(critic, y)
        return WassersteinResult(
            estimate=Estimate((lower.value + upper.value) / 2, None, "middle of the interval"),
            lower=lower,
            upper=upper,
            critic=critic,
            kind=kind,
            lipschitz=lipschitz,
            p_value=None,
            history=history,
            scaling=scale,
            columns=columns,
            population=False,
            scores=(sx, sy),
            rows=(len(x), len(y)),
            limits=(min(sx.min(), sy.min()).item(), max(sx.max(), sy.max()).item()),
            image_shape=self.image_shape,
            notes=self.notes,
        )

    def _split(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = len(points)
        shuffled = points[torch.randperm(n, generator=self.generator)]
        train, choose = n // 2, max(1, n // 10)
        return shuffled[:train], shuffled[train : train + choose], shuffled[train + choose :]

    def _best_critic(
        self, train: tuple[Tensor, Tensor], choose: tuple[Tensor, Tensor]
    ) -> tuple[str, nn.Module, tuple[float, ...]]:
        """Fits every kind and takes the one with the largest dual value on `choose`."""
        fits = []
        for kind in self.kinds:
            critic, history = _FITS[kind](self, *(part.float() for part in train))
            with torch.no_grad():
                value = dual_value(critic, *(part.float() for part in choose)).item()
            fits.append((value, kind, critic, history))
        _, kind, critic, history = max(fits, key=lambda fit: fit[0])
        return kind, critic.double().eval(), history

    def fit_network(self, x: Tensor, y: Tensor) -> tuple[nn.Module, tuple[float, ...]]:
        net = _network(torch.cat([x, y]), self.generator)
        fit = fit_critic(
            net,
            _resampler(x, y),
            num_steps=self.num_steps,
            batch_size=256,
            generator=self.generator,
            num_fresh=1,
            on_step=lambda step, _: self._tell("network", step, self.num_steps),
        )
        return net.eval(), fit.history

    def fit_cones(self, x: Tensor, y: Tensor) -> tuple[nn.Module, tuple[float, ...]]:
        fit = fit_cones(
            _resampler(x, y),
            num_steps=self.num_steps,
            num_centres=min(1024, len(x), len(y)),
            batch_size=256,
            generator=self.generator,
            num_fresh=min(2048, len(x), len(y)),
            on_step=lambda step, _: self._tell("cones", step, self.num_steps),
        )
        return fit.critic, fit.history

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


_FITS = {"network": _Run.fit_network, "cones": _Run.fit_cones}


def _resampler(x: Tensor, y: Tensor) -> Callable[[int, Generator], tuple[Tensor, Tensor]]:
    def sample(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        return (
            x[torch.randint(len(x), (n,), generator=generator)],
            y[torch.randint(len(y), (n,), generator=generator)],
        )

    return sample


def _network(points: Tensor, generator: Generator) -> nn.Sequential:
    """A 1-Lipschitz network that sees the data centred and of length about 1."""
    centre = points.mean(0)
    length = (points - centre).norm(dim=1).mean().clamp_min(torch.finfo(points.dtype).tiny).item()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        net = mlp([points.shape[1], 256, 256, 1], activation="groupsort8")
    first = net[0]
    assert isinstance(first, ConstrainedLinear) and first.bias is not None
    with torch.no_grad():
        first.bias.sub_(first.effective_weight() @ (centre / length))
    return nn.Sequential(Scale(1 / length), net, Scale(length))


def _from_cones(anchors: Tensor, offsets: Tensor) -> ConeCritic:
    critic = ConeCritic(len(anchors), anchors.shape[1]).double().eval()
    with torch.no_grad():
        critic.centres.copy_(anchors)
        critic.offsets.copy_(offsets)
    return critic


def _scores(critic: nn.Module, points: Tensor) -> Tensor:
    dtype = next(critic.parameters()).dtype
    return torch.cat([critic(part.to(dtype)).flatten() for part in points.split(8192)]).double()
