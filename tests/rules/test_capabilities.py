"""The capability table, cell by cell: every layer with a record does what its records promise.

Every row is a small network around one layer. Its truth is a dense Jacobian of the layer in float64;
its certificates are attacked by executions in float32 at neighbouring points.
"""

import copy
import inspect
import math
from collections.abc import Callable
from sys import modules
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import taut
from taut.certificates import bound_outputs, direct_executor
from taut.export import export_onnx, export_pt2
from taut.rules import FileSchema, register, registered_functions, registered_modules
from taut.rules.layer_capabilities import capabilities_of

IMAGE = (4, 6, 6)
LINE = (4, 12)
VOLUME = (4, 4, 4, 4)
VECTOR = (8,)
ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


def _spatial(name: str) -> tuple[int, ...]:
    return {"1": LINE, "2": IMAGE, "3": VOLUME}[name[-2]]


def _make() -> dict[type[nn.Module], tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    made: dict[type[nn.Module], tuple[Callable[[], nn.Module], tuple[int, ...]]] = {}
    for kind in registered_modules():
        name = kind.__name__
        if capabilities_of(kind)["bound"] and not inspect.isabstract(kind):
            if "Conv" in name:
                odd = 3 if "Transpose" in name else 4
                made[kind] = (lambda kind=kind, odd=odd: kind(4, odd, 3, padding=1), _spatial(name))
            elif name.endswith("Linear"):
                more = {"p": "l2"} if name == "MixedLinear" else {}
                made[kind] = (lambda kind=kind, more=more: kind(8, 6, **more), VECTOR)
            elif "Pool" in name:
                made[kind] = (lambda kind=kind: kind(2), _spatial(name))
            elif "Pad" in name:
                more = (1, 0.5) if "Constant" in name else (1,)
                made[kind] = (lambda kind=kind, more=more: kind(*more), _spatial(name))
            elif name.startswith("BatchNorm"):
                shape = VECTOR if name[-2] == "1" else _spatial(name)
                made[kind] = (lambda kind=kind, n=shape[0]: _lively(kind(n)), shape)
    for kind, make, shape in (
        (
            taut.nn.Monotone,
            lambda: taut.nn.Monotone(taut.nn.mlp([8, 8, 6]), [1, 0, -1, 0, 0, 1, 0, 0]),
            VECTOR,
        ),
        (taut.nn.MaxMin, lambda: taut.nn.MaxMin(dim=1), IMAGE),
        (taut.nn.GroupSort, lambda: taut.nn.GroupSort(4, dim=1), IMAGE),
        (taut.nn.FullSort, taut.nn.FullSort, VECTOR),
        (taut.nn.Maxout, lambda: taut.nn.Maxout(2), VECTOR),
        (taut.nn.Householder, lambda: taut.nn.Householder(8, angle=0.7), VECTOR),
        (taut.nn.Abs, taut.nn.Abs, VECTOR),
        (taut.nn.ConeCritic, _cones, VECTOR),
        (taut.nn.PotentialStep, lambda: _drawn(taut.nn.PotentialStep(8, 5)), VECTOR),
        (taut.nn.SLLResidual, lambda: taut.nn.SLLResidual(8, 12), VECTOR),
        (taut.nn.CPLResidual, lambda: taut.nn.CPLResidual(8), VECTOR),
        (taut.nn.PotentialStep2d, lambda: _drawn(taut.nn.PotentialStep2d(4, 5)), IMAGE),
        (taut.nn.SLLResidual2d, lambda: taut.nn.SLLResidual2d(4, 7), IMAGE),
        (taut.nn.CPLResidual2d, lambda: taut.nn.CPLResidual2d(4, 7), IMAGE),
        (taut.nn.SandwichStep, lambda: _drawn(taut.nn.SandwichStep(8, 5)), VECTOR),
        (taut.nn.ChannelShift2d, lambda: taut.nn.ChannelShift2d(2), IMAGE),
        (taut.nn.InvertibleUpsampling2d, lambda: taut.nn.InvertibleUpsampling2d(2), IMAGE),
        (taut.nn.LipschitzBatchNorm, lambda: _lively(taut.nn.LipschitzBatchNorm(4)), IMAGE),
        (taut.nn.LinfDistance, lambda: taut.nn.LinfDistance(8, 5), VECTOR),
        (taut.nn.LinfDistance2d, lambda: taut.nn.LinfDistance2d(4, 3, 3, 2, 1), IMAGE),
        (taut.nn.SortDistance, lambda: taut.nn.SortDistance(8, 5, q=0.6), VECTOR),
        (taut.nn.Clip, lambda: taut.nn.Clip(-0.6, 0.7), VECTOR),
        (taut.nn.Scale, lambda: taut.nn.Scale(-1.7), VECTOR),
        (taut.nn.Centering, lambda: _lively(taut.nn.Centering(4)), IMAGE),
        (taut.nn.InvertibleDownsampling2d, lambda: taut.nn.InvertibleDownsampling2d(2), IMAGE),
        (taut.nn.Residual, lambda: taut.nn.Residual(taut.nn.OrthonormalLinear(8, 8)), VECTOR),
        (taut.nn.PairLength, lambda: taut.nn.PairLength(1), IMAGE),
        (nn.Sequential, lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()), VECTOR),
        (nn.Dropout1d, nn.Dropout1d, LINE),
        (nn.Dropout2d, nn.Dropout2d, IMAGE),
        (nn.Dropout3d, nn.Dropout3d, VOLUME),
        (nn.Flatten, nn.Flatten, IMAGE),
        (nn.Unflatten, lambda: nn.Unflatten(1, (2, 4)), VECTOR),
        (nn.PixelShuffle, lambda: nn.PixelShuffle(2), IMAGE),
        (nn.PixelUnshuffle, lambda: nn.PixelUnshuffle(2), IMAGE),
        (nn.ChannelShuffle, lambda: nn.ChannelShuffle(2), IMAGE),
        (nn.PReLU, lambda: nn.PReLU(init=1.3), VECTOR),
        (nn.Softplus, lambda: nn.Softplus(threshold=40), VECTOR),
        (nn.Softmax, lambda: nn.Softmax(1), VECTOR),
        (nn.LogSoftmax, lambda: nn.LogSoftmax(1), VECTOR),
    ):
        made[kind] = (make, shape)
    for kind in registered_modules():
        if kind not in made and capabilities_of(kind)["bound"] and not inspect.isabstract(kind):
            made[kind] = (kind, VECTOR)
    return made


