"""A record is one file, complete or absent, and is read as it was written."""

import json
import math
import os
import subprocess

import numpy as np
import pytest
import torch

from fake_experiments import experiment
from taut.errors import ArgumentError, DamagedFileError
from taut_lab.framework import provenance
from taut_lab.framework.experiment import Cell, Outcome
from taut_lab.framework.records import Record, Records, from_json, to_json

CELL = Cell("fake", 1, {"seed": 3, "hidden": [4, 4], "rate": 0.1})


def record(cell=CELL, **numbers) -> Record:
    outcome = Outcome(numbers or {"a": 0.1}, [{"step": 1, "loss": 2.0}], {"xs": [[1, 2.5], []]})
    code = {"taut": "0", "commit": None, "dirty": None}
    return Record(cell, outcome, 1.5, 1.25, code, {"python": "3"}, {"cores": 2})


def test_what_is_read_is_what_was_written(tmp_path):
    records = Records(tmp_path / "deep" / "er")
    written = record(a=0.1 + 0.2, b=-math.inf, c=math.inf, d=5e-324, e=1)
    assert records.write(written) == tmp_path / "deep" / "er" / "fake" / f"{CELL.key}.json"
    assert records.read(CELL) == written


def test_the_file_has_all_fields(tmp_path):
    records = Records(tmp_path)
    path = records.write(record(a=math.nan))
    read = records.read(CELL)
    assert read is not None and math.isnan(read.outcome.numbers["a"])
    held = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert held["experiment"] == "fake" and held["version"] == 1 and held["key"] == CELL.key
    assert held["config"] == CELL.config and held["seed"] == 3
    assert held["numbers"] == {"a": "nan"} and held["series"] == {"xs": [[1, 2.5], []]}
    assert (held["wall_seconds"], held["cpu_seconds"]) == (1.5, 1.25)
    assert {"code", "versions", "machine", "date", "curve"} <= set(held)


@pytest.mark.parametrize("kept", [0, 1, 40, -40, -3])
def test_a_truncated_file_is_damaged(tmp_path, kept):
    records = Records(tmp_path)
    path = records.write(record())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedFileError, match="is not a complete record"):
        records.read(CELL)
    found, damaged = records.load([CELL])
    assert found == {} and len(damaged) == 1 and str(path) in damaged[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 99}, "format is 99"),
        ({"config": {"seed": 4}}, "does not match its configuration"),
        ({"version": 2}, "does not match its configuration"),
        ({"numbers": {"a": "much"}}, "its numbers are not all numbers"),
        ({"numbers": None}, "not a complete record"),
        ({"wall_seconds": "long"}, "not a complete record"),
    ],
)
def test_an_altered_file_is_damaged(tmp_path, change, reason):
    records = Records(tmp_path)
    path = records.write(record())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DamagedFileError, match=reason):
        records.read(CELL)


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", "\udcff"])
def test_a_file_that_is_not_a_record_is_damaged(tmp_path, text):
    records = Records(tmp_path)
    path = records.write(record())
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DamagedFileError):
        records.read(CELL)


def test_the_record_of_another_cell_is_damaged(tmp_path):
    records = Records(tmp_path)
    other = Cell("fake", 1, {"seed": 4})
    os.rename(records.write(record(other)), records.path(CELL))
    with pytest.raises(DamagedFileError, match="another cell"):
        records.read(CELL)


def test_writing_stopped_at_any_moment_leaves_the_old_or_the_new(tmp_path, monkeypatch):
    records = Records(tmp_path)
    old = record(a=1.0)
    records.write(old)
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def stop(*args):
                raise KeyboardInterrupt

            patch.setattr(os, name, stop)
            with pytest.raises(KeyboardInterrupt):
                records.write(record(a=2.0))
        assert records.read(CELL) == old
        assert [path.name for path in records.path(CELL).parent.iterdir()] == [f"{CELL.key}.json"]


def test_a_record_replaces_an_error_report(tmp_path):
    records = Records(tmp_path)
    path = records.write_error(CELL, "Traceback: no")
    assert path == tmp_path / "fake" / f"{CELL.key}.error.txt"
    assert '"seed": 3' in path.read_text() and "Traceback: no" in path.read_text()
    records.write(record())
    assert not path.exists()


@pytest.mark.parametrize(
    "value", [torch.zeros(1), np.zeros(2), {"a": [1, {2}]}, 1j, object(), {"a": {"b": len}}]
)
def test_data_that_is_not_plain_is_refused_by_name(value):
    with pytest.raises(ArgumentError, match="`series.* must be plain data.*Use .item"):
        to_json(value, "series")


def test_plain_data_round_trips():
    value = {"a": [1, 2.5, math.inf, None, "words"], "b": {"c": [[-math.inf]]}, "d": True}
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value
    assert to_json([np.float32(0.5), np.int64(3), (1,)]) == [0.5, 3, [1]]


def test_numbers_that_are_not_numbers_are_refused():
    with pytest.raises(ArgumentError, match="`numbers\\['a'\\]` must be a number"):
        record(a="high").to_json()


def test_a_preset_has_its_own_cells(tmp_path):
    made = experiment(tmp_path / "marks")
    records = Records(tmp_path / "records")
    smoke, paper = made.cells("smoke"), made.cells("paper")
    records.write(record(smoke[1]))
    assert len(records.of(made, "cpu")) == 1  # which has this cell too
    assert [found.cell.key for found in records.of(made, "smoke")] == [smoke[1].key]
    records.write(record(paper[0]))
    assert len(records.of(made, "paper")) == 1
    assert len(records.of(made, "smoke")) == 1


def test_configurations_are_passed_as_json_returns_them(tmp_path):
    made = experiment(tmp_path, every={"hidden": (1, (2, 3))})
    assert made.cells("cpu")[0].config["hidden"] == [1, [2, 3]]


def test_a_configuration_without_a_seed_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="must have an integer as its seed"):
        experiment(tmp_path, seeds=("zero",)).cells("cpu")


def git(folder, *words):
    name = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *name, *words], check=True, capture_output=True)


def test_code_is_described_by_its_commit_and_whether_files_differ(tmp_path, monkeypatch):
    describe = provenance.describe_code.__wrapped__
    package = tmp_path / "src" / "taut"
    package.mkdir(parents=True)
    (package / "provenance.py").write_text("a")
    monkeypatch.setattr(provenance, "_SOURCE", tmp_path / "src")
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))
    assert (describe()["commit"], describe()["dirty"]) == (None, None)
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "unrelated")
    assert describe()["commit"] is None
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "-m", "all")
    assert len(describe()["commit"]) == 40 and describe()["dirty"] is False
    (tmp_path / "notes.txt").write_text("outside the package")
    assert describe()["dirty"] is False
    (package / "provenance.py").write_text("b")
    assert len(describe()["commit"]) == 40 and describe()["dirty"] is True
