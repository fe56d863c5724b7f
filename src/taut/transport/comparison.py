"""The common part of comparisons of finite sets and of populations."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from taut.bounds import Bound
from taut.certificates import BoundedEvaluation
from taut.data import describe_columns
from taut.linalg import round_down, round_up
from taut.nn import ConeCritic
from taut.transport.critic_selection import CriticName, OnProgress, SelectedCritic, select_critic
from taut.transport.critics import Samples
from taut.transport.distance_bounds import Scores, bound_mean_score
from taut.transport.feature_scaling import FeatureScaling, Scaling, fit_scaling
from taut.transport.input_data import Dataset
from taut.transport.line_transport import score_line
from taut.transport.wasserstein_result import WassersteinResult

SUBJECT = "wasserstein"
POTENTIAL = "transport potential"
NO_UPPER = "none: unseen values are mapped closer to the others than they are"


@dataclass
class Comparison:
    """A comparison of two samples; the attributes are the arguments of `wasserstein`."""

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
        self.encoding = self.x.encoding
        self.unseen: tuple[str, ...] = ()
        if self.encoding is not None and (losses := self.encoding.losses):
            self.notes.append(losses)

    def _set_unseen(self, *names: Sequence[str]) -> None:
        """Notes the columns with values that the encoding has not seen."""
        self.unseen = tuple(dict.fromkeys(itertools.chain(*names)))
        if self.unseen:
            which = describe_columns(self.unseen, range(len(self.unseen)))
            self.notes.append(
                f"no upper bound: the encoding has not seen all categories or gaps of {which}; these "
                "count as nearer than they are, so the distance may be larger than the estimate. Leave "
                "out `encoding`, or fit it to both tables"
            )

    def _evaluation(self, critic: nn.Module) -> Callable[[Tensor], Scores]:
        """A function from scaled rows to their scores with error bounds."""
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
        **attributes: Any,
    ) -> WassersteinResult:
        parts: dict[str, Any] = {
            "critic": selected.critic,
            "kind": selected.kind,
            "history": selected.history,
            "scaling": scale,
            "columns": self.columns or None,
            "encoding": self.encoding,
            "image_shape": self.x.image_shape or self.y.image_shape,
            "scores": tuple(side.values for side in scores),
            "errors": tuple(side.errors for side in scores),
            "means": tuple(map(bound_mean_score, scores)),
            "notes": tuple(self.notes),
            "unseen": self.unseen,
        }
        return WassersteinResult(**parts | attributes)

    def _fit_scaling(self, points: Tensor) -> FeatureScaling:
        fixed = None if self.encoding is None else torch.from_numpy(self.encoding.fixed)
        scale, notes = fit_scaling(self.scaling, points, self.columns, fixed)
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

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


def divide(bound: Bound, unit: float) -> Bound:
    """Divides the bound of a distance by a unit, rounded outward."""
    if bound.value == 0 or unit == 1:
        return bound
    value = bound.value / unit
    value = round_up(value) if bound.side == "upper" else max(0.0, round_down(value))
    return replace(bound, value=value)
