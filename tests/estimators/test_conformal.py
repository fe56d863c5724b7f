"""Conformal sets: coverage on clean and attacked rows, members that no move can remove."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_regression
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
    model, rows, labels = digits
    radius, index = 0.3, np.arange(len(rows))
    for inputs in (rows, attacked(model, rows, labels, radius)):
        assert np.linalg.norm(inputs - rows, axis=1).max() <= radius
        robust = model.predict_set(inputs, radius)
        assert robust[index, labels].mean() >= 0.9
    assert robust.sum(1).mean() < 6, "sets that hold everything cover as well, and say nothing"


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
