"""A run that is interrupted at any moment resumes and ends with the same weights, to the bit."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from taut.errors import ArgumentError, DamagedFileError
from taut.training import TrainConfig, load_run, train

pytestmark = pytest.mark.slow

SMALL = {"hidden": (16, 16), "epochs": 3, "batch_size": 200, "checkpoint_every": 4, "threads": 1}


CONV = {"arch": "conv", "channels": (8, 16), "hidden": (16,), "augment": "crop-flip", "epochs": 2}


class Interrupted(Exception):
    """Raised in mid-training, as if the process had died."""


def dying_at(*moments):
    left = list(moments)

    def on_progress(progress):
        if left and (progress.epoch, progress.step) == left[0]:
            left.pop(0)
            raise Interrupted

    return on_progress


def weights(run):
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def assert_equal_to_the_bit(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"constraint": "parseval", "optimizer": "sgd", "lr": 0.01},
        {"constraint": "bjorck", "optimizer": "aggmo"},
        {"constraint": "spectral", "dropout": 0.5, "schedule": "step", "milestones": (1,)},
        {"norm": "linf", "lipschitz": 10.0, "arch": "dense"},
        {"norm": "linf"},
        {"norm": "linf", "arch": "ibp"},
        {"adversarial_radius": 0.1, "adversarial_steps": 2, "hidden": (16,), "batch_size": 700},
        {"jacobian_weight": 0.05, "hidden": (16,), "batch_size": 700, "dtype": "float64"},
        {"validation": 0.0, "dtype": "bfloat16", "warmup": 1.0},
        {**CONV, "validation": 0.0},
        {**CONV, "norm": "linf", "lipschitz": 10.0},
        {**CONV, "arch": "wrn", "channels": (4,), "hidden": (), "parseval_beta": 0.01, "lr": 0.001},
    ],
    ids=lambda more: "-".join(map(str, more.values())) or "default",
)
def test_a_run_interrupted_twice_ends_like_one_that_was_not(tmp_path, more):
    config = TrainConfig(**{**SMALL, **more})
    whole = train(config, tmp_path / "whole")
    # In the first epoch, before any checkpoint, and between two of them.
    steps = 2 if config.batch_size == 700 else 7
    for moment in ((1, 1), (2, steps - 1)):
        with pytest.raises(Interrupted):
            train(config, tmp_path / "broken", on_progress=dying_at(moment))
    broken = train(config, tmp_path / "broken")
    assert_equal_to_the_bit(weights(whole), weights(broken))
    timeless = [[{**row, "seconds": 0} for row in run.history] for run in (whole, broken)]
    assert timeless[0] == timeless[1]
    for key in ("clean", "certified", "lipschitz", "best_epoch"):
        assert whole.result[key] == broken.result[key]


def test_steps_that_change_nothing_are_resumed_too(tmp_path):
    # Steps below the last bit leave a weight as it is, and what a Parseval layer does to a weight
    # depends on whether it has changed since the layer last saw it.
    config = TrainConfig(**SMALL, constraint="parseval", optimizer="sgd", lr=1e-30, validation=0.0)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(config, tmp_path / "broken", on_progress=dying_at((2, 5)))
    assert_equal_to_the_bit(weights(whole), weights(train(config, tmp_path / "broken")))


SCRIPT = """
import os, signal, sys
from taut.training import TrainConfig, train

out, epoch, step, nth_write = sys.argv[1], *map(int, sys.argv[2:])

def on_progress(progress):
    if (progress.epoch, progress.step) == (epoch, step):
        os.kill(os.getpid(), signal.SIGKILL)

replace, writes = os.replace, 0

def replace_or_die(*names):
    global writes
    writes += "checkpoint" in str(names[1])
    if writes == nth_write:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*names)

