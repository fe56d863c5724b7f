"""What users pass as `X`, checked the way scikit-learn checks it."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["known_rows", "new_rows"]


def new_rows(estimator: BaseEstimator, X: Any, least: int = 1) -> np.ndarray:
    """The rows of `fit`, `(n, features)` in float64; the estimator notes their number and names.

    Sparse, complex, missing and infinite values are refused.
    """
    rows: Any = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=least)
    return rows


def known_rows(estimator: BaseEstimator, X: Any) -> np.ndarray:
    """Rows for a fitted estimator, with the features of its `fit`."""
    check_is_fitted(estimator)
    rows: Any = validate_data(estimator, X, dtype=np.float64, reset=False)
    return rows
