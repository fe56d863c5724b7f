"""One comparison of two samples, from rows to bounds."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate
from taut.data import Table
from taut.errors import ArgumentError
from taut.linalg.rounding import round_down
from taut.norms import L2
from taut.wasserstein.bounding import bound_distance_below, rounding_of
from taut.wasserstein.choosing import Chosen, OnProgress, choose_critic
from taut.wasserstein.cones import ConeCritic
from taut.wasserstein.confidence import Method, confidence_of_each
from taut.wasserstein.coupling import coupling_upper_bound
from taut.wasserstein.exact import exact_transport
from taut.wasserstein.permutation import permutation_p_value
from taut.wasserstein.population import bound_population_upper
from taut.wasserstein.result import WassersteinResult
from taut.wasserstein.saved import score_points
from taut.wasserstein.scaling import FeatureScaling, fit_scaling
from taut.wasserstein.sides import Side, hold, name_constant_columns
from taut.wasserstein.splitting import draw_rows, score_held_out

__all__ = ["Comparison"]

_SUBJECT = "wasserstein"
_LEAST = 20
# Exact transport of finite sets up to this many pairs: about 300 MB, a minute or two.
_MOST_PAIRS = 40_000_000
_BATCH = 512
_MOST_BATCHES = 16


@dataclass
class Comparison:
    """Two samples, and how to compare them; the arguments are those of `wasserstein`."""

    x: Side
    y: Side
    columns: tuple[str, ...] | None
    image_shape: tuple[int, ...] | None
    notes: list[str]
    scaling: str
    kinds: tuple[str, ...]
    num_steps: int
    patience: int
    seed: int
    generator: Generator
    on_progress: OnProgress | None

    def populations(
        self, confidence: float, method: Method, diameter: float | None, num_permutations: int
    ) -> WassersteinResult:
        """The distance of the populations, from rows that the critic has not seen."""
        sides = (self.x, self.y)
        draws = [
            draw_rows(side, self.seed, i, self._rows("reading", side))
            for i, side in enumerate(sides)
        ]
        rows = draws[0].rows, draws[1].rows
        if min(rows) < _LEAST:
            raise ArgumentError(
                f"{_SUBJECT}: `x` and `y` must have at least {_LEAST} rows for bounds on "
                f"populations; got {rows[0]} and {rows[1]}. Use population=False to compare the two "
                "sets as they are."
            )
        self.notes += name_constant_columns(
            self.columns,
            torch.minimum(draws[0].low, draws[1].low),
            torch.maximum(draws[0].high, draws[1].high),
        )
        for name, draw in zip("xy", draws, strict=True):
            if len(draw.train) < draw.rows // 2:
                self.notes.append(
                    f"critics were trained on {len(draw.train)} of the {draw.rows} rows of {name}, "
                    "drawn at random"
                )
        scale = self._fit_scaling(draws[0].train, draws[1].train)
        train = scale(draws[0].train), scale(draws[1].train)
        chosen = self._choose(train, (scale(draws[0].choose), scale(draws[1].choose)))
        critic = chosen.critic
        lipschitz = bound_lipschitz(critic, "l2", (self.x.dim,))
        # Clamping is 1-Lipschitz, and its limits come from the training half.
        seen = torch.cat([score_points(critic, side) for side in train])
        limits = seen.min().item(), seen.max().item()
        sx, sy = (
            score_held_out(
                side,
                draw,
                lambda batch: score_points(critic, scale(batch)),
                self._rows("scoring", side),
            )
            for side, draw in zip(sides, draws, strict=True)
        )
        each = confidence_of_each(_SUBJECT, confidence)
        # No row is longer than the corner of the box that holds all of them.
        ends = torch.stack([scale(end) for draw in draws for end in (draw.low, draw.high)])
        lower = bound_distance_below(
            sx,
            sy,
            limits,
            lipschitz.value,
            confidence=each,
            method=method,
            generator=self.generator,
            rounding=rounding_of(limits, ends.abs().amax(0)),
            name=f"{chosen.kind} critic",
        )
        p_value = permutation_p_value(sx, sy, num_permutations, generator=self.generator)
        # Features are scaled by the training half, on which the batches then must not depend.
        parts = (["train"] if self.scaling == "none" else []) + ["choose", "kept"]
        pools = [scale(torch.cat([getattr(draw, part) for part in parts])) for draw in draws]
        upper = self._upper(pools[0], pools[1], each, diameter)
        return WassersteinResult(
            estimate=Estimate(
                (sx.mean() - sy.mean()).item() / (lipschitz.value or 1.0),
                L2,
                f"{chosen.kind} critic, held-out",
            ),
            lower=lower,
            upper=upper,
            critic=critic,
            kind=chosen.kind,
            lipschitz=lipschitz,
            p_value=p_value,
            history=chosen.history,
            scaling=scale,
            columns=self.columns,
            population=True,
            scores=(sx, sy),
            rows=rows,
            limits=limits,
            image_shape=self.image_shape,
            notes=tuple(self.notes),
        )

    def finite_sets(self) -> WassersteinResult:
        """The distance of the two sets as they are."""
        x, y = hold(self.x, _SUBJECT), hold(self.y, _SUBJECT)
        self.notes += name_constant_columns(
            self.columns, torch.minimum(x.amin(0), y.amin(0)), torch.maximum(x.amax(0), y.amax(0))
        )
        scale = self._fit_scaling(x, y)
        x, y = scale(x), scale(y)
        history: tuple[float, ...] = ()
        exact = len(x) * len(y) <= _MOST_PAIRS
        if exact:
            self._tell("transport", 0, 1)
            transport = exact_transport(x, y)
            kind, critic = "transport potential", _from_cones(transport.anchors, -transport.offsets)
            lower, upper = transport.interval.lower, transport.interval.upper
        else:
            chosen = self._choose((x, y), (x, y))
            kind, critic, history = chosen.kind, chosen.critic, chosen.history
        lipschitz = bound_lipschitz(critic, "l2", (x.shape[1],))
        sx, sy = score_points(critic, x), score_points(critic, y)
        limits = min(sx.min(), sy.min()).item(), max(sx.max(), sy.max()).item()
        if not exact:
            dual = (sx.mean() - sy.mean()).item() - 2 * rounding_of(limits, torch.cat([x, y]))
            value = max(0.0, round_down(round_down(dual / lipschitz.value)))
            lower = Bound(value, L2, "lower", f"{kind} critic")
            self._tell("transport", 0, 1)
            upper = coupling_upper_bound(x, y, generator=self.generator)
        self._tell("transport", 1, 1)
        return WassersteinResult(
            estimate=Estimate((lower.value + upper.value) / 2, L2, "middle of the interval"),
            lower=lower,
            upper=upper,
            critic=critic,
            kind=kind,
            lipschitz=lipschitz,
            p_value=None,
            history=history,
            scaling=scale,
            columns=self.columns,
            population=False,
            scores=(sx, sy),
            rows=(len(x), len(y)),
            limits=limits,
            image_shape=self.image_shape,
            notes=tuple(self.notes),
        )

    def _fit_scaling(self, x: Tensor, y: Tensor) -> FeatureScaling:
        scale, notes = fit_scaling(self.scaling, torch.cat([x, y]), self.columns)
        self.notes += notes
        return scale

    def _choose(self, train: tuple[Tensor, Tensor], choose: tuple[Tensor, Tensor]) -> Chosen:
        return choose_critic(
            train,
            choose,
            kinds=self.kinds,
            num_steps=self.num_steps,
            patience=self.patience,
            generator=self.generator,
            on_progress=self.on_progress,
        )

    def _upper(self, x: Tensor, y: Tensor, confidence: float, diameter: float | None) -> Bound:
        self._tell("transport", 0, 1)
        smaller = min(len(x), len(y))
        size = min(_BATCH, smaller)
        upper = bound_population_upper(
            x,
            y,
            confidence=confidence,
            batch_size=size,
            generator=self.generator,
            diameter=diameter,
            num_batches=min(smaller // size, _MOST_BATCHES),
        )
        if diameter is None:
            self.notes.append(
                "the upper bound takes the width of the data for that of their populations"
            )
        self._tell("transport", 1, 1)
        return upper

    def _rows(self, stage: str, side: Side) -> Callable[[int], None] | None:
        """Tells how far a pass over a stream has come; its end is known where the file says it."""
        if self.on_progress is None or isinstance(side, Table):
            return None
        total = getattr(side, "rows", None)
        return lambda done: self._tell(f"{stage} {side.source}", done, max(done, total or 0))

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


def _from_cones(anchors: Tensor, offsets: Tensor) -> ConeCritic:
    critic = ConeCritic(len(anchors), anchors.shape[1]).double().eval()
    with torch.no_grad():
        critic.centres.copy_(anchors)
        critic.offsets.copy_(offsets)
    return critic
