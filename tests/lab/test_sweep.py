"""Sweeps lose nothing: not by errors, not by workers that are killed, here or on a cluster."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from made_up import count, experiment, run
from taut.errors import ArgumentError, MissingExtraError
from taut.lab.engines import (
    ClusterWorkers,
    LocalWorkers,
    LostClusterError,
    LostWorkerError,
    open_engine,
)
from taut.lab.records import Record, Records
from taut.lab.sweep import compute, missing_data, sweep

PATIENCE = 120.0  # seconds, for a machine that has much else to do


class Here:
    """Computes at once, in this process; some calls cost their worker a few times first."""

    width = 1

    def __init__(self, deaths=()):
        self.deaths = dict(deaths)
        self.keys = []

    def submit(self, key, function, *args):
        self.keys.append(key)
        future: Future = Future()
        seed = args[1].config["seed"]
        if self.deaths.get(seed, 0):
            self.deaths[seed] -= 1
            future.set_exception(LostWorkerError("gone."))
        else:
            # As on its way to another process and back.
            function, args = pickle.loads(pickle.dumps((function, args)))
            future.set_result(pickle.loads(pickle.dumps(function(*args))))
        return future

    def close(self):
        pass


def tasks(made, preset="cpu"):
    return [(made, cell) for cell in made.cells(preset)]


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def drawn(seed):
    return torch.rand((), generator=torch.Generator().manual_seed(seed)).item()


@pytest.fixture
def marks(tmp_path):
    return tmp_path / "marks"


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "records")


def test_what_is_finished_is_not_computed_again(marks, records):
    made = experiment(marks)
    first = sweep(tasks(made, "smoke"), records, Here())
    assert (first.before, len(first.ran), first.failed) == (0, 2, [])
    second = sweep(tasks(made), records, Here())
    assert (second.before, len(second.ran)) == (2, 1)
    assert count(marks) == {0: 1, 1: 1, 2: 1}
    assert sweep(tasks(made), records, Here()).ran == []


def test_one_cell_asked_for_twice_is_computed_once(marks, records):
    made = experiment(marks)
    engine = Here()
    assert len(sweep(tasks(made) + tasks(made), records, engine).ran) == 3
    assert len(set(engine.keys)) == len(engine.keys) == 3


def test_equal_seeds_give_equal_numbers_whatever_was_drawn_before(marks, tmp_path):
    made = experiment(marks)
    found = []
    for name in ("a", "b"):
        torch.rand(5)
        before = torch.get_rng_state()
        swept = sweep(tasks(made), Records(tmp_path / name), Here())
        assert torch.equal(torch.get_rng_state(), before)
        found.append([record.outcome.numbers for record in swept.ran])
    assert found[0] == found[1]
    assert [numbers["drawn"] for numbers in found[0]] == [drawn(seed) for seed in range(3)]
    assert len({numbers["global"] for numbers in found[0]}) == 3


def test_a_damaged_record_is_computed_again_and_told_of(marks, records):
    made = experiment(marks)
    sweep(tasks(made), records, Here())
    whole = records.read(made.cells("cpu")[1])
    path = records.path(made.cells("cpu")[1])
    path.write_bytes(path.read_bytes()[:100])
    said = []
    again = sweep(tasks(made), records, Here(), say=said.append)
    assert (again.before, len(again.ran)) == (2, 1)
    assert len(said) == 1 and str(path) in said[0] and "computed again" in said[0]
    assert count(marks) == {0: 1, 1: 2, 2: 1}
    found = records.read(made.cells("cpu")[1])
    assert found is not None and whole is not None
    assert found.outcome.numbers == whole.outcome.numbers


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("raise", "LookupError: no cell 1"),
        ("leave", "SystemExit: 3"),
        ("tensor", "ArgumentError: Outcome: `numbers\\['drawn'\\]` must be plain data"),
    ],
)
def test_an_error_stops_no_other_cell_and_is_tried_again(marks, records, do, reason):
    made = experiment(marks, s1={"do": do})
    swept = sweep(tasks(made), records, Here())
    assert [record.cell.config["seed"] for record in swept.ran] == [0, 2]
    ((cell, story),) = swept.failed
    path = records.error_path(cell)
    assert cell.config["seed"] == 1 and not records.path(cell).exists()
    assert story.strip() in path.read_text() and "Traceback" in path.read_text()
    with pytest.raises(LookupError, match=reason):
        raise LookupError(story)
    (marks.parent / "mended").touch()
    again = sweep(tasks(made), records, Here())
    assert count(marks) == {0: 1, 1: 2, 2: 1}
    assert path.exists() == bool(again.failed) == (do != "raise")


def test_a_lost_worker_costs_time_and_three_cost_the_cell(marks, records):
    made = experiment(marks)
    said = []
    swept = sweep(tasks(made), records, Here({0: 2, 1: 3}), say=said.append)
    assert sorted(record.cell.config["seed"] for record in swept.ran) == [0, 2]
    ((cell, story),) = swept.failed
    assert cell.config["seed"] == 1 and story.startswith("3 workers died")
    assert len(said) == 4 and all("its worker died" in sentence for sentence in said)
    assert story in records.error_path(cell).read_text()


def test_progress_counts_every_cell_and_guesses_the_time_left(marks, records):
    made = experiment(marks, seeds=range(5), s2={"do": "raise"})
    moments = []
    sweep(tasks(made), records, Here(), on_moment=moments.append)
    assert [moment.done + moment.failed for moment in moments] == [0, 1, 2, 3, 4, 5]
    assert {moment.total for moment in moments} == {5}
    assert moments[0].seconds_left is None and moments[-1].seconds_left == 0.0
    assert all(moment.seconds_left is not None for moment in moments[2:])
    assert sum(isinstance(moment.last, Record) for moment in moments) == 4


def test_the_data_folder_is_set_for_the_cell_alone(marks, monkeypatch):
    monkeypatch.setenv("TAUT_DATA", "before")
    cell = experiment(marks).cells("cpu")[0]
    for given, seen in (("/elsewhere", "/elsewhere"), (None, "before")):
        found = compute(run, cell, given)
        assert isinstance(found, Record) and found.outcome.series["data"] == seen
        assert os.environ["TAUT_DATA"] == "before"
    monkeypatch.delenv("TAUT_DATA")
    compute(run, cell, "/elsewhere")
    assert "TAUT_DATA" not in os.environ


def test_a_process_computes_one_cell_at_a_time(marks):
    made = experiment(marks, seeds=range(6), every={"steps": 1})
    found = {}

    def one(cell):
        found[cell.config["seed"]] = compute(run, cell)

    threads = [threading.Thread(target=one, args=(cell,)) for cell in made.cells("cpu")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = {seed: record.outcome.numbers for seed, record in found.items()}
    assert {seed: held["global"] for seed, held in numbers.items()} == {
        s: drawn(s) for s in numbers
    }


def test_missing_data_is_named_with_the_remedy(tmp_path):
    (tmp_path / "wine").mkdir()
    sentences = missing_data(("digits", "mnist", "wine", "tea"), str(tmp_path))
    assert len(sentences) == 2
    assert "MNIST is not in" in sentences[0] and "taut data fetch mnist" in sentences[0]
    assert str(tmp_path / "tea") in sentences[1] and "--data-dir" in sentences[1]


def test_local_workers_that_are_killed_are_replaced(marks, records):
    """One kills itself, another is killed from outside; one call cannot even be sent."""
    made = experiment(marks, seeds=range(5), s0={"steps": 10**6}, s1={"do": "die", "dies": 1})
    lambdas = experiment(marks, name="lambdas", seeds=[9])
    object.__setattr__(lambdas, "run", lambda config: None)
    said = []

    def kill_the_first():
        wait_for(lambda: 0 in count(marks) and len(list(records.folder.rglob("*.json"))) == 4)
        (mark,) = marks.glob("0.*")
        (marks.parent / "go").touch()
        os.kill(int(mark.name.split(".")[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    with open_engine(2) as engine:
        swept = sweep(tasks(lambdas) + tasks(made), records, engine, say=said.append)
    killer.join()
    assert [cell.experiment for cell, _ in swept.failed] == ["lambdas"]
    assert "pickle" in swept.failed[0][1]
    numbers = {r.cell.config["seed"]: r.outcome.numbers for r in swept.ran}
    assert {seed: held["drawn"] for seed, held in numbers.items()} == {
        s: drawn(s) for s in range(5)
    }
    assert {held["threads"] for held in numbers.values()} == {1}
    assert os.getpid() not in {held["pid"] for held in numbers.values()}
    assert count(marks) == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1}
    assert len(said) == 2
    for mark in marks.iterdir():  # no worker outlives its engine
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.name.split(".")[1]), 0)


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_a_number_of_jobs_that_is_none_is_refused(jobs):
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
    folder = Path(__file__).parents[1]
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


def test_a_cluster_that_loses_a_worker_loses_no_cell(cluster, marks, records):
    address, workers = cluster
    made = experiment(marks, seeds=range(8), s0={"steps": 10**6}, s5={"do": "raise"})

    def kill_one():
        wait_for(lambda: 0 in count(marks) and len(list(records.folder.rglob("*.json"))) >= 3)
        (mark,) = marks.glob("0.*")
        (marks.parent / "go").touch()
        (victim,) = (w for w in workers if w.pid == int(mark.name.split(".")[1]))
        victim.kill()

    writes = []
    write = records.write
    records.write = lambda record: writes.append(record.cell.key) or write(record)
    killer = threading.Thread(target=kill_one)
    killer.start()
    wait_for(lambda: answers(address))
    with open_engine(cluster=address) as engine:
        swept = sweep(tasks(made), records, engine, data_dir="/where/data/is")
    killer.join()
    assert [cell.config["seed"] for cell, _ in swept.failed] == [5]
    numbers = {r.cell.config["seed"]: r.outcome.numbers for r in swept.ran}
    rest = [seed for seed in range(8) if seed != 5]
    assert {seed: held["drawn"] for seed, held in numbers.items()} == {s: drawn(s) for s in rest}
    assert {r.outcome.series["data"] for r in swept.ran} == {"/where/data/is"}
    assert len(writes) == len(set(writes)) == len(list(records.folder.rglob("*.json"))) == 7
    assert {held["pid"] for held in numbers.values()} <= {worker.pid for worker in workers}
    assert count(marks)[0] == 2
    assert sweep(tasks(made)[:5], records, Here()).ran == []


def answers(address):
    host, port = address.removeprefix("tcp://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_cluster_that_does_not_answer_is_told_how_to_start(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("taut.lab.engines._PATIENCE", 0.2)
    with pytest.raises(ArgumentError, match="Start one with dask scheduler"):
        ClusterWorkers(f"tcp://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("address", ["foo", "tcp://foo", "http://foo/8786", ""])
def test_what_is_no_address_is_refused_before_anyone_is_called(address):
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


def test_a_cell_that_the_scheduler_gave_up_counts_the_workers_it_cost(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", LostClient)
    engine = ClusterWorkers("tcp://127.0.0.1:8786")
    future = engine.submit("key", print)
    engine._client.future.set_exception(distributed.scheduler.KilledWorker("key", None, 3))
    with pytest.raises(LostWorkerError) as found:
        future.result()
    assert found.value.times == 4


def test_a_lost_scheduler_is_told_in_one_sentence(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", LostClient)
    engine = ClusterWorkers("tcp://127.0.0.1:8786")
    future = engine.submit("key", print)
    engine._client.future.cancel()
    for lost in (future.result, lambda: engine.width):
        with pytest.raises(LostClusterError, match="What is finished is kept"):
            lost()


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match="taut\\[cluster\\]"):
        ClusterWorkers("tcp://127.0.0.1:8786")
