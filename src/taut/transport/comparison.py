"""One comparison of two samples, from rows to bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate
from taut.certificates import BoundedEvaluation
from taut.data import Table
from taut.errors import ArgumentError
from taut.nn import ConeCritic
from taut.norms import L2
from taut.transport.arguments import confidence_of_each
from taut.transport.coupling import coupling_upper_bound
from taut.transport.critics import Samples, score_points
from taut.transport.dataset import Dataset, load_rows, note_constant
from taut.transport.distance_bounds import (
    Scores,
    bound_finite_lower,
    bound_mean_score,
    bound_population_lower,
    bound_population_upper,
)
from taut.transport.exact import exact_transport
from taut.transport.feature_scaling import FeatureScaling, Scaling, fit_scaling
from taut.transport.mean_bounds import Method
from taut.transport.permutation import permutation_p_value
from taut.transport.result import WassersteinResult
from taut.transport.selection import CriticName, OnProgress, SelectedCritic, select_critic
from taut.transport.split import score_held_out, split_rows

__all__ = ["Comparison"]

_SUBJECT = "wasserstein"
_MIN_ROWS = 20
# Exact transport of finite sets up to this many pairs: about 300 MB, a minute or two.
_MOST_PAIRS = 40_000_000
_BATCH = 512
_MOST_BATCHES = 16


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
        sides = (self.x, self.y)
        splits = [
            split_rows(side, self.seed, i, self._on_rows("reading", side))
            for i, side in enumerate(sides)
        ]
        rows = splits[0].rows, splits[1].rows
        if min(rows) < _MIN_ROWS:
            raise ArgumentError(
                subject=_SUBJECT,
                rule=f"`x` and `y` must have at least {_MIN_ROWS} rows for bounds on populations",
                got=f"{rows[0]} and {rows[1]}",
                remedy="Give more rows.",
                option="finite=True",
            )
        low, high = (torch.stack([getattr(s, end) for s in splits]) for end in ("low", "high"))
        self.notes += note_constant(self.columns, low.amin(0), high.amax(0))
        for name, split in zip("xy", splits, strict=True):
            if len(split.train) < split.rows // 2:
                self.notes.append(
                    f"critics were trained on {len(split.train)} randomly drawn rows of the "
                    f"{split.rows} of {name}"
                )
        first, second = splits
        scale = self._fit_scaling(torch.cat([first.train, second.train]))
        train = scale(first.train), scale(second.train)
        selected = self._select(train, (scale(first.validation), scale(second.validation)))
        lipschitz = bound_lipschitz(selected.critic, "l2", (self.x.dim,))
        # Clamping is 1-Lipschitz, and its limits come from the training half.
        seen = torch.cat([score_points(selected.critic, side) for side in train])
        limits = seen.min().item(), seen.max().item()
        evaluate = BoundedEvaluation(selected.critic, self.x.dim)

        def score(batch: Tensor) -> Scores:
            return Scores(*evaluate(scale(batch)))

        sx, sy = (
            score_held_out(side, split, score, self._on_rows("scoring", side))
            for side, split in zip(sides, splits, strict=True)
        )
        each = confidence_of_each(_SUBJECT, confidence)
        lower = bound_population_lower(
            sx, sy, limits, lipschitz.value, each, method, self.generator, f"{selected.kind} critic"
        )
        p_value = permutation_p_value(
            sx.values, sy.values, num_permutations, generator=self.generator
        )
        # Features are scaled by the training half, on which the batches then must not depend.
        parts = (["train"] if self.scaling == "none" else []) + ["validation", "reserve"]
        pools = [scale(torch.cat([getattr(split, part) for part in parts])) for split in splits]
        upper = self._population_upper(pools[0], pools[1], each, diameter)
        difference = (sx.values.mean() - sy.values.mean()).item()
        return self._result(
            selected,
            scale,
            (sx, sy),
            lipschitz=lipschitz,
            limits=limits,
            estimate=Estimate(
                difference / (lipschitz.value or 1.0), L2, f"{selected.kind} critic, held-out"
            ),
            lower=lower,
            upper=upper,
            p_value=p_value,
            rows=rows,
            diameter=diameter,
            finite=False,
        )

    def finite_sets(self) -> WassersteinResult:
        """The distance of the two finite sets themselves."""
        x, y = load_rows(self.x, _SUBJECT), load_rows(self.y, _SUBJECT)
        points = torch.cat([x, y])
        self.notes += note_constant(self.columns, points.amin(0), points.amax(0))
        scale = self._fit_scaling(points)
        x, y = scale(points).split([len(x), len(y)])
        del points
        exact = None
        if len(x) * len(y) <= _MOST_PAIRS:
            self._report("transport", 0, 1)
            exact = exact_transport(x, y)
            critic = ConeCritic.from_points(exact.anchors, -exact.offsets)
            selected = SelectedCritic("cones", critic, (), exact.interval.lower.value)
        else:
            selected = self._select((x, y), (x, y))
        lipschitz = bound_lipschitz(selected.critic, "l2", (x.shape[1],))
        evaluate = BoundedEvaluation(selected.critic, x.shape[1])
        sx, sy = Scores(*evaluate(x)), Scores(*evaluate(y))
        values = torch.cat([sx.values, sy.values])
        if exact is not None:
            lower, upper = exact.interval.lower, exact.interval.upper
        else:
            lower = bound_finite_lower(sx, sy, lipschitz.value, name=f"{selected.kind} critic")
            self._report("transport", 0, 1)
            upper = coupling_upper_bound(x, y, generator=self.generator)
        self._report("transport", 1, 1)
        middle = (lower.value + upper.value) / 2
        return self._result(
            selected,
            scale,
            (sx, sy),
            kind=selected.kind if exact is None else "transport potential",
            lipschitz=lipschitz,
            limits=(values.min().item(), values.max().item()),
            estimate=Estimate(middle, L2, "middle of the interval"),
            lower=lower,
            upper=upper,
            p_value=None,
            rows=(len(x), len(y)),
            finite=True,
        )

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

    def _population_upper(
        self, x: Tensor, y: Tensor, confidence: float, diameter: float | None
    ) -> Bound:
        self._report("transport", 0, 1)
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
            self.notes.append("the upper bound assumes that the support is no wider than the data")
        self._report("transport", 1, 1)
        return upper

    def _on_rows(self, stage: str, side: Dataset) -> Callable[[int], None] | None:
        """Reports progress of a pass over a stream; the total is known where the file states it."""
        if self.on_progress is None or isinstance(side, Table):
            return None
        total = getattr(side, "rows", None)
        return lambda done: self._report(f"{stage} {side.source}", done, max(done, total or 0))

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)
