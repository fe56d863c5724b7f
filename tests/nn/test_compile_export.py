"""Layers under torch's own machinery: compilers, exported programs, shapes without numbers, autocast."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import Unsupported
from torch._functorch._aot_autograd.utils import make_boxed_func

import taut.nn
from cases import ABOVE, DENSE, EVERY_LAYER, operator_norm
from taut.nn import ConstrainedLayer

# The tracer of torch instantiates autograd functions and looks at the gradient of every tensor of
# a frame; torch warns of both.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
dense = pytest.mark.parametrize("case", DENSE, ids=str)
every = pytest.mark.parametrize("case", EVERY_LAYER, ids=str)
modes = pytest.mark.parametrize("mode", ["train", "eval"])

# Operations that wait for numbers, or branch by them.
WAITS = ("aten._local_scalar_dense", "aten.equal", "aten.is_nonzero", "aten.nonzero", "aten.unique")


def recording_backend(seen: list[str]) -> Any:
    """Traces forward and backward with fake tensors, and notes every operation."""

    def compiler(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler)


def tolerance(case) -> float:
    # A spectral kernel is divided by a bound that is up to a percent above what torch computes.
    near = str(case).startswith(("SpectralConv", "CPLResidual2d"))
    return 1e-2 if near else 1e-5


@pytest.mark.slow
@every
@modes
def test_compiled_without_graph_breaks_and_without_waiting_for_numbers(case, mode):
    torch.compiler.reset()
    layer = case.make().train(mode == "train")
    twin = copy.deepcopy(layer)
    x = torch.randn(case.shape, dtype=torch.float64, requires_grad=True)
    expected = layer(x)
    seen: list[str] = []
    # A break of the graph, or a look at a number, is an error.
    compiled = torch.compile(twin, fullgraph=True, backend=recording_backend(seen))
    if str(case) == "Monotone" and mode == "eval":
        # Its proof is done again outside of the graph.
        with pytest.raises(Unsupported, match="Monotone._constant"):
            compiled(x)
        return
    made = compiled(x)
    near = tolerance(case) * max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(made, expected, rtol=0, atol=near)
    assert seen or str(case) == "groupsort1", "nothing is sorted in groups of one"
    assert not [name for name in seen if any(wait in name for wait in WAITS)]
    (eager,) = torch.autograd.grad(expected.square().sum(), x)
    (traced,) = torch.autograd.grad(made.square().sum(), x)
    near = 10 * tolerance(case) * max(1.0, float(eager.abs().max()))
    torch.testing.assert_close(traced, eager, rtol=0, atol=near)


@pytest.mark.parametrize("lr", [0.05, 10.0])
@pytest.mark.slow
@dense
def test_compiled_training_is_feasible_at_any_learning_rate(case, lr):
    torch.compiler.reset()
    layer = case.make(6, 8, bias=False)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    optimiser = torch.optim.Adam(layer.parameters(), lr=lr)
    target, eye = torch.randn(6, 8), torch.eye(6)
    for _ in range(4):
        optimiser.zero_grad()
        seen = compiled(eye)
        used = seen.detach().T.double().numpy()
        assert operator_norm(used, case.input_norm, case.output_norm) <= 1 + ABOVE
        (seen - target).square().sum().backward()
        assert torch.isfinite(layer.weight.grad).all()
        optimiser.step()
    case.check_feasible(layer.eval().effective_weight(), "eval")


@every
def test_exported_programs_take_any_batch_and_equal_eager(case):
    layer = case.make().eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    x = torch.randn(3, *case.shape[1:], dtype=torch.float64)
    layer(x)  # the proven factor of adaptive pooling is computed at the first sight of a size
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},)).module()
    other = torch.randn(7, *case.shape[1:], dtype=torch.float64)
    expected = layer(other)
    near = tolerance(case) * max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(program(other), expected, rtol=0, atol=near)


@dense
@pytest.mark.parametrize("scale", [0.0, 1e-3, 5.0])
@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (7, 7)], ids=str)
def test_exported_programs_use_a_feasible_weight(case, scale, shape):
    layer = case.make(*shape, bias=False).eval()
    layer.weight.data = scale * torch.randn(shape[1], shape[0])
    eye = torch.eye(shape[0])
    program = torch.export.export(layer, (eye,))
    seen = program.module()(eye).detach().T
    case.check_feasible(seen, "eval")
    if scale:
        tol = 2e-2 if case.name == "orthonormal-retract" else 1e-5
        torch.testing.assert_close(seen, layer(eye).detach().T, rtol=0, atol=tol)


@every
@modes
def test_shapes_are_computed_on_the_device_meta(case, mode):
    layer = case.make().train(mode == "train")
    shape = layer(torch.randn(case.shape, dtype=torch.float64)).shape
    made = layer.to("meta")(torch.empty(case.shape, dtype=torch.float64, device="meta"))
    assert made.is_meta and made.shape == shape


@every
@modes
def test_autocast_leaves_constraints_in_float32(case, mode):
    layer = case.make().float().train(mode == "train")
    x = torch.randn(case.shape)
    with torch.autocast("cpu", torch.bfloat16):
        made = layer(x.bfloat16())
    assert torch.isfinite(made).all()
    if isinstance(layer, ConstrainedLayer):
        assert made.dtype == torch.float32
        # What entered was rounded to 16 bits, and nothing else was.
        torch.testing.assert_close(made, layer(x.bfloat16().float()))


def test_autocast_computes_what_is_not_constrained_in_16_bits():
    net = nn.Sequential(
        nn.Linear(6, 8), taut.nn.MaxMin(), taut.nn.OrthonormalLinear(8, 8), nn.Linear(8, 2)
    )
    seen = []
    for layer in net:
        layer.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        net(torch.randn(3, 6))
    assert seen == [torch.bfloat16, torch.bfloat16, torch.float32, torch.bfloat16]


@dense
def test_tied_weights_are_one_feasible_weight(case):
    net: Any = nn.Sequential(
        case.make(6, 6, bias=False), taut.nn.MaxMin(), case.make(6, 6, bias=False)
    )
    net[2].weight = net[0].weight
    assert len(list(net.parameters())) == 1
    optimiser = torch.optim.Adam(net.parameters(), lr=0.3)
    x = torch.randn(8, 6)
    for mode in ("train", "train", "train", "eval"):
        net.train(mode == "train")
        optimiser.zero_grad()
        net(x).square().sum().neg().backward()
        optimiser.step()
        with torch.no_grad():
            net(x)
        used = [layer.effective_weight().detach() for layer in (net[0], net[2])]
        for weight in used:
            case.check_feasible(weight, mode)
        # A Parseval layer takes a step in each of the two.
        if not isinstance(net[0], taut.nn.ParsevalLinear):
            torch.testing.assert_close(used[0], used[1])
