"""LipschitzRegressor: slopes and intervals that hold, and scikit-learn's machinery."""

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from copies import copies_of
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from taut.errors import ArgumentError
from taut.sklearn import LipschitzRegressor

pytestmark = pytest.mark.slow

ORDERS: dict[str, float] = {"l1": 1, "l2": 2, "linf": np.inf}


def quick(**parameters) -> LipschitzRegressor:
    settings = {"hidden_sizes": (16,), "epochs": 10, "batch_size": 32, "lr": 0.03}
    return LipschitzRegressor(**{**settings, **parameters})


def wave(n=200, dim=2, seed=0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-2, 2, (n, dim))
    return x, np.sin(2 * x[:, 0]) + 5


@pytest.fixture(scope="module")
def model() -> LipschitzRegressor:
    return quick(epochs=30).fit(*wave())


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("lipschitz", [0.1, 30.0, None])
def test_no_slope_exceeds_the_constant(norm, lipschitz):
    x, y = wave()
    x, y = 100 * x + 1e3, 1e-2 * y
    found = quick(norm=norm, lipschitz=lipschitz).fit(x, y)
    bound = found.lipschitz_
    assert bound.side == "upper" and bound.confidence == 1
    if lipschitz is not None:
        assert bound.value <= lipschitz
    rng = np.random.default_rng(1)
    a = 1e3 + 300 * rng.normal(size=(2000, 2))
    b = a + rng.normal(size=a.shape) ** 3
    slope = np.abs(found.predict(a) - found.predict(b)) / np.linalg.norm(
        a - b, ORDERS[norm], axis=1
    )
    assert slope.max() <= bound.value * (1 + 1e-6)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("radius", [0.0, 0.3, 50.0])
def test_predictions_stay_in_their_interval(norm, radius):
    x, y = wave(100)
    found = quick(norm=norm, lipschitz=3.0, epochs=5).fit(x, y)
    low, high = found.bound(x, radius)
    middle = found.predict(x)
    assert (low < middle).all() and (middle < high).all()
    rng = np.random.default_rng(0)
    for _ in range(200):
        step = rng.normal(size=x.shape) * (rng.random(x.shape) < 0.7)
        length = np.maximum(np.linalg.norm(step, ORDERS[norm], axis=1, keepdims=True), 1e-300)
        moved = found.predict(x + (1 - 1e-12) * radius * step / length)
        assert (low <= moved).all() and (moved <= high).all()
    # And no wider than the constant asks for.
    np.testing.assert_allclose(
        high - low, 2 * found.lipschitz_.value * radius, rtol=1e-6, atol=1e-9
    )


def test_the_interval_of_a_linear_regression_is_reached():
    x, y = wave(60, dim=3)
    found = quick(hidden_sizes=(), lipschitz=2.0).fit(x, y)
    weight = (found.predict(np.eye(3)) - found.predict(np.zeros((1, 3)))) / found.lipschitz_.value
    low, high = found.bound(x, np.full(len(x), 0.25))
    assert np.linalg.norm(weight) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(found.predict(x + 0.25 * weight), high, rtol=1e-5)
    np.testing.assert_allclose(found.predict(x - 0.25 * weight), low, rtol=1e-5)


def test_intervals_may_differ_from_row_to_row(model):
    x, _ = wave(3)
    low, high = model.bound(x, [0.0, 0.1, 0.2])
    np.testing.assert_allclose(
        high - low, 2 * model.lipschitz_.value * np.array([0, 0.1, 0.2]), atol=1e-9
    )


def test_a_free_slope_finds_what_the_data_need():
    x = np.linspace(-2, 2, 300)[:, None]
    for steepness in (1.0, 1000.0):
        found = quick(epochs=20).fit(x, steepness * np.abs(x[:, 0]) - 7)
        assert found.score(x, steepness * np.abs(x[:, 0]) - 7) > 0.98
        assert 0.9 * steepness < found.lipschitz_.value < 5 * steepness


def test_a_slope_too_small_for_the_data_is_kept():
    x = np.linspace(-2, 2, 100)[:, None]
    found = quick(lipschitz=0.5).fit(x, 3 * x[:, 0])
    ends = found.predict([[-2.0], [2.0]])
    assert 1.5 < ends[1] - ends[0] <= 2.0 + 1e-9


def test_diabetes():
    x, y = load_diabetes(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), quick(lr=0.01)), x, y, cv=3)
    assert scores.mean() > 0.4


def test_copies_answer_alike_to_the_bit(model, tmp_path):
    x, y = wave()
    for other in copies_of(model, tmp_path / "model.joblib", x, y):
        np.testing.assert_array_equal(model.predict(x), other.predict(x))
        np.testing.assert_array_equal(model.bound(x, 0.1), other.bound(x, 0.1))
        assert model.lipschitz_ == other.lipschitz_


def test_searches_and_frames_work():
    x, y = wave()
    frame = pandas.DataFrame(x, columns=["a", "b"])
    search = GridSearchCV(quick(), {"lipschitz": [0.1, 3.0]}, cv=2).fit(frame, y)
    assert search.best_params_ == {"lipschitz": 3.0}
    with pytest.raises(ValueError, match="feature names"):
        search.predict(frame.rename(columns={"a": "z"}))


def test_a_constant_target_and_constant_features_are_learnt():
    x, _ = wave(40)
    assert quick(epochs=40).fit(x, np.full(40, 7.0)).predict(x) == pytest.approx(7, abs=0.5)
    found = quick().fit(np.ones((40, 2)), np.arange(40.0))
    assert np.ptp(found.predict(np.ones((5, 2)))) == 0


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"norm": "l3"}, "`norm` must be one of 'l1', 'l2', 'linf'"),
        ({"lipschitz": -1.0}, "`lipschitz` must be finite and positive"),
        ({"hidden_sizes": 8}, "LipschitzRegressor: `hidden_sizes` must be a sequence"),
        ({"batch_size": 0}, "LipschitzRegressor: `batch_size` must be a whole number >= 1"),
    ],
)
def test_wrong_parameters_are_named(parameters, text):
    with pytest.raises(ArgumentError, match=text):
        quick(**parameters).fit(*wave(20))


def test_wrong_data_are_refused(model):
    x, y = wave(20)
    for rows, targets, name in ((x, y * 1e200, "y"), (x * 1e160, y, "X")):
        with pytest.raises(ArgumentError, match=f"LipschitzRegressor: `{name}` must spread by"):
            quick(epochs=1).fit(rows, targets)
    with pytest.raises(TypeError, match="[Ss]parse data was passed.*toarray"):
        quick().fit(scipy.sparse.csr_matrix(x), y)
    for radius in (-0.1, [0.1, 0.2], float("nan")):
        with pytest.raises(ArgumentError, match="`radius` must be one number for all rows or one"):
            model.bound(x, radius)


def test_another_default_dtype_of_torch_is_followed():
    x = np.linspace(-1, 1, 40)[:, None]
    usual = LipschitzRegressor((8,), lipschitz=1.0, epochs=3).fit(x, x[:, 0]).network_
    torch.set_default_dtype(torch.float64)
    try:
        network = LipschitzRegressor((8,), lipschitz=1.0, epochs=3).fit(x, x[:, 0]).network_
    finally:
        torch.set_default_dtype(torch.float32)
    assert next(network.parameters()).dtype == next(usual.parameters()).dtype
