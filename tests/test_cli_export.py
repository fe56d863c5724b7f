import pytest
import torch
from click.testing import CliRunner
from torch import nn

import taut
import taut.export
from taut.cli.main import main


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Flatten(), *taut.nn.mlp([6, 8, 2], lipschitz=2.0)).eval()
    taut.save(model, "net.safetensors", input_shape=(2, 3))
    return model


def run(*args: str):
    return CliRunner().invoke(main, ["export", "net.safetensors", *args])


def test_pt2_with_the_shape_that_was_saved(model):
    result = run("--to", "pt2", "--out", "net.pt2")
    assert result.exit_code == 0, result.output
    assert result.output == "Wrote net.pt2, its outputs compared.\n"
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(torch.export.load("net.pt2").module()(x), model(x))


@pytest.mark.parametrize(("target", "relu"), [("onnx", False), ("relu-onnx", True)])
def test_onnx_is_asked_for_with_what_was_given(target, relu, monkeypatch, model):
    calls = []
    monkeypatch.setattr(
        taut.export, "export_onnx", lambda *args, **kwargs: calls.append((args, kwargs))
    )
    result = run("--to", target, "--out", "net.onnx", "--input-shape", "6")
    assert result.exit_code == 0, result.output
    ((exported, out, shape), kwargs) = calls[0]
    assert (str(out), shape, kwargs) == ("net.onnx", (6,), {"relu": relu})
    x = torch.randn(4, 2, 3)
    assert torch.equal(exported(x), model(x))


def test_a_folded_taut_file(model):
    result = run("--to", "safetensors", "--out", "plain.safetensors")
    assert result.exit_code == 0, result.output
    plain = taut.load("plain.safetensors")
    assert not any(isinstance(m, taut.nn.ConstrainedLinear) for m in plain.modules())
    assert taut.bound_lipschitz(plain, "l2", (2, 3)).value <= 2
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(plain(x), model(x), rtol=1e-6, atol=1e-6)


def test_mistakes_are_one_line():
    result = run("--to", "pt2", "--out", "net.pt2", "--input-shape", "5")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "taut: export_pt2: `input_shape` must be one that the model takes"
    )
    assert run("--to", "tflite", "--out", "x").exit_code == 2
    assert run("--to", "onnx").exit_code == 2


def test_help_teaches():
    result = run("--help")
    assert "taut export net.safetensors --to onnx --out net.onnx" in result.output
