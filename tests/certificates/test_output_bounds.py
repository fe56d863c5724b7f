"""`bound_output` against extremes that are known."""

import pytest
import torch
from torch import nn

from taut.certificates import bound_output
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
