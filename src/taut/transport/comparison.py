"""One comparison of two samples, from rows to bounds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate, Interval
from taut.certificates import BoundedEvaluation
from taut.data import Table
from taut.errors import ArgumentError
from taut.linalg import round_down, round_up
from taut.nn import ConeCritic
from taut.norms import L2
from taut.transport.arguments import confidence_of_each
from taut.transport.coupling import coupling_upper_bound
from taut.transport.critics import Samples, score_points
from taut.transport.dataset import Dataset, iterate_batches, load_rows, note_constant
from taut.transport.distance_bounds import (
    Scores,
    bound_finite_lower,
    bound_mean_score,
    bound_population_lower,
    bound_population_upper,
)
from taut.transport.exact import exact_transport
from taut.transport.feature_scaling import FeatureScaling, Scaling, fit_scaling
from taut.transport.line import line_distance, line_potential, score_line
from taut.transport.mean_bounds import Method
from taut.transport.permutation import permutation_p_value
from taut.transport.result import WassersteinResult
from taut.transport.selection import (
    CriticName,
    OnProgress,
    SelectedCritic,
    check_squares,
    select_critic,
)
from taut.transport.split import score_held_out, split_rows

__all__ = ["Comparison"]

_SUBJECT = "wasserstein"
_MIN_ROWS = 20
# Exact transport of finite sets up to this many pairs: about 300 MB, a minute or two.
_MOST_PAIRS = 40_000_000
_POTENTIAL = "transport potential"
_MOST_LINE_TRAINING = 100_000
# Rows of each sample behind an upper bound: a coupling of these takes a few seconds.
_MOST_COUPLED = 2**15
_FEW_COUPLED = 2**11
_COUPLED_CELLS = 2**23
# An upper bound so many times the estimate, in more dimensions than this, deserves a word.
_LOOSE_RATIO = 3
_LOOSE_DIM = 5

# Critic, scaling, limits of the scores, scores of the held-out rows, upper bound.
_Fitted = tuple[SelectedCritic, FeatureScaling, tuple[float, float], tuple[Scores, Scores], Bound]


@dataclass
class Comparison:
    """Two samples, and how to compare them; the arguments are those of `wasserstein`."""

    x: Dataset
    y: Dataset
    notes: list[str]
    scaling: Scaling
    critics: tuple[CriticName, ...]
    num_steps: int
    patience: int
    seed: int
    on_progress: OnProgress | None

    def __post_init__(self) -> None:
        self.generator = Generator().manual_seed(self.seed)
        self.columns = self.x.columns or self.y.columns

    def populations(
        self, confidence: float, method: Method, diameter: float | None, num_permutations: int
    ) -> WassersteinResult:
        """The distance of the populations, from rows that the critic has not seen."""
        each = confidence_of_each(_SUBJECT, confidence)
        if self.x.dim == 1:
            selected, scale, limits, scores, upper = self._fit_line(each, diameter)
        else:
            selected, scale, limits, scores, upper = self._fit(each, diameter)
        sx, sy = scores
        lipschitz = bound_lipschitz(selected.critic, "l2", (self.x.dim,))
        name = f"{selected.kind} critic"
        lower = bound_population_lower(
            sx, sy, limits, lipschitz.value, each, method, self.generator, name
        )
        p_value = permutation_p_value(
            sx.values, sy.values, num_permutations, generator=self.generator
        )
        estimate = (sx.values.mean() - sy.values.mean()).item() / (lipschitz.value or 1.0)
        if estimate < 0:
            self.notes.append(
                f"the estimate is 0 because the held-out difference, {estimate:.3g}, is negative"
            )
            estimate = 0.0
        if self.x.dim > _LOOSE_DIM and upper.value > _LOOSE_RATIO * estimate:
            self.notes.append(
                f"the upper bound is loose: in {self.x.dim} dimensions even two samples of one "
                "population are far apart, and only far more rows bring them closer"
            )
        support = "the data" if diameter is None else f"{diameter:g}, as stated"
        self.notes.insert(
            0, f"the upper bound assumes that each support is no wider than {support}"
        )
        return self._result(
            selected,
            scale,
            scores,
            lipschitz=lipschitz,
            limits=limits,
            estimate=Estimate(estimate, L2, f"{name}, held-out"),
            lower=lower,
            upper=upper,
            p_value=p_value,
            rows=self.rows,
            diameter=diameter,
            finite=False,
        )

    def _fit(self, confidence: float, diameter: float | None) -> _Fitted:
        """A critic selected on some rows, the scores of the held-out ones, and the upper bound."""
        sides = (self.x, self.y)
        splits = [
            split_rows(side, self.seed, i, self._on_rows("reading", side))
            for i, side in enumerate(sides)
        ]
        first, second = splits
        self._set_rows(first.rows, second.rows)
        low, high = (torch.stack([getattr(s, end) for s in splits]) for end in ("low", "high"))
        self.notes += note_constant(self.columns, low.amin(0), high.amax(0))
        for name, split in zip("xy", splits, strict=True):
            if len(split.train) < split.rows // 2:
                self.notes.append(
                    f"critics were trained on {len(split.train)} randomly drawn rows of the "
                    f"{split.rows} of {name}"
                )
        scale = self._fit_scaling(torch.cat([first.train, second.train]))
        train = scale(first.train), scale(second.train)
        selected = self._select(train, (scale(first.validation), scale(second.validation)))
        # Clamping is 1-Lipschitz, and its limits come from the training half.
        seen = torch.cat([score_points(selected.critic, side) for side in train])
        evaluate = self._evaluation(selected.critic)
        sx, sy = (
            score_held_out(
                side, split, lambda rows: evaluate(scale(rows)), self._on_rows("scoring", side)
            )
            for side, split in zip(sides, splits, strict=True)
        )
        # Features are scaled by the training half, on which the coupling then must not depend.
        parts = (["train"] if self.scaling == "none" else []) + ["validation", "reserve"]
        most = min(_MOST_COUPLED, max(_FEW_COUPLED, _COUPLED_CELLS // self.x.dim))
        # The parts are in random order, drawn without looking at the rows.
        pool_x, pool_y = (scale(torch.cat([getattr(s, p) for p in parts])[:most]) for s in splits)
        self._report("transport", 0, 1)
        upper = bound_population_upper(
            pool_x, pool_y, confidence, generator=self.generator, diameter=diameter
        )
        self._report("transport", 1, 1)
        return selected, scale, (seen.min().item(), seen.max().item()), (sx, sy), upper

    def _fit_line(self, confidence: float, diameter: float | None) -> _Fitted:
        """The same on a line, where half of the rows give a critic without training.

        The upper bound is about all rows in their own unit, and divided by the scale afterwards: it
        holds for every scale at once, also one that was chosen by looking at some of the rows.
        """
        self._report("transport", 0, 1)
        x, y = (
            torch.cat([batch.double() for batch in iterate_batches(side)])
            for side in (self.x, self.y)
        )
        self._set_rows(len(x), len(y))
        points = torch.cat([x, y])
        self.notes += note_constant(self.columns, points.amin(0), points.amax(0))
        train, held = zip(*(self._halve(side) for side in (x, y)), strict=True)
        scale = self._fit_scaling(torch.cat(train))
        check_squares(scale(points))
        selected = SelectedCritic(
            _POTENTIAL, line_potential(*(scale(side)[:, 0] for side in train))
        )
        evaluate = self._evaluation(selected.critic)
        seen = evaluate(scale(torch.cat(train))).values
        sx, sy = (evaluate(scale(side)) for side in held)
        unit = scale.scale.item()
        raw = bound_population_upper(
            x,
            y,
            confidence,
            generator=self.generator,
            diameter=None if diameter is None else round_up(diameter * unit),
        )
        upper = _divide(raw, unit)
        self._report("transport", 1, 1)
        return selected, scale, (seen.min().item(), seen.max().item()), (sx, sy), upper

    def _halve(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows drawn uniformly, half or 100,000 of them, and all others in their order."""
        drawn = torch.randperm(len(rows), generator=self.generator)
        first = torch.zeros(len(rows), dtype=torch.bool)
        first[drawn[: min(len(rows) // 2, _MOST_LINE_TRAINING)]] = True
        return rows[first], rows[~first]

    def _set_rows(self, *rows: int) -> None:
        self.rows = rows
        if min(rows) < _MIN_ROWS:
            raise ArgumentError(
                subject=_SUBJECT,
                rule=f"`x` and `y` must have at least {_MIN_ROWS} rows for bounds on populations",
                got=f"{rows[0]} and {rows[1]}",
                remedy="Give more rows.",
                option="finite=True",
            )

    def finite_sets(self) -> WassersteinResult:
        """The distance of the two finite sets themselves."""
        x, y = load_rows(self.x, _SUBJECT), load_rows(self.y, _SUBJECT)
        points = torch.cat([x, y])
        self.notes += note_constant(self.columns, points.amin(0), points.amax(0))
        scale = self._fit_scaling(points)
        self._report("transport", 0, 1)
        interval = None
        if self.x.dim == 1:
            # In the rows' own unit, so that no rounding of the scaling is left out.
            found, unit = line_distance(x[:, 0], y[:, 0]), scale.scale.item()
            interval = Interval(_divide(found.lower, unit), _divide(found.upper, unit))
        x, y = scale(points).split([len(x), len(y)])
        del points
        if interval is not None:
            check_squares(torch.cat([x, y]))
            selected = SelectedCritic(_POTENTIAL, line_potential(x[:, 0], y[:, 0]))
        elif len(x) * len(y) <= _MOST_PAIRS:
            exact = exact_transport(x, y)
            interval = exact.interval
            critic = ConeCritic.from_points(exact.anchors, -exact.offsets)
            selected = SelectedCritic(_POTENTIAL, critic)
        else:
            selected = self._select((x, y), (x, y))
        lipschitz = bound_lipschitz(selected.critic, "l2", (self.x.dim,))
        evaluate = self._evaluation(selected.critic)
        sx, sy = evaluate(x), evaluate(y)
        values = torch.cat([sx.values, sy.values])
        if interval is None:
            lower = bound_finite_lower(sx, sy, lipschitz.value, name=f"{selected.kind} critic")
            self._report("transport", 0, 1)
            interval = Interval(lower, coupling_upper_bound(x, y, generator=self.generator))
        self._report("transport", 1, 1)
        lower, upper = interval.lower, interval.upper
        return self._result(
            selected,
            scale,
            (sx, sy),
            lipschitz=lipschitz,
            limits=(values.min().item(), values.max().item()),
            estimate=Estimate((lower.value + upper.value) / 2, L2, "middle of the interval"),
            lower=lower,
            upper=upper,
            p_value=None,
            rows=(len(x), len(y)),
            finite=True,
        )

    def _evaluation(self, critic: nn.Module) -> Callable[[Tensor], Scores]:
        """The scores of scaled rows, with their error bounds."""
        if self.x.dim == 1:
            assert isinstance(critic, ConeCritic)
            return lambda rows: Scores(*score_line(critic, rows[:, 0]))
        evaluate = BoundedEvaluation(critic, self.x.dim)
        return lambda rows: Scores(*evaluate(rows))

    def _result(
        self,
        selected: SelectedCritic,
        scale: FeatureScaling,
        scores: tuple[Scores, Scores],
        **found: Any,
    ) -> WassersteinResult:
        parts: dict[str, Any] = {
            "critic": selected.critic,
            "kind": selected.kind,
            "history": selected.history,
            "scaling": scale,
            "columns": self.columns or None,
            "image_shape": self.x.image_shape or self.y.image_shape,
            "scores": tuple(side.values for side in scores),
            "errors": tuple(side.errors for side in scores),
            "means": tuple(map(bound_mean_score, scores)),
            "notes": tuple(self.notes),
        }
        return WassersteinResult(**parts | found)

    def _fit_scaling(self, points: Tensor) -> FeatureScaling:
        scale, notes = fit_scaling(self.scaling, points, self.columns)
        self.notes += notes
        return scale

    def _select(self, train: Samples, validation: Samples) -> SelectedCritic:
        return select_critic(
            train,
            validation,
            critics=self.critics,
            num_steps=self.num_steps,
            patience=self.patience,
            generator=self.generator,
            on_progress=self.on_progress,
        )

    def _on_rows(self, stage: str, side: Dataset) -> Callable[[int], None] | None:
        """Reports progress of a pass over a stream; the total is known where the file states it."""
        if self.on_progress is None or isinstance(side, Table):
            return None
        total = getattr(side, "rows", None)
        return lambda done: self._report(f"{stage} {side.source}", done, max(done, total or 0))

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


def _divide(bound: Bound, unit: float) -> Bound:
    """The bound of a distance in another unit, rounded outward."""
    if bound.value == 0 or unit == 1:
        return bound
    value = bound.value / unit
    value = round_up(value) if bound.side == "upper" else max(0.0, round_down(value))
    return replace(bound, value=value)
