import os
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed
import torch.multiprocessing

import taut.nn


def _train(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.manual_seed(rank)
    net: Any = taut.nn.mlp([6, 16, 16, 3])
    replica = torch.nn.parallel.DistributedDataParallel(net)
    optimiser = torch.optim.Adam(replica.parameters(), lr=0.05)
    for _ in range(5):
        x = torch.randn(8, 6)
        optimiser.zero_grad()
        replica(x).square().sum().backward()
        optimiser.step()
    net.eval()
    weights = [m.effective_weight().detach() for m in net if hasattr(m, "effective_weight")]
    torch.save((net.state_dict(), weights), f"{folder}/{rank}.pt")
    torch.distributed.barrier()
    # Tearing gloo down while its threads wait for the interpreter can hang for ever.
    os._exit(0)


@pytest.mark.slow
def test_replicas_stay_equal_to_the_bit_and_feasible(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.multiprocessing.spawn(_train, (str(tmp_path),), nprocs=2)  # type: ignore
    (first, weights), (second, _) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name])
    for weight in weights:
        values = np.linalg.svd(weight.double().numpy(), compute_uv=False)
        assert values.max() <= 1 + 2e-6
        assert values.min() >= 1 - 1e-3
