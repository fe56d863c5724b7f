"""Every estimator of taut passes every check of scikit-learn; none is skipped or excused."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import taut.sklearn
from taut.sklearn import (
    LipschitzClassifier,
    LipschitzRegressor,
    RobustConformalClassifier,
    RobustConformalRegressor,
    WassersteinDrift,
    WassersteinMonitor,
)

ESTIMATORS = [
    LipschitzClassifier((16,), epochs=8, batch_size=64, lr=0.05),
    LipschitzRegressor((16,), epochs=8, batch_size=64, lr=0.05),
    RobustConformalClassifier(LipschitzClassifier((16,), epochs=8, batch_size=64, lr=0.05)),
    RobustConformalRegressor(LipschitzRegressor((16,), epochs=8, batch_size=64, lr=0.05)),
    WassersteinDrift(num_steps=2, num_permutations=19),
    WassersteinMonitor(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # one check is skipped without it
    check(estimator)


def test_no_estimator_is_forgotten():
    classes = [name for name in taut.sklearn.__all__ if name[0].isupper()]
    assert sorted(type(estimator).__name__ for estimator in ESTIMATORS) == classes
    assert dir(taut.sklearn) == taut.sklearn.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'taut.sklearn' has no attribute 'slack'"):
        getattr(taut.sklearn, "slack")  # noqa: B009
