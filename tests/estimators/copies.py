"""Copies of a fitted estimator, by every way that scikit-learn's users make them."""

import pickle
from typing import Any

import joblib
from sklearn.base import clone


def copies_of(estimator: Any, path: Any, *data: Any) -> list[Any]:
    """Pickled, stored by joblib at `path`, and cloned and fitted to `data` again."""
    joblib.dump(estimator, path)
    again: Any = clone(estimator)
    return [pickle.loads(pickle.dumps(estimator)), joblib.load(path), again.fit(*data)]