def _cones() -> nn.Module:
    return taut.nn.ConeCritic.from_points(torch.randn(5, 8), torch.rand(5), sign=-1)


def _drawn(module: nn.Module) -> nn.Module:
    for tensor in module.parameters():
        torch.nn.init.normal_(tensor.data, 0, 0.2)
    return module


def _lively(module: nn.Module) -> nn.Module:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor.data, 0.3, 1.2)
    return module


ROWS = _make()
rows = pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)


def network(kind: type[nn.Module], classes: bool = True) -> tuple[nn.Module, tuple[int, ...]]:
    """The layer alone, or followed by a dense layer that makes three classes."""
    torch.manual_seed(0)
    make, shape = ROWS[kind]
    layer = make().eval()
    if not classes:
        return layer, shape
    size = layer(torch.zeros(1, *shape)).numel()
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(size, 3)).eval(), shape


def test_every_public_layer_and_every_record_has_a_row():
    public = {getattr(taut.nn, name) for name in taut.nn.__all__}
    layers = {k for k in public if inspect.isclass(k) and issubclass(k, nn.Module)}
    assert {k for k in layers if not inspect.isabstract(k)} - ROWS.keys() == set()
    # Other tests register layers of their own, which no module holds.
    held = {k for k in registered_modules() if getattr(modules[k.__module__], k.__name__, 0) is k}
    known = {k for k in held if capabilities_of(k)["bound"]}
    assert {k for k in known if not inspect.isabstract(k)} - ROWS.keys() == set()


def test_no_public_layer_is_refused():
    for kind in ROWS:
        if kind.__module__.startswith("taut.nn"):
            able = capabilities_of(kind)
            lacking = [name for name in able if name != "relu" and not able[name]]
            assert not lacking, f"{kind.__name__}: {lacking}"


def test_refusals_say_why_and_what_to_use_instead():
    refused = [r.refusal for r in registered_modules().values() if r.refusal]
    assert len(refused) >= 20
    assert all("Use " in text or "instead" in text or "Clamp" in text for text in refused)


def test_every_function_that_is_bounded_is_certified_too():
    known = registered_functions()
    bounded = {function: known[function] for function in known if known[function].constants}
    assert all(record.exact or record.rounding for record in bounded.values())
    assert len(known) > 80


@rows
@pytest.mark.parametrize("norm", ORDER)
def test_bounds_are_never_below_the_dense_jacobian(kind, norm):
    layer, shape = network(kind, classes=False)
    exact = layer.double()  # in float32 a constraint leaves more room for rounding
    bound = taut.bound_lipschitz(exact, norm, shape).value
    generator = torch.Generator().manual_seed(1)
    for scale in (0.3, 1.0, 3.0):
        x = scale * torch.randn(1, *shape, dtype=torch.float64, generator=generator)
        jacobian: Any = torch.autograd.functional.jacobian(exact, x)
        matrix = jacobian.reshape(-1, x.numel()).numpy()
        assert np.linalg.norm(matrix, ORDER[norm]) <= bound * (1 + 1e-7)


