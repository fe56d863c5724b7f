"""Arguments of the estimators, validated as scikit-learn does."""

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["RandomState", "fit_rows", "fit_rows_and_targets", "predict_rows", "seed_of"]

RandomState = int | np.random.RandomState | None


def fit_rows(estimator: BaseEstimator, X: Any, min_rows: int = 1) -> np.ndarray:
    """The rows of `fit`, `(n, features)` in float64; the estimator notes their number and names.

    Sparse, complex, missing and infinite values are refused.
    """
    rows: Any = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=min_rows)
    return rows


def fit_rows_and_targets(
    estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The same with `y`, `(n,)`: numbers, or classes of any kind."""
    pair: Any = validate_data(estimator, X, y, dtype=np.float64, y_numeric=numeric)
    return pair[0], pair[1]


def predict_rows(estimator: BaseEstimator, X: Any) -> np.ndarray:
    """Rows for a fitted estimator, with the features of its `fit`."""
    check_is_fitted(estimator)
    rows: Any = validate_data(estimator, X, dtype=np.float64, reset=False)
    return rows


def seed_of(random_state: RandomState) -> int:
    """The seed of a torch generator: an integer itself, or one drawn from a generator or at random.

    Example:
        >>> seed_of(7)
        7
    """
    source = check_random_state(random_state)
    return int(random_state) if isinstance(random_state, Integral) else source.randint(2**31 - 1)
