import copy
from typing import Any

import pytest
import torch
from torch import nn

import taut.nn
from cases import ACTIVATIONS, DENSE

# The tracer of torch instantiates autograd functions and looks at the gradient of every tensor of
# a frame; torch warns of both.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
dense = pytest.mark.parametrize("case", DENSE, ids=str)


def network(case) -> Any:
    return nn.Sequential(case.make(6, 8), taut.nn.MaxMin(), case.make(8, 4))


@pytest.mark.parametrize(
    ("case", "backend"), [(DENSE[0], "eager"), *((case, "aot_eager") for case in DENSE)], ids=str
)
@pytest.mark.slow
def test_compiled_training_and_evaluation_equal_eager(case, backend):
    torch.compiler.reset()
    net = network(case)
    twin = copy.deepcopy(net)
    compiled = torch.compile(twin, backend=backend)
    x = torch.randn(5, 6)
    optimisers = [torch.optim.Adam(model.parameters(), lr=0.05) for model in (net, twin)]
    for mode in ("train", "train", "eval"):
        for model in (net, twin):
            model.train(mode == "train")
        outputs = [net(x), compiled(x)]
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
        for out, optimiser in zip(outputs, optimisers, strict=True):
            optimiser.zero_grad()
            out.square().sum().backward()
        for ours, theirs in zip(twin.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
        for optimiser in optimisers:
            optimiser.step()
    for layer in (twin[0], twin[2]):
        case.check_feasible(layer.eval().effective_weight(), "eval")


@pytest.mark.parametrize("case", ACTIVATIONS, ids=str)
def test_compiled_activations_equal_eager(case):
    torch.compiler.reset()
    width = 2 * max(2, case.group)
    module = case.make(width)
    compiled = torch.compile(module, backend="aot_eager")
    x = torch.randn(3, width, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    y = module(x)
    torch.testing.assert_close(compiled(z), y)
    g = torch.randn_like(y)
    (y * g).sum().backward()
    (compiled(z) * g).sum().backward()
    torch.testing.assert_close(z.grad, x.grad)


@dense
def test_exported_programs_equal_eager(case):
    net = network(case).eval()
    x = torch.randn(5, 6)
    program = torch.export.export(net, (x,))
    other = torch.randn(5, 6)
    torch.testing.assert_close(program.module()(other), net(other), rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("case", ACTIVATIONS, ids=str)
def test_activations_are_exported(case):
    width = 2 * max(2, case.group)
    module = case.make(width).eval()
    program = torch.export.export(module, (torch.randn(3, width),))
    x = torch.randn(3, width)
    torch.testing.assert_close(program.module()(x), module(x))
