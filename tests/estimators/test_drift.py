"""WassersteinDrift keeps what it promises of rows and of batches."""

from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
from copies import copies_of
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from taut.errors import ArgumentError, DataError
from taut.sklearn import WassersteinDrift
from taut.transport import wasserstein

pytestmark = pytest.mark.slow


def quick(**parameters) -> WassersteinDrift:
    return WassersteinDrift(**{"num_steps": 20, "num_permutations": 19, **parameters})


def normal(n, dim=3, seed=0, shift=0.0):
    return np.random.default_rng(seed).normal(size=(n, dim)) + shift


def test_rows_are_scored_by_their_distance_to_centres():
    x, rows = normal(100), normal(30, seed=1)
    drift = quick(num_centres=40).fit(x)
    centres = drift.critic_.centres.detach().numpy()
    assert len(centres) == 40
    assert all((centre == x).all(1).any() for centre in centres)
    oracle = -np.linalg.norm(rows[:, None] - centres, axis=2).min(1)
    np.testing.assert_allclose(drift.score_samples(rows), oracle, rtol=1e-12)
    assert drift.lipschitz_.value == 1


def test_scores_are_1_lipschitz():
    drift = quick().fit(normal(200))
    x, step = 3 * normal(2000, seed=1), normal(2000, seed=2) ** 3
    slope = np.abs(drift.score_samples(x + step) - drift.score_samples(x))
    assert (slope <= np.linalg.norm(step, axis=1) * (1 + 1e-9)).all()


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
def test_false_alarms_are_as_rare_as_promised(rate):
    # The promise is about the mean over references.
    alarms = []
    for seed in range(64):
        points = np.random.default_rng(seed).standard_cauchy((600, 2))
        drift = quick(false_alarm_rate=rate).fit(points[:100])
        assert drift.false_alarm_rate_ <= rate
        alarms.append((drift.predict(points[100:]) == -1).mean())
    error = np.std(alarms) / 8
    assert np.mean(alarms) <= rate + 3 * error
    assert np.mean(alarms) >= drift.false_alarm_rate_ - 3 * error


def test_a_reference_too_small_for_the_rate_says_so():
    drift = quick(false_alarm_rate=0.01).fit(normal(20))
    assert drift.false_alarm_rate_ == pytest.approx(1 / 11)
    assert drift.predict([[50.0, 0, 0]]) == -1


@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_compare_is_wasserstein_with_the_same_parameters(scaling):
    x, y = normal(100), normal(80, seed=1, shift=1)
    options: dict[str, Any] = dict(
        num_steps=20, num_permutations=19, scaling=scaling, confidence=0.9
    )
    found = WassersteinDrift(**options, random_state=5).fit(x).compare(y)
    plain = wasserstein(x, y, **options, seed=5)
    assert (found.lower, found.upper, found.p_value) == (plain.lower, plain.upper, plain.p_value)


def test_drift_is_what_the_lower_bound_proves():
    drift = quick(critics=("cones",)).fit(normal(200))
    moved = normal(200, seed=1, shift=3.0)
    lower = drift.compare(moved).lower.value
    assert 0 < lower <= 3 * 3**0.5
    assert drift.score(moved) == -lower
    assert drift.drifted(moved) and drift.drifted(moved, above=0.9 * lower)
    assert not drift.drifted(moved, above=lower)


def test_large_samples_alone_raise_no_alarm():
    # A shift of 0.2 is beyond doubt among 4000 rows, and within the tolerance.
    drift = quick(critics=("network",), num_permutations=99).fit(normal(4000, dim=1))
    moved = normal(4000, dim=1, seed=1, shift=0.2)
    p_value = drift.compare(moved).p_value
    assert p_value is not None and p_value <= 0.05
    assert not drift.drifted(moved, above=0.2)


def test_equal_laws_score_zero():
    score = quick().fit(normal(300)).score(normal(300, seed=1))
    assert score == 0 and np.copysign(1, score) == 1


def test_units_of_features_do_not_matter_when_scaled():
    units = np.array([1.0, 1e3, 1e-3])
    x, rows = normal(200), 2 * normal(50, seed=1)
    one = quick(scaling="standard").fit(x)
    other = quick(scaling="standard").fit(x * units + 7)
    np.testing.assert_allclose(one.score_samples(rows), other.score_samples(rows * units + 7))


def test_the_reference_is_a_copy():
    x = normal(50)
    drift = quick().fit(x)
    x[:] = 0
    np.testing.assert_array_equal(drift.reference_, normal(50))


def test_frames_keep_their_names():
    frame = pandas.DataFrame(normal(60), columns=["a", "b", "c"])
    drift = quick().fit(frame)
    assert drift.compare(frame + 1).columns == ("a", "b", "c")
    with pytest.raises(ValueError, match="feature names"):
        drift.predict(frame.rename(columns={"a": "z"}))


def test_pipelines_clones_and_pickles_answer_alike(tmp_path):
    x, rows = normal(100), normal(40, seed=1)
    drift: Any = quick(random_state=3, critics=("cones",)).fit(x)
    for other in copies_of(drift, tmp_path / "drift.joblib", x):
        np.testing.assert_array_equal(drift.score_samples(rows), other.score_samples(rows))
        assert drift.score(rows) == other.score(rows)
    piped = make_pipeline(StandardScaler(), quick(critics=("cones",))).fit(x)
    assert set(piped.predict(rows)) <= {1, -1}
    assert piped.score(rows) <= 0


def test_each_random_state_gives_its_own_split():
    x, rows = normal(100), normal(40, seed=1)
    first, second = (quick(random_state=seed).fit(x).score_samples(rows) for seed in (0, 1))
    assert (first != second).any()
    generators = [np.random.RandomState(4) for _ in range(2)]
    a, b = (quick(random_state=g).fit(x).score_samples(rows) for g in generators)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"false_alarm_rate": 0.0}, r"`false_alarm_rate` must lie in \(0, 1\)"),
        ({"scaling": "log"}, "`scaling` must be one of 'none', 'standard', 'robust'"),
        ({"num_centres": 0}, "`num_centres` must be a whole number >= 1"),
    ],
)
def test_wrong_parameters_are_named(parameters, text):
    with pytest.raises(ArgumentError, match=text):
        quick(**parameters).fit(normal(50))


def test_wrong_data_are_refused():
    drift = quick().fit(normal(50))
    with pytest.raises(ValueError, match="at least 20 rows"):
        drift.compare(normal(10))
    with pytest.raises(ArgumentError, match="`above` must be finite and >= 0; got above=-1"):
        drift.drifted(normal(50), above=-1)
    with pytest.raises(TypeError, match="[Ss]parse data was passed.*toarray"):
        quick().fit(scipy.sparse.csr_matrix(normal(50)))
    with pytest.raises(ValueError, match="contains NaN"):
        quick().fit(np.where(normal(50) > 2, np.nan, normal(50)))
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        quick().fit(normal(1))


def test_distances_that_overflow_are_refused():
    with pytest.raises(DataError, match="distances within the reference must be finite"):
        quick().fit(normal(50) * 1e200)
