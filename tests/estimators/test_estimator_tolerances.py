"""Tolerances, weights and warm starts of the estimators, and certificates through pipelines."""

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from taut.errors import ArgumentError, NoRuleError
from taut.sklearn import (
    LipschitzClassifier,
    LipschitzRegressor,
    RobustConformalClassifier,
    certify_pipeline,
)

TOLERANCE = np.array([30.0, 0.0003, 0.0])


def _table(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = generator.integers(2, size=rows)
    X = generator.normal(size=(rows, 3)) * [100, 0.001, 5] + np.outer(y, [300.0, -0.002, 3.0])
    return X + np.array([5000, 1, 0]), y


def _corners(X: np.ndarray, radius: np.ndarray, tolerance: np.ndarray, seed: int = 0):
    generator = np.random.default_rng(seed)
    for _ in range(60):
        step = generator.choice([-1.0, 1.0], size=X.shape)
        yield X + 0.999999 * radius[:, None] * step * tolerance


@pytest.fixture(scope="module")
def fitted():
    X, y = _table()
    options = {"norm": "linf", "radius": 1.0, "epochs": 30}
    return LipschitzClassifier((16,), tolerance=TOLERANCE, **options).fit(X, y), X, y


def test_rows_within_all_tolerances_keep_their_label(fitted):
    model, X, y = fitted
    found = model.certify(X, y)
    assert found.certified_accuracy(1.0) > 0.6
    held = found.radius.numpy() > 0
    before = model.predict(X)
    for moved in _corners(X, found.radius.numpy(), TOLERANCE):
        assert (model.predict(moved)[held] == before[held]).all()


def test_features_that_do_not_change_are_not_counted(fitted):
    model, X, y = fitted
    every = model.certify(X, y, tolerance=[30.0, 0.0003, 5 / 8])
    assert (model.certify(X, y).radius >= every.radius * (1 - 1e-9)).all()
    twice = model.certify(X, y, tolerance=2 * TOLERANCE)
    assert np.allclose(2 * twice.radius, model.certify(X, y).radius, rtol=1e-9)


@pytest.mark.parametrize("scaler", [StandardScaler, RobustScaler, MinMaxScaler])
def test_certificates_pass_through_scalers(scaler):
    X, y = _table()
    model = LipschitzClassifier((16,), norm="linf", epochs=30)
    pipeline = make_pipeline("passthrough", scaler(), model).fit(X, y)
    found = certify_pipeline(pipeline, X, y, tolerance=TOLERANCE)
    held = found.radius.numpy() > 0
    assert found.radius.median() > 0.1
    before = pipeline.predict(X)
    for moved in _corners(X, found.radius.numpy(), TOLERANCE):
        assert (pipeline.predict(moved)[held] == before[held]).all()


def test_the_radius_through_a_scaler_is_the_one_behind_it():
    X, y = _table()
    model = LipschitzClassifier((16,), norm="linf", epochs=5)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    scaler: Any = pipeline[0]
    last: Any = pipeline[-1]
    behind = last.certify(scaler.transform(X)).radius
    ahead = certify_pipeline(pipeline, X, tolerance=scaler.scale_).radius
    assert np.allclose(ahead, behind, rtol=1e-6)


def test_steps_that_mix_columns_are_refused():
    X, y = _table(60)
    model = LipschitzClassifier((8,), epochs=1)
    with pytest.raises(NoRuleError, match="PCA"):
        certify_pipeline(make_pipeline(PCA(2), model).fit(X, y), X)
    clipped = make_pipeline(MinMaxScaler(clip=True), model).fit(X, y)
    with pytest.raises(NoRuleError, match="MinMaxScaler"):
        certify_pipeline(clipped, X)


@pytest.mark.parametrize("wrong", [0.0, -1.0, [1.0, 2.0], {"mass": 1.0}, [1.0, np.inf, 1.0]])
def test_wrong_tolerances_are_refused(wrong):
    X, y = _table(60)
    with pytest.raises(ArgumentError, match="tolerance"):
        LipschitzClassifier((8,), tolerance=wrong, epochs=1).fit(X, y)


def test_a_dictionary_names_columns():
    pandas = pytest.importorskip("pandas")
    X, y = _table(60)
    frame = pandas.DataFrame(X, columns=["mass", "share", "rest"])
    options = {"norm": "linf", "radius": 1.0, "epochs": 2}
    named = LipschitzClassifier((8,), tolerance={"share": 0.0003, "mass": 30}, **options).fit(
        frame, y
    )
    plain = LipschitzClassifier((8,), tolerance=TOLERANCE, **options).fit(X, y)
    assert np.allclose(named.scale_, plain.scale_)
    assert np.allclose(named.certify(frame).radius, plain.certify(X).radius, rtol=1e-3)


def test_intervals_hold_within_tolerances():
    X, _ = _table()
    y = X[:, 0] / 100 + 1000 * X[:, 1]
    model = LipschitzRegressor((16,), norm="linf", tolerance=[30.0, 0.0003, 1.0], epochs=10).fit(
        X, y
    )
    low, high = model.bound(X, 1.0)
    assert (high - low <= 2 * model.lipschitz_.value * (1 + 1e-6)).all()
    for moved in _corners(X, np.ones(len(X)), np.array([30.0, 0.0003, 1.0])):
        found = model.predict(moved)
        assert (low <= found).all() and (found <= high).all()


def test_conformal_sets_take_radii_in_tolerances():
    X, y = _table(400)
    model = LipschitzClassifier(
        (16,), norm="linf", radius=1.0, tolerance=[30, 0.0003, 1], epochs=10
    )
    conformal = RobustConformalClassifier(model).fit(X[:300], y[:300])
    small, large = (conformal.predict_set(X[300:], radius=r) for r in (0.0, 5.0))
    assert (small <= large).all() and small.sum() < large.sum()
    # In units of X the same number is hardly more than nothing.
    plain = LipschitzClassifier((16,), norm="linf", radius=30.0, epochs=10).fit(X[:200], y[:200])
    known = RobustConformalClassifier(plain).calibrate(X[200:300], y[200:300])
    assert known.predict_set(X[300:], 5.0).sum() < large.sum()


def test_weights_choose_what_counts():
    X, y = _table(200, seed=1)
    noisy = np.concatenate([y[:100], 1 - y[100:]])
    weight = np.concatenate([np.ones(100), np.zeros(100)])
    options = {"epochs": 20, "norm": "linf", "tolerance": TOLERANCE, "radius": 0.5}
    weighted = LipschitzClassifier((16,), **options).fit(X, noisy, sample_weight=weight)
    assert weighted.score(X, y) > 0.9
    alone = LipschitzClassifier((16,), **options).fit(X[:100][::-1], y[:100][::-1])
    assert (weighted.decision_function(X) == alone.decision_function(X)).all()
    drawn = LipschitzClassifier((16,), **options).fit(X, noisy, sample_weight=weight + 0.01)
    assert drawn.score(X, y) > 0.9


def test_class_weights_shift_the_balance():
    X, y = _table(600, seed=2)
    X = X * 0.2 + X.mean(0) * 0.8 + np.random.default_rng(3).normal(size=X.shape) * [80, 0.0008, 4]
    rare = np.flatnonzero((y == 0) | (np.arange(600) % 12 == 0))
    options = {"epochs": 20, "norm": "linf", "tolerance": TOLERANCE, "radius": 1.0}
    plain = LipschitzClassifier((16,), **options).fit(X[rare], y[rare])
    balanced = LipschitzClassifier((16,), class_weight="balanced", **options).fit(X[rare], y[rare])
    assert balanced.predict(X).sum() > plain.predict(X).sum()


def test_a_warm_start_goes_on():
    X, y = _table()
    options = {"epochs": 3, "norm": "linf", "tolerance": TOLERANCE, "radius": 1.0, "lr": 3e-3}
    model = LipschitzClassifier((16,), warm_start=True, **options).fit(X, y)
    first = model.loss_curve_[0]
    assert model.fit(X, y).loss_curve_[0] < first
    with pytest.raises(ArgumentError, match="classes and hidden layers of the last fit"):
        model.set_params(hidden_sizes=(8,)).fit(X, y)
    cold = LipschitzClassifier((16,), **options).fit(X, y)
    assert cold.loss_curve_[0] == first == cold.fit(X, y).loss_curve_[0]


def test_a_warm_start_keeps_its_units_or_is_refused():
    """Radii are in tolerances: those of the last fit must not pass for others."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    model = LipschitzClassifier((8,), epochs=1, warm_start=True, norm="linf", tolerance=[1, 2, 0])
    scale = model.fit(X, y).scale_
    assert (model.fit(5 * X, y).scale_ == scale).all()
    for tolerance, rows in (([2, 4, 0], X), ([1, 2, 3], X), (1.0, X[:, :2])):
        with pytest.raises(ArgumentError, match="needs the features, tolerances"):
            model.set_params(tolerance=tolerance).fit(rows, y)


def test_rows_that_overflow_are_refused_or_have_no_radius():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    with pytest.raises(ArgumentError, match="must spread"):
        LipschitzClassifier((8,), epochs=1, tolerance=[5e-324, 1.0]).fit(X, y)
    model = LipschitzClassifier((8,), epochs=1, norm="linf", tolerance=[1e-30, 1.0]).fit(X, y)
    assert model.certify([[1e300, 0.0]]).radius == 0
    with pytest.raises(NotFittedError):
        certify_pipeline(make_pipeline(StandardScaler(), model.__class__()), X)
