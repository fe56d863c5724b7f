"""Every layer under the transforms of `torch.func`, against plain autograd in float64."""

import copy
from typing import Any

import pytest
import torch
from torch.autograd import functional as plain

import taut
from cases import CONVOLUTIONS, DENSE, EVERY_LAYER
from support import randn
from taut.errors import ArgumentError, NonFiniteError

# The forward mode of torch loads scripted functions, of which torch itself warns.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)
F = torch.func
every_layer = pytest.mark.parametrize("case", EVERY_LAYER, ids=str)
with_parameters = pytest.mark.parametrize(
    "case", [case for case in EVERY_LAYER if list(case.make().parameters())], ids=str
)
modes = pytest.mark.parametrize("mode", ["train", "eval"])


def settled(case, mode, wild=False) -> Any:
    """A layer in the mode that has seen a forward, so that a parameter kept feasible is feasible."""
    layer = case.make().train(mode == "train")
    if wild:
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(2 * torch.randn_like(parameter))
    layer(randn(*case.shape))
    return layer


def state(layer):
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    return parameters, {name: value.detach() for name, value in layer.named_buffers()}


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@every_layer
@modes
def test_jacobians_and_tangents_of_inputs(case, mode):
    layer, x, v = settled(case, mode), randn(*case.shape), randn(*case.shape)
    expected = plain.jacobian(layer, x)
    close(F.jacrev(layer)(x), expected)
    close(F.jacfwd(layer)(x), expected)
    value, tangent = F.jvp(layer, (x,), (v,))  # type: ignore[misc]
    close(value, layer(x))
    close(tangent, plain.jvp(layer, x, v)[1])
    close(
        F.vjp(layer, x)[1](torch.ones_like(value))[0],
        plain.vjp(layer, x, torch.ones_like(value))[1],
    )


@every_layer
@modes
def test_hessians_of_inputs(case, mode):
    layer, x = settled(case, mode), randn(*case.shape)

    def energy(x):
        return layer(x).square().sum()

    close(F.hessian(energy)(x), plain.hessian(energy, x))
    close(F.grad(energy)(x), plain.jacobian(energy, x))


@every_layer
@modes
@pytest.mark.parametrize("dim", [0, -1])
def test_vmap_is_a_loop(case, mode, dim):
    layer, x = settled(case, mode), randn(4, *case.shape)
    expected = torch.stack([layer(each) for each in x], dim)
    close(F.vmap(layer, 0, dim)(x), expected)
    close(F.vmap(layer, dim, 0)(x.movedim(0, dim)), expected.movedim(dim, 0))


@every_layer
@modes
def test_vmap_is_differentiated_by_autograd(case, mode):
    layer, x = settled(case, mode), randn(4, *case.shape).requires_grad_()
    leaves = [x, *layer.parameters()]
    expected = torch.autograd.grad(
        torch.stack([layer(each) for each in x]).square().sum(), leaves, allow_unused=True
    )
    found = torch.autograd.grad(F.vmap(layer)(x).square().sum(), leaves, allow_unused=True)
    close(found, expected)


@with_parameters
@modes
@pytest.mark.parametrize("wild", [False, True], ids=["feasible", "wild"])
def test_jacobians_of_parameters(case, mode, wild):
    layer, x = settled(case, mode), randn(*case.shape)
    parameters, buffers = state(layer)
    if wild:
        parameters = {name: 2 * torch.randn_like(value) for name, value in parameters.items()}
    names, values = list(parameters), tuple(parameters.values())

    def call(*values):
        given = dict(zip(names, values, strict=True))
        return F.functional_call(layer, (given, buffers), (x,))

    if str(case) == "Monotone" and mode == "eval" and wild:
        for transformed in (call, F.jacrev(call), F.jacfwd(call)):
            with pytest.raises(ArgumentError, match="must hold the weights that are evaluated"):
                transformed(*values)
        return
    by_autograd = [value.clone().requires_grad_() for value in values]
    rows = [
        torch.autograd.grad(entry, by_autograd, retain_graph=True)
        for entry in call(*by_autograd).flatten()
    ]
    shape = call(*values).shape
    expected = tuple(
        torch.stack(column).view(*shape, *value.shape)
        for column, value in zip(zip(*rows, strict=True), values, strict=True)
    )
    which = tuple(range(len(values)))
    close(F.jacrev(call, which)(*values), expected)
    close(F.jacfwd(call, which)(*values), expected)


