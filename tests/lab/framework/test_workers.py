"""A worker that dies costs one cell, and no worker outlives its parent."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from fake_experiments import InProcessWorkers, count, drawn, experiment, tasks
from taut.errors import ArgumentError
from taut_lab.framework.sweep import sweep
from taut_lab.framework.workers import (
    ClusterWorkers,
    LocalWorkers,
    LostClusterError,
    LostWorkerError,
    open_workers,
)

TIMEOUT = 120.0  # seconds, for a busy machine


def wait_for(condition):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


@pytest.mark.slow
def test_local_workers_that_are_killed_are_replaced(markers, records):
    """One kills itself, another is killed from outside, and one call cannot be pickled."""
    made = experiment(markers, seeds=range(5), s0={"steps": 10**6}, s1={"do": "die", "dies": 1})
    unpicklable = experiment(markers, name="unpicklable", seeds=[9])
    object.__setattr__(unpicklable, "run", threading.Lock())
    said = []

    def kill_the_first():
        wait_for(lambda: 0 in count(markers) and len(list(records.folder.rglob("*.json"))) == 4)
        (marker,) = markers.glob("0.*")
        (markers.parent / "go").touch()
        os.kill(int(marker.name.split(".")[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    with open_workers(2) as workers:
        result = sweep(tasks(unpicklable) + tasks(made), records, workers, say=said.append)
    killer.join()
    assert [cell.experiment for cell, _ in result.failed] == ["unpicklable"]
    assert "pickle" in result.failed[0][1]
    numbers = {r.cell.config["seed"]: r.outcome.numbers for r in result.completed}
    assert {seed: held["drawn"] for seed, held in numbers.items()} == {
        s: drawn(s) for s in range(5)
    }
    assert {held["threads"] for held in numbers.values()} == {1}
    assert os.getpid() not in {held["pid"] for held in numbers.values()}
    assert count(markers) == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1}
    assert len(said) == 2
    for marker in markers.iterdir():  # no worker outlives its workers
        with pytest.raises(ProcessLookupError):
            os.kill(int(marker.name.split(".")[1]), 0)


def grow(kept=[]):  # noqa: B006 - it is kept on purpose
    time.sleep(1.1)  # loky measures the memory of a worker once a second
    kept.append(b"x" * 10**7)
    return len(kept)


@pytest.mark.slow
def test_a_process_that_has_grown_is_replaced_in_silence(monkeypatch):
    monkeypatch.setenv("LOKY_MAX_MEMORY_LEAK_SIZE", "1e6")
    with open_workers() as workers:
        calls = [workers.submit(str(i), grow) for i in range(4)]
        assert max(call.result(TIMEOUT) for call in calls) < 4


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_the_number_of_jobs_must_be_a_positive_integer(jobs):
    with pytest.raises(ArgumentError, match="`jobs` must be a whole number >= 1"):
        LocalWorkers(jobs)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers in processes of their own; the address, and the workers."""
    pytest.importorskip("distributed")
    address = f"tcp://127.0.0.1:{free_port()}"
    folder = Path(__file__).parents[2]
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    place = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": path}}
    place |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    port = address.rpartition(":")[2]
    scheduler = ["--host", "127.0.0.1", "--port", port, "--no-dashboard"]
    worker = [address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
    processes = [subprocess.Popen([*dask, "scheduler", *scheduler], **place)]
    processes += [subprocess.Popen([*dask, "worker", *worker], **place) for _ in range(2)]
    yield address, processes[1:]
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_lost_cluster_worker_costs_no_cell(cluster, markers, records):
    address, processes = cluster
    made = experiment(markers, seeds=range(8), s0={"steps": 10**6}, s5={"do": "raise"})

    def kill_one():
        wait_for(lambda: 0 in count(markers) and len(list(records.folder.rglob("*.json"))) >= 3)
        (marker,) = markers.glob("0.*")
        (markers.parent / "go").touch()
        (victim,) = (w for w in processes if w.pid == int(marker.name.split(".")[1]))
        victim.kill()

    writes = []
    write = records.write
    records.write = lambda record: writes.append(record.cell.key) or write(record)
    killer = threading.Thread(target=kill_one)
    killer.start()
    wait_for(lambda: answers(address))
    with open_workers(cluster=address) as workers:
        result = sweep(tasks(made), records, workers, data_dir="/where/data/is")
    killer.join()
    assert [cell.config["seed"] for cell, _ in result.failed] == [5]
    numbers = {r.cell.config["seed"]: r.outcome.numbers for r in result.completed}
    rest = [seed for seed in range(8) if seed != 5]
    assert {seed: held["drawn"] for seed, held in numbers.items()} == {s: drawn(s) for s in rest}
    assert {r.outcome.series["data"] for r in result.completed} == {"/where/data/is"}
    assert len(writes) == len(set(writes)) == len(list(records.folder.rglob("*.json"))) == 7
    assert {held["pid"] for held in numbers.values()} <= {process.pid for process in processes}
    assert count(markers)[0] == 2
    assert sweep(tasks(made)[:5], records, InProcessWorkers()).completed == []


def answers(address):
    host, port = address.removeprefix("tcp://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_the_error_for_an_unreachable_scheduler_says_how_to_start_one(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("taut_lab.framework.workers._TIMEOUT", 0.2)
    with pytest.raises(ArgumentError, match="Start one with dask scheduler"):
        ClusterWorkers(f"tcp://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("address", ["foo", "tcp://foo", "http://foo/8786", ""])
def test_invalid_addresses_are_refused_without_a_connection(address):
    pytest.importorskip("distributed")
    with pytest.raises(ArgumentError, match="must be a host and a port"):
        ClusterWorkers(address)


class LostClient:
    """A client whose calls end as a test wants them to."""

    def __init__(self, *args, **kwargs):
        self.future: Future = Future()

    def get_executor(self, **kwargs):
        return self

    def submit(self, function, *args, key):
        return self.future

    def nthreads(self):
        raise OSError("connection closed")


def test_lost_cluster_workers_are_counted(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", LostClient)
    workers: Any = ClusterWorkers("tcp://127.0.0.1:8786")
    future = workers.submit("key", print)
    workers._client.future.set_exception(distributed.scheduler.KilledWorker("key", None, 3))
    with pytest.raises(LostWorkerError) as found:
        future.result()
    assert found.value.times == 4


def test_a_lost_scheduler_is_reported_in_one_sentence(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", LostClient)
    workers: Any = ClusterWorkers("tcp://127.0.0.1:8786")
    future = workers.submit("key", print)
    workers._client.future.cancel()
    for lost in (future.result, lambda: workers.num_workers):
        with pytest.raises(LostClusterError, match="Finished cells are kept"):
            lost()
