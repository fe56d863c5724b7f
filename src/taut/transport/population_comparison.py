"""The distance between the populations of two samples, from rows to bounds."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate
from taut.data import Table
from taut.errors import ArgumentError
from taut.linalg import round_up
from taut.nn import ConeCritic
from taut.norms import L2
from taut.transport.arguments import confidence_of_each
from taut.transport.comparison import NO_UPPER, POTENTIAL, SUBJECT, Comparison, divide
from taut.transport.critics import Samples, score_points
from taut.transport.dataset import Dataset, find_unseen, iterate_batches, note_constant
from taut.transport.distance_bounds import (
    Scores,
    Stage,
    bound_population_lower,
    bound_population_upper,
)
from taut.transport.feature_scaling import FeatureScaling, column_ranges
from taut.transport.independence_checks import note_copies, note_order
from taut.transport.line import line_potential
from taut.transport.mean_bounds import Method, log_inverse
from taut.transport.resampling import bootstrap_interval, combine_p_values, permutation_p_value
from taut.transport.selection import SelectedCritic, check_squares
from taut.transport.split import score_held_out, split_rows
from taut.transport.two_sample_test import two_sample_p_value
from taut.transport.wasserstein_result import WassersteinResult

_MIN_ROWS = 20
_MOST_LINE_TRAINING = 100_000
# Rows of each sample behind an upper bound: a coupling of these takes a few seconds.
_MOST_COUPLED = 2**15
_FEW_COUPLED = 2**11
_COUPLED_CELLS = 2**23
# Samples of at least and at most so many rows are judged in two stages: with fewer no critic can be
# trained on a part, with more the last stage says nearly all.
_STAGED = (100, 5000)
# An upper bound is of use below so many estimates, or below this share of the distance of random rows.
_USEFUL_RATIO = 3
_USEFUL_SHARE = 0.5
# Training values so many times the held-out ones, beyond chance, deserve a word.
_OVERFIT_RATIO = 1.25
_OVERFIT_ERRORS = 3
# Shares of the training scores that may be clamped at each end.
_CLAMPED_SHARES = (0.0, 0.005, 0.02, 0.05)
# Share of the error probability of the p-value that the test of held-out scores has.
_SCORES_WEIGHT = 0.2


class _Fitted(NamedTuple):
    """A critic, the stages that judge it and its forerunner, and the upper bound."""

    selected: SelectedCritic
    scale: FeatureScaling
    stages: list[Stage]
    trained: float  # difference of means on the training rows
    upper: Bound
    unrelated: float  # mean distance of unrelated rows: the cost of the worst sensible coupling
    rows: Samples  # not scaled; in samples of up to 20,000 rows all there are


class PopulationComparison(Comparison):
    """Two samples of populations, and how to compare them."""

    def compare(
        self, confidence: float, method: Method, diameter: float | None, num_permutations: int
    ) -> WassersteinResult:
        """The distance of the populations, from rows that the critic has not seen."""
        each = confidence_of_each(SUBJECT, confidence)
        for name, side in (("x", self.x), ("y", self.y)):
            if isinstance(side, Table):
                self.notes += note_copies(side, name) + note_order(side, name, self.columns)
        fitted = self._fit_line(each, diameter) if self.x.dim == 1 else self._fit(each, diameter)
        selected, stages, upper = fitted.selected, fitted.stages, fitted.upper
        sx, sy = stages[-1].x, stages[-1].y
        lipschitz = bound_lipschitz(selected.critic, "l2", (self.x.dim,))
        name = f"{selected.kind} critic"
        lower = bound_population_lower(stages, each, method, self.generator, name)
        p_value = self._test(fitted.rows, stages, num_permutations)
        constant = lipschitz.value or 1.0
        estimate = (sx.values.mean() - sy.values.mean()).item() / constant
        self._note_overfit(fitted.trained / constant, estimate, stages[-1])
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
            self.notes.append(
                f"no useful upper bound: two samples of so many rows in {self.x.dim} dimensions are far "
                "apart even if they come from one population, so what can be proven "
                f"({upper.value:.3g}) says little"
            )
        if not self.unseen:
            width = "the data" if diameter is None else f"{diameter:g}, as stated"
            assumed = f"the upper bound assumes that each support is no wider than {width}"
            self.notes.insert(0, assumed)
        told = f"{name}, held-out" + "; a lower estimate" * bool(self.unseen)
        return self._result(
            selected,
            fitted.scale,
            (sx, sy),
            lipschitz=lipschitz,
            limits=stages[-1].limits,
            estimate=Estimate(max(0.0, estimate), L2, told),
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

    def _note_overfit(self, trained: float, held: float, stage: Stage) -> None:
        spread = sum(side.values.var().item() / len(side.values) for side in (stage.x, stage.y))
        error = math.sqrt(spread) / (stage.lipschitz or 1.0)
        beyond_chance = trained - held > _OVERFIT_ERRORS * error
        if beyond_chance and trained > _OVERFIT_RATIO * max(held, 0.0):
            likely = ", and the distance is likely larger than the estimate" if held > 0 else ""
            self.notes.append(
                f"the critic separates its training rows by {trained:.3g} and held-out ones by "
                f"{held:.3g}: it has learned noise{likely}; more rows would help"
            )

    def _fit(self, confidence: float, diameter: float | None) -> _Fitted:
        """A critic selected on some rows, the scores of the held-out ones, and the upper bound."""
        sides = (self.x, self.y)
        reading = [self._on_rows("reading", side) for side in sides]
        splits = [split_rows(sides[i], self.seed, i, reading[i]) for i in (0, 1)]
        self._set_rows(*(split.rows for split in splits))
        self._set_unseen(*(split.unseen for split in splits))
        low, high = (torch.stack([getattr(s, end) for s in splits]) for end in ("low", "high"))
        self.notes += note_constant(self.columns, low.amin(0), high.amax(0))
        for name, split in zip("xy", splits, strict=True):
            if len(split.train) < split.rows // 2:
                self.notes.append(
                    f"critics were trained on {len(split.train)} randomly drawn rows of the "
                    f"{split.rows} of {name}"
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
        # Nor may the distances of coupled rows depend on them, as by the scale, or by the shift at
        # which missing numbers stand. All are in random order, drawn without looking at them.
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
        """The same on a line, where half of the rows give a critic without training.

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
        train, held = zip(*(self._halve(side) for side in (x, y)), strict=True)
        staged = _STAGED[0] <= min(self.rows) <= _STAGED[1]
        (early_x, fresh_x), (early_y, fresh_y) = (
            side.tensor_split([len(side) // 2 if staged else len(side)]) for side in train
        )
        scale = self._fit_scaling(torch.cat([early_x, early_y]))
        check_squares(scale(points))
        if diameter is not None and self.scaling != "none":
            x, y = torch.cat([fresh_x, held[0]]), torch.cat([fresh_y, held[1]])
        stages = []
        if staged:
            parts = (scale(early_x), scale(early_y)), (scale(fresh_x), scale(fresh_y))
            stages.append(self._line_stage(*parts, confidence)[1])
        train, held = (scale(train[0]), scale(train[1])), (scale(held[0]), scale(held[1]))
        critic, last, trained = self._line_stage(train, held, confidence)
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
        self, train: Samples, held: Samples, confidence: float
    ) -> tuple[ConeCritic, Stage, float]:
        """The critic of some rows, the stage of others that it scores, and its training value."""
        critic = line_potential(train[0][:, 0], train[1][:, 0])
        evaluate = self._evaluation(critic)
        scores = evaluate(held[0]), evaluate(held[1])
        return critic, *self._stage(critic, train, scores, confidence)

    def _stage(
        self, critic: nn.Module, train: Samples, scores: tuple[Scores, Scores], confidence: float
    ) -> tuple[Stage, float]:
        """The stage of a critic, its limits chosen on the training rows, and its value on those."""
        if self.x.dim == 1:
            evaluate = self._evaluation(critic)
            seen = [evaluate(side).values for side in train]
        else:
            seen = [score_points(critic, side) for side in train]
        counts = [len(side.values) for side in scores]
        limits, deviations = _choose_limits(seen, counts, 1 - confidence)
        lipschitz = bound_lipschitz(critic, "l2", (self.x.dim,)).value
        trained = (seen[0].mean() - seen[1].mean()).item()
        return Stage(*scores, limits, lipschitz, deviations), trained

    def _halve(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows drawn uniformly, half or 100,000 of them, in random order, and all others in theirs."""
        drawn = torch.randperm(len(rows), generator=self.generator)
        drawn = drawn[: min(len(rows) // 2, _MOST_LINE_TRAINING)]
        others = torch.ones(len(rows), dtype=torch.bool)
        others[drawn] = False
        return rows[drawn], rows[others]

    def _set_rows(self, *rows: int) -> None:
        self.rows = rows
        if min(rows) < _MIN_ROWS:
            raise ArgumentError(
                subject=SUBJECT,
                rule=f"`x` and `y` must have at least {_MIN_ROWS} rows for bounds on populations",
                got=f"{rows[0]} and {rows[1]}",
                remedy="Give more rows.",
                option=("finite", True),
            )

    def _on_rows(self, stage: str, side: Dataset) -> Callable[[int], None] | None:
        """Reports progress of a pass over a stream; the total is known where the file states it."""
        if self.on_progress is None or isinstance(side, Table):
            return None
        total = getattr(side, "rows", None)
        return lambda done: self._report(f"{stage} {side.source}", done, max(done, total or 0))


def _choose_limits(
    seen: list[Tensor], counts: list[int], delta: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of the scores that promise the largest lower bound, and the deviations within them.

    Narrow limits lose a part of the difference and of the deviation term, which grows with the range.
    """
    pooled, log = torch.cat(seen).sort().values, log_inverse(delta)
    best, found = -math.inf, ((0.0, 0.0), (0.0, 0.0))
    for share in _CLAMPED_SHARES:
        cut = int(share * len(pooled))
        low, high = pooled[cut].item(), pooled[len(pooled) - 1 - cut].item()
        x, y = (side.clamp(low, high) for side in seen)
        deviations = (x.std().item(), y.std().item())
        slack = math.sqrt(2 * log) * math.hypot(
            *(s / math.sqrt(n) for s, n in zip(deviations, counts, strict=True))
        )
        promised = (x.mean() - y.mean()).item() - slack - log * (high - low) / min(counts)
        if promised > best:
            best, found = promised, ((low, high), deviations)
    return found


def _mean_distance(x: Tensor, y: Tensor) -> float:
    """The mean distance of unrelated rows, in random order or sorted by nothing."""
    count = min(len(x), len(y), 10_000)
    return torch.linalg.vector_norm(x[:count] - y[:count].flip(0), dim=-1).mean().item()
