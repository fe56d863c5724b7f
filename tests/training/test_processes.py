"""Two processes of torchrun train one network."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from taut.errors import ArgumentError
from taut.training import TrainConfig, train

# The second training resumes from a checkpoint of the first, as if that had died there.
PROGRAM = """
import shutil, sys
import torch
from taut import parallel
from taut.training import TrainConfig, train

config = TrainConfig(hidden=(32, 32), epochs=2, batch_size=129, lr=0.005, threads=1, seed=1)
whole, resumed = sys.argv[1:]

def on_progress(progress):
    if (progress.epoch, progress.step) == (2, 4):
        shutil.copytree(whole, resumed)

with parallel.process_group():
    runs = train(config, whole, on_progress=on_progress), train(config, resumed)
    weights = [run.model.state_dict() for run in runs]
    torch.save((weights, runs[0].result, runs[0].history), f"{whole}.{parallel.rank()}.pt")
"""


@pytest.mark.slow
def test_replicas_are_equal_to_the_bit_resume_and_are_as_good_as_one(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", port, "program.py", "pair", "again"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    (first, result, history), (second, other, _) = (
        torch.load(tmp_path / f"pair.{rank}.pt") for rank in (0, 1)
    )
    for name, value in first[0].items():
        for weights in (first[1], *second):
            assert torch.equal(value, weights[name]), name
    assert {**result, "seconds": 0} == {**other, "seconds": 0}
    assert result["processes"] == 2 and result["lipschitz"] <= 1

    config = TrainConfig(hidden=(32, 32), epochs=2, batch_size=129, lr=0.005, threads=1, seed=1)
    alone = train(config)
    # The same batches and the same sums, in another order.
    for mine, theirs in zip(alone.history, history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    assert result["clean"] == pytest.approx(alone.result["clean"], abs=0.01)
    assert result["certified"] == pytest.approx(alone.result["certified"], abs=0.02)

    os.remove(tmp_path / "pair" / "result.json")
    with pytest.raises(ArgumentError, match="got 1 instead of 2"):
        train(config, tmp_path / "pair")
