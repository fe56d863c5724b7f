"""The runner that needs numpy alone: it agrees with taut, and its radii are never larger."""

import ast
import csv
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import taut
from support import seeded
from taut import checker, runner
from taut.errors import ArgumentError, DamagedFileError
from taut.export import describe_certificate, margin_lipschitz, open_file

FILE = Path(runner.__file__)


def _network(activation: str = "maxmin", constraint: str = "orthonormal") -> nn.Sequential:
    torch.manual_seed(0)
    return taut.nn.mlp(
        [6, 16, 16, 4], activation=activation, constraint=constraint, lipschitz=3.0
    ).eval()


def _saved(model: nn.Module, folder: Path, **options) -> bytes:
    taut.save(model, folder / "net", input_shape=(6,), **options)
    return (folder / "net").read_bytes()


def test_it_is_short_and_needs_numpy_alone():
    text = FILE.read_text()
    assert len(text.splitlines()) < 200
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= sys.stdlib_module_names | {"numpy"}


@pytest.mark.parametrize("weights", [None, "bfloat16", "int8"])
@pytest.mark.parametrize("activation", ["maxmin", "groupsort4", "fullsort", "abs", "relu"])
def test_it_agrees_with_taut(activation, weights, tmp_path):
    data = _saved(_network(activation), tmp_path, fold=True, weights=weights)
    model = taut.load(tmp_path / "net")
    x = torch.randn(50, 6, generator=seeded(1), dtype=torch.float64)
    prediction, margin, radius = runner.Runner(data)(x.numpy())
    proven = taut.certify(model, x, "l2")
    assert (prediction == proven.prediction.numpy()).all()
    assert np.allclose(margin, proven.margin, rtol=1e-12)
    # By the constant of the whole network: never above, for the last layer alone proves more.
    assert (radius <= proven.radius.numpy() * (1 + 1e-12)).all() and radius.max() > 0


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_with_a_certificate_it_loses_nothing(norm, tmp_path):
    constraint = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}[norm]
    model = taut.fold(_network(constraint=constraint))
    certificate = describe_certificate(model, norm, (6,))
    data = _saved(model, tmp_path, norm=norm, metadata={"certificate": certificate})
    x = torch.randn(50, 6, generator=seeded(1), dtype=torch.float64)
    radius = runner.Runner(data)(x.numpy())[2]
    proven = taut.certify(model, x, norm).radius.numpy()
    assert np.allclose(radius, proven, rtol=1e-9)


def test_tolerances_are_the_units_of_its_radii(tmp_path):
    model = taut.fold(_network(constraint="linf"))
    tolerance = [0.1, 2.0, 0.5, 0.0, 1.0, 3.0]
    certificate = describe_certificate(model, "linf", (6,), tolerance)
    data = _saved(model, tmp_path, norm="linf", metadata={"certificate": certificate})
    x = torch.randn(50, 6, generator=seeded(1), dtype=torch.float64)
    prediction, _, radius = runner.Runner(data)(x.numpy())
    proven = taut.certify(model, x, "linf", tolerance=tolerance).radius.numpy()
    assert np.allclose(radius, proven, rtol=1e-6)
    generator = np.random.default_rng(0)
    for _ in range(50):
        step = generator.choice([-1, 1], size=x.shape) * np.array(tolerance)
        moved = runner.Runner(data)(x.numpy() + 0.999999 * radius[:, None] * step)[0]
        assert (moved == prediction)[radius > 0].all()


def test_errors_of_rounding_are_bounded():
    """Against exact fractions, for a network with cancellation."""
    weight = np.array([[1e8, -1e8], [3.0, 1 / 3]])
    net = object.__new__(runner.Runner)
    net.layers = [
        ("Linear", {}, weight, np.array([0.1, -0.1])),
        ("MaxMin", {"dim": -1}, None, None),
        ("Scale", {"factor": 1 / 3}, None, None),
        ("Linear", {}, weight, None),
    ]
    x = np.array([[1 / 3, 1 / 3 + 1e-12]])
    outputs, error = net.evaluate(x)
    exact = [
        sum((Fraction(w) * Fraction(v) for w, v in zip(row, x[0], strict=True)), Fraction(b))
        for row, b in zip(weight, (0.1, -0.1), strict=True)
    ]
    exact = [Fraction(1 / 3) * v for v in sorted(exact, reverse=True)]
    exact = [sum(Fraction(w) * v for w, v in zip(row, exact, strict=True)) for row in weight]
    for value, true, bound in zip(outputs[0], exact, error[0], strict=True):
        assert abs(Fraction(float(value)) - true) <= Fraction(float(bound))


def test_rates_are_never_below_the_true_slopes():
    model = taut.fold(_network("abs")).double()
    rates = margin_lipschitz(model, "l2", (6,))
    for x in torch.randn(100, 6, generator=seeded(2), dtype=torch.float64):
        jacobian: Any = torch.autograd.functional.jacobian(lambda v: model(v[None])[0], x)
        assert ((jacobian[:, None] - jacobian).norm(dim=2) <= rates + 1e-12).all()


