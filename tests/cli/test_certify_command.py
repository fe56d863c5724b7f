"""`taut certify`: the numbers it prints are those that `taut.certify` proves."""

import csv
import json
from functools import partial
from math import floor

import numpy as np
import pytest
import torch

import taut
from support import invoke
from taut.training import TrainConfig, load_run, train

run = partial(invoke, "certify")


def test_the_table_is_what_is_proven(digits_run):
    found = load_run(digits_run)
    test = found.data().test
    proven = taut.certify(found.model, test.inputs, "l2", labels=test.labels)
    result = run(digits_run, "--json", "--radius", "0.3", "--radius", "0.1", code=0)
    record = json.loads(result.stdout)
    shares = [float(proven.certified_accuracy(radius)) for radius in (0.1, 0.3)]
    assert record["certified"] == [
        {"radius": radius, "accuracy": share}
        for radius, share in zip((0.1, 0.3), shares, strict=True)
    ]
    assert record["clean"] == found.result["clean"]
    assert record["examples"] == 359 and record["norm"] == "l2"


def test_people_get_the_radius_it_was_trained_for_and_the_guarantees(digits_run):
    result = run(digits_run, code=0)
    held = load_run(digits_run).result["certified"]
    assert f"{floor(1000 * held) / 10:.1f} % certified within L2 radius 0.4" in result.output
    assert "not estimated" in result.output


def test_arithmetic_costs_radius(digits_run):
    real, rounded = (
        json.loads(run(digits_run, "--limit", 50, "--json", "--arithmetic", kind).stdout)
        for kind in ("real", "float32")
    )
    assert rounded["median_radius"] < real["median_radius"]
    assert rounded["examples"] == real["examples"] == 50


