"""LipschitzClassifier: accuracy on real data, certificates that hold, and scikit-learn's machinery."""

import logging
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from copies import copies_of
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from taut.certificates import certify
from taut.errors import ArgumentError
from taut.sklearn import LipschitzClassifier

IRIS: Any = load_iris(return_X_y=True)


def blobs(n: int, kinds: int, dim: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    made: Any = make_blobs(n, centers=kinds, n_features=dim, cluster_std=spread, random_state=kinds)
    return made


def quick(**parameters) -> LipschitzClassifier:
    settings = {"hidden_sizes": (16,), "epochs": 10, "batch_size": 32, "lr": 0.03}
    return LipschitzClassifier(**{**settings, **parameters})


@pytest.fixture(scope="module")
def iris() -> LipschitzClassifier:
    return quick().fit(*IRIS)


def test_digits_are_read():
    x, y = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, random_state=0)
    model = quick(hidden_sizes=(64,), epochs=6, batch_size=64, lr=0.02).fit(train_x, train_y)
    assert model.score(test_x, test_y) > 0.94
    found = model.certify(test_x, test_y)
    assert found.certified_accuracy(1.0) > 0.8
    assert model.lipschitz_.value <= 1


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("kinds", [2, 3])
def test_no_step_within_a_radius_changes_a_prediction(norm, kinds):
    x, y = blobs(90, kinds, dim=3, spread=2.0)
    model = quick(norm=norm).fit(x, y)
    found = model.certify(x)
    np.testing.assert_array_equal(model.classes_[found.prediction.numpy()], model.predict(x))
    assert found.radius.median() > 0
    rng = np.random.default_rng(0)
    radius = found.radius.numpy()[:, None]
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    # Towards the rows of other predictions, and along the steepest descent of the lead.
    prediction = model.predict(x)
    for _ in range(40):
        others = x[rng.permutation(len(x))]
        for step in (others - x, _descent(model, x, norm), rng.normal(size=x.shape)):
            length = np.maximum(np.linalg.norm(step, order, axis=1, keepdims=True), 1e-300)
            moved = x + 0.999 * radius * step / length
            np.testing.assert_array_equal(model.predict(moved), prediction)


def _descent(model: LipschitzClassifier, x: np.ndarray, norm: str) -> np.ndarray:
    rows = torch.tensor(x, requires_grad=True)
    best, second = model.network_(rows).topk(2).values.unbind(1)
    (slope,) = torch.autograd.grad((second - best).sum(), rows)
    if norm == "linf":
        return slope.sign().numpy()
    if norm == "l1":
        return (slope * (slope.abs() == slope.abs().amax(1, keepdim=True))).numpy()
    return slope.numpy()


