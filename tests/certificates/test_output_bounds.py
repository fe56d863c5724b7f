"""`bound_output` against extremes that are known."""

import pytest
import torch
from torch import nn

import taut
from taut.certificates import bound_output
from taut.errors import ArgumentError, NoRuleError
from taut.nn import mlp

DUAL = {"l1": torch.inf, "l2": 2, "linf": 1}


@pytest.mark.parametrize("norm", list(DUAL))
def test_of_a_linear_map_the_ends_are_reached(norm):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(1, 5, generator=generator, dtype=torch.float64)
    model = nn.Linear(5, 1).double()
    model.weight.data.copy_(weight)
    x = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    radius = torch.rand(7, generator=generator, dtype=torch.float64)
    value = model(x).detach()[:, 0]
    reach = torch.linalg.vector_norm(weight, DUAL[norm]) * radius
    low, high = bound_output(model, x, radius, norm, batch_size=3)
    assert (low <= value - reach).all() and (high >= value + reach).all()
    torch.testing.assert_close(low, value - reach, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(high, value + reach, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("norm", "constraint"), [("l2", "orthonormal"), ("linf", "linf")])
def test_ascent_does_not_leave_the_interval(norm, constraint):
    torch.manual_seed(0)
    model = mlp([4, 16, 16, 1], "maxmin", constraint).double().eval()
    x = torch.randn(6, 4, dtype=torch.float64)
    radius = torch.linspace(0, 2, 6, dtype=torch.float64)
    low, high = bound_output(model, x, radius, norm)
    for sign, end in ((1.0, high), (-1.0, low)):
        far = x.clone()
        for _ in range(30):
            far.requires_grad_()
            (gradient,) = torch.autograd.grad(sign * model(far).sum(), far)
            if norm == "linf":
                far = x + radius[:, None] * gradient.sign()
            else:
                far = x + radius[:, None] * nn.functional.normalize(gradient, dim=1)
            far = far.detach()
            reached = model(far).detach()[:, 0]
            assert (sign * reached <= sign * end).all()


class Forward(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: x * torch.relu(x),
        lambda x: torch.tanh(x) * torch.sigmoid(x),
        lambda x: (x + 1) / (x.abs() + 0.01),
        lambda x: torch.rsub(x, 2.0, alpha=-3),
    ],
)
def test_boxes_refuse_what_has_no_constant(function):
    with pytest.raises(NoRuleError):
        taut.bound_outputs(Forward(function), -torch.ones(1, 2), 3 * torch.ones(1, 2))


def test_boxes_of_activations_that_fall_hold_every_output():
    model = torch.nn.Sequential(torch.nn.ELU(-2.0))
    low, high = taut.bound_outputs(model, torch.tensor([[-4.0]]), torch.tensor([[1.0]]))
    outputs = model(torch.linspace(-4, 1, 1001)[:, None]).double()
    assert low <= outputs.min() and outputs.max() <= high


def test_what_is_no_box_is_refused():
    model = torch.nn.Linear(2, 1)
    for lower, upper in ((torch.tensor(0.0), torch.tensor(1.0)), (torch.zeros(1, 2).long(),) * 2):
        with pytest.raises(ArgumentError, match="batches .* of finite floating-point"):
            taut.bound_outputs(model, lower, upper)
    for shape in (3, (-3,), (3.0,)):
        with pytest.raises(ArgumentError, match="`input_shape` must be the positive sizes"):
            taut.bound_lipschitz(model, input_shape=shape)