@rows
@pytest.mark.parametrize("arithmetic", ["real", "float64", "float32"])
def test_certificates_hold_against_executions_nearby(kind, arithmetic):
    model, shape = network(kind)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(6, *shape, generator=generator)
    if arithmetic != "float32":
        model, x = model.double(), x.double()
    found = taut.certify(model, x, "linf", arithmetic=arithmetic)
    assert (found.radius > 0).all()
    assert found.hypotheses.statements and found.lipschitz.holds_for(model)
    run = direct_executor(model, shape) if arithmetic == "float32" else model
    z = x.double().requires_grad_()
    logits = copy.deepcopy(model).double()(z)
    lead = logits.gather(1, found.prediction[:, None]).sum() * 2 - logits.sum()
    (gradient,) = torch.autograd.grad(lead, z)
    for share in (0.5, 0.99, 0.9999):
        step = found.radius.view(-1, *(1,) * len(shape)) * share
        for way in (-gradient.sign(), torch.randn(z.shape, generator=generator).sign()):
            near = (x.double() + way * step).to(x.dtype if arithmetic == "float32" else z.dtype)
            inside = (near.double() - x.double()).abs().flatten(1).amax(1) < found.radius
            with torch.no_grad():
                same = run(near).argmax(1) == found.prediction
            assert same[inside].all()


@rows
def test_boxes_hold_every_output(kind):
    layer, shape = network(kind, classes=False)
    generator = torch.Generator().manual_seed(3)
    centre = torch.randn(3, *shape, generator=generator)
    radius = 0.2 * torch.rand(3, *shape, generator=generator)
    lower, upper = bound_outputs(layer, centre - radius, centre + radius, "float32")
    assert lower.isfinite().all() and upper.isfinite().all()
    for _ in range(30):
        share = 2 * torch.rand(centre.shape, generator=generator).round() - 1
        if torch.rand((), generator=generator) < 0.5:
            share = 2 * torch.rand(centre.shape, generator=generator) - 1
        point = torch.minimum(
            torch.maximum(centre + share * radius, centre - radius), centre + radius
        )
        with torch.no_grad():
            for run in (layer, taut.fold(layer).double()):
                y = run(point.to(next(run.parameters(), point).dtype)).double()
                assert ((lower <= y + 1e-12) & (y - 1e-12 <= upper)).all()


@rows
def test_folding_moves_outputs_by_rounding_alone(kind):
    layer, shape = network(kind, classes=False)
    folded = taut.fold(layer)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        wanted = layer(x)
        assert (folded(x) - wanted).abs().max() <= 2e-6 * wanted.abs().max().clamp(min=1e-3)
    assert not any(isinstance(m, taut.nn.ConstrainedLayer) for m in folded.modules())


SAVED = [kind for kind in ROWS if capabilities_of(kind)["save"]]


@pytest.mark.parametrize("kind", SAVED, ids=lambda kind: kind.__name__)
def test_files_give_back_the_same_network(kind, tmp_path):
    model, shape = network(kind)
    path = tmp_path / "net.safetensors"
    bound = taut.save(model, path, input_shape=shape)
    loaded = taut.load(path)
    x = torch.randn(3, *shape)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    proven = taut.bound_lipschitz(model, bound.norm, shape, bound.output_norm)  # type: ignore[arg-type]
    assert bound.value >= proven.value * (1 - 1e-9)


EXPORTED = [kind for kind in ROWS if capabilities_of(kind)["export"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPORTED, ids=lambda kind: kind.__name__)
def test_other_runtimes_compute_the_same(kind, tmp_path):
    model, shape = network(kind)
    export_pt2(model, tmp_path / "net.pt2", shape)
    export_onnx(model, tmp_path / "net.onnx", shape)
    x = torch.randn(4, *shape)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (got,) = session.run(["output"], {"input": x.numpy()})
    with torch.no_grad():
        wanted = taut.fold(model)(x)
    assert math.isclose(0, float((torch.from_numpy(got) - wanted).abs().max()), abs_tol=2e-5)


def test_a_layer_of_one_s_own_costs_one_registration(tmp_path):
    class Frobenius(taut.nn.ConstrainedLinear):
        """A dense layer of Frobenius norm at most 1, so 1-Lipschitz in L2."""

        input_norm = output_norm = taut.L2

        def constrain(self, weight: torch.Tensor) -> torch.Tensor:
            return weight / (weight.norm() * (1 + 1e-6)).clamp(min=1.0)

    register(Frobenius, file=FileSchema.dense(Frobenius))
    net = nn.Sequential(Frobenius(6, 8), taut.nn.MaxMin(), Frobenius(8, 3)).eval()
    with torch.no_grad():
        net[0].weight.mul_(1e3)  # type: ignore[union-attr]
    x = torch.randn(5, 6)
    assert taut.bound_lipschitz(net).value <= 1
    assert (taut.certify(net, x, arithmetic="float32").radius > 0).all()
    assert type(taut.fold(net)[0]) is nn.Linear
    taut.save(net, tmp_path / "net.safetensors")
    assert torch.equal(taut.load(tmp_path / "net.safetensors")(x), net(x))
    export_onnx(net, tmp_path / "net.onnx")
    (got,) = onnxruntime.InferenceSession(tmp_path / "net.onnx").run(
        ["output"], {"input": x.numpy()}
    )
    assert np.allclose(np.asarray(got), net(x).detach().numpy(), atol=1e-5)