def test_a_linear_classifier_is_certified_up_to_its_boundary():
    x, y = blobs(60, 2, dim=4)
    model = quick(hidden_sizes=()).fit(x, y)
    zero = torch.zeros(1, 4, dtype=torch.float64)
    offset = model.network_(zero).detach()[0]
    weight = (model.network_(torch.eye(4, dtype=torch.float64)).detach() - offset).T.numpy()
    lead = (x @ weight.T + offset.numpy()) @ [-1.0, 1.0]
    distance = np.abs(lead) / np.linalg.norm(weight[1] - weight[0])
    np.testing.assert_allclose(model.certify(x).radius.numpy(), distance, rtol=1e-6)
    np.testing.assert_allclose(model.decision_function(x), lead, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("lipschitz", [0.5, 10.0])
def test_the_constant_is_proven_and_kept(norm, lipschitz):
    x, y = IRIS
    model = quick(norm=norm, lipschitz=lipschitz, epochs=1).fit(1000 * x + 1e4, y)
    assert model.lipschitz_.value <= lipschitz
    rng = np.random.default_rng(0)
    a, b = 1e4 + 1000 * rng.normal(size=(2, 500, 4))
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    moved = np.linalg.norm(model.decision_function(a) - model.decision_function(b), order, axis=1)
    assert (moved <= model.lipschitz_.value * np.linalg.norm(a - b, order, axis=1) + 1e-6).all()


def test_scale_and_origin_of_the_data_do_not_matter(iris):
    x, y = IRIS
    # Powers of two and whole numbers, so that nothing is rounded on the way.
    other = quick().fit(1024 * (x + 16), y)
    assert (other.predict(1024 * (x + 16)) == iris.predict(x)).mean() > 0.98
    assert other.radius_ == pytest.approx(1024 * iris.radius_)


def test_a_larger_radius_asked_for_is_a_larger_radius_certified():
    x, y = IRIS
    small, large = (quick(radius=r, epochs=30).fit(x, y).certify(x, y) for r in (0.02, 0.5))
    assert large.certified_accuracy(0.4) > small.certified_accuracy(0.4)


@pytest.mark.parametrize("loss", ["cross_entropy", "hinge", "hkr"])
def test_every_loss_learns(loss):
    assert quick(loss=loss, epochs=20).fit(*IRIS).score(*IRIS) > 0.9


def test_probabilities_agree_with_predictions(iris):
    x, y = IRIS
    chances = iris.predict_proba(x)
    np.testing.assert_allclose(chances.sum(1), 1)
    np.testing.assert_array_equal(iris.classes_[chances.argmax(1)], iris.predict(x))
    likelihood = np.log(chances[np.arange(len(y)), y]).mean()
    assert likelihood > np.log(1 / 3)


def test_copies_answer_alike_to_the_bit(iris, tmp_path):
    x, y = IRIS
    for other in copies_of(iris, tmp_path / "model.joblib", x, y):
        np.testing.assert_array_equal(iris.decision_function(x), other.decision_function(x))
        assert torch.equal(iris.certify(x).radius, other.certify(x).radius)
        assert iris.lipschitz_ == other.lipschitz_


def test_fitting_leaves_the_global_generators_alone():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state(legacy=False)
    quick(epochs=1).fit(*IRIS)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert repr(np.random.get_state(legacy=False)) == repr(numpy_state)


@pytest.mark.slow
def test_pipelines_scores_and_searches_work():
    x, y = IRIS
    piped = make_pipeline(StandardScaler(), quick(epochs=20))
    assert cross_val_score(piped, x, y, cv=3).mean() > 0.9
    search = GridSearchCV(piped, {"lipschitzclassifier__radius": [0.1, 0.3]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.85
    best: Any = search.best_estimator_
    rows = best[:-1].transform(x)
    assert best[-1].certify(rows, y).certified_accuracy(0.05) > 0.8


def test_labels_may_be_words_and_frames_keep_names():
    x, y = IRIS
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    frame = pandas.DataFrame(x, columns=["a", "b", "c", "d"])
    model = quick().fit(frame, words)
    assert set(model.predict(frame)) <= set(words)
    found = model.certify(frame, words)
    assert found.certified_accuracy() == pytest.approx(model.score(frame, words))
    with pytest.raises(ValueError, match="feature names"):
        model.certify(frame[["b", "a", "c", "d"]])
    with pytest.raises(ArgumentError, match="`y` must hold the classes of `fit`; got .*'rose'"):
        model.certify(frame[:1], ["rose"])


def test_certificates_are_those_of_the_network(iris):
    x, _ = IRIS
    plain = certify(iris.network_, torch.tensor(x), arithmetic="float64")
    assert torch.equal(plain.radius, iris.certify(x).radius)


def test_early_stopping_is_off_until_asked_for(caplog):
    x, y = IRIS
    assert len(quick().fit(x, y).loss_curve_) == 10
    with caplog.at_level(logging.INFO, "taut.sklearn"):
        stopped = quick(validation_fraction=0.2, patience=1, lr=0.3, epochs=100, verbose=True).fit(
            x, y
        )
    assert len(stopped.loss_curve_) < 100
    assert "LipschitzClassifier: epoch 1, loss" in caplog.text
    assert "on validation rows" in caplog.text


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"norm": "l3"}, "`norm` must be one of 'l1', 'l2', 'linf'"),
        ({"lipschitz": 0.0}, "`lipschitz` must be finite and positive"),
        ({"radius": -1.0}, "`radius` must be finite and positive"),
        ({"loss": "squares"}, "`loss` must be one of"),
        ({"activation": torch.nn.ReLU()}, "`activation` must be a name"),
        ({"hidden_sizes": (0,)}, "`hidden_sizes` must be a whole number >= 1"),
        ({"hidden_sizes": 8}, "LipschitzClassifier: `hidden_sizes` must be a sequence"),
        ({"hidden_sizes": (7,)}, "LipschitzClassifier: `hidden_sizes` and .*even number"),
        ({"epochs": 0}, "LipschitzClassifier: `epochs` must be a whole number >= 1"),
        ({"lr": -1.0}, "`lr` must be finite and positive"),
        ({"validation_fraction": 1.0}, r"`validation_fraction` must lie in \[0, 1\)"),
    ],
)
def test_wrong_parameters_are_named(parameters, text):
    with pytest.raises(ArgumentError, match=text):
        quick(**parameters).fit(*IRIS)


def test_wrong_data_are_refused():
    x, y = IRIS
    with pytest.raises(TypeError, match="[Ss]parse data was passed.*toarray"):
        quick().fit(scipy.sparse.csr_matrix(x), y)
    with pytest.raises(ArgumentError, match="at least two classes; got one class"):
        quick().fit(x, np.zeros(len(x)))
    with pytest.raises(ValueError, match="contains NaN"):
        quick().fit(np.where(x > 7, np.nan, x), y)
    with pytest.raises(ArgumentError, match="got one class, 'z'"):
        quick().fit(x, np.full(len(x), "z"))


@pytest.mark.parametrize("factor", [1e160, 1e100, 1e-40, 1e-160])
def test_units_that_floats_cannot_square_are_refused(factor):
    x, y = IRIS
    with pytest.raises(ArgumentError, match="LipschitzClassifier: .*X` must spread by something"):
        quick(epochs=1).fit(x * factor, y)


def test_classes_that_share_all_their_rows_are_trained_all_the_same():
    x, y = np.ones((20, 2)), np.arange(20) % 2
    model = quick(epochs=1).fit(x, y)
    assert model.predict_proba(x) == pytest.approx(0.5, abs=0.2)


def test_the_radius_is_chosen_alike_far_from_the_origin():
    X, y = blobs(120, 2, 2)
    X = np.round(X, 3)
    near = quick(epochs=1).fit(X, y).radius_
    far = quick(epochs=1).fit(X + 1e9, y).radius_
    assert far == pytest.approx(near, rel=1e-3)
