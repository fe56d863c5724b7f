"""`taut watch`: a reference once, batches as they come, an exit status for pipelines."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from support import invoke


def write(path: Path, rows: int, seed: int, shift: float = 0.0) -> Path:
    rng = np.random.default_rng(seed)
    lines = ["age,colour,id"]
    for i in range(rows):
        age = "" if rng.random() < 0.05 else f"{rng.normal(40 + shift, 9):.2f}"
        lines.append(f"{age},{rng.choice(['red', 'blue'])},{seed}-{i}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "watch.safetensors"
    reference = write(tmp_path / "reference.csv", 1000, 0)
    result = invoke("watch", reference, "--save", path, "--drop", "id", "--json", code=0)
    told = json.loads(result.stdout)
    assert told["reference_rows"] == 1000 and told["batches"] == [] and not told["alarm"]
    assert told["encoding"]["id"] == "left out: dropped"
    return path


def test_batches_an_alarm_a_log_and_a_page(tmp_path, saved):
    log, page = tmp_path / "out" / "log.jsonl", tmp_path / "page.html"
    quiet = [write(tmp_path / f"{i}.csv", 150, i) for i in range(1, 5)]
    result = invoke("watch", "--with", saved, quiet[0], "--log", log, code=0)
    assert "No drift detected in 1 batch." in result.stdout
    invoke("watch", "--with", saved, *quiet[1:], "--log", log, code=0)
    drifted = [write(tmp_path / f"{i}.csv", 150, i, shift=6.0) for i in range(5, 9)]
    result = invoke(
        "watch", "--with", saved, *drifted, "--log", log, "--report", page, "--json", code=1
    )
    told = json.loads(result.stdout)
    assert told["alarm"]
    assert [batch["name"] for batch in told["batches"]] == [f"{i}.csv" for i in range(1, 9)]
    assert told["batches"][-1]["changes"][0]["what"] == "age higher"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines == told["batches"]
    html = page.read_text()
    assert "Drift detected in batch" in html and "age higher" in html
    assert "is at most 5 %, over all batches together" in html
    # The alarm stays on, and a page can be made without a batch.
    invoke("watch", "--with", saved, "--report", page, code=1)


def test_a_batch_of_one_row(tmp_path, saved):
    one = write(tmp_path / "one.csv", 1, 1)
    result = invoke("watch", "--with", saved, one, "--json", code=0)
    assert json.loads(result.stdout)["batches"][0]["rows"] == 1


def test_a_folder_without_permission_or_space(tmp_path, saved, monkeypatch):
    batch = write(tmp_path / "1.csv", 50, 1)

    def refuse(path: str) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr("taut.transport.hold_monitor", refuse)
    for code in (errno.EACCES, errno.ENOSPC):
        result = invoke("watch", "--with", saved, batch, code=2)
        assert str(saved) in result.stderr and result.stderr.count("\n") == 1
        assert os.strerror(code).lower() in result.stderr


def test_batches_before_a_bad_one_count(tmp_path, saved):
    good, bad = write(tmp_path / "good.csv", 100, 1), tmp_path / "bad.csv"
    bad.write_text("age,shade,id\n1,red,2\n3,red,4\n")
    result = invoke("watch", "--with", saved, good, bad, code=2)
    assert "none called 'colour'" in result.stderr and result.stderr.count("\n") == 1
    result = invoke("watch", "--with", saved, good, code=2)
    assert "the rows of batch 'good.csv' again" in result.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "either --save (with a REFERENCE) or --with is needed"),
        (["--save", "x"], "--save needs one REFERENCE"),
        (["--with", "x"], "--with needs a BATCH, or --report"),
        (["--with", "x", "y.csv", "--drop", "id"], "--drop cannot be used with --with"),
        (["--save", "x", "y.csv", "--log", "l"], "--log cannot be used with --save"),
        (["--save", "x", "none.csv"], "none.csv"),
        (
            ["--with", "none.safetensors", "y.csv"],
            "must be an existing file or folder; got 'none.safetensors'",
        ),
        (["--with", "x", "y.csv"], "x: "),
    ],
)
def test_wrong_usage(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x").write_text("no monitor")
    result = invoke("watch", *words, code=2)
    assert sentence in result.stderr


def test_a_moving_reference_and_running_numbers(tmp_path):
    path, reference = tmp_path / "watch.safetensors", tmp_path / "reference.csv"
    reference.write_text("number,value\n" + "".join(f"{i},{i * 37 % 101}\n" for i in range(100)))
    result = invoke("watch", reference, "--save", path, "--window", "2", code=0)
    assert "later batches will exceed: column 'number'; leave them out with --drop." in " ".join(
        result.stdout.split()
    )
    result = invoke(
        "watch", reference, "--save", path, "--window", "2", "--drop", "number", "--json"
    )
    told = json.loads(result.stdout)
    assert told["window"] == 2 and told["notes"] == []
