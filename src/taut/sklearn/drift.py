r"""`WassersteinDrift`: drift from a reference, of batches and of single rows."""

import math
from fractions import Fraction
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.utils.validation import validate_data

from taut.audit import bound_lipschitz
from taut.data import Table
from taut.errors import ArgumentError, DataError, check_choice, check_count
from taut.nn import ConeCritic
from taut.sklearn.base import RandomState, predict_rows, seed_of
from taut.transport import (
    CRITICS,
    CriticName,
    Method,
    Scaling,
    WassersteinResult,
    wasserstein,
)

__all__ = ["WassersteinDrift"]

_SUBJECT = "WassersteinDrift"
_SCALERS = {"none": None, "standard": StandardScaler, "robust": RobustScaler}


class WassersteinDrift(OutlierMixin, BaseEstimator):
    r"""Drift from a reference, for single rows and for whole batches, each with its guarantee.

    **Rows.** One part of the reference, the centres $c_j$, fixes the 1-Lipschitz function

    $$s(x) = -\min_j \|x - c_j\|,$$

    minus the distance to the reference; the other part, of $n$ rows unseen by it, fixes a threshold,
    the $k$-th smallest of its distances with $k = \lceil (n + 1)(1 - \alpha) \rceil$. A row farther
    than that is predicted -1, others +1. For a new row of the reference's own law the probability
    of -1 is at most $\alpha$ = `false_alarm_rate`, whatever the law (all $n + 1$ distances are
    equally likely to be the largest, the second, ...).

    **Batches.** `compare` is `taut.wasserstein(reference, X)`: an estimate and two bounds of the
    distance between the populations. `drifted` asks whether the *lower* bound exceeds a tolerance:
    unlike with p-values, sample size alone never raises the alarm. `score` is minus that lower
    bound.

    As in scikit-learn, larger scores mean closer to the reference.

    Args:
        false_alarm_rate: false-alarm rate $\alpha$ of single rows, in (0, 1).
        num_centres: number of rows of the reference that become centres, at most half of them.
        confidence: joint confidence level of both bounds of `compare`.
        scaling: scaling of the features: "none" keeps the data's own units; "standard" and "robust"
            make features comparable, for rows by the centres, for batches as `taut.wasserstein` does.
        method: confidence bound of the means: "betting", "bernstein" or "hoeffding".
        critics: kinds of critics that `compare` tries.
        num_steps: training steps of the longest fit.
        patience: number of rounds of fits without progress that end the training.
        diameter: upper bound of the diameter of each support, for the upper bound.
        num_permutations: number of permutations behind the p-value.
        random_state: random seed or generator; equal data and seed give equal results.

    Attributes:
        reference_: `(n, features)`, the rows of `fit`.
        critic_: $s$, on scaled features.
        lipschitz_: its proven constant.
        scaler_: the fitted scaler of rows, None without scaling.
        offset_: minus the threshold: `decision_function` is `score_samples` less this.
        false_alarm_rate_: the proven rate, $(n + 1 - k)/(n + 1)$: at most `false_alarm_rate`, but for
            references so small ($n < 1/\alpha - 1$) that only rows beyond all $n$ are predicted -1.
        seed_: the seed drawn from `random_state`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> drift = WassersteinDrift(num_steps=50, critics=("cones",)).fit(rng.normal(size=(200, 2)))
        >>> drift.predict([[0.0, 0.0], [6.0, 6.0]])
        array([ 1, -1])
        >>> drift.drifted(rng.normal(size=(200, 2)))
        False
        >>> drift.drifted(rng.normal(size=(200, 2)) + 2, above=1.0)
        True
    """

    scaling: Scaling
    method: Method

    def __init__(
        self,
        *,
        false_alarm_rate: float = 0.05,
        num_centres: int = 1000,
        confidence: float = 0.95,
        scaling: Scaling = "none",
        method: Method = "betting",
        critics: tuple[CriticName, ...] = CRITICS,
        num_steps: int = 1000,
        patience: int = 1,
        diameter: float | None = None,
        num_permutations: int = 999,
        random_state: RandomState = 0,
    ) -> None:
        self.false_alarm_rate = false_alarm_rate
        self.num_centres = num_centres
        self.confidence = confidence
        self.scaling = scaling
        self.method = method
        self.critics = critics
        self.num_steps = num_steps
        self.patience = patience
        self.diameter = diameter
        self.num_permutations = num_permutations
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keeps the reference and fixes the threshold of rows.

        Args:
            X: `(n, features)`, finite, at least two rows; bounds in `compare` need 20.
            y: ignored.
        """
        check_choice(_SUBJECT, "scaling", self.scaling, tuple(_SCALERS))
        check_count(_SUBJECT, "num_centres", self.num_centres)
        if not 0 < self.false_alarm_rate < 1:
            raise ArgumentError(
                subject=_SUBJECT,
                argument="false_alarm_rate",
                rule="must lie strictly between 0 and 1",
                got=f"false_alarm_rate={self.false_alarm_rate!r}",
            )
        points: Any = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.seed_ = seed_of(self.random_state)
        self.reference_ = points.copy()  # what the caller does to X later is no drift
        generator = torch.Generator().manual_seed(self.seed_)
        shuffled = points[torch.randperm(len(points), generator=generator).numpy()]
        middle = min(len(points) // 2, self.num_centres)
        scaler = _SCALERS[self.scaling]
        self.scaler_ = None if scaler is None else scaler().fit(shuffled[:middle])
        self.critic_ = ConeCritic.from_points(
            torch.tensor(self._scaled(shuffled[:middle])), sign=-1
        )
        self.lipschitz_ = bound_lipschitz(self.critic_, "l2", (points.shape[1],))
        unseen = np.sort(-self._scores(shuffled[middle:]))
        # In fractions: a rounded product could lie on the wrong side of a whole number.
        rank = math.ceil((len(unseen) + 1) * (1 - Fraction(float(self.false_alarm_rate))))
        rank = min(rank, len(unseen))
        self.offset_ = -unseen[rank - 1]
        if not np.isfinite(self.offset_):
            raise DataError(
                subject=_SUBJECT,
                rule="distances within the reference must be finite",
                got="infinity, for their squares overflow",
                remedy="Divide the data by a constant.",
            )
        self.false_alarm_rate_ = (len(unseen) + 1 - rank) / (len(unseen) + 1)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Minus the distance of every row to the nearest centre, `(n,)`, in scaled units."""
        return self._scores(predict_rows(self, X))

    def decision_function(self, X: Any) -> np.ndarray:
        """`score_samples(X) - offset_`: below zero for the rows that `predict` calls -1."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for rows farther from the reference than the threshold, +1 for others."""
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def compare(self, X: Any) -> WassersteinResult:
        """The distance between the reference's population and that of `X`, with its bounds.

        Equal to `taut.wasserstein(reference_, X, seed=seed_)` with the parameters of this estimator.

        Args:
            X: `(m, features)`, at least 20 rows.
        """
        rows = predict_rows(self, X)
        names = tuple(map(str, getattr(self, "feature_names_in_", ())))
        return wasserstein(
            Table(self.reference_, names, None, "reference"),
            Table(rows.copy(), names, None, "X"),
            confidence=self.confidence,
            scaling=self.scaling,
            method=self.method,
            critics=self.critics,
            num_steps=self.num_steps,
            patience=self.patience,
            diameter=self.diameter,
            num_permutations=self.num_permutations,
            seed=self.seed_,
        )

    def drifted(self, X: Any, above: float = 0.0) -> bool:
        """Whether the proven lower bound of the distance exceeds `above`.

        When the true distance is at most `above`, True has a probability of at most
        `(1 - confidence) / 2`, however large the samples.

        Args:
            X: `(m, features)`, at least 20 rows.
            above: the distance that is tolerated, in scaled units; not negative.
        """
        if not above >= 0:
            raise ArgumentError(
                subject=_SUBJECT,
                argument="above",
                rule="must not be negative",
                got=f"above={above!r}",
            )
        return self.compare(X).lower.value > above

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the lower bound of the distance: 0 where no drift is proven, less with more drift.

        Args:
            X: `(m, features)`, at least 20 rows.
            y: ignored.
        """
        return 0.0 - self.compare(X).lower.value

    def _scaled(self, points: np.ndarray) -> np.ndarray:
        return points if self.scaler_ is None else self.scaler_.transform(points)

    @torch.no_grad()
    def _scores(self, points: np.ndarray) -> np.ndarray:
        return self.critic_(torch.tensor(self._scaled(points))).flatten().numpy()
