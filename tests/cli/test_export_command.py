import json
from functools import partial

import pytest
import torch
from torch import nn

import taut
import taut.export
from support import invoke
from taut.training import InputSpec
from taut.training.run_folder import write_json


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Flatten(), *taut.nn.mlp([6, 8, 2], lipschitz=2.0)).eval()
    taut.save(model, "net.safetensors", input_shape=(2, 3))
    return model


run = partial(invoke, "export", "net.safetensors")


def test_pt2_with_the_shape_that_was_saved(model):
    result = run("--to", "pt2", "--out", "net.pt2", code=0)
    assert result.output == "Wrote net.pt2, its outputs compared.\n"
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(torch.export.load("net.pt2").module()(x), model(x))


@pytest.mark.parametrize(("target", "relu"), [("onnx", False), ("relu-onnx", True)])
def test_onnx_is_asked_for_with_what_was_given(target, relu, monkeypatch, model):
    calls = []
    monkeypatch.setattr(
        taut.export, "export_onnx", lambda *args, **kwargs: calls.append((args, kwargs))
    )
    run("--to", target, "--out", "net.onnx", "--input-shape", "6", code=0)
    ((exported, out, shape), kwargs) = calls[0]
    assert (str(out), shape, kwargs) == ("net.onnx", (6,), {"relu": relu})
    x = torch.randn(4, 2, 3)
    assert torch.equal(exported(x), model(x))


def test_a_folded_taut_file(model):
    run("--to", "safetensors", "--out", "plain.safetensors", code=0)
    plain = taut.load("plain.safetensors")
    assert not any(isinstance(m, taut.nn.ConstrainedLinear) for m in plain.modules())
    assert taut.bound_lipschitz(plain, "l2", (2, 3)).value <= 2
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(plain(x), model(x), rtol=1e-6, atol=1e-6)


def test_mistakes_are_one_line():
    result = run("--to", "pt2", "--out", "net.pt2", "--input-shape", "5", code=2)
    assert result.stderr.startswith("taut export: `--input-shape` must be one that the model takes")
    run("--to", "tflite", "--out", "x", code=2)
    run("--to", "onnx", code=2)


@pytest.fixture
def table_run(tmp_path):
    """The folder of a run on a table, as `taut export` reads it: a network and its inputs."""
    torch.manual_seed(0)
    net = taut.nn.mlp([2, 8, 3]).eval()
    folder = tmp_path / "table"
    folder.mkdir()
    taut.save(net, folder / "model.safetensors", input_shape=(2,))
    spec = InputSpec((2,), ("p", "q", "r"), ("a", "b"), shift=(50.0, -3.0), spread=(4.0, 0.5))
    write_json(folder / "inputs.json", spec.to_dict())
    rows = torch.randn(7, 2, dtype=torch.float64) * torch.tensor([4.0, 0.5]) + torch.tensor(
        [50.0, -3.0]
    )
    return folder, rows, net(spec.apply(rows)).detach()


def export_table(*args: str):
    result = invoke("export", *args, code=0)
    return result.output


def test_a_run_on_a_table_leaves_with_its_standardisation(table_run):
    folder, rows, wanted = table_run
    said = export_table(str(folder), "--to", "safetensors", "--out", "t.safetensors")
    assert "features of the table, as float32" in said and "standard deviations" in said
    saved = taut.export.open_file("t.safetensors")
    torch.testing.assert_close(saved.model(rows.float()), wanted, rtol=1e-5, atol=1e-5)
    # One unit of the second column is two of its standard deviations.
    assert 1.9 < saved.bound.value <= 2.000001
    assert (saved.metadata["classes"], saved.metadata["columns"]) == (["p", "q", "r"], ["a", "b"])
    certificate = saved.metadata["certificate"]
    assert certificate["tolerance"] == saved.metadata["tolerance"] == [4.0, 0.5]
    # By the certificate alone, what the network of the run has in standard deviations.
    spec = InputSpec.from_dict(json.loads((folder / "inputs.json").read_text()))
    proven = taut.certify(taut.load(folder / "model.safetensors"), spec.apply(rows), "l2")
    leads = wanted.double().gather(1, proven.prediction[:, None]) - wanted.double()
    rates = torch.tensor(certificate["rates"], dtype=torch.float64)[proven.prediction]
    radii = (leads / rates).masked_fill(rates == 0, torch.inf).amin(1)
    torch.testing.assert_close(radii, proven.radius, rtol=1e-5, atol=1e-5)


def test_onnx_of_a_table_takes_raw_columns_and_names_them(table_run):
    folder, rows, wanted = table_run
    runtime = pytest.importorskip("onnxruntime")
    export_table(str(folder), "--to", "onnx", "--out", "t.onnx")
    session = runtime.InferenceSession("t.onnx", providers=["CPUExecutionProvider"])
    got = torch.from_numpy(session.run(["output"], {"input": rows.float().numpy()})[0])
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    held = session.get_modelmeta().custom_metadata_map
    assert held["classes"] == '["p", "q", "r"]' and held["columns"] == '["a", "b"]'
    assert json.loads(held["certificate"])["norm"] == "l2"


def test_pt2_of_a_table_takes_raw_columns_and_names_them(table_run):
    folder, rows, wanted = table_run
    export_table(str(folder), "--to", "pt2", "--out", "t.pt2")
    held = {"classes": "", "columns": ""}
    program = torch.export.load("t.pt2", extra_files=held).module()
    torch.testing.assert_close(program(rows.float()), wanted, rtol=1e-5, atol=1e-5)
    assert held["classes"] == '["p", "q", "r"]' and held["columns"] == '["a", "b"]'


def test_a_column_far_from_zero_is_exported_in_float64(table_run):
    folder, _, _ = table_run
    spec = InputSpec((2,), ("p", "q", "r"), shift=(1.7e9, 0.0), spread=(300.0, 1.0))
    write_json(folder / "inputs.json", spec.to_dict())
    assert "float64" in export_table(str(folder), "--to", "safetensors", "--out", "t.safetensors")
    exact = (torch.randn(7, 2, dtype=torch.float64), torch.tensor([300.0, 1.0]))
    rows = exact[0] * exact[1] + torch.tensor([1.7e9, 0.0], dtype=torch.float64)
    wanted = taut.load(folder / "model.safetensors")(exact[0].float()).double()
    got = taut.load("t.safetensors")(rows)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_bare_file_of_such_a_run_is_exported_with_a_warning(table_run):
    folder, _, _ = table_run
    file = str(folder / "model.safetensors")
    said = export_table(file, "--to", "safetensors", "--out", "t.safetensors")
    assert "WARNING: it expects columns standardised by the shift" in said
