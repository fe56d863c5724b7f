"""`taut reproduce` on made-up experiments: what it runs, keeps, says, shows and refuses."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from made_up import count, experiment
from taut.cli.main import main

PATIENCE = 120.0  # seconds, for a machine that has much else to do


class Here:
    """Computes in this process: no test but one needs another."""

    def __init__(self, jobs=1):
        self.width = jobs

    def submit(self, key, function, *args):
        from concurrent.futures import Future

        future: Future = Future()
        future.set_result(function(*args))
        return future

    def close(self):
        pass


def offer(monkeypatch, *experiments):
    """The registry has these and no others."""
    from taut.lab import registry

    monkeypatch.setattr(registry, "EXPERIMENTS", tuple(made.name for made in experiments))
    for made in experiments:
        module = types.SimpleNamespace(EXPERIMENT=made)
        monkeypatch.setitem(sys.modules, f"taut.lab.{made.name.replace('-', '_')}", module)


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.setattr("taut.lab.engines.LocalWorkers", Here)
    monkeypatch.delenv("TAUT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def invoke(*words):
        return CliRunner().invoke(main, ["reproduce", *words])

    return invoke


@pytest.fixture
def marks(tmp_path):
    return tmp_path / "marks"


def test_names_alone_run_and_a_second_time_nothing_is_left(call, marks, tmp_path, monkeypatch):
    offer(monkeypatch, experiment(marks, "cones-here"), experiment(marks, "other", seeds=[7]))
    first = call("cones-here", "--preset", "cpu")
    assert first.exit_code == 0, first.output
    assert count(marks) == {0: 1, 1: 1, 2: 1}
    assert len(list((tmp_path / "runs" / "lab" / "cones-here").glob("*.json"))) == 3
    assert (
        "3/3 cones-here" in first.stderr and "Next: taut reproduce show cones-here" in first.stdout
    )
    second = call("--preset", "cpu", "all")
    assert second.exit_code == 0, second.output
    assert count(marks) == {0: 1, 1: 1, 2: 1, 7: 1}


def test_only_the_seeds_asked_for(call, marks, monkeypatch):
    offer(monkeypatch, experiment(marks, seeds=range(5)))
    words = ("made-up", "--preset", "cpu", "--seed", "1", "--seed", "4")
    assert call(*words, "--out", "a").exit_code == 0
    assert count(marks) == {1: 1, 4: 1}


def test_a_seed_that_no_cell_has_is_refused(call, marks, monkeypatch):
    offer(monkeypatch, experiment(marks, "three-cones"))
    result = call("three-cones", "--seed", "99")
    assert result.exit_code == 2
    assert "`--seed` must be one of three-cones with --preset smoke: 0" in result.stderr
    assert not marks.exists()


def test_json_is_one_object_and_nothing_else(call, marks, monkeypatch):
    offer(monkeypatch, experiment(marks, s1={"do": "raise"}))
    result = call("made-up", "--preset", "cpu", "--json", "--out", "a")
    assert result.exit_code == 1 and result.stderr == ""
    told = json.loads(result.stdout)
    (row,) = told["experiments"]
    assert told["preset"] == "cpu" and told["records"] == "a"
    assert (row["cells"], row["finished"], row["finished_before"]) == (3, 2, 0)
    (failed,) = row["failed"]
    assert failed["error"] == "LookupError: no cell 1" and Path(failed["file"]).exists()


def test_a_failed_cell_is_told_and_fails_the_command_until_it_is_mended(
    call, marks, monkeypatch, tmp_path
):
    offer(monkeypatch, experiment(marks, s0={"do": "raise"}))
    result = call("made-up", "--preset", "cpu")
    assert result.exit_code == 1
    assert "LookupError: no cell 0" in result.stdout and ".error.txt" in result.stdout
    (tmp_path / "mended").touch()
    assert call("made-up", "--preset", "cpu").exit_code == 0
    assert count(marks) == {0: 2, 1: 1, 2: 1}
    assert list(Path("runs/lab").rglob("*.error.txt")) == []


def test_missing_data_skips_an_experiment_and_no_other(call, marks, monkeypatch):
    offer(
        monkeypatch,
        experiment(marks, "on-images", seeds=[8], needs=["mnist"]),
        experiment(marks, "on-nothing", seeds=[9]),
    )
    result = call("all", "--preset", "cpu")
    assert result.exit_code == 0, result.output
    assert count(marks) == {9: 1}
    assert "on-images is skipped: MNIST is not in" in result.stderr
    assert "taut data fetch mnist" in result.stderr
    assert call("on-images", "--preset", "cpu").exit_code == 1
    assert call("on-images", "--preset", "smoke").exit_code == 0  # which reads no data
    assert count(marks) == {8: 1, 9: 1}


def test_the_data_folder_reaches_the_cells_as_a_whole_path(call, marks, tmp_path, monkeypatch):
    offer(monkeypatch, experiment(marks, seeds=[0], needs=["tea"]))
    (tmp_path / "d" / "tea").mkdir(parents=True)
    assert call("made-up", "--preset", "cpu", "--data-dir", "d").exit_code == 0
    (path,) = Path("runs/lab/made-up").glob("*.json")
    assert json.loads(path.read_text())["series"]["data"] == str(tmp_path / "d")


def test_an_unknown_name_brings_the_closest(call, marks, monkeypatch):
    offer(monkeypatch, experiment(marks, "three-cones"), experiment(marks, "prob-dim"))
    for words in (["tree-cone"], ["show", "tree-cone"], ["prob-dim", "tree-cone"]):
        result = call(*words)
        assert result.exit_code == 2
        assert "got 'tree-cone'. Did you mean three-cones?" in result.stderr
    assert "Use three-cones, prob-dim." in call("xyz").stderr
    assert not marks.exists()


def test_the_list_counts_cells_and_what_is_finished(call, marks, monkeypatch):
    offer(monkeypatch, experiment(marks, "a-table"), experiment(marks, "a-figure", needs=["tea"]))
    call("a-table")
    rows = json.loads(call("list", "--json").stdout)["experiments"]
    assert [row["name"] for row in rows] == ["a-table", "a-figure"]
    assert rows[0]["presets"] == {
        "smoke": {"cells": 2, "finished": 2},
        "cpu": {"cells": 3, "finished": 2},
        "paper": {"cells": 3, "finished": 0},
    }
    assert rows[1]["label"] == "tab:a-figure" and rows[1]["needs"] == ["tea"]
    text = call("list").stdout
    assert "a-table" in text and "2/2" in text and "2/3" in text and "tab:a-figure" in text


def test_tables_have_the_papers_number_beside_ours(call, marks, monkeypatch):
    offer(monkeypatch, experiment(marks))
    refused = call("show", "made-up")
    assert refused.exit_code == 2 and "taut reproduce made-up --preset smoke" in refused.stderr
    call("made-up")
    text = call("show", "made-up", "--preset", "smoke").stdout
    assert "preset smoke, 2 of 2 cells" in text and "Draws are draws." in text
    assert "0.627 ± 0.185 [0.500]" in text
    told = json.loads(call("show", "all", "--json").stdout)["experiments"][0]
    assert (told["preset"], told["finished"], told["cells"]) == ("cpu", 2, 3)
    entry, empty = told["tables"][0]["rows"]["a row"]
    assert entry["paper"] == 0.5 and entry["difference"] == pytest.approx(entry["mean"] - 0.5)
    assert len(entry["values"]) == 2 and empty["mean"] is None


def test_help_teaches(call):
    for words in (["--help"], ["all", "--help"], ["show", "--help"], ["report", "--help"]):
        result = call(*words)
        assert result.exit_code == 0 and "Example" in result.output


COMMAND = """
import signal, sys, types
from pathlib import Path
# Whoever starts a suite in the background leaves Ctrl-C ignored, and children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from made_up import experiment
if __name__ == "__main__":
    from taut.cli.main import main
    from taut.lab import registry
    tmp = Path(sys.argv[2])
    made = experiment(tmp / "marks", seeds=range(4), s2={"steps": 10**6})
    registry.EXPERIMENTS = ("made-up",)
    sys.modules["taut.lab.made_up"] = types.SimpleNamespace(EXPERIMENT=made)
    main(["reproduce", "made-up", "--preset", "cpu", "--out", str(tmp / "records")])
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_a_command_that_was_stopped_goes_on_where_it_was(tmp_path, marks, call, monkeypatch, stop):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    command = subprocess.Popen(
        [sys.executable, script, Path(__file__).parent, tmp_path],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    end = time.monotonic() + PATIENCE
    while 2 not in count(marks) or len(list(tmp_path.glob("records/*/*.json"))) < 2:
        assert time.monotonic() < end and command.poll() is None, "waited in vain"
        time.sleep(0.02)
    os.killpg(command.pid, stop) if stop == signal.SIGINT else command.send_signal(stop)
    _, stderr = command.communicate(timeout=PATIENCE)
    if stop == signal.SIGINT:
        assert command.returncode == 130
        assert b"What is finished is kept" in stderr and b"Traceback" not in stderr
    assert count(marks) == {0: 1, 1: 1, 2: 1}
    (mark,) = marks.glob("2.*")
    while alive(int(mark.name.split(".")[1])):  # no worker outlives the command
        assert time.monotonic() < end, "a worker stays behind"
        time.sleep(0.02)
    (tmp_path / "go").touch()
    offer(monkeypatch, experiment(marks, seeds=range(4), s2={"steps": 10**6}))
    result = call("made-up", "--preset", "cpu", "--out", str(tmp_path / "records"))
    assert result.exit_code == 0, result.output
    assert count(marks) == {0: 1, 1: 1, 2: 2, 3: 1}
    files = sorted(path.name for path in (tmp_path / "records" / "made-up").iterdir())
    assert len(files) == 4 and all(name.endswith(".json") for name in files)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody has asked about, does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
