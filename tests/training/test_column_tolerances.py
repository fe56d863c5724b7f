"""Training and certifying for tolerances in the units of a table's columns."""

import math

import numpy as np
import pytest
import torch

from taut.data import ColumnEncoding, Encoding
from taut.errors import ArgumentError
from taut.training import (
    InputSpec,
    TrainConfig,
    certify_inputs,
    feature_tolerances,
    load_run,
    parse_tolerances,
    train,
    write_tolerances,
)

COLOURS = ("blue", "red", "tan")


def _write_table(path, rows: int = 400, seed: int = 0) -> None:
    """Two classes by a weight in grams and a share in thousandths; a colour says which is which."""
    generator = np.random.default_rng(seed)
    label = generator.integers(2, size=rows)
    grams = 1000 * generator.normal(size=rows) + 3000 * label
    share = 0.001 * generator.normal(size=rows) - 0.002 * label
    noise = 7 + generator.normal(size=rows)
    colour = np.where(generator.random(rows) < 0.2, "tan", np.where(label == 1, "red", "blue"))
    lines = [
        f"{g},{s},{n},{c},{'yes' if y else 'no'}"
        for g, s, n, c, y in zip(grams, share, noise, colour, label, strict=True)
    ]
    path.write_text("grams,share,noise,colour,answer\n" + "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tolerances") / "table.csv"
    _write_table(path)
    return path


def _train(table, **changes):
    options = {"hidden": (32, 32), "epochs": 8, "label": "answer", "radius": 1.0, "seed": 1}
    return train(TrainConfig(data=str(table), **options | changes))


@pytest.fixture(scope="module")
def trained(table):
    return _train(table, tolerance="grams=200,share=0.0002", drop="noise,colour")


def test_the_unit_of_radii_is_the_tolerance(trained):
    assert trained.config.norm == "linf"
    assert trained.inputs.columns == ("grams", "share")
    assert trained.inputs.spread == trained.inputs.tolerance == (200.0, 0.0002)
    assert trained.inputs.weights is None
    assert trained.result["certified"] > 0.7


@torch.no_grad()
def test_no_row_within_the_tolerances_has_another_prediction(trained, table):
    """In the units of the table, by code of its own: random and gradient-chosen corners of the box."""
    lines = table.read_text().splitlines()[1:]
    raw = np.array([[float(cell) for cell in line.split(",")[:2]] for line in lines])
    tolerance = np.array([200.0, 0.0002])
    shift, spread = np.array(trained.inputs.shift), np.array(trained.inputs.spread)

    def classes(rows: np.ndarray) -> torch.Tensor:
        scaled = ((rows - shift) / spread).astype(np.float32)
        return trained.model(torch.from_numpy(scaled)).argmax(1)

    found = certify_inputs(
        trained.model, trained.inputs, trained.inputs.apply(raw), "linf", rounded=True
    )
    inside = found.radius > 1
    assert inside.double().mean() > 0.7
    before = classes(raw)
    assert torch.equal(before, found.prediction)
    generator = np.random.default_rng(0)
    for corner in [*([a, b] for a in (-1, 1) for b in (-1, 1)), *generator.uniform(-1, 1, (50, 2))]:
        after = classes(raw + np.array(corner) * tolerance)
        assert torch.equal(after[inside], before[inside])


def test_the_run_keeps_its_tolerances(table, tmp_path):
    config = TrainConfig(
        data=str(table), label="answer", tolerance="grams=200,colour=free", hidden=(8,), epochs=1
    )
    train(config, tmp_path / "run")
    spec = load_run(tmp_path / "run").inputs
    assert spec.tolerance[0] == 200.0
    assert spec.tolerance[1:3] == (0.0, 0.0)
    assert set(spec.tolerance[3:]) == {math.inf}
    assert spec == InputSpec.from_dict(spec.to_dict())
    assert spec.encoding is not None
    assert [column.kind for column in spec.encoding.used] == ["number"] * 3 + ["category"]


def test_fixed_columns_may_be_steep_at_no_cost(table):
    """A category that tells most of the answer certifies more rows if it cannot change."""
    wide = "grams=2000,share=0.003"
    without = _train(table, tolerance=wide, drop="noise,colour")
    fixed = _train(table, tolerance=wide, drop="noise")
    assert fixed.result["certified"] > without.result["certified"] + 0.1


def test_a_free_category_counts_at_its_worst(table):
    wide = "grams=300,share=0.0003"
    fixed = _train(table, tolerance=wide, drop="noise")
    free = InputSpec.from_dict(
        {**fixed.inputs.to_dict(), "tolerance": [300.0, 0.0003, "free", "free", "free"]}
    )
    rows = fixed.data().test.inputs
    held = certify_inputs(fixed.model, fixed.inputs, rows, "linf")
    worst = certify_inputs(fixed.model, free, rows, "linf")
    assert (worst.radius <= held.radius * (1 + 1e-9)).all()
    assert (worst.radius < held.radius).any()
    (group, values), *others = free.free_choices()
    assert len(values) == 3 and not others
    with torch.no_grad():
        for value in values:
            changed = rows.clone()
            changed[:, group] = value
            safe = worst.radius > 0
            assert torch.equal(fixed.model(changed).argmax(1)[safe], worst.prediction[safe])


def test_texts_are_read_and_written(tmp_path):
    given = {"pH": 0.1, "a, b": 2.0, 3: 0.0, "colour": math.inf}
    assert parse_tolerances(write_tolerances(given)) == given
    (tmp_path / "t.toml").write_text('pH = 0.1\n"a b" = 2\ncolour = "free"\n')
    assert parse_tolerances(str(tmp_path / "t.toml")) == {"pH": 0.1, "a b": 2.0, "colour": math.inf}
    for wrong in ("pH", "pH=-1", "pH=x", "=2", "pH=nan", "pH=0", "colour=free", "missing.toml"):
        with pytest.raises(ArgumentError, match="tolerance"):
            parse_tolerances(wrong)


def test_what_cannot_be_proven_is_refused():
    colour = ColumnEncoding("colour", "category", categories=COLOURS)
    encoding = Encoding((ColumnEncoding("age", "number", missing=True), colour))
    names = encoding.features
    found = feature_tolerances({"age": 2.0, "colour": math.inf}, names, len(names), encoding)
    assert found == (2.0, 0.0, math.inf, math.inf, math.inf)
    for wrong in ({"colour": 1.0}, {"age": math.inf}):
        with pytest.raises(ArgumentError, match="a category must be fixed or free"):
            feature_tolerances(wrong, names, len(names), encoding)
    with pytest.raises(ArgumentError, match="must be among 'age', 'colour'"):
        feature_tolerances({"height": 1.0}, names, len(names), encoding)
    with pytest.raises(ArgumentError, match="is for the columns of a table"):
        train(TrainConfig(data="digits", tolerance="a=1", epochs=1))


def test_too_many_combinations_are_refused():
    columns = tuple(
        ColumnEncoding(f"c{i}", "category", categories=tuple(map(str, range(20)))) for i in range(2)
    )
    encoding = Encoding((ColumnEncoding("x", "number"), *columns))
    count = len(encoding.features)
    spec = InputSpec(
        shape=(count,),
        classes=("a", "b"),
        columns=encoding.features,
        shift=(0.0,) * count,
        spread=(1.0,) * count,
        tolerance=(1.0, *(math.inf,) * (count - 1)),
        encoding=encoding,
    )
    with pytest.raises(ArgumentError, match="at most 256 combinations of values; got 400"):
        certify_inputs(torch.nn.Linear(count, 2), spec, torch.zeros(1, count), "linf")
