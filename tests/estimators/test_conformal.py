"""Conformal sets: coverage on clean and attacked rows, members that no move can remove."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from taut.certificates import certify_exclusions
from taut.errors import ArgumentError
from taut.sklearn import (
    LipschitzClassifier,
    LipschitzRegressor,
    RobustConformalClassifier,
    RobustConformalRegressor,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits():
    data: Any = load_digits(return_X_y=True)
    x, y = data
    train, test, y_train, y_test = train_test_split(x / 16, y, test_size=0.4, random_state=0)
    estimator = LipschitzClassifier((64,), radius=0.3, epochs=15)
    model = RobustConformalClassifier(estimator, calibration_fraction=0.4).fit(train, y_train)
    return model, test, y_test


def attacked(model, rows, labels, radius):
    """Rows moved by almost `radius` in L2 so that the score of the true class rises: PGD."""
    x, true = torch.tensor(rows), torch.as_tensor(labels)[:, None]
    step = torch.zeros_like(x)
    for _ in range(20):
        step.requires_grad_()
        outputs = model.estimator_.network_(x + step)
        score = (outputs - outputs.gather(1, true)).scatter(1, true, -9.0).amax(1)
        (slope,) = torch.autograd.grad(score.sum(), step)
        step = step.detach() + radius / 4 * slope / slope.norm(dim=1, keepdim=True)
        step *= (radius * (1 - 1e-9) / step.norm(dim=1, keepdim=True)).clamp(max=1.0)
    return (x + step).numpy()


def test_sets_cover_clean_and_attacked_digits(digits):
    """Over random halves of the same rows the promise is exact; 40 of them leave 0.5 % of chance."""
    model, rows, labels = digits
    radius, random = 0.3, np.random.default_rng(0)
    moved = attacked(model, rows, labels, radius)
    assert np.linalg.norm(moved - rows, axis=1).max() <= radius
    covered, sizes = [], []
    for _ in range(40):
        calibration, test = np.split(random.permutation(len(rows)), [len(rows) // 2])
        found = RobustConformalClassifier(model.estimator_).calibrate(
            rows[calibration], labels[calibration]
        )
        clean, robust = (found.predict_set(inputs[test], radius) for inputs in (rows, moved))
        index = np.arange(len(test))
        covered.append([held[index, labels[test]].mean() for held in (clean, robust)])
        sizes.append(robust.sum(1).mean())
    assert np.mean(covered, axis=0).min() >= 0.9 - 0.015
    assert np.mean(sizes) < 3, "sets that hold everything cover as well, and say nothing"


def test_a_true_class_in_the_plain_set_is_in_every_robust_set_nearby(digits):
    # The theorem itself, row by row: no probability is left once the clean score is below q.
    model, rows, labels = digits
    covered = model._scores(rows, labels) <= model.threshold_
    assert 0.8 < covered.mean() < 1
    rng = np.random.default_rng(0)
    index = np.arange(len(rows))
    for radius in (1e-9, 0.05, 0.3):
        step = rng.normal(size=rows.shape)
        step *= radius * (1 - 1e-9) / np.linalg.norm(step, axis=1, keepdims=True)
        for moved in (rows + step, attacked(model, rows, labels, radius)):
            held = model.predict_set(moved, radius)[index, labels]
            assert held[covered].all()


def test_plain_sets_break_under_attack(digits):
    model, rows, labels = digits
    moved = attacked(model, rows, labels, 0.3)
    assert model.predict_set(moved)[np.arange(len(rows)), labels].mean() < 0.9


def test_exclusion_is_exact_for_a_linear_network():
    net = torch.nn.Linear(2, 3, bias=False).double()
    x = torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = certify_exclusions(net, x, 0.1, 0.2)
    weight = net.weight.detach()
    lead = (x @ weight.T)[:, :, None] - (x @ weight.T)[:, None, :]
    rate = (weight[:, None] - weight[None]).norm(dim=-1)
    assert torch.equal(found, (lead - 0.2 * rate > 0.1).any(1))


def test_intervals_hold_the_target_wherever_the_row_went():
    data: Any = make_regression(600, 4, n_informative=3, noise=5.0, random_state=0)
    x, y = data
    model = RobustConformalRegressor(LipschitzRegressor((32,), epochs=15))
    model.fit(x[:400], y[:400])
    rows, targets = x[400:], y[400:]
    low, high = model.predict_interval(rows)
    assert ((low <= targets) & (targets <= high)).mean() > 0.85
    covered = model._scores(rows, targets) <= model.threshold_
    rng = np.random.default_rng(0)
    for radius in (0.0, 1e-12, 0.1):
        step = rng.normal(size=rows.shape)
        step *= radius * (1 - 1e-9) / np.linalg.norm(step, axis=1, keepdims=True)
        low, high = model.predict_interval(rows + step, radius)
        held = (low <= targets) & (targets <= high)
        assert held[covered].all()
        # Wider by the constant times the radius, and by nothing else.
        moves = model.estimator_.lipschitz_.value * radius
        np.testing.assert_allclose(high - low, 2 * (model.threshold_ + moves), rtol=1e-9)


def test_calibration_of_a_fitted_estimator_and_refusals(digits):
    model, rows, labels = digits
    again = RobustConformalClassifier(model.estimator_).calibrate(rows, labels)
    assert again.estimator_ is model.estimator_
    assert (
        RobustConformalClassifier(model.estimator_)
        .calibrate(rows[:8], labels[:8])
        .predict_set(rows)
        .all()
    ), "eight rows calibrate nothing at 90 %"
    with pytest.raises(ArgumentError, match="must be a LipschitzClassifier"):
        RobustConformalClassifier(LogisticRegression()).fit(rows, labels)
    with pytest.raises(ArgumentError, match="confidence"):
        RobustConformalClassifier(confidence=1.0).fit(rows, labels)


def test_a_class_that_training_has_not_seen_counts_as_a_miss(digits):
    model, rows, labels = digits
    strange = np.where(np.arange(len(labels)) % 12 == 0, 99, labels)
    found = RobustConformalClassifier(model.estimator_).calibrate(rows, strange)
    plain = RobustConformalClassifier(model.estimator_).calibrate(rows, labels)
    assert plain.threshold_ <= found.threshold_ < np.inf
    assert found.threshold_ > 0
    held = found.predict_set(rows)[np.arange(len(rows)), labels] & (strange != 99)
    assert held.mean() >= 0.9
    # With more such rows than may be missed, no set of known classes keeps the promise.
    strange = np.where(np.arange(len(labels)) % 5 == 0, 99, labels)
    with pytest.raises(ArgumentError, match="must hold the classes of `fit`; got 99"):
        RobustConformalClassifier(model.estimator_).calibrate(rows, strange)


def test_frames_keep_the_names_of_their_columns(digits):
    pandas = pytest.importorskip("pandas")
    _, rows, labels = digits
    frame = pandas.DataFrame(rows[:, 20:24], columns=list("abcd"))
    estimator = LipschitzClassifier((8,), epochs=2, norm="linf", tolerance={"a": 0.1, "c": 0.2})
    model = RobustConformalClassifier(estimator).fit(frame, labels)
    assert list(model.estimator_.feature_names_in_) == list("abcd")
    assert model.predict_set(frame[:5], 1.0).shape == (5, 10)
    assert (model.predict(frame) == model.estimator_.predict(frame)).all()
    with pytest.raises(NotFittedError):
        RobustConformalClassifier().predict_set(frame)


def test_ties_and_overflow_leave_the_sets_valid(digits):
    model, rows, labels = digits
    twice = np.repeat(rows[:30], 20, axis=0), np.repeat(labels[:30], 20)
    found = RobustConformalClassifier(model.estimator_).calibrate(*twice)
    held = found.predict_set(twice[0])[np.arange(600), twice[1]]
    assert held.mean() >= 0.9 and held[found._scores(*twice) <= found.threshold_].all()
    regressor = LipschitzRegressor((8,), epochs=2).fit(rows, labels)
    huge = np.full((20, 64), 1.7e308)
    low, high = (
        RobustConformalRegressor(regressor).calibrate(huge, np.zeros(20)).predict_interval(rows)
    )
    assert np.isneginf(low).all() and np.isposinf(high).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_a_network_trained_elsewhere_is_an_estimator(norm):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten())
    net.append(torch.nn.Linear(8, 3))
    x = np.random.default_rng(0).normal(size=(200, 16))
    model = LipschitzClassifier.from_network(net, (1, 4, 4), [10, 20, 30], norm)
    with torch.no_grad():
        outputs = net.double()(torch.tensor(x).view(-1, 1, 4, 4))
    assert (model.predict(x) == 10 + 10 * outputs.argmax(1).numpy()).all()
    labels = model.predict(x)
    found = model.certify(x, labels)
    assert found.radius.min() >= 0 and found.certified_accuracy(1e-6) == 1
    np.testing.assert_allclose(model.certify(x, tolerance=2.0).radius * 2, found.radius, rtol=1e-9)
    sets = RobustConformalClassifier(model).calibrate(x, labels).predict_set(x, 0.1)
    assert sets[np.arange(200), (labels - 10) // 10].all()
    for classes in ([1, 2], [3, 2, 1], [1, 1, 2]):
        with pytest.raises(ArgumentError, match="one for each of two or more outputs"):
            LipschitzClassifier.from_network(net, (1, 4, 4), classes)
