"""Two real processes compute what one does."""

import os
import runpy
import socket
import subprocess
import sys

import pytest
import torch

from taut import parallel
from taut.errors import ArgumentError

PROGRAM = """
import sys, torch
import taut
from taut import parallel
from taut.nn import ConeCritic
from taut.transport import fit_cones, fit_critic, shifted_gaussians

out = {}
with parallel.process_group():
    out["place"] = (parallel.rank(), parallel.world_size(), parallel.is_first())
    batch = torch.arange(7.0).reshape(7, 1)
    mine = parallel.share(batch)
    out["gathered"] = parallel.gather(mine * 2)
    out["uneven"] = parallel.gather(torch.arange(parallel.rank() * 3))
    layer = torch.nn.Linear(1, 2).double()
    with torch.no_grad():
        layer.weight.fill_(0.5); layer.bias.fill_(0.1)
    loss = layer(mine.double()).square().mean() * parallel.share_weight(7)
    loss.backward()
    absent = torch.nn.Parameter(torch.zeros(2))
    some = torch.nn.Parameter(torch.zeros(2))
    if parallel.is_first():
        some.grad = torch.ones(2)
    parallel.average_gradients([*layer.parameters(), absent, some])
    out["gradients"] = [layer.weight.grad, layer.bias.grad, absent.grad, some.grad]

    problem = shifted_gaussians(3, 2.0)
    def seeded(): return torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    net = taut.nn.mlp([3, 16, 1])
    fit = fit_critic(net, problem, num_steps=15, batch_size=33, generator=seeded())
    cones = fit_cones(problem, num_steps=15, num_centres=32, batch_size=33, generator=seeded())
    out["fits"] = fit.estimate.value, cones.estimate.value
    out["histories"] = fit.history, cones.history
    x, y = problem.sample(301, seeded())
    result = taut.wasserstein(x, y, critics=("cones",), num_steps=20, num_permutations=19)
    out["result"] = [result.estimate.value, result.lower.value, result.upper.value, result.p_value]
    out["scores"] = result.scores
    rank = parallel.rank()
torch.save(out, sys.argv[1] + "/" + str(rank) + ".pt")
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What one process finds, and what each of two that torchrun starts finds."""
    folder = tmp_path_factory.mktemp("parallel")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    (folder / "alone").mkdir()
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(sys, "argv", [str(program), str(folder / "alone")])
        runpy.run_path(str(program))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}", str(program), str(folder)]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "alone" / "0.pt"), [torch.load(folder / f"{i}.pt") for i in (0, 1)]


@pytest.mark.slow
def test_each_process_knows_its_place(runs):
    alone, both = runs
    assert alone["place"] == (0, 1, True)
    assert [one["place"] for one in both] == [(0, 2, True), (1, 2, False)]


def test_gathered_shares_are_the_whole_in_order(runs):
    alone, both = runs
    for one in (alone, *both):
        assert torch.equal(one["gathered"], torch.arange(7.0).reshape(7, 1) * 2)
    for one in both:
        assert one["uneven"].tolist() == [0, 1, 2]


def test_averaged_gradients_are_those_of_the_whole_batch(runs):
    alone, both = runs
    x = torch.arange(7.0, dtype=torch.float64)
    slope = (0.5 * x + 0.1) * 2 / 14  # of the mean of 14 squares, for each output
    for one in (alone, *both):
        weight, bias, absent, _ = one["gradients"]
        torch.testing.assert_close(weight, (slope @ x).expand(2, 1), rtol=1e-12, atol=0)
        torch.testing.assert_close(bias, slope.sum().expand(2), rtol=1e-12, atol=0)
        assert absent is None
    for one in both:
        assert one["gradients"][3].tolist() == [0.5, 0.5]


def test_two_processes_fit_what_one_does(runs):
    alone, both = runs
    for one in both:
        assert one["fits"] == pytest.approx(alone["fits"], rel=1e-4)
        for mine, single in zip(one["histories"], alone["histories"], strict=True):
            assert mine == pytest.approx(single, rel=1e-3, abs=1e-3)


def test_two_processes_estimate_what_one_does(runs):
    alone, both = runs
    for one in both:
        assert one["result"] == pytest.approx(alone["result"], rel=2e-4)
    # Among themselves processes agree to the last bit.
    assert both[0]["result"] == both[1]["result"]
    for first, second in zip(both[0]["scores"], both[1]["scores"], strict=True):
        assert torch.equal(first, second)


def test_alone_nothing_is_communicated(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with parallel.process_group():
        assert (parallel.rank(), parallel.world_size(), parallel.is_first()) == (0, 1, True)
        assert not torch.distributed.is_initialized()
    batch = torch.arange(3)
    assert torch.equal(parallel.share(batch), batch) and parallel.gather(batch) is batch
    assert parallel.share_weight(3) == 1


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("n", [5, 7, 12])
def test_shares_are_a_partition_and_their_weights_average_to_one(monkeypatch, size, n):
    monkeypatch.setattr(parallel, "world_size", lambda: size)
    parts, weights = [], []
    for rank in range(size):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        parts.append(parallel.share(torch.arange(n)))
        weights.append(parallel.share_weight(n))
    assert torch.equal(torch.cat(parts), torch.arange(n))
    assert sum(weights) == pytest.approx(size)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_batch_too_small_to_share_is_refused(monkeypatch):
    monkeypatch.setattr(parallel, "world_size", lambda: 4)
    with pytest.raises(ArgumentError, match="a row for each of the 4 processes; got 3"):
        parallel.share(torch.zeros(3))