os.replace = replace_or_die
train(
    TrainConfig(hidden=(16, 16), epochs=3, batch_size=200, checkpoint_every=4, threads=1),
    out,
    on_progress=on_progress,
)
"""


def test_kill_9_in_a_step_and_in_the_writing_of_a_checkpoint(tmp_path):
    whole = train(TrainConfig(**SMALL), tmp_path / "whole")
    out = tmp_path / "killed"
    for arguments in (("1", "6", "0"), ("0", "0", "3")):
        command = [sys.executable, "-c", SCRIPT, str(out), *arguments]
        died = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert died.returncode == -signal.SIGKILL
        assert not (out / "result.json").exists()
    assert [name for name in os.listdir(out) if name.startswith(".checkpoint")]
    resumed = train(TrainConfig(**SMALL), out)
    assert_equal_to_the_bit(weights(whole), weights(resumed))
    assert (out / "checkpoint.safetensors").exists()
    assert [name for name in os.listdir(out) if name.startswith(".")] == [".lock"]
    first, second = (
        safetensors.torch.load_file(folder / "model.safetensors")
        for folder in (tmp_path / "whole", out)
    )
    assert_equal_to_the_bit(first, second)


def test_the_log_has_each_epoch_once_even_if_the_process_died_before_its_line(tmp_path):
    config = TrainConfig(**SMALL)
    with pytest.raises(Interrupted):
        train(config, tmp_path / "a", on_progress=dying_at((2, 3)))
    log = tmp_path / "a" / "log.jsonl"
    log.write_text("")
    train(config, tmp_path / "a")
    assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [1, 2, 3]


def test_a_finished_run_is_not_run_again(tmp_path):
    config = TrainConfig(**SMALL)
    first = train(config, tmp_path / "a")

    def never(progress):
        raise AssertionError("a step was taken")

    again = train(config, tmp_path / "a", on_progress=never)
    assert_equal_to_the_bit(weights(first), weights(again))
    assert first.result == again.result == load_run(tmp_path / "a").result


def test_another_configuration_in_the_same_folder_is_refused_by_name(tmp_path):
    train(TrainConfig(**{**SMALL, "epochs": 1}), tmp_path / "a")
    other = TrainConfig(**{**SMALL, "epochs": 1, "seed": 5, "radius": 0.25})
    with pytest.raises(ArgumentError, match=r"another radius \(there 0.5, now 0.25\), .*seed \(th"):
        train(other, tmp_path / "a")
    elsewhere = TrainConfig(**{**SMALL, "epochs": 1, "data_dir": "/elsewhere", "threads": 2})
    assert train(elsewhere, tmp_path / "a").result["epochs"] == 1


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ArgumentError, match="holds thesis.tex and no config.toml"):
        train(TrainConfig(**SMALL), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_checkpoint_and_changed_data_are_refused(tmp_path):
    from taut.data import LabelledData, load_labelled

    config = TrainConfig(**SMALL)
    with pytest.raises(Interrupted):
        train(config, tmp_path / "a", on_progress=dying_at((2, 3)))
    data = load_labelled("digits")
    changed = LabelledData(data.train, data.test.take(slice(0, 100)), data.name)
    with pytest.raises(ArgumentError, match="got other numbers"):
        train(config, tmp_path / "a", data=changed)
    file = tmp_path / "a" / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DamagedFileError, match="checkpoint.safetensors must be readable"):
        train(config, tmp_path / "a")


def table(path, offset=0.0):
    rows = np.random.default_rng(0).normal(size=(40, 2)) + offset
    lines = [f"{a},{b},{int(a > offset)}" for a, b in rows.tolist()]
    path.write_text("\n".join(["a,b,label", *lines]))
    return TrainConfig(data=str(path), hidden=(4,), epochs=2, batch_size=16, threads=1)


def test_changed_data_leaves_a_finished_run_as_it_is(tmp_path):
    config = table(tmp_path / "t.csv")
    first = train(config, tmp_path / "a")
    held = (tmp_path / "a" / "inputs.json").read_bytes()
    z = load_run(tmp_path / "a").data().test.inputs
    assert torch.equal(z, first.data().test.inputs)
    table(tmp_path / "t.csv", offset=5.0)
    with pytest.raises(ArgumentError, match="got other numbers"):
        train(config, tmp_path / "a")
    assert (tmp_path / "a" / "inputs.json").read_bytes() == held
    with pytest.raises(ArgumentError, match="/a: the data of the run, .*it holds others"):
        load_run(tmp_path / "a").data()
    (tmp_path / "t.csv").unlink()
    with pytest.raises(ArgumentError, match="/a: the data of the run, .*t.csv, must be where"):
        load_run(tmp_path / "a").data()


@pytest.mark.parametrize("name", ["log.jsonl", "model.safetensors", "result.json", "inputs.json"])
def test_a_truncated_file_is_written_again_from_the_checkpoint(tmp_path, name):
    config = table(tmp_path / "t.csv")
    first = train(config, tmp_path / "a")
    file = tmp_path / "a" / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(DamagedFileError) as caught:
        load_run(tmp_path / "a")
    assert "delete" not in str(caught.value)
    again = train(config, tmp_path / "a")
    assert_equal_to_the_bit(weights(first), weights(again))
    assert again.history == first.history and again.inputs == first.inputs
    assert name == "result.json" or file.read_bytes() == whole
    assert load_run(tmp_path / "a").result["clean"] == first.result["clean"]


def test_a_run_finds_its_data_from_every_folder(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    table(tmp_path / "t.csv")
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(data="t.csv", hidden=(4,), epochs=1, batch_size=16, threads=1)
    first = train(config, "a")
    monkeypatch.chdir(tmp_path / "sub")
    assert torch.equal(load_run("../a").data().test.inputs, first.data().test.inputs)
    assert train(replace(config, data="../t.csv"), "../a").result == first.result


def test_a_folder_without_a_finished_run_says_so(tmp_path):
    with pytest.raises(ArgumentError, match="must be the folder of a finished run"):
        load_run(tmp_path)
