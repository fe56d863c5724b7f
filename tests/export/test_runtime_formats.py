import operator
import sys
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from test_folding import snapshot
from torch import nn

import taut
from taut.errors import ArgumentError, MissingExtraError, NotConvergedError
from taut.export import export_onnx, export_pt2, runtime_formats

pytestmark = pytest.mark.slow


def everything(dtype: torch.dtype) -> nn.Sequential:
    """Every kind of layer in one network, since an export takes seconds."""
    return nn.Sequential(
        nn.Flatten(),
        taut.nn.OrthonormalLinear(6, 8),
        taut.nn.Scale(1.7),
        taut.nn.MaxMin(),
        taut.nn.OrthonormalLinear(8, 12, method="bjorck"),
        taut.nn.GroupSort(3),
        taut.nn.SpectralLinear(12, 8),
        taut.nn.Householder(8, 0.7),
        taut.nn.ParsevalLinear(8, 8),
        taut.nn.Abs(),
        nn.Sequential(taut.nn.LinfLinear(8, 8), nn.Dropout(0.5), nn.ReLU()),
        taut.nn.L1Linear(8, 6),
        taut.nn.Maxout(2),
        taut.nn.MixedLinear(3, 3, "l2"),
        taut.nn.FullSort(),
    ).to(dtype)


def assert_agree(run, model, shape, dtype):
    model.eval()
    for batch in (1, 3, 17):
        x = torch.randn(batch, *shape, dtype=dtype)
        with torch.no_grad():
            wanted, got = model(x), run(x)
        assert got.dtype == dtype and got.shape == wanted.shape
        tol = 1e-6 if dtype == torch.float32 else 1e-12
        assert (got - wanted).abs().max() <= tol * max(1.0, wanted.abs().max().item())


def onnx_runner(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"input": x.numpy()})[0])


def test_onnx_runs_in_onnxruntime_at_any_batch_size(tmp_path):
    model = everything(dtype := torch.float64)
    before = snapshot(model)
    export_onnx(model, tmp_path / "net.onnx", (2, 3))
    assert snapshot(model) == before
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"), full_check=True)
    assert_agree(onnx_runner(tmp_path / "net.onnx"), model, (2, 3), dtype)


def test_relu_onnx_has_no_other_activation(tmp_path):
    model = nn.Sequential(
        taut.nn.OrthonormalLinear(5, 8),
        taut.nn.MaxMin(),
        taut.nn.OrthonormalLinear(8, 8),
        taut.nn.GroupSort(4),
        taut.nn.Scale(0.3),
        taut.nn.OrthonormalLinear(8, 2),
    )
    export_onnx(model, tmp_path / "net.onnx", relu=True)
    kinds = {node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node}
    assert kinds <= {"Gemm", "MatMul", "Add", "Relu", "Transpose"}
    assert_agree(onnx_runner(tmp_path / "net.onnx"), model, (5,), torch.float32)


def test_pt2_is_made_of_torch_alone(tmp_path):
    model = everything(torch.float64)
    before = snapshot(model)
    export_pt2(model, tmp_path / "net.pt2", (2, 3))
    assert snapshot(model) == before
    program = torch.export.load(tmp_path / "net.pt2")
    assert_agree(program.module(), model, (2, 3), torch.float64)
    called = {n.target for n in program.graph.nodes if n.op == "call_function"}
    assert all(getattr(f, "namespace", "") == "aten" for f in called - {operator.getitem})


class Moody(nn.Module):
    """Another function when traced: what a broken exporter would give."""

    def __init__(self, change):
        super().__init__()
        self.change = change
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        y = self.layer(x)
        return self.change(y) if torch.compiler.is_exporting() else y


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda y: y * (1 + 1e-4), "it is off by"),
        (lambda y: y / 0 - y / 0, "it is off by"),
        (lambda y: y[:, :1], "gives shape (1, 1)"),
        (lambda y: y.double(), "(torch.float64) instead of"),
    ],
)
def test_a_program_that_computes_something_else_is_not_written(change, sentence, tmp_path):
    with pytest.raises(NotConvergedError) as caught:
        export_pt2(Moody(change), tmp_path / "x.pt2", (3,))
    assert sentence in str(caught.value) and "Nothing was written" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [0.0, torch.nan, torch.inf])
def test_onnx_that_computes_something_else_is_not_written(value, tmp_path, monkeypatch):
    def wrong(runtime: object, data: bytes):
        return lambda x: torch.full((len(x), 2), value)

    monkeypatch.setattr(runtime_formats, "_onnx_function", wrong)
    monkeypatch.setattr(torch.onnx, "export", lambda model, args, path, **_: path.write_bytes(b"x"))
    with pytest.raises(NotConvergedError, match="export_onnx: the exported network must compute"):
        export_onnx(nn.Linear(3, 2), tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


def test_arguments_are_checked(tmp_path, monkeypatch):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(6, 2))
    with pytest.raises(ArgumentError, match="`input_shape` must be given"):
        export_pt2(nn.Conv2d(1, 1, 1), tmp_path / "x")
    with pytest.raises(ArgumentError, match="`input_shape` must be one that the model takes"):
        export_pt2(flat, tmp_path / "x", (7,))
    with pytest.raises(ArgumentError, match="must be float32 or float64 throughout"):
        export_onnx(nn.Linear(2, 2).half(), tmp_path / "x")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'taut\[onnx\]'"):
        export_onnx(nn.Linear(2, 2), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_float32_of_a_factor_is_not_what_float64_gets():
    """The exporter of torch writes python numbers in float32; factors go as tensors instead."""
    model: Any = runtime_formats._with_tensor_factors(nn.Sequential(taut.nn.Scale(1.7)).double())
    assert model[0](torch.ones(1, dtype=torch.float64)).item() == pytest.approx(1.7, rel=1e-7)
    both: Any = runtime_formats._with_tensor_factors(
        nn.Sequential(taut.nn.Scale(1.7), nn.Linear(1, 1).double())
    )
    assert both[0].factor.dtype == torch.float64 and both[0].factor.item() == 1.7
