"""`taut reproduce` on fake experiments: runs, records, output and errors."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from fake_experiments import InProcessWorkers, count, experiment, register
from support import invoke

TIMEOUT = 120.0  # seconds, for a busy machine


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.setattr("taut_lab.framework.workers.LocalWorkers", InProcessWorkers)
    monkeypatch.delenv("TAUT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return partial(invoke, "reproduce")


def test_names_without_run_compute_and_a_second_time_nothing_is_left(
    call, markers, tmp_path, monkeypatch
):
    register(
        monkeypatch, experiment(markers, "cones-here"), experiment(markers, "other", seeds=[7])
    )
    first = call("cones-here", "--preset", "cpu", code=0)
    assert count(markers) == {0: 1, 1: 1, 2: 1}
    assert len(list((tmp_path / "runs" / "lab" / "cones-here").glob("*.json"))) == 3
    assert (
        "3/3 cones-here" in first.stderr and "Next: taut reproduce show cones-here" in first.stdout
    )
    call("--preset", "cpu", "all", code=0)
    assert count(markers) == {0: 1, 1: 1, 2: 1, 7: 1}


def test_only_the_given_seeds_are_computed(call, markers, monkeypatch):
    register(monkeypatch, experiment(markers, seeds=range(5)))
    words = ("fake", "--preset", "cpu", "--seed", "1", "--seed", "4")
    call(*words, "--records", "a", code=0)
    assert count(markers) == {1: 1, 4: 1}


def test_a_seed_that_no_cell_has_is_refused(call, markers, monkeypatch):
    register(monkeypatch, experiment(markers, "three-cones"))
    result = call("three-cones", "--seed", "99", code=2)
    assert "`--seed` must be a seed of three-cones with --preset smoke: 0" in result.stderr
    assert not markers.exists()


def test_json_is_one_object_and_nothing_else(call, markers, monkeypatch):
    register(monkeypatch, experiment(markers, s1={"do": "raise"}))
    result = call("fake", "--preset", "cpu", "--json", "--records", "a")
    assert result.exit_code == 1 and result.stderr == ""
    told = json.loads(result.stdout)
    (row,) = told["experiments"]
    assert told["preset"] == "cpu" and told["records"] == "a"
    assert (row["cells"], row["finished"], row["finished_before"]) == (3, 2, 0)
    (failed,) = row["failed"]
    assert failed["error"] == "LookupError: no cell 1" and Path(failed["file"]).exists()


def test_a_failed_cell_is_reported_and_fails_the_command_until_it_is_fixed(
    call, markers, monkeypatch, tmp_path
):
    register(monkeypatch, experiment(markers, s0={"do": "raise"}))
    result = call("fake", "--preset", "cpu", code=1)
    assert "LookupError: no cell 0" in result.stdout and ".error.txt" in result.stdout
    (tmp_path / "fixed").touch()
    call("fake", "--preset", "cpu", code=0)
    assert count(markers) == {0: 2, 1: 1, 2: 1}
    assert list(Path("runs/lab").rglob("*.error.txt")) == []


def test_missing_data_skips_its_cells_alone(call, markers, monkeypatch):
    register(
        monkeypatch,
        experiment(markers, "on-images", seeds=[8], data="mnist"),
        experiment(markers, "on-nothing", seeds=[9]),
    )
    result = call("all", "--preset", "cpu", code=0)
    assert count(markers) == {9: 1}
    assert "Cells of on-images are skipped. MNIST is not in" in result.stderr
    assert "taut data fetch mnist" in result.stderr
    call("on-images", "--preset", "cpu", code=1)
    assert call("on-images", "--preset", "smoke").exit_code == 0  # which reads no data
    assert count(markers) == {8: 1, 9: 1}


def test_the_data_folder_reaches_the_cells_as_an_absolute_path(
    call, markers, tmp_path, monkeypatch
):
    register(monkeypatch, experiment(markers, seeds=[0]))
    call("fake", "--preset", "cpu", "--data-dir", "d", code=0)
    (path,) = Path("runs/lab/fake").glob("*.json")
    assert json.loads(path.read_text())["series"]["data"] == str(tmp_path / "d")


def test_the_error_for_an_unknown_name_suggests_the_closest(call, markers, monkeypatch):
    register(monkeypatch, experiment(markers, "three-cones"), experiment(markers, "prob-dim"))
    for words in (["tree-cone"], ["show", "tree-cone"], ["prob-dim", "tree-cone"]):
        result = call(*words, code=2)
        assert "got 'tree-cone'. Did you mean three-cones?" in result.stderr
    assert "Use three-cones, prob-dim." in call("xyz").stderr
    assert not markers.exists()


def test_the_list_counts_cells_and_what_is_finished(call, markers, monkeypatch):
    register(
        monkeypatch, experiment(markers, "a-table"), experiment(markers, "a-figure", data="mnist")
    )
    call("a-table")
    rows = json.loads(call("list", "--json").stdout)["experiments"]
    assert [row["name"] for row in rows] == ["a-table", "a-figure"]
    assert rows[0]["presets"] == {
        "smoke": {"cells": 2, "finished": 2, "datasets": []},
        "cpu": {"cells": 3, "finished": 2, "datasets": []},
        "gpu": {"cells": 1, "finished": 0, "datasets": []},
        "paper": {"cells": 3, "finished": 0, "datasets": []},
    }
    assert rows[1]["label"] == "tab:a-figure"
    assert rows[1]["presets"]["cpu"]["datasets"] == ["mnist"]
    text = call("list").stdout
    assert "a-table" in text and "2/3 cpu" in text and "tab:a-figure" in text


def test_tables_have_the_papers_number_beside_ours(call, markers, monkeypatch):
    register(monkeypatch, experiment(markers))
    refused = call("show", "fake")
    assert refused.exit_code == 2 and "taut reproduce fake --preset smoke" in refused.stderr
    call("fake")
    text = call("show", "fake", "--preset", "smoke").stdout
    assert "preset smoke, 2 of 2 cells" in text and "Random numbers." in text
    assert "0.627 ± 0.185 [0.500]" in text
    told = json.loads(call("show", "all", "--json").stdout)["experiments"][0]
    assert (told["preset"], told["finished"], told["cells"]) == ("cpu", 2, 3)
    entry, empty = told["tables"][0]["rows"]["a row"]
    assert entry["paper"] == 0.5 and entry["difference"] == pytest.approx(entry["mean"] - 0.5)
    assert len(entry["values"]) == 2 and empty["mean"] is None


def test_help_has_examples(call):
    for words in (["--help"], ["all", "--help"], ["show", "--help"], ["report", "--help"]):
        result = call(*words)
        assert result.exit_code == 0 and "Example" in result.output


COMMAND = """
import signal, sys
from pathlib import Path
# A suite that runs in the background ignores Ctrl-C, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from fake_experiments import experiment
if __name__ == "__main__":
    from taut.cli.main import main
    from taut_lab.experiments import registry
    tmp = Path(sys.argv[2])
    made = experiment(tmp / "markers", seeds=range(4), s2={"steps": 10**6})
    registry.EXPERIMENTS = {"fake": made}
    main(["reproduce", "fake", "--preset", "cpu", "--records", str(tmp / "records")])
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
@pytest.mark.slow
def test_an_interrupted_command_is_resumed(tmp_path, markers, call, monkeypatch, stop):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    command = subprocess.Popen(
        [sys.executable, script, Path(__file__).parents[2], tmp_path],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    end = time.monotonic() + TIMEOUT
    while 2 not in count(markers) or len(list(tmp_path.glob("records/*/*.json"))) < 2:
        assert time.monotonic() < end and command.poll() is None, "timeout"
        time.sleep(0.02)
    os.killpg(command.pid, stop) if stop == signal.SIGINT else command.send_signal(stop)
    _, stderr = command.communicate(timeout=TIMEOUT)
    if stop == signal.SIGINT:
        assert command.returncode == 130
        assert b"Finished cells are kept" in stderr and b"Traceback" not in stderr
    assert count(markers) == {0: 1, 1: 1, 2: 1}
    (marker,) = markers.glob("2.*")
    while alive(int(marker.name.split(".")[1])):  # no worker outlives the command
        assert time.monotonic() < end, "a worker is still running"
        time.sleep(0.02)
    (tmp_path / "go").touch()
    register(monkeypatch, experiment(markers, seeds=range(4), s2={"steps": 10**6}))
    call("fake", "--preset", "cpu", "--records", str(tmp_path / "records"), code=0)
    assert count(markers) == {0: 1, 1: 1, 2: 2, 3: 1}
    files = sorted(path.name for path in (tmp_path / "records" / "fake").iterdir())
    assert len(files) == 4 and all(name.endswith(".json") for name in files)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody has asked about, does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