@with_parameters
@modes
def test_gradients_of_parameters_are_those_of_training(case, mode):
    layer, x = settled(case, mode), randn(*case.shape)
    parameters, buffers = state(layer)

    def loss(parameters):
        return F.functional_call(layer, (parameters, buffers), (x,)).sin().sum()

    found = F.grad(loss)(parameters)
    layer(x).sin().sum().backward()
    for name, parameter in layer.named_parameters():
        # Within rounding of the manifold a retracted weight is its own tangent point.
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-8, atol=1e-9)


@with_parameters
@modes
def test_gradients_for_each_sample(case, mode):
    layer, x = settled(case, mode), randn(*case.shape)
    parameters, buffers = state(layer)

    def loss(parameters, sample):
        return F.functional_call(layer, (parameters, buffers), (sample[None],)).sin().sum()

    found = F.vmap(F.grad(loss), (None, 0))(parameters, x)
    for at, sample in enumerate(x):
        expected = F.grad(loss)(parameters, sample)
        for name in parameters:
            close(found[name][at], expected[name])


@with_parameters
@modes
@pytest.mark.parametrize("wild", [False, True], ids=["feasible", "wild"])
def test_ensembles_of_stacked_parameters(case, mode, wild):
    layers, x = [settled(case, mode, wild) for _ in range(3)], randn(*case.shape)
    parameters, buffers = F.stack_module_state(layers)
    template = copy.deepcopy(layers[0]).to("meta").train(mode == "train")

    def call(parameters, buffers):
        return F.functional_call(template, (parameters, buffers), (x,))

    if str(case) == "Monotone" and mode == "eval":
        with pytest.raises(ArgumentError, match="must hold the weights that are evaluated"):
            F.vmap(call)(parameters, buffers)
        return
    outputs = F.vmap(call)(parameters, buffers)
    close(outputs, torch.stack([layer(x) for layer in layers]))


@pytest.mark.parametrize("case", [*DENSE, *CONVOLUTIONS], ids=str)
@modes
def test_a_transform_writes_nothing(case, mode):
    layer = case.make(4, 4) if case in DENSE else case.make(4, 4, 2)
    layer.train(mode == "train")
    with torch.no_grad():
        layer.weight.mul_(3)
    before = layer.weight.detach().clone()
    x = torch.randn(3, 4, *(3,) * getattr(case, "dims", 0))
    F.vmap(layer)(x[:, None])
    F.grad(lambda x: layer(x).sum())(x)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("case", DENSE, ids=str)
@modes
def test_weights_that_are_not_finite_are_seen_inside_a_batch(case, mode):
    layer = case.make(4, 3).train(mode == "train")
    parameters, _ = F.stack_module_state([layer, copy.deepcopy(layer)])
    parameters = {name: value.detach().clone() for name, value in parameters.items()}
    parameters["weight"][1, 0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="must be finite; got NaN"):
        F.vmap(lambda p: F.functional_call(layer, p, (torch.ones(4),)))(parameters)


def test_a_centred_batch_leaves_the_running_mean_alone_under_a_transform():
    layer = taut.nn.Centering(2)
    F.vmap(layer)(torch.randn(3, 5, 2) + 7)
    assert not layer.running_mean.any()


def test_a_layer_of_plain_operations_needs_no_rules():
    class FrobeniusLinear(taut.nn.ConstrainedLinear):
        input_norm = output_norm = taut.L2

        def constrain(self, weight):
            return weight / (weight.norm() * (1 + 1e-6)).clamp(min=1.0)

    layer: Any = FrobeniusLinear(4, 3, dtype=torch.float64)
    x, weights = randn(2, 4), 3 * randn(5, 3, 4)
    for mode in (True, False):
        layer.train(mode)

        def call(weight):
            return F.functional_call(layer, {"weight": weight}, (x,))

        close(F.vmap(call)(weights), torch.stack([call(weight) for weight in weights]))
        close(F.jacfwd(call)(weights[0]), F.jacrev(call)(weights[0]))
