"""`taut predict`: rows without labels in, predictions with radii out."""

import csv
import json
import os
from functools import partial

import numpy as np
import pytest
import torch

import taut
import taut.export
from support import invoke
from taut.training import TrainConfig, load_run, train

run = partial(invoke, "predict")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on a table without a header, with a category and a missing value."""
    folder = tmp_path_factory.mktemp("predict")
    generator = np.random.default_rng(0)
    label = generator.integers(2, size=200)
    mass = 50 + 4 * generator.normal(size=200) + 10 * label
    kind = np.where(generator.random(200) < 0.7, "oak", "ash")
    lines = [
        f"{m:.3f},{k},{'high' if y else 'low'}" for m, k, y in zip(mass, kind, label, strict=True)
    ]
    lines[3] = "?," + lines[3].partition(",")[2]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    config = TrainConfig(
        data=str(folder / "table.csv"),
        names="mass,kind,level",
        label="level",
        tolerance="mass=1",
        hidden=(16,),
        epochs=4,
    )
    train(config, folder / "run")
    (folder / "rows.csv").write_text("kind,mass,note\noak,40.5,a\nash,70,b\noak,?,c\n")
    return folder


def test_rows_are_predicted_as_the_network_classifies_them(folder):
    result = run(folder / "run", folder / "rows.csv", code=0)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["row"] for row in rows] == ["0", "1", "2"]
    assert [row["prediction"] for row in rows[:2]] == ["low", "high"]
    assert [row["certified"] for row in rows] == [str(float(r["radius"]) > 1) for r in rows]
    # Without the encoding of the run, by the formula of its inputs.
    found = load_run(folder / "run")
    spec, kinds = found.inputs, {"ash": 0.0, "oak": 1.0}
    x = [[40.5, 0.0, kinds["oak"]], [70.0, 0.0, kinds["ash"]]]
    z = (np.array(x) - np.array(spec.shift)) / np.array(spec.spread)
    with torch.no_grad():
        outputs = found.model(torch.tensor(z, dtype=torch.float32))
    lead = (outputs[:, 0] - outputs[:, 1]).abs()
    assert [float(row["margin"]) for row in rows[:2]] == pytest.approx(lead.tolist(), rel=1e-4)


def test_every_format_has_the_same_rows(folder, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    texts = {}
    for name in ("rows.csv", "rows.jsonl", "rows.parquet"):
        result = run(folder / "run", folder / "rows.csv", "--out", tmp_path / name, code=0)
        assert "3 rows" in result.output
        texts[name] = tmp_path / name
    records = [json.loads(line) for line in texts["rows.jsonl"].read_text().splitlines()]
    assert records == pyarrow.read_table(texts["rows.parquet"]).to_pylist()
    rows = list(csv.DictReader(texts["rows.csv"].read_text().splitlines()))
    assert [float(row["radius"]) for row in rows] == [record["radius"] for record in records]


def test_batches_change_nothing(folder):
    whole = run(folder / "run", folder / "table.csv", "--format", "jsonl")
    parts = run(folder / "run", folder / "table.csv", "--format", "jsonl", "--batch-rows", 7)
    assert whole.exit_code == parts.exit_code == 0, whole.output + parts.output
    first, second = ([json.loads(x) for x in r.stdout.splitlines()] for r in (whole, parts))
    assert [x["prediction"] for x in first] == [x["prediction"] for x in second]
    assert [x["radius"] for x in first] == pytest.approx([x["radius"] for x in second], rel=1e-9)


def test_other_tolerances_are_other_units(folder):
    base, wide = (
        [json.loads(line)["radius"] for line in run(*args, "--format", "jsonl").stdout.splitlines()]
        for args in (
            (folder / "run", folder / "rows.csv"),
            (folder / "run", folder / "rows.csv", "--tolerance", "mass=2"),
        )
    )
    assert base[:2] == pytest.approx([2 * radius for radius in wide[:2]], rel=1e-4)


def test_images_and_network_files(digits_run, tmp_path):
    test = load_run(digits_run).data().test
    np.save(tmp_path / "digits.npy", test.inputs[:5].flatten(1).numpy())
    result = run(digits_run, tmp_path / "digits.npy", "--format", "jsonl", code=0)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    proven = taut.certify(load_run(digits_run).model, test.inputs[:5], "l2")
    assert [row["radius"] for row in rows] == proven.radius.tolist()
    taut.save(taut.nn.mlp([2, 8, 1]), tmp_path / "net.safetensors")
    (tmp_path / "one.csv").write_text("a,b\n1,2\n")
    result = run(tmp_path / "net.safetensors", tmp_path / "one.csv", code=0)
    assert len(result.stdout.splitlines()) == 2


def test_mistakes_are_one_line(folder, tmp_path):
    (tmp_path / "other.csv").write_text("mass,colour\n1,2\n3,4\n")
    result = run(folder / "run", tmp_path / "other.csv", code=2)
    assert "none called 'kind'" in result.stderr
    result = run(folder / "run", folder / "rows.csv", "--out", tmp_path / "x.xlsx", code=2)
    assert "--out must end in" in result.stderr
    result = run(folder / "run", tmp_path / "nothing.csv", code=2)
    assert "`DATA` must be an existing file" in result.stderr
    (tmp_path / "wide.csv").write_text("1,2,3,4\n1,2,3,4\n")
    result = run(folder / "run", tmp_path / "wide.csv")
    assert result.exit_code == 2 and "must have exactly 2 columns; got 4" in result.stderr
    assert not list(tmp_path.glob(".*"))


def test_values_that_training_has_not_seen_are_told(folder, tmp_path):
    (tmp_path / "new.csv").write_text("kind,mass\nyew,40.5\noak,70\n")
    result = run(folder / "run", tmp_path / "new.csv", code=0)
    assert len(result.stdout.splitlines()) == 3
    assert "Some rows have values that did not occur in training, in columns: kind" in result.stderr
    assert "not seen" not in run(folder / "run", folder / "rows.csv").stderr


def test_a_free_category_does_not_change_for_a_file(folder, tmp_path):
    """A file has no values of categories, so the run alone may say that all of them are covered."""
    config = TrainConfig(
        data=str(folder / "table.csv"),
        names="mass,kind,level",
        label="level",
        tolerance="mass=1,kind=free",
        hidden=(8,),
        epochs=2,
    )
    train(config, tmp_path / "run")
    out = tmp_path / "net.safetensors"
    told = invoke("export", tmp_path / "run", "--to", "safetensors", "--out", out)
    assert "holds free categories fixed" in told.output
    columns = taut.export.open_file(out).metadata["columns"]
    (tmp_path / "rows.csv").write_text(
        ",".join(columns) + "\n" + ",".join("1" * len(columns)) + "\n"
    )
    result = run(out, tmp_path / "rows.csv", "--out", tmp_path / "found.csv", code=0)
    assert "columns without one are assumed fixed" in result.output


def test_an_exported_network_takes_1_for_the_category_of_a_row(tmp_path):
    """Three categories and gaps: the inputs of the file are written by hand, predict encodes them."""
    generator = np.random.default_rng(0)
    mass = generator.normal(10, 3, 240).round(2)
    kind = np.array(["ash", "elm", "oak"])[generator.integers(3, size=240)]
    level = np.where(mass + 3 * (kind == "elm") > 10, "high", "low")
    cells = np.where(generator.random(240) < 0.1, "", mass.astype(str))
    lines = [",".join(row) for row in zip(cells, kind, level, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["mass,kind,level", *lines]) + "\n")
    train(
        TrainConfig(data=str(tmp_path / "table.csv"), label="level", hidden=(8,), epochs=2),
        tmp_path / "run",
    )
    (tmp_path / "rows.csv").write_text("mass,kind\n9.5,elm\n11,oak\n,ash\n")
    told = run(tmp_path / "run", tmp_path / "rows.csv", code=0)
    invoke("export", tmp_path / "run", "--to", "safetensors", "--out", tmp_path / "net.safetensors")
    saved = taut.export.open_file(tmp_path / "net.safetensors")
    inputs, centre = saved.metadata["columns"], saved.metadata["centre"]
    assert inputs == ["mass", "mass missing", "kind=ash", "kind=elm", "kind=oak"]
    x = torch.tensor([[9.5, 0, 0, 1, 0], [11, 0, 0, 0, 1], [centre[0], 1, 1, 0, 0]])
    with torch.no_grad():
        outputs = saved.model(x.to(next(saved.model.parameters()).dtype))
    rows = list(csv.DictReader(told.stdout.splitlines()))
    assert [float(row["margin"]) for row in rows] == pytest.approx(
        (outputs[:, 0] - outputs[:, 1]).abs().tolist(), rel=1e-4
    )
    # The radius by the certificate in the metadata is that of the run, in its units.
    rates = torch.tensor(saved.metadata["certificate"]["rates"])
    radius = (outputs[:, 0] - outputs[:, 1]).abs() / rates[0, 1]
    assert [float(row["radius"]) for row in rows] == pytest.approx(radius.tolist(), rel=1e-3)


def test_devices_and_links_stay_what_they_are(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    options = ("--format", "csv", "--out")
    run(folder / "run", folder / "rows.csv", *options, tmp_path / "pipe", code=0)
    assert len(os.read(reader, 10**5).splitlines()) == 4
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    run(folder / "run", folder / "rows.csv", "--out", tmp_path / "link.csv", code=0)
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "target.csv").is_file()
