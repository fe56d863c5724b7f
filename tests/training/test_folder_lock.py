"""Two processes never train into one folder, and errors of storage are one line."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from support import invoke
from taut.errors import ArgumentError
from taut.training import RunFolder, TrainConfig, train

SMALL = TrainConfig(data="digits", hidden=(8,), epochs=1)


def test_a_folder_in_use_is_refused(tmp_path):
    with (
        RunFolder(tmp_path / "run").lock(),
        pytest.raises(ArgumentError, match="no other process is training into"),
    ):
        train(SMALL, tmp_path / "run")
    assert train(SMALL, tmp_path / "run").result["epochs"] == 1


def test_another_process_is_refused_too(tmp_path):
    code = (
        "import sys; from taut.training import RunFolder; RunFolder(sys.argv[1]).lock().__enter__()"
    )
    with RunFolder(tmp_path / "run").lock():
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True
        )
    assert done.returncode == 1 and "which another one has open" in done.stderr
    # What a process held is free once it is gone.
    subprocess.run([sys.executable, "-c", code, tmp_path / "run"], check=True)
    with RunFolder(tmp_path / "run").lock():
        pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_and_a_closed_folder_are_one_line(number, tmp_path, monkeypatch):
    def refuse(path, data):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("taut.training.run_folder.write_atomically", refuse)
    result = invoke(
        "train", "--data", "digits", "--epochs", 1, "--no-report", "--out", tmp_path / "r"
    )
    assert result.exit_code == 2
    assert os.strerror(number).lower() in result.stderr
    created, line = result.stderr.strip().splitlines()
    assert created.startswith("Created folder ") and line.startswith("taut")
    assert "Traceback" not in result.output


def test_an_interruption_says_how_to_resume(tmp_path):
    out = tmp_path / "run"
    words = ["train", "--data", "digits", "--epochs", "5000", "--hidden", "8", "--no-report"]
    process = subprocess.Popen(
        [sys.executable, "-m", "taut", *words, "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (out / "checkpoint.safetensors").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert f"Run the same command to resume from the last checkpoint in {out}" in errors
    assert "Traceback" not in errors
