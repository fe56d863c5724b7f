r"""Conformal sets and intervals that stay valid when inputs are perturbed."""

import math
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted, validate_data

from taut.certificates import certify_exclusions
from taut.errors import ArgumentError, check_within
from taut.sklearn.base import RandomState, predict_rows
from taut.sklearn.classifier import LipschitzClassifier
from taut.sklearn.regressor import LipschitzRegressor


def conformal_threshold(scores: np.ndarray, confidence: float) -> float:
    r"""The $\lceil (n + 1) c \rceil$-th smallest score; infinity if there are too few."""
    rank = math.ceil((len(scores) + 1) * Fraction(str(confidence)))
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else math.inf


class _RobustConformal(BaseEstimator):
    _kind: type

    def __init__(
        self,
        estimator: Any = None,
        *,
        confidence: float = 0.9,
        calibration_fraction: float = 0.3,
        random_state: RandomState = 0,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Trains a clone of the estimator on one part of the rows and calibrates on the other."""
        estimator = self._checked()
        # Frames are kept: the estimator matches columns by name.
        parts = train_test_split(
            X,
            self._validated(X, y),
            test_size=self.calibration_fraction,
            random_state=self.random_state,
        )
        fresh: Any = clone(estimator)
        self.estimator_ = fresh.fit(parts[0], parts[2])
        return self._calibrate(parts[1], parts[3])

    def calibrate(self, X: Any, y: Any) -> Self:
        """Calibrates the estimator as it is, already fitted, on rows that it has not seen."""
        self.estimator_ = self._checked()
        check_is_fitted(self.estimator_)
        return self._calibrate(X, self._validated(X, y))

    def _validated(self, X: Any, y: Any) -> np.ndarray:
        """Validates the data, sets the feature names and returns the targets."""
        pair: Any = validate_data(self, X, y, dtype=np.float64)
        return pair[1]

    def _checked(self) -> Any:
        name = type(self).__name__
        estimator = self._kind() if self.estimator is None else self.estimator
        if not isinstance(estimator, self._kind):
            rule = f"must be a {self._kind.__name__}, whose constant is proven"
            raise ArgumentError(name, "estimator", rule, f"estimator={estimator!r}")
        check_within(name, "confidence", self.confidence, "(0, 1)")
        return estimator

    def _calibrate(self, X: Any, y: Any) -> Self:
        # Overflow to NaN counts as infinity, the worst score.
        scores = np.nan_to_num(self._scores(X, y), nan=math.inf, posinf=math.inf)
        self.threshold_ = conformal_threshold(scores, self.confidence)
        return self

    def _scores(self, X: Any, y: Any) -> np.ndarray:
        raise NotImplementedError

    def predict(self, X: Any) -> np.ndarray:
        """The predictions of the estimator, `(n,)`."""
        predict_rows(self, X)
        return self.estimator_.predict(X)


class RobustConformalClassifier(ClassifierMixin, _RobustConformal):
    r"""Sets of classes that contain the true one with probability `confidence`, even under attack.

    With the score $s(x, y) = \max_{i \ne y} f_i(x) - f_y(x)$ and its quantile $q$ on calibration rows,
    the set at an observed $x'$ holds every class $y$ unless $s(x, y) > q$ is *proven* for all $x$ within
    `radius` of $x'$, roundoff of both executions included; and the predicted class, so that it is never
    empty. So whenever an exchangeable row $x$ is moved by at most `radius`, however it is chosen,

    $$P\big(y \in C(x')\big) \ge \text{confidence}.$$

    The probability is over calibration and test rows together; for a single calibration set of $n$ rows
    the coverage $c$ varies by about $\sqrt{c(1 - c)/n}$.

    Args:
        estimator: a `LipschitzClassifier`; None for one with default parameters.
        confidence: probability with which a set contains the true class.
        calibration_fraction: share of the rows of `fit` held out for calibration.
        random_state: random seed or generator of the split.

    Attributes:
        estimator_: the fitted estimator.
        classes_: the labels, sorted.
        threshold_: $q$.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = RobustConformalClassifier(LipschitzClassifier((16,), epochs=20)).fit(X, y)
        >>> plain, robust = model.predict_set(X), model.predict_set(X, radius=0.2)
        >>> bool((plain <= robust).all()), robust.shape
        (True, (150, 3))
    """

    _kind = LipschitzClassifier

    def _calibrate(self, X: Any, y: Any) -> Self:
        self.classes_ = self.estimator_.classes_
        super()._calibrate(X, y)
        if math.isinf(self.threshold_):
            # Sets of all known classes, with no guarantee for others.
            self.estimator_._indices(y)
        return self

    def _scores(self, X: Any, y: Any) -> np.ndarray:
        """Scores of the true classes; infinite for a class that the estimator does not know."""
        outputs, is_known = self.estimator_._outputs(X), np.isin(y, self.classes_)
        true = self.estimator_._indices(np.where(is_known, y, self.classes_[0]))[:, None]
        leads = (outputs - outputs.gather(1, true)).scatter(1, true, -math.inf)
        scores = leads.amax(1).numpy()
        return np.where(is_known, scores, math.inf)

    def predict_set(self, X: Any, radius: float = 0.0) -> np.ndarray:
        """The classes of each set, `(n, classes)`, True for members.

        Args:
            X: `(n, features)`, as observed.
            radius: largest perturbation of a row, in the norm of the estimator and the units of `X`.
        """
        predict_rows(self, X)
        rows = self.estimator_._inputs(X)
        net, norm = self.estimator_.network_, self.estimator_.norm
        within = float(self.estimator_._widen(radius, rows).amax())
        included = ~certify_exclusions(net, rows, self.threshold_, within, norm).numpy()
        return included | (self.predict(X)[:, None] == self.classes_)


class RobustConformalRegressor(RegressorMixin, _RobustConformal):
    r"""Intervals that contain the target with probability `confidence`, even under attack.

    With $q$ the quantile of $|y - f(x)|$ on calibration rows, the interval at an observed $x'$ is
    $[l - q, u + q]$, where every $f(x)$ with $x$ within `radius` of $x'$ is *proven* to lie in
    $[l, u]$, roundoff included. The guarantee is that of `RobustConformalClassifier`.

    Args:
        estimator: a `LipschitzRegressor`; None for one with default parameters.
        confidence: probability with which an interval contains the target.
        calibration_fraction: share of the rows of `fit` held out for calibration.
        random_state: random seed or generator of the split.

    Attributes:
        estimator_: the fitted estimator.
        threshold_: $q$.

    Example:
        >>> X = np.linspace(-2, 2, 200)[:, None]
        >>> estimator = LipschitzRegressor((16,), lipschitz=1.0, epochs=5)
        >>> model = RobustConformalRegressor(estimator).fit(X, np.abs(X[:, 0]))
        >>> low, high = model.predict_interval(X, radius=0.1)
        >>> bool((high - low > 0.2).all())
        True
    """

    _kind = LipschitzRegressor

    def _scores(self, X: Any, y: Any) -> np.ndarray:
        return np.abs(np.asarray(y, dtype=np.float64) - self.estimator_.predict(X))

    def predict_interval(self, X: Any, radius: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The ends of each interval, `(n,)` both.

        Args:
            X: `(n, features)`, as observed.
            radius: largest perturbation of a row, in the norm of the estimator and the units of `X`.
        """
        predict_rows(self, X)
        low, high = self.estimator_.bound(X, radius)
        # The residual of a calibration row was rounded once.
        width = math.nextafter(self.threshold_ * (1 + 2.0**-51), math.inf)
        return np.nextafter(low - width, -np.inf), np.nextafter(high + width, np.inf)
