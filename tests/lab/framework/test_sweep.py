"""A sweep loses no finished cell: not by errors, not by workers that die."""

import os
import threading

import pytest
import torch

from fake_experiments import InProcessWorkers, count, drawn, experiment, run, tasks
from taut_lab.framework.datasets import CIFAR_PART, missing_data
from taut_lab.framework.records import Record, Records
from taut_lab.framework.sweep import compute, sweep


def test_finished_cells_are_not_computed_again(markers, records):
    made = experiment(markers)
    first = sweep(tasks(made, "smoke"), records, InProcessWorkers())
    assert (first.num_found, len(first.completed), first.failed) == (0, 2, [])
    second = sweep(tasks(made), records, InProcessWorkers())
    assert (second.num_found, len(second.completed)) == (2, 1)
    assert count(markers) == {0: 1, 1: 1, 2: 1}
    assert sweep(tasks(made), records, InProcessWorkers()).completed == []


def test_a_repeated_cell_is_computed_once(markers, records):
    made = experiment(markers)
    workers = InProcessWorkers()
    assert len(sweep(tasks(made) + tasks(made), records, workers).completed) == 3
    assert len(set(workers.keys)) == len(workers.keys) == 3


def test_equal_seeds_give_equal_numbers_whatever_was_drawn_before(markers, tmp_path):
    made = experiment(markers)
    found = []
    for name in ("a", "b"):
        torch.rand(5)
        before = torch.get_rng_state()
        result = sweep(tasks(made), Records(tmp_path / name), InProcessWorkers())
        assert torch.equal(torch.get_rng_state(), before)
        found.append([record.outcome.numbers for record in result.completed])
    assert found[0] == found[1]
    assert [numbers["drawn"] for numbers in found[0]] == [drawn(seed) for seed in range(3)]
    assert len({numbers["global"] for numbers in found[0]}) == 3


def test_a_damaged_record_is_reported_and_computed_again(markers, records):
    made = experiment(markers)
    sweep(tasks(made), records, InProcessWorkers())
    whole = records.read(made.cells("cpu")[1])
    path = records.path(made.cells("cpu")[1])
    path.write_bytes(path.read_bytes()[:100])
    said = []
    again = sweep(tasks(made), records, InProcessWorkers(), say=said.append)
    assert (again.num_found, len(again.completed)) == (2, 1)
    assert len(said) == 1 and str(path) in said[0] and "computed again" in said[0]
    assert count(markers) == {0: 1, 1: 2, 2: 1}
    found = records.read(made.cells("cpu")[1])
    assert found is not None and whole is not None
    assert found.outcome.numbers == whole.outcome.numbers


@pytest.mark.parametrize(
    ("do", "error"),
    [
        ("raise", "LookupError: no cell 1"),
        ("exit", "SystemExit: 3"),
        ("tensor", "ArgumentError: Outcome: `numbers['drawn']` must be plain data"),
    ],
)
def test_an_error_stops_no_other_cell_and_is_tried_again(markers, records, do, error):
    made = experiment(markers, s1={"do": do})
    result = sweep(tasks(made), records, InProcessWorkers())
    assert [record.cell.config["seed"] for record in result.completed] == [0, 2]
    ((cell, reason),) = result.failed
    path = records.error_path(cell)
    assert cell.config["seed"] == 1 and not records.path(cell).exists()
    assert reason.strip() in path.read_text() and "Traceback" in path.read_text()
    assert error in reason
    (markers.parent / "fixed").touch()
    again = sweep(tasks(made), records, InProcessWorkers())
    assert count(markers) == {0: 1, 1: 2, 2: 1}
    assert path.exists() == bool(again.failed) == (do != "raise")


def test_a_cell_fails_after_three_lost_workers(markers, records):
    made = experiment(markers)
    said = []
    result = sweep(tasks(made), records, InProcessWorkers(deaths={0: 2, 1: 3}), say=said.append)
    assert sorted(record.cell.config["seed"] for record in result.completed) == [0, 2]
    ((cell, reason),) = result.failed
    assert cell.config["seed"] == 1 and reason.startswith("3 workers died")
    assert len(said) == 4 and all("its worker died" in sentence for sentence in said)
    assert reason in records.error_path(cell).read_text()


def test_progress_counts_every_cell_and_estimates_the_time_left(markers, records):
    made = experiment(markers, seeds=range(5), s2={"do": "raise"})
    updates = []
    sweep(tasks(made), records, InProcessWorkers(), on_progress=updates.append)
    assert [update.done + update.failed for update in updates] == [0, 1, 2, 3, 4, 5]
    assert {update.total for update in updates} == {5}
    assert updates[0].seconds_left is None and updates[-1].seconds_left == 0.0
    assert all(update.seconds_left is not None for update in updates[2:])
    assert sum(isinstance(update.last, Record) for update in updates) == 4


def test_the_data_folder_is_set_for_the_cell_alone(markers, monkeypatch):
    monkeypatch.setenv("TAUT_DATA", "before")
    cell = experiment(markers).cells("cpu")[0]
    for given, seen in (("/elsewhere", "/elsewhere"), (None, "before")):
        found = compute(run, cell, given)
        assert isinstance(found, Record) and found.outcome.series["data"] == seen
        assert os.environ["TAUT_DATA"] == "before"
    monkeypatch.delenv("TAUT_DATA")
    compute(run, cell, "/elsewhere")
    assert "TAUT_DATA" not in os.environ


def test_a_process_computes_one_cell_at_a_time(markers):
    made = experiment(markers, seeds=range(6), every={"steps": 1})
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
    missing = missing_data(("mnist", CIFAR_PART), str(tmp_path))
    assert "MNIST is not in" in missing["mnist"] and "taut data fetch mnist" in missing["mnist"]
    assert str(tmp_path) in missing[CIFAR_PART] and "--data-dir" in missing[CIFAR_PART]
    (tmp_path / "cifar-10").mkdir()
    (tmp_path / "cifar-10" / "cifar-10-binary-25k.tar.gz").touch()
    assert list(missing_data(("mnist", CIFAR_PART), str(tmp_path))) == ["mnist"]
