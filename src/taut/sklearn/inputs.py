"""What users pass as `X` and `y`, checked the way scikit-learn checks it."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["known_rows", "new_rows", "new_rows_and_targets"]


def new_rows(estimator: BaseEstimator, X: Any, least: int = 1) -> np.ndarray:
    """The rows of `fit`, `(n, features)` in float64; the estimator notes their number and names.

    Sparse, complex, missing and infinite values are refused.
    """
    rows: Any = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=least)
    return rows


def new_rows_and_targets(
    estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The same with `y`, `(n,)`: numbers, or classes of any kind."""
    pair: Any = validate_data(estimator, X, y, dtype=np.float64, y_numeric=numeric)
    return pair[0], pair[1]


def known_rows(estimator: BaseEstimator, X: Any) -> np.ndarray:
    """Rows for a fitted estimator, with the features of its `fit`."""
    check_is_fitted(estimator)
    rows: Any = validate_data(estimator, X, dtype=np.float64, reset=False)
    return rows