def test_every_row_has_its_radius(digits_run, tmp_path):
    run(digits_run, "--csv", tmp_path / "radii.csv", code=0)
    with open(tmp_path / "radii.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = load_run(digits_run)
    test = found.data().test
    proven = taut.certify(found.model, test.inputs, "l2", labels=test.labels)
    assert [float(row["radius"]) for row in rows] == proven.radius.tolist()
    assert [row["prediction"] for row in rows] == [str(i) for i in proven.prediction.tolist()]
    assert proven.correct is not None
    assert [row["correct"] == "1" for row in rows] == proven.correct.tolist()


def test_other_data_keeps_its_order_and_its_classes(digits_run, tmp_path):
    found = load_run(digits_run)
    test = found.data().test
    # Backwards, and without one class: the numbers of the others must not shift.
    keep = [i for i in range(len(test) - 1, -1, -1) if test.labels[i] != 0][:80]
    np.savez(tmp_path / "other.npz", x=test.inputs[keep].numpy(), y=test.labels[keep].numpy())
    result = run(
        digits_run, "--data", tmp_path / "other.npz", "--csv", tmp_path / "r.csv", "--json", code=0
    )
    proven = taut.certify(found.model, test.inputs[keep], "l2", labels=test.labels[keep])
    assert json.loads(result.stdout)["clean"] == float(proven.certified_accuracy())
    with open(tmp_path / "r.csv", newline="") as file:
        radii = [float(row["radius"]) for row in csv.DictReader(file)]
    assert radii == proven.radius.tolist()


def test_a_class_that_the_network_does_not_know(digits_run, tmp_path):
    np.savez(tmp_path / "odd.npz", x=np.zeros((4, 1, 8, 8)), y=np.array([0, 1, 77, 1]))
    result = run(digits_run, "--data", tmp_path / "odd.npz", code=2)
    words = " ".join(result.stderr.split())
    assert "got '77', first in row 2 (counted from 0)" in words and "Traceback" not in words


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """A run on a table, and the clean accuracy on rows that it has not seen."""
    place = tmp_path_factory.mktemp("trees")
    rows = np.random.default_rng(0).normal(size=(90, 2)).round(3)
    kinds = np.array(["elm", "ash", "oak"])[np.searchsorted([-0.4, 0.4], rows[:, 0])]
    lines = [f"{a},{b},{kind}" for (a, b), kind in zip(rows.tolist(), kinds, strict=True)]
    (place / "trees.csv").write_text("\n".join(["a,b,kind", *lines[:70]]))
    config = TrainConfig(data=str(place / "trees.csv"), label="kind", hidden=(8,), epochs=5)
    found = train(config, place / "run")
    x = found.inputs.apply(rows[70:])
    names = [found.inputs.classes[i] for i in found.model(x).argmax(1).tolist()]
    return place / "run", rows[70:], kinds[70:], names


def test_new_rows_of_a_table_in_another_order(trees, tmp_path):
    out, rows, kinds, names = trees
    lines = [f"{kind},{b},{a}" for (a, b), kind in zip(rows.tolist(), kinds, strict=True)]
    (tmp_path / "new.csv").write_text("\n".join(["kind,b,a", *lines]))
    result = run(out, "--data", tmp_path / "new.csv", "--csv", tmp_path / "r.csv", "--json", code=0)
    assert json.loads(result.stdout)["clean"] == float(np.mean(np.array(names) == kinds))
    with open(tmp_path / "r.csv", newline="") as file:
        assert [row["prediction"] for row in csv.DictReader(file)] == names


def test_new_rows_of_one_class_without_a_header_and_unknown(trees, tmp_path):
    out, rows, *_ = trees
    (tmp_path / "bare.csv").write_text("\n".join(f"{a},{b},oak" for a, b in rows.tolist()))
    result = run(out, "--data", tmp_path / "bare.csv", "--label", "-1")
    words = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "the columns that the network is trained on, 'a', 'b'" in words
    (tmp_path / "oaks.csv").write_text("\n".join(["a,b,kind", "1.5,0,oak", "1.2,1,oak"]))
    result = run(out, "--data", tmp_path / "oaks.csv", "--json", code=0)
    assert json.loads(result.stdout)["examples"] == 2
    (tmp_path / "yew.csv").write_text("\n".join(["a,b,kind", "1.5,0,oak", "1.2,1,yew"]))
    result = run(out, "--data", tmp_path / "yew.csv", code=2)
    assert "got 'yew'" in " ".join(result.stderr.split())


def test_data_of_another_kind_is_named(digits_run, tmp_path):
    np.savez(tmp_path / "flat.npz", x=np.zeros((4, 5)), y=np.arange(4))
    result = run(digits_run, "--data", tmp_path / "flat.npz")
    words = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "InputSpec" not in words and "flat.npz" in words
    assert "each input must be an image of 1 x 8 x 8, as in the training of" in words
    assert "; got a row of 5 numbers. Give data of" in words


@pytest.mark.slow
def test_radii_hold_for_columns_far_from_zero(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    stamps = np.rint(1.7e9 + 100 * generator.normal(size=120) + 600 * labels)
    lines = [f"{t:.0f},{label}" for t, label in zip(stamps, labels, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["t,label", *lines]))
    config = TrainConfig(
        data=str(tmp_path / "t.csv"), hidden=(8,), epochs=30, batch_size=16, lr=0.02
    )
    found = train(config, tmp_path / "run")
    seconds = np.arange(1_700_000_100, 1_700_000_500)
    (tmp_path / "new.csv").write_text("\n".join(["t,label", *(f"{t},0" for t in seconds)]))
    run(
        tmp_path / "run",
        "--data",
        tmp_path / "new.csv",
        "--csv",
        tmp_path / "r.csv",
        "--json",
        code=0,
    )
    with open(tmp_path / "r.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    predicted = np.array([int(row["prediction"]) for row in rows])
    radii = np.array([float(row["radius"]) for row in rows])
    assert set(predicted) == {0, 1}
    apart = abs(seconds[:, None] - seconds[None]) / found.inputs.spread[0]
    other = predicted[:, None] != predicted[None]
    assert (radii[:, None] <= np.where(other, apart, np.inf)).all()
    # What rounding may move is taken off.
    z = found.inputs.apply(seconds[:, None].astype(float))
    proven = taut.certify(found.model, z).radius.numpy()
    least = 2.0**-23 * abs(z[:, 0].double().numpy())
    assert (radii[radii > 0] < (proven - least)[radii > 0]).all()
    assert np.allclose(radii, proven, atol=1e-5)


def test_a_label_without_data_is_refused(digits_run):
    result = run(digits_run, "--label", "species", code=2)
    assert "give both, or neither" in result.stderr


def test_a_network_from_a_file_needs_data(digits_run):
    model = digits_run / "model.safetensors"
    assert "needs --data" in run(model).stderr
    result = run(model, "--data", "digits", "--json", "--radius", "0.4", code=0)
    assert json.loads(result.stdout)["certified"][0]["accuracy"] == pytest.approx(
        load_run(digits_run).result["certified"]
    )


def test_outputs_without_names_are_numbers(digits_run, tmp_path):
    found = load_run(digits_run)
    test = found.data().test
    model = digits_run / "model.safetensors"
    # Without the class 0: the others must not move to the outputs before theirs.
    keep = (test.labels > 0).nonzero()[:50, 0]
    np.savez(tmp_path / "a.npz", x=test.inputs[keep].numpy(), y=test.labels[keep].numpy())
    result = run(model, "--data", tmp_path / "a.npz", "--json", code=0)
    right = found.model(test.inputs[keep]).argmax(1) == test.labels[keep]
    assert json.loads(result.stdout)["clean"] == right.double().mean().item()
    words = np.array(["cat", "dog"])[test.labels[keep] % 2]
    np.savez(tmp_path / "b.npz", x=test.inputs[keep].numpy(), y=words)
    result = run(model, "--data", tmp_path / "b.npz", code=2)
    assert "one class for each output of the network" in " ".join(result.stderr.split())
    np.savez(tmp_path / "c.npz", x=np.zeros((4, 9)), y=np.arange(4))
    result = run(model, "--data", tmp_path / "c.npz", code=2)
    assert "each input must have 64 numbers" in " ".join(result.stderr.split())


def test_another_norm_is_proven_as_well(digits_run):
    record = json.loads(run(digits_run, "--norm", "linf", "--json").stdout)
    assert record["norm"] == "linf" and record["certified"]
    # In L-inf a step of length r may have L2 length 8 r, on 64 pixels.
    euclidean = json.loads(run(digits_run, "--json").stdout)
    assert record["median_radius"] < euclidean["median_radius"]


def test_an_unfinished_run_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / "empty", code=2)
    assert "finished run" in result.stderr


def test_audit_and_export_take_the_folder(digits_run, tmp_path):
    result = invoke("audit", digits_run, "--at-most", "1", "--json", code=0)
    assert json.loads(result.stdout)["verdict"] == "proven"
    out = tmp_path / "net.pt2"
    result = invoke("export", digits_run, "--to", "pt2", "--out", out, code=0)
    x = torch.rand(3, 1, 8, 8)
    program = torch.export.load(str(out)).module()
    torch.testing.assert_close(program(x), load_run(digits_run).model(x))
    empty = tmp_path / "none"
    empty.mkdir()
    result = invoke("audit", empty, code=2)
    assert "has no model.safetensors" in result.stderr


def test_the_method_is_chosen_and_stated(tmp_path):
    config = TrainConfig(norm="linf", hidden=(16,), epochs=1, batch_size=128)
    found = train(config, tmp_path / "run")
    inputs = found.data().test.inputs[:20]
    proven = taut.certify(found.model, inputs, "linf", method="interval", input_range=(0.0, 1.0))
    result = run(tmp_path / "run", "--method", "interval", "--csv", tmp_path / "r.csv", "--json")
    assert json.loads(result.stdout)["method"] == proven.method == "interval propagation"
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [float(row["radius"]) for row in rows[:20]] == pytest.approx(proven.radius.tolist())
