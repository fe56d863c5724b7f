r"""Tolerances of features in scikit-learn estimators and pipelines.

A scaler maps every column by $z_i = a_i x_i + b_i$, so $|z'_i - z_i| \le |a_i| t_i$ wherever
$|x'_i - x_i| \le t_i$, and nothing else happens to it: tolerances pass through scalers unchanged in
meaning, and so do radii in units of them. Steps that mix columns are refused.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from taut.certificates import Certificates, radii_after_rounding
from taut.errors import ArgumentError, NoRuleError

UNIT_ROUNDOFF = 2.0**-53
# Deviation of a feature that does not change, in tolerances: see `taut.training.prepare`.
_FIXED_WIDTH = 8.0


def as_tolerances(subject: str, tolerance: Any, names: Any, count: int) -> np.ndarray:
    """One tolerance for each feature, from a number, an array or a dictionary by feature names.

    Features missing from a dictionary are fixed: 0.
    """
    if isinstance(tolerance, dict):
        feature_names = [] if names is None else list(names)
        if strange := [name for name in tolerance if name not in feature_names]:
            rule = f"must name features of `fit`, {feature_names}"
            remedy = "Fit on a frame with column names, or give an array."
            raise ArgumentError(subject, "tolerance", rule, repr(strange[0]), remedy)
        tolerance = [tolerance.get(name, 0.0) for name in feature_names]
    tolerances = np.asarray(tolerance, dtype=np.float64)
    usual = (
        tolerances.shape in ((), (count,))
        and np.isfinite(tolerances).all()
        and (tolerances >= 0).all()
    )
    if not usual or not (tolerances > 0).any():
        rule = f"must be positive, or 0 for a fixed feature: one number, or {count}"
        raise ArgumentError(subject, "tolerance", rule, f"tolerance={tolerance!r}")
    return np.broadcast_to(tolerances, (count,)).copy()


def fit_scale(subject: str, estimator: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The divisor of each feature, and which may change; without tolerances, ones and all."""
    count = rows.shape[1]
    if estimator.tolerance is None:
        return np.ones(count), np.ones(count, bool)
    names = getattr(estimator, "feature_names_in_", None)
    tolerances = as_tolerances(subject, estimator.tolerance, names, count)
    deviation = rows.std(0)
    fixed = np.where(deviation > 0, deviation / _FIXED_WIDTH, 1.0)
    return np.where(tolerances > 0, tolerances, fixed), tolerances > 0


def widen_for_rounding(radius: Tensor, length: Tensor, unit: float) -> Tensor:
    r"""Radii that contain the rounded points within `radius`: $r (1 + 2u) + 3 u \|z\|$."""
    return (radius * (1 + 2 * unit) + 3 * unit * length) * (1 + 2.0**-50)


def shrink_for_rounding(
    certificates: Certificates, sizes: np.ndarray, units: np.ndarray
) -> Certificates:
    """Shrinks radii in `units` for inputs with two roundings, each at most `u` times `sizes`.

    Twice that also covers the rounding of this computation.
    """
    relative = np.divide(sizes, units, out=np.zeros_like(sizes), where=units > 0)
    lengths = certificates.norm.vector(torch.tensor(relative))
    radius = radii_after_rounding(certificates.radius, lengths, 4 * UNIT_ROUNDOFF)
    return replace(certificates, radius=radius)


def certify_pipeline(
    pipeline: Pipeline, X: Any, y: Any = None, tolerance: Any = None
) -> Certificates:
    r"""Certified radii of a pipeline of scalers and a `LipschitzClassifier`, in the units of `X`.

    Within the radius $r$ of a row, in the norm of the classifier, no $x'$ with
    $\|(x' - x)/t\| < r$ has another prediction by the *pipeline*, executed in float64, including the
    rounding of its steps.

    Args:
        pipeline: fitted; steps of `StandardScaler`, `MinMaxScaler` (without clipping), `MaxAbsScaler`,
            `RobustScaler` and "passthrough" before a `LipschitzClassifier`. Others are refused.
        X: `(n, features)`, before any step.
        y: `(n,)`, the true labels, for `certified_accuracy`.
        tolerance: $t$, a unit for all columns of `X` or for each, an array or a dictionary by
            the names of columns; 0 for those that do not change. None is 1 for all.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.pipeline import make_pipeline
        >>> from taut.sklearn import LipschitzClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LipschitzClassifier((16,), norm="linf", radius=0.2, epochs=20)
        >>> pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
        >>> found = certify_pipeline(pipeline, X, y, tolerance=[0.1, 0.1, 0.05, 0.05])
        >>> bool(found.certified_accuracy(1.0) > 0.6)
        True
    """
    subject = "certify_pipeline"
    check_is_fitted(pipeline)
    model: Any = pipeline[-1]
    rows = np.asarray(X, dtype=np.float64)
    names = getattr(X, "columns", None)
    units = as_tolerances(subject, 1.0 if tolerance is None else tolerance, names, rows.shape[1])
    current, sizes = X, np.zeros_like(rows)
    for name, step in pipeline.steps[:-1]:
        if step in (None, "passthrough"):
            continue
        slope = _slope(name, step, rows.shape[1])
        before = np.asarray(current, dtype=np.float64)
        current = step.transform(current)
        sizes = sizes * slope + abs(before) * slope + abs(np.asarray(current, dtype=np.float64))
        # The product is rounded: slightly less than requested is certified.
        units = units * slope * (1 - 2.0**-50)
    certificates = model.certify(current, y, tolerance=units)
    # Two roundings per step at each point.
    return shrink_for_rounding(certificates, sizes, units)


def _slope(name: str, step: Any, count: int) -> np.ndarray:
    """By how much a step multiplies each column."""
    kind, ones = type(step), np.ones(count)
    if kind is MinMaxScaler and not step.clip:
        return abs(step.scale_)
    if kind is StandardScaler:
        return ones if step.scale_ is None else 1 / step.scale_
    if kind is RobustScaler:
        return ones if not step.with_scaling else 1 / step.scale_
    if kind is MaxAbsScaler:
        return 1 / step.scale_
    rule = (
        "must scale columns one by one before its last step: StandardScaler, MinMaxScaler without "
        "clipping, MaxAbsScaler or RobustScaler"
    )
    got = f"step {name!r} ({kind.__name__}), through which nothing is proven"
    raise NoRuleError("certify_pipeline", "pipeline", rule, got)
