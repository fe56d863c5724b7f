r"""`WassersteinDrift`: detects drift from a reference, of batches and of single rows."""

import copy
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from taut.audit import bound_lipschitz
from taut.data import Table
from taut.errors import DataError, check_choice, check_count, check_nonnegative, check_within
from taut.nn import ConeCritic
from taut.sklearn.base import RandomState, predict_rows, seed_of
from taut.sklearn.frames import encode_frame, fit_frame, order_columns
from taut.transport import (
    CRITICS,
    SCALINGS,
    CriticName,
    FeatureScaling,
    Method,
    Scaling,
    WassersteinResult,
    fit_scaling,
    wasserstein,
)

_SUBJECT = "WassersteinDrift"


class WassersteinDrift(OutlierMixin, BaseEstimator):
    r"""Drift from a reference, for single rows and for whole batches, each with its guarantee.

    **Rows.** One part of the reference, the centres $c_j$, fixes the 1-Lipschitz function

    $$s(x) = -\min_j \|x - c_j\|,$$

    minus the distance to the reference. The other part, $n$ held-out rows, determines a threshold: the
    $k$-th smallest of their distances, with $k = \lceil (n + 1)(1 - \alpha) \rceil$. A row farther away
    than that is predicted as -1, others as +1. For a new row from the distribution of the reference, the
    probability of -1 is at most $\alpha$ = `false_alarm_rate`, whatever the distribution (each of the
    $n + 1$ distances is equally likely to be the largest, the second largest, ...).

    **Batches.** `compare` is `taut.wasserstein(reference, X)`: an estimate of the distance between the
    populations, and two bounds on it. `drifted` tests whether the *lower* bound exceeds a tolerance:
    unlike with p-values, sample size alone never raises the alarm. `score` is minus that lower
    bound.

    As in scikit-learn, larger scores mean closer to the reference.

    **Data frames** (pandas or polars) may contain categories, dates, times and missing values. An encoding
    with a stated metric turns the columns into numbers (`taut.data.fit_encoding`), and columns are matched
    by name. A category that is not in the reference is never encoded farther away than the metric says, so
    the false-alarm rate of rows holds.

    Args:
        false_alarm_rate: false-alarm rate $\alpha$ of single rows, in (0, 1).
        num_centres: number of rows of the reference that become centres, at most half of them.
        confidence: joint confidence level of both bounds of `compare`.
        scaling: scaling of the features: "none" keeps the data's own units; "standard" and "robust"
            make features comparable. For single rows the scaling is fitted to the centres, for batches as
            in `taut.wasserstein`. By default "standard" for data frames that are not purely numeric,
            else "none".
        encoding: options of `taut.data.fit_encoding`, such as `{"drop": ["id"]}`, for data frames.
        method: type of confidence bound for the means: "betting", "bernstein" or "hoeffding".
        critics: names of the critics that `compare` tries.
        num_steps: training steps of the longest fit.
        patience: number of training rounds without progress after which training stops.
        diameter: largest possible distance between two rows of the same population, for the upper bound.
        num_permutations: number of permutations for the p-value.
        random_state: random seed or generator; equal data and seed give equal results.

    Attributes:
        reference_: the rows of `fit`: `(n, features)`, or the data frame if it is not purely numeric.
        encoding_: encoding of the columns; None for purely numeric data.
        critic_: $s$, on scaled features.
        lipschitz_: proven Lipschitz constant of $s$.
        scaler_: the fitted scaling of rows; None without scaling.
        offset_: minus the threshold: `decision_function` is `score_samples` minus this.
        false_alarm_rate_: the proven rate, $(n + 1 - k)/(n + 1)$: at most `false_alarm_rate`, except for
            references so small ($n < 1/\alpha - 1$) that only rows farther away than all $n$ are
            predicted as -1.
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

    scaling: Scaling | None
    method: Method

    def __init__(
        self,
        *,
        false_alarm_rate: float = 0.05,
        num_centres: int = 1000,
        confidence: float = 0.95,
        scaling: Scaling | None = None,
        encoding: Mapping[str, Any] | None = None,
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
        self.encoding = encoding
        self.method = method
        self.critics = critics
        self.num_steps = num_steps
        self.patience = patience
        self.diameter = diameter
        self.num_permutations = num_permutations
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Stores the reference and fits the threshold of rows.

        Args:
            X: `(n, features)`, finite, at least two rows, or a frame; bounds in `compare` need 20.
            y: ignored.
        """
        if self.scaling is not None:
            check_choice(_SUBJECT, "scaling", self.scaling, SCALINGS)
        check_count(_SUBJECT, "num_centres", self.num_centres)
        check_within(_SUBJECT, "false_alarm_rate", self.false_alarm_rate, "(0, 1)")
        self.encoding_ = fit_frame(_SUBJECT, X, self.encoding)
        if self.encoding_ is None:
            points: Any = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            self.reference_ = points.copy()  # later changes of X by the caller must not matter
        else:
            validate_data(self, X, skip_check_array=True)
            points, self.reference_ = encode_frame(self.encoding_, X), copy.deepcopy(X)
        self.seed_ = seed_of(self.random_state)
        generator = torch.Generator().manual_seed(self.seed_)
        shuffled = points[torch.randperm(len(points), generator=generator).numpy()]
        middle = min(len(points) // 2, self.num_centres)
        self.scaler_ = self._fit_scaler(shuffled[:middle])
        self.critic_ = ConeCritic.from_points(self._scaled(shuffled[:middle]), sign=-1)
        self.lipschitz_ = bound_lipschitz(self.critic_, "l2", (points.shape[1],))
        unseen = np.sort(-self._scores(shuffled[middle:]))
        # In fractions: a rounded product could lie on the wrong side of a whole number.
        rank = math.ceil((len(unseen) + 1) * (1 - Fraction(float(self.false_alarm_rate))))
        rank = min(rank, len(unseen))
        self.offset_ = -unseen[rank - 1]
        if not np.isfinite(self.offset_):
            rule = "distances within the reference must be finite"
            got = "infinity, because their squares overflow"
            raise DataError(_SUBJECT, rule=rule, got=got, remedy="Divide the data by a constant.")
        self.false_alarm_rate_ = (len(unseen) + 1 - rank) / (len(unseen) + 1)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Minus the distance of every row to the nearest centre, `(n,)`, in scaled units."""
        return self._scores(self._rows(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """`score_samples(X) - offset_`: below zero for the rows that `predict` calls -1."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for rows farther from the reference than the threshold, +1 for others."""
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def compare(self, X: Any) -> WassersteinResult:
        """Bounds the distance between the population of the reference and that of `X`.

        Equal to `taut.wasserstein(reference_, X, seed=seed_)` with the parameters of this estimator.
        The columns of frames are matched by name, in any order.

        Args:
            X: `(m, features)`, at least 20 rows.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        first, second = self.reference_, X
        if self.encoding_ is None:
            titles = () if names is None else tuple(map(str, names))
            rows = predict_rows(self, order_columns(X, names)).copy()
            first, second = Table(first, titles, None, "reference"), Table(rows, titles, None, "X")
        options = self.get_params()
        for name in ("false_alarm_rate", "num_centres", "random_state"):
            del options[name]
        return wasserstein(first, second, **options, seed=self.seed_)

    def drifted(self, X: Any, above: float = 0.0) -> bool:
        """Whether the proven lower bound on the distance exceeds `above`.

        If the true distance is at most `above`, the probability of True is at most
        `(1 - confidence) / 2`, however large the samples are.

        Args:
            X: `(m, features)`, at least 20 rows.
            above: tolerated distance, in scaled units; not negative.
        """
        check_nonnegative(_SUBJECT, "above", above)
        return self.compare(X).lower.value > above

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the lower bound on the distance: 0 if no drift is proven, lower for more drift.

        Args:
            X: `(m, features)`, at least 20 rows.
            y: ignored.
        """
        self._rows(X)  # columns in another order are an error here, as in scikit-learn's estimators
        return 0.0 - self.compare(X).lower.value

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        if self.encoding_ is None:
            return predict_rows(self, X)
        return encode_frame(self.encoding_, X)

    def _fit_scaler(self, points: np.ndarray) -> FeatureScaling | None:
        rows, encoding = torch.tensor(points), self.encoding_
        if encoding is not None:
            fixed = torch.from_numpy(encoding.fixed)
            return fit_scaling(self.scaling or "standard", rows, (), fixed)[0]
        return fit_scaling(self.scaling, rows)[0] if self.scaling not in (None, "none") else None

    def _scaled(self, points: np.ndarray) -> Tensor:
        rows = torch.tensor(points)
        return rows if self.scaler_ is None else self.scaler_(rows)

    @torch.no_grad()
    def _scores(self, points: np.ndarray) -> np.ndarray:
        return self.critic_(self._scaled(points)).flatten().numpy()
