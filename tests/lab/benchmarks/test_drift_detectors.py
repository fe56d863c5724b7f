"""Two-sample tests side by side: every detector answers, and records survive a file."""

import numpy as np
import pytest

from support import invoke
from taut.errors import DamagedFileError
from taut_lab.benchmarks.drift_detectors import (
    DETECTORS,
    DriftRecord,
    DriftSettings,
    installed_detectors,
    run_drift,
)

pytest.importorskip("ot")
pytest.importorskip("scipy")


@pytest.mark.parametrize("name", installed_detectors())
def test_a_large_shift_is_found_and_measured(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 2)), rng.normal(size=(80, 2))
    y[:, 0] += 3
    answer, p_value = DETECTORS[name](x, y, 0)
    assert p_value <= 0.05
    # A sliced distance is the mean over directions, 3 * 2 / pi in the plane.
    assert np.isnan(answer) or 1.5 <= answer <= 3.6


def test_detectors_that_are_not_installed_are_left_out(monkeypatch):
    missing = {"river.drift", "evidently.metrics", "alibi_detect.cd"}
    peer = "taut_lab.benchmarks.drift_detectors.import_peer"
    monkeypatch.setattr(peer, lambda module: None if module in missing else np)
    assert installed_detectors() == list(DETECTORS)[:5]


def test_counts_and_records(tmp_path):
    settings = DriftSettings(pairs=3, rows=40, dim=2, shift=3.0, large_rows=60)
    record = run_drift(settings)
    assert [one.name for one in record.results] == installed_detectors()
    for one in record.results:
        assert one.found == 3 and 0 <= one.false_alarms <= 3
        if one.name == "taut two_sample_p_value":
            assert one.answers == (None, None) and one.large_answer is None
        else:
            small, large = one.answers
            assert small is not None and large is not None and large > 1.5 > small >= 0
        assert one.large_megabytes >= 0 and one.seconds > 0
    path = tmp_path / "record.json"
    record.write(path)
    assert DriftRecord.read(path) == record
    shown = invoke("bench", "drift", "--show", path)
    assert shown.exit_code == 0 and "ks_2samp" in shown.output
    path.write_text("{}")
    with pytest.raises(DamagedFileError):
        DriftRecord.read(path)
