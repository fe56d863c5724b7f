"""Drift estimators on frames as they come: categories, dates, gaps; columns matched by name."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from taut.errors import ArgumentError, DataError
from taut.sklearn import WassersteinDrift, WassersteinMonitor
from taut.transport import wasserstein


def mixed(n, seed, shift=0.0, gaps=0.05):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40 + 9 * shift, 9, n),
            "colour": rng.choice(["red", "blue", "tan"], n),
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 30, n), "D"),
            "note": [f"text {i} of {seed}" for i in range(n)],
        }
    )
    frame.loc[rng.random(n) < gaps, "age"] = np.nan
    return frame


def quick(**options):
    return WassersteinDrift(num_steps=20, num_permutations=19, critics=("linear",), **options)


def test_drift_of_mixed_frames():
    reference = mixed(300, 0)
    drift = quick().fit(reference)
    assert drift.encoding_ is not None
    kinds = {column.name: column.kind for column in drift.encoding_.columns}
    expected = dict(age="number", colour="category", size="ordered", day="date", note="left out")
    assert kinds == expected
    batch = mixed(200, 1, shift=3.0)
    found = drift.compare(batch)
    same = wasserstein(
        reference, batch, num_steps=20, num_permutations=19, critics=("linear",), seed=0
    )
    assert found.lower.value == same.lower.value > 1
    assert drift.compare(batch[batch.columns[::-1]]).lower.value == found.lower.value
    assert drift.drifted(batch, above=1.0)
    assert not drift.drifted(mixed(200, 2))
    assert drift.score(batch) == -found.lower.value


def test_rows_of_mixed_frames():
    alarms = [quick().fit(mixed(200, s)).predict(mixed(400, 100 + s)) == -1 for s in range(20)]
    rates = np.mean(alarms, axis=1)
    assert np.mean(rates) <= 0.05 + 3 * np.std(rates) / np.sqrt(20)
    drift = quick().fit(mixed(200, 0))
    odd = mixed(5, 1, gaps=0.0).assign(age=150.0)
    assert (drift.predict(odd) == -1).all()
    rows = mixed(20, 2)
    np.testing.assert_array_equal(
        drift.score_samples(rows), drift.score_samples(rows[rows.columns[::-1]])
    )
    # A category that is new, and a gap in a column that had none, are rows like others.
    assert np.isfinite(drift.score_samples(rows.assign(colour="green", day=pd.NaT))).all()
    with pytest.raises(DataError, match="none called 'day'"):
        drift.predict(rows.drop(columns="day"))


def test_numbers_alone_are_matched_by_name_in_compare():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)) * [1, 5], columns=["a", "b"])
    drift = quick().fit(frame)
    assert drift.encoding_ is None
    swapped = frame[["b", "a"]] + 0.01
    assert not drift.drifted(swapped)
    with pytest.raises(ValueError, match="same order"):
        drift.predict(swapped)


def test_options_pipelines_and_clones():
    reference = mixed(300, 0)
    options = {"drop": ["day", "note"], "categorical": ["size"]}
    drift = quick(encoding=options)
    clone(drift)
    drift.fit(reference)
    assert drift.encoding_ is not None
    assert [column.name for column in drift.encoding_.used] == ["age", "colour", "size"]
    pipeline = make_pipeline(
        FunctionTransformer(lambda frame: frame.assign(age=frame["age"] / 10)), quick()
    ).fit(reference)
    assert set(pipeline.predict(mixed(50, 1))) <= {-1, 1}
    with pytest.raises(ArgumentError, match="`encoding` needs a frame"):
        quick(encoding=options).fit(np.zeros((30, 2)))


def test_monitor_of_frames():
    watch = WassersteinMonitor().fit(mixed(2000, 0))
    for seed in range(1, 4):
        assert not watch.update(mixed(200, seed), f"day {seed}").alarm
    assert not watch.alarm_
    for seed in range(4, 8):
        batch = mixed(200, seed, shift=0.5)
        found = watch.update(batch[batch.columns[::-1]])
    assert watch.alarm_
    assert found.changes[0].what == "age higher"
    assert watch.monitor_.batches[0].name == "day 1"
    values = np.random.default_rng(0).normal([0, 9], size=(600, 2))
    numbers = pd.DataFrame(values, columns=["a", "b"])
    plain = WassersteinMonitor().fit(numbers[:300])
    assert not plain.update(numbers[300:][["b", "a"]]).alarm