def test_the_command(tmp_path):
    model = taut.fold(_network())
    about = {"columns": list("abcdef"), "classes": ["p", "q", "r", "s"]}
    about["certificate"] = describe_certificate(model, "l2", (6,))
    _saved(model, tmp_path, metadata=about)
    rows = np.random.default_rng(0).normal(size=(5, 6))
    lines = [
        "f,e,d,c,b,a,note",
        *(",".join(map(repr, map(float, row))) + ",7" for row in rows[:, ::-1]),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "alone.py").write_text(FILE.read_text())
    done = subprocess.run(
        [sys.executable, "-I", "alone.py", "net", "rows.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = list(csv.DictReader(done.stdout.splitlines()))
    proven = taut.certify(model, torch.tensor(rows), "l2")
    assert [row["prediction"] for row in found] == ["pqrs"[i] for i in proven.prediction.tolist()]
    assert np.allclose([float(row["radius"]) for row in found], proven.radius, rtol=1e-9)


def test_other_layers_are_refused_by_name(tmp_path):
    data = _saved(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)), tmp_path)
    with pytest.raises(runner.Unsupported, match="`1` .Tanh."):
        runner.Runner(data)


@pytest.mark.parametrize(
    "first",
    [[taut.nn.MaxMin(dim=-1)], [nn.Flatten(1, 2), taut.nn.FullSort(dim=-1)], [nn.Linear(4, 4)]],
)
def test_what_works_along_rows_of_an_image_is_refused(first, tmp_path):
    """Such a layer acts along the last dimension, which flat rows do not have."""
    model = nn.Sequential(*first, nn.Flatten(), nn.Linear(16, 3)).eval()
    taut.save(model, tmp_path / "net", input_shape=(1, 4, 4))
    with pytest.raises(runner.Unsupported, match="is not one that this program runs there"):
        runner.Runner((tmp_path / "net").read_bytes())


def test_a_constant_network_never_changes_its_mind(tmp_path):
    model, tied = nn.Linear(6, 2), nn.Linear(6, 2)
    for layer, bias in ((model, [1.0, 0.0]), (tied, [0.0, 0.0])):
        layer.weight.data.zero_()
        layer.bias.data.copy_(torch.tensor(bias))
    with np.errstate(over="ignore"):
        assert runner.Runner(_saved(model, tmp_path))(np.ones((1, 6)))[2] > 1e300
    assert runner.Runner(_saved(tied, tmp_path))(np.ones((1, 6)))[2] == 0


@pytest.mark.parametrize(("weights", "share"), [("bfloat16", 0.55), ("int8", 0.32)])
def test_the_constant_is_that_of_the_stored_numbers(weights, share, tmp_path):
    torch.manual_seed(0)
    model = taut.nn.mlp([64, 256, 256, 10])
    taut.save(model, tmp_path / "full", fold=True)
    taut.save(model, tmp_path / "small", weights=weights)
    sizes = [(tmp_path / name).stat().st_size for name in ("full", "small")]
    assert sizes[1] < share * sizes[0]
    saved = open_file(tmp_path / "small")
    layers: Any = saved.model
    assert all(p.dtype == torch.float32 for p in saved.model.parameters())
    exact = 1.0
    for layer in layers:
        if isinstance(layer, nn.Linear):
            exact *= np.linalg.norm(layer.weight.double().numpy(), 2)
    assert exact <= saved.bound.value <= exact * 1.001
    assert checker.check((tmp_path / "small").read_bytes())["constant"] >= exact
    if weights == "int8":
        weight = layers[0].weight.double()
        whole = weight / (weight.abs().amax(1, keepdim=True) / 127)
        assert torch.allclose(whole, whole.round(), atol=1e-9)
    # Saved again, nothing is rounded further.
    taut.save(saved.model, tmp_path / "again", weights=weights)
    again = taut.load(tmp_path / "again")
    assert all(
        torch.equal(a, b) for a, b in zip(again.parameters(), saved.model.parameters(), strict=True)
    )


def test_what_cannot_be_stored_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="is for networks in float32"):
        taut.save(taut.nn.mlp([2, 4, 1]).double(), tmp_path / "net", weights="int8")
    with pytest.raises(ArgumentError, match="weights"):
        taut.save(taut.nn.mlp([2, 4, 1]), tmp_path / "net", weights="int4")


def test_a_scale_that_rounds_is_refused():
    from taut.export.quantised_weights import restore_weights

    tensors = {
        "w": torch.tensor([[127, 3]], dtype=torch.int8),
        "w:row-scale": torch.tensor([[0.1]]),
    }
    with pytest.raises(DamagedFileError, match="must be float32"):
        restore_weights(tensors, "int8")
    with pytest.raises(DamagedFileError, match="with a scale for each row"):
        restore_weights({"w": tensors["w"]}, "int8")
    with pytest.raises(DamagedFileError, match="one scale for each row"):
        restore_weights({"w": tensors["w"], "w:row-scale": torch.ones(1, 2)}, "int8")
