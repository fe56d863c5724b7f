"""`monotonic_cst` as scikit-learn spells it, proven; quantile losses."""

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import StandardScaler

from taut.certificates import bound_order_gap
from taut.errors import ArgumentError
from taut.sklearn import LipschitzClassifier, LipschitzRegressor

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def noise():
    """Targets that fall where the model must rise: only the constraint keeps it from following."""
    x = np.random.default_rng(0).uniform(-3, 3, (300, 3))
    return x, -2 * x[:, 0] + np.sin(3 * x[:, 1]) + x[:, 2]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("lipschitz", [2.0, None])
def test_ordered_rows_have_ordered_predictions(noise, norm, lipschitz):
    x, y = noise
    options = {"norm": norm, "lipschitz": lipschitz, "epochs": 10, "monotonic_cst": [1, 0, -1]}
    model = LipschitzRegressor((16,), **options).fit(x, y)
    if lipschitz is not None:
        assert model.lipschitz_.value <= lipschitz
    rng = np.random.default_rng(1)
    rows = rng.uniform(-5, 5, (50_000, 3)).astype(np.float32).astype(np.float64)
    reach = 10.0 ** rng.uniform(-6, 1, (len(rows), 1))
    moved = rows + rng.uniform(0, 1, rows.shape) * reach * [1, 0, -1]
    assert (model.predict(rows) <= model.predict(moved)).all()
    gap = bound_order_gap(model.network_, model.increase_.value, torch.zeros(3), 15.0, "float64")
    assert gap < 1e-7


def test_the_lead_of_the_second_class_is_monotone():
    data: Any = load_breast_cancer(return_X_y=True)
    x, y = StandardScaler().fit_transform(data[0]), data[1]
    signs = np.zeros(30, dtype=int)
    signs[:4] = 1  # the data says -1: larger nuclei are malignant, class 0
    model = LipschitzClassifier((32,), epochs=10, monotonic_cst=signs).fit(x, y)
    assert model.lipschitz_.value <= 1
    moved = x + np.random.default_rng(0).uniform(0, 2, x.shape) * signs
    assert (model.decision_function(x) <= model.decision_function(moved)).all()
    assert (model.certify(x).radius > 0).all()


def test_columns_by_name_and_refusals(noise):
    x, y = noise
    table = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = LipschitzRegressor((8,), epochs=1, monotonic_cst={"a": -1}).fit(table, y)
    steps = np.zeros((50, 3))
    steps[:, 0] = np.linspace(-3, 3, 50)
    assert (np.diff(model.predict(pandas.DataFrame(steps, columns=table.columns))) < 0).all()
    with pytest.raises(ValueError, match="monotonic_cst"):
        LipschitzRegressor(monotonic_cst=[1, 0]).fit(x, y)
    with pytest.raises(ArgumentError, match="needs two classes"):
        LipschitzClassifier(monotonic_cst=[1, 0, 0]).fit(x, np.arange(300) % 3)


def test_quantiles_are_exceeded_as_often_as_they_say():
    data: Any = load_diabetes(return_X_y=True)
    x, y = StandardScaler().fit_transform(data[0]), data[1]
    for quantile in (0.1, 0.9):
        model = LipschitzRegressor((16,), epochs=30, loss="quantile", quantile=quantile).fit(x, y)
        assert np.mean(y <= model.predict(x)) == pytest.approx(quantile, abs=0.06)
    with pytest.raises(ArgumentError, match="quantile"):
        LipschitzRegressor(loss="quantile", quantile=1.0).fit(x, y)
