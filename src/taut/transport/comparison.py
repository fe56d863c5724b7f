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
from taut.transport.confidence import Method, confidence_of_each
from taut.transport.coupling import coupling_upper_bound
from taut.transport.dataset import Dataset, load_rows, note_constant
from taut.transport.exact import exact_transport
from taut.transport.lower_bound import Scores, bound_finite_lower, bound_population_lower
from taut.transport.permutation import permutation_p_value
from taut.transport.result import WassersteinResult
from taut.transport.saved_critic import score_points
from taut.transport.scaling import FeatureScaling, Scaling, fit_scaling
from taut.transport.selection import CriticName, OnProgress, SelectedCritic, select_critic
from taut.transport.split import score_held_out, split_rows
from taut.transport.upper_bound import bound_population_upper

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
    columns: tuple[str, ...]
    image_shape: tuple[int, ...] | None
    notes: list[str]
    scaling: Scaling
    critics: tuple[CriticName, ...]
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
        ends = [torch.stack([split.low, split.high]) for split in splits]
        low, high = torch.minimum(*ends)[0], torch.maximum(*ends)[1]
        self.notes += note_constant(self.columns, low, high)
        for name, split in zip("xy", splits, strict=True):
            if len(split.train) < split.rows // 2:
                self.notes.append(
                    f"critics were trained on {len(split.train)} randomly drawn rows of the "
                    f"{split.rows} of {name}"
                )
        scale = self._fit_scaling(splits[0].train, splits[1].train)
        train = scale(splits[0].train), scale(splits[1].train)
        selected = self._select(train, (scale(splits[0].validation), scale(splits[1].validation)))
        critic = selected.critic
        lipschitz = bound_lipschitz(critic, "l2", (self.x.dim,))
        # Clamping is 1-Lipschitz, and its limits come from the training half.
        seen = torch.cat([score_points(critic, side) for side in train])
        limits = seen.min().item(), seen.max().item()
        evaluate = BoundedEvaluation(critic, self.x.dim)
        sx, sy = (
            score_held_out(
                side,
                split,
                lambda batch: Scores(*evaluate(scale(batch))),
                self._on_rows("scoring", side),
            )
            for side, split in zip(sides, splits, strict=True)
        )
        each = confidence_of_each(_SUBJECT, confidence)
        lower = bound_population_lower(
            sx,
            sy,
            limits,
            lipschitz.value,
            confidence=each,
            method=method,
            generator=self.generator,
            name=f"{selected.kind} critic",
        )
        p_value = permutation_p_value(
            sx.values, sy.values, num_permutations, generator=self.generator
        )
        # Features are scaled by the training half, on which the batches then must not depend.
        parts = (["train"] if self.scaling == "none" else []) + ["validation", "reserve"]
        pools = [scale(torch.cat([getattr(split, part) for part in parts])) for split in splits]
        upper = self._upper(pools[0], pools[1], each, diameter)
        difference = (sx.values.mean() - sy.values.mean()).item()
        estimate = difference / (lipschitz.value or 1.0)
        return self._result(
            estimate=Estimate(estimate, L2, f"{selected.kind} critic, held-out"),
            bounds=(lower, upper),
            selected=selected,
            lipschitz=lipschitz,
            p_value=p_value,
            scale=scale,
            finite=False,
            scores=(sx.values, sy.values),
            errors=(sx.errors, sy.errors),
            rows=rows,
            limits=limits,
            diameter=diameter,
        )

    def finite_sets(self) -> WassersteinResult:
        """The distance of the two finite sets themselves."""
        x, y = load_rows(self.x, _SUBJECT), load_rows(self.y, _SUBJECT)
        low, high = torch.minimum(x.amin(0), y.amin(0)), torch.maximum(x.amax(0), y.amax(0))
        self.notes += note_constant(self.columns, low, high)
        scale = self._fit_scaling(x, y)
        x, y = scale(x), scale(y)
        if exact := len(x) * len(y) <= _MOST_PAIRS:
            self._tell("transport", 0, 1)
            transport = exact_transport(x, y)
            critic = ConeCritic.from_points(transport.anchors, -transport.offsets)
            selected = SelectedCritic("cones", critic, (), transport.interval.lower.value)
            lower, upper = transport.interval.lower, transport.interval.upper
        else:
            selected = self._select((x, y), (x, y))
        kind = "transport potential" if exact else selected.kind
        lipschitz = bound_lipschitz(selected.critic, "l2", (x.shape[1],))
        evaluate = BoundedEvaluation(selected.critic, x.shape[1])
        sx, sy = Scores(*evaluate(x)), Scores(*evaluate(y))
        both = torch.cat([sx.values, sy.values])
        limits = both.min().item(), both.max().item()
        if not exact:
            lower = bound_finite_lower(sx, sy, lipschitz.value, name=f"{kind} critic")
            self._tell("transport", 0, 1)
            upper = coupling_upper_bound(x, y, generator=self.generator)
        self._tell("transport", 1, 1)
        middle = (lower.value + upper.value) / 2
        return self._result(
            estimate=Estimate(middle, L2, "middle of the interval"),
            bounds=(lower, upper),
            selected=selected,
            kind=kind,
            lipschitz=lipschitz,
            p_value=None,
            scale=scale,
            finite=True,
            scores=(sx.values, sy.values),
            errors=(sx.errors, sy.errors),
            rows=(len(x), len(y)),
            limits=limits,
        )

    def _result(self, **parts: Any) -> WassersteinResult:
        selected, (lower, upper) = parts.pop("selected"), parts.pop("bounds")
        return WassersteinResult(
            lower=lower,
            upper=upper,
            critic=selected.critic,
            kind=parts.pop("kind", selected.kind),
            history=selected.history,
            scaling=parts.pop("scale"),
            columns=self.columns or None,
            image_shape=self.image_shape,
            notes=tuple(self.notes),
            **parts,
        )

    def _fit_scaling(self, x: Tensor, y: Tensor) -> FeatureScaling:
        scale, notes = fit_scaling(self.scaling, torch.cat([x, y]), self.columns)
        self.notes += notes
        return scale

    def _select(
        self, train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor]
    ) -> SelectedCritic:
        return select_critic(
            train,
            validation,
            critics=self.critics,
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
            self.notes.append("the upper bound assumes that the support is no wider than the data")
        self._tell("transport", 1, 1)
        return upper

    def _on_rows(self, stage: str, side: Dataset) -> Callable[[int], None] | None:
        """Reports progress of a pass over a stream; the total is known where the file states it."""
        if self.on_progress is None or isinstance(side, Table):
            return None
        total = getattr(side, "rows", None)
        return lambda done: self._tell(f"{stage} {side.source}", done, max(done, total or 0))

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)
