"""Comparison of two populations through samples: critics, bounds and a p-value."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate, format_bound
from taut.data import Table
from taut.errors import ArgumentError
from taut.linalg import round_up
from taut.nn import ConeCritic
from taut.norms import L2
from taut.transport.arguments import confidence_of_each
from taut.transport.comparison import NO_UPPER, POTENTIAL, SUBJECT, Comparison, divide
from taut.transport.critic_selection import SelectedCritic, check_squares
from taut.transport.critics import Samples, name_critic, score_points
from taut.transport.distance_bounds import (
    Scores,
    Stage,
    bound_population_lower,
    bound_population_upper,
)
from taut.transport.feature_scaling import FeatureScaling, column_ranges
from taut.transport.independence_checks import note_copies, note_order
from taut.transport.input_data import Dataset, find_unseen, iterate_batches, note_constant
from taut.transport.line_transport import line_potential
from taut.transport.mean_bounds import Method, log_inverse
from taut.transport.resampling import bootstrap_interval, combine_p_values, permutation_p_value
from taut.transport.split import score_held_out, split_rows
from taut.transport.two_sample_test import two_sample_p_value
from taut.transport.wasserstein_result import WassersteinResult

_MIN_ROWS = 20
_MOST_LINE_TRAINING = 100_000
# Rows of each sample behind an upper bound: a coupling of these takes a few seconds.
_MOST_COUPLED = 2**15
_FEW_COUPLED = 2**11
_COUPLED_CELLS = 2**23
# Samples of at least and at most so many rows are tested in two stages: with fewer, a part is too small
# to train a critic; with more, the last stage has nearly all of the power.
_STAGED = (100, 5000)
# An upper bound is useful below this multiple of the estimate, or this share of the random distance.
_USEFUL_RATIO = 3
_USEFUL_SHARE = 0.5
# Overfitting is noted if the training value exceeds the held-out one by this factor and beyond chance.
_OVERFIT_RATIO = 1.25
_OVERFIT_ERRORS = 3
# Shares of the training scores that may be clamped at each end.
_CLAMPED_SHARES = (0.0, 0.005, 0.02, 0.05)
# Share of the error probability of the p-value that is given to the test of held-out scores.
_SCORES_WEIGHT = 0.2


class _Fitted(NamedTuple):
    """A critic, the stages that test it and its predecessor, and the upper bound."""

    selected: SelectedCritic
    scale: FeatureScaling
    stages: list[Stage]
    trained: float  # difference of means on the training rows
    upper: Bound
    unrelated: float  # mean distance of unrelated rows: the cost of the worst sensible coupling
    rows: Samples  # not scaled; in samples of up to 20,000 rows all there are


class PopulationComparison(Comparison):
    """A comparison of the populations behind two samples."""

    def compare(
        self, confidence: float, method: Method, diameter: float | None, num_permutations: int
    ) -> WassersteinResult:
        """Bounds the distance of the populations, with rows that the critic has not seen."""
        each = confidence_of_each(SUBJECT, confidence)
        for side in (self.x, self.y):
            if isinstance(side, Table):
                self.notes += note_copies(side) + note_order(side, self.columns)
        fitted = self._fit_line(each, diameter) if self.x.dim == 1 else self._fit(each, diameter)
        selected, stages, upper = fitted.selected, fitted.stages, fitted.upper
        sx, sy = stages[-1].x, stages[-1].y
        lipschitz = bound_lipschitz(selected.critic, "l2", (self.x.dim,))
        name = name_critic(selected.kind)
        lower = bound_population_lower(stages, each, method, self.generator, name)
        p_value = self._test(fitted.rows, stages, num_permutations)
        constant = lipschitz.value or 1.0
        estimate = (sx.values.mean() - sy.values.mean()).item() / constant
        self._note_overfit(
            fitted.trained / constant, estimate, stages[-1], p_value <= 1 - confidence
        )
        if estimate < 0:
            self.notes.append(
                f"the estimate is 0 because the held-out difference, {estimate:.3g}, is negative"
            )
        ends = bootstrap_interval(sx.values, sy.values, confidence, generator=self.generator)
        largest = max(estimate, ends[1] / constant)
        useful = not self.unseen and (
            fitted.unrelated == 0
            or upper.value <= max(_USEFUL_RATIO * largest, _USEFUL_SHARE * fitted.unrelated)
        )
        if not (useful or self.unseen):
            proven = format_bound(upper.value, "upper", 3)
            self.notes.append(
                f"no useful upper bound: two samples of this size in {self.x.dim} dimensions are far apart "
                f"even if they come from one population, so the proven bound ({proven}) is not "
                "informative"
            )
        if not self.unseen:
            width = "the data" if diameter is None else f"{diameter:g}, as stated"
            assumed = f"the upper bound assumes that neither population is wider than {width}"
            self.notes.insert(0, assumed)
        estimate_method = f"{name}, held-out rows" + "; may be too low" * bool(self.unseen)
        return self._result(
            selected,
            fitted.scale,
            (sx, sy),
            lipschitz=lipschitz,
            limits=stages[-1].limits,
            estimate=Estimate(max(0.0, estimate), L2, estimate_method),
            lower=lower,
            upper=upper,
            upper_is_useful=useful,
            bootstrap=tuple(max(0.0, end / constant) for end in ends),
            p_value=p_value,
            rows=self.rows,
            diameter=diameter,
            finite=False,
        )

    def _test(self, rows: Samples, stages: Sequence[Stage], num_permutations: int) -> float:
        r"""One p-value of two tests that depend on each other: of the rows, and of held-out scores.

        $p = \min_k p_k / w_k$ with fixed weights of sum 1 is valid by a union bound:
        $\Pr(p \le \alpha) \le \sum_k \Pr(p_k \le w_k \alpha) \le \alpha$. Critics see structure that the
        test of rows does not, and need many rows for it.
        """
        options = {"num_permutations": num_permutations, "generator": self.generator}
        scores = [permutation_p_value(s.x.values, s.y.values, **options) for s in stages]
        combined = combine_p_values(scores, [len(stage.x.values) for stage in stages])
        of_rows = two_sample_p_value(*rows, **options)
        return min(1.0, of_rows / (1 - _SCORES_WEIGHT), combined / _SCORES_WEIGHT)

    def _note_overfit(self, trained: float, held_out: float, stage: Stage, differ: bool) -> None:
        spread = sum(side.values.var().item() / len(side.values) for side in (stage.x, stage.y))
        error = math.sqrt(spread) / (stage.lipschitz or 1.0)
        beyond_chance = trained - held_out > _OVERFIT_ERRORS * error
        if beyond_chance and trained > _OVERFIT_RATIO * max(held_out, 0.0):
            likely = ", and the distance is likely larger than the estimate" if differ else ""
            self.notes.append(
                f"the critic separates its training rows by {trained:.3g} and held-out ones by "
                f"{held_out:.3g}: it has learned noise{likely}; more rows would help"
            )

    def _fit(self, confidence: float, diameter: float | None) -> _Fitted:
        """Selects a critic, scores the held-out rows and bounds the distance from above."""
        sides = (self.x, self.y)
        reading = [self._on_rows("reading", side) for side in sides]
        splits = [split_rows(sides[i], self.seed, i, reading[i]) for i in (0, 1)]
        self._set_rows(*(split.rows for split in splits))
        self._set_unseen(*(split.unseen for split in splits))
        low, high = (torch.stack([getattr(s, end) for s in splits]) for end in ("low", "high"))
        self.notes += note_constant(self.columns, low.amin(0), high.amax(0))
        for side, split in zip(sides, splits, strict=True):
            if len(split.train) < split.rows // 2:
                self.notes.append(
                    f"critics were trained on {len(split.train)} randomly drawn rows of the "
                    f"{split.rows} of {side.source}"
                )
        pools = [torch.cat([split.train, split.validation]) for split in splits]
        # The scaling must be fixed before the rows of the first stage are seen.
        if staged := _STAGED[0] <= min(self.rows) <= _STAGED[1]:
            before = [len(pool) // 2 for pool in pools]
        else:
            before = [len(split.train) for split in splits]
        scale = self._fit_scaling(torch.cat([p[:n] for p, n in zip(pools, before, strict=True)]))
        stages = []
        if staged:
            halves = [scale(p).tensor_split([n]) for p, n in zip(pools, before, strict=True)]
            (x, fresh_x), (y, fresh_y) = halves
            parts = [half.tensor_split([len(half) * 5 // 6]) for half in (x, y)]
            train, validation = zip(*parts, strict=True)
            early = self._select(train, validation)
            evaluate = self._evaluation(early.critic)
            scores = evaluate(fresh_x), evaluate(fresh_y)
            stages.append(self._stage(early.critic, train, scores, confidence)[0])
        x, y = splits
        train = scale(x.train), scale(y.train)
        validation = scale(x.validation), scale(y.validation)
        selected = self._select(train, validation)
        evaluate = self._evaluation(selected.critic)
        sx, sy = (
            score_held_out(
                side, split, lambda rows: evaluate(scale(rows)), self._on_rows("scoring", side)
            )
            for side, split in zip(sides, splits, strict=True)
        )
        last, trained = self._stage(selected.critic, train, (sx, sy), confidence)
        # The distances of coupled rows must not depend on these rows either, through the scale or the
        # shift that replaces missing numbers. All are in random order, whatever their values.
        gaps = self.encoding is not None and self.encoding.has_gaps
        skips = (0, 0) if self.scaling == "none" and not gaps else before
        most = min(_MOST_COUPLED, max(_FEW_COUPLED, _COUPLED_CELLS // self.x.dim))
        x, y = (torch.cat([p, split.reserve]) for p, split in zip(pools, splits, strict=True))
        coupled_x, coupled_y = scale(x[skips[0] :][:most]), scale(y[skips[1] :][:most])
        self._report("transport", 0, 1)
        upper = self._bound_upper(coupled_x, coupled_y, confidence, diameter)
        self._report("transport", 1, 1)
        apart = _mean_distance(coupled_x, coupled_y)
        return _Fitted(selected, scale, [*stages, last], trained, upper, apart, (x, y))

    def _fit_line(self, confidence: float, diameter: float | None) -> _Fitted:
        """Does the same for one column, where half of the rows give a critic without training.

        The scaling is fixed before the rows of the first stage are seen. The upper bound is about rows
        in their own unit, and divided by the scale afterwards: so it holds for every scale at once, and
        uses all rows. But a stated diameter is in scaled units, a width that depends on the rows that
        fixed the scale, and these are left out then.
        """
        self._report("transport", 0, 1)
        x, y = (
            torch.cat([batch.double() for batch in iterate_batches(side)])
            for side in (self.x, self.y)
        )
        self._set_rows(len(x), len(y))
        rows, points = (x, y), torch.cat([x, y])
        self.notes += note_constant(self.columns, *column_ranges(points))
        self._set_unseen(find_unseen(self.encoding, points))
        train, held_out = zip(*(self._halve(side) for side in (x, y)), strict=True)
        staged = _STAGED[0] <= min(self.rows) <= _STAGED[1]
        (early_x, fresh_x), (early_y, fresh_y) = (
            side.tensor_split([len(side) // 2 if staged else len(side)]) for side in train
        )
        scale = self._fit_scaling(torch.cat([early_x, early_y]))
        check_squares(scale(points))
        if diameter is not None and self.scaling != "none":
            x, y = torch.cat([fresh_x, held_out[0]]), torch.cat([fresh_y, held_out[1]])
        stages = []
        if staged:
            parts = (scale(early_x), scale(early_y)), (scale(fresh_x), scale(fresh_y))
            stages.append(self._line_stage(*parts, confidence)[1])
        train, held_out = (
            (scale(train[0]), scale(train[1])),
            (scale(held_out[0]), scale(held_out[1])),
        )
        critic, last, trained = self._line_stage(train, held_out, confidence)
        unit = scale.scale.item()
        width = None if diameter is None else round_up(diameter * unit)
        raw = self._bound_upper(x, y, confidence, width)
        self._report("transport", 1, 1)
        selected = SelectedCritic(POTENTIAL, critic)
        upper, apart = divide(raw, unit), _mean_distance(x, y) / unit
        return _Fitted(selected, scale, [*stages, last], trained, upper, apart, rows)

    def _bound_upper(self, x: Tensor, y: Tensor, confidence: float, width: float | None) -> Bound:
        if self.unseen:
            return Bound(math.inf, L2, "upper", NO_UPPER, confidence)
        return bound_population_upper(x, y, confidence, generator=self.generator, diameter=width)

    def _line_stage(
        self, train: Samples, held_out: Samples, confidence: float
    ) -> tuple[ConeCritic, Stage, float]:
        """The critic of the training rows, the stage of the held-out rows, and the training value."""
        critic = line_potential(train[0][:, 0], train[1][:, 0])
        evaluate = self._evaluation(critic)
        scores = evaluate(held_out[0]), evaluate(held_out[1])
        return critic, *self._stage(critic, train, scores, confidence)

    def _stage(
        self, critic: nn.Module, train: Samples, scores: tuple[Scores, Scores], confidence: float
    ) -> tuple[Stage, float]:
        """The stage of a critic, with limits chosen on the training rows, and the training value."""
        if self.x.dim == 1:
            evaluate = self._evaluation(critic)
            training_scores = [evaluate(side).values for side in train]
        else:
            training_scores = [score_points(critic, side) for side in train]
        counts = [len(side.values) for side in scores]
        limits, deviations = _choose_limits(training_scores, counts, 1 - confidence)
        lipschitz = bound_lipschitz(critic, "l2", (self.x.dim,)).value
        trained = (training_scores[0].mean() - training_scores[1].mean()).item()
        return Stage(*scores, limits, lipschitz, deviations), trained

    def _halve(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Draws half of the rows, at most 100,000, in random order; the others keep their order."""
        drawn = torch.randperm(len(rows), generator=self.generator)
        drawn = drawn[: min(len(rows) // 2, _MOST_LINE_TRAINING)]
        others = torch.ones(len(rows), dtype=torch.bool)
        others[drawn] = False
        return rows[drawn], rows[others]

    def _set_rows(self, *rows: int) -> None:
        self.rows = rows
        if min(rows) < _MIN_ROWS:
            rule = f"`x` and `y` must have at least {_MIN_ROWS} rows for bounds on populations"
            got, remedy = f"{rows[0]} and {rows[1]}", "Give more rows."
            raise ArgumentError(SUBJECT, rule=rule, got=got, remedy=remedy, option=("finite", True))

    def _on_rows(self, stage: str, side: Dataset) -> Callable[[int], None] | None:
        """A progress callback for a pass over a stream; the total is known if the file states it."""
        if self.on_progress is None or isinstance(side, Table):
            return None
        total = getattr(side, "rows", None)
        return lambda done: self._report(f"{stage} {side.source}", done, max(done, total or 0))


def _choose_limits(
    scores: list[Tensor], counts: list[int], delta: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Chooses the score limits that promise the largest lower bound; also returns the deviations within.

    Narrow limits lose a part of the difference and of the deviation term, which grows with the range.
    """
    pooled, log = torch.cat(scores).sort().values, log_inverse(delta)
    best, selected = -math.inf, ((0.0, 0.0), (0.0, 0.0))
    for share in _CLAMPED_SHARES:
        cut = int(share * len(pooled))
        low, high = pooled[cut].item(), pooled[len(pooled) - 1 - cut].item()
        x, y = (side.clamp(low, high) for side in scores)
        deviations = (x.std().item(), y.std().item())
        slack = math.sqrt(2 * log) * math.hypot(
            *(s / math.sqrt(n) for s, n in zip(deviations, counts, strict=True))
        )
        promised = (x.mean() - y.mean()).item() - slack - log * (high - low) / min(counts)
        if promised > best:
            best, selected = promised, ((low, high), deviations)
    return selected


def _mean_distance(x: Tensor, y: Tensor) -> float:
    """The mean distance of unrelated rows; the order of rows must not depend on their values."""
    count = min(len(x), len(y), 10_000)
    return torch.linalg.vector_norm(x[:count] - y[:count].flip(0), dim=-1).mean().item()
