"""Radii in units of tolerances, one for each entry of an input."""

import numpy as np
import pytest
import torch
from torch import nn

import taut
from taut.errors import ArgumentError, NoRuleError

UNITS = torch.tensor([0.001, 200.0, 3.0, 0.5], dtype=torch.float64)


def _network(seed: int = 0, constraint: str = "linf") -> nn.Sequential:
    """A network on columns of very different units: 1-Lipschitz in them, divided by `UNITS`."""
    torch.manual_seed(seed)
    net = taut.nn.mlp([4, 16, 16, 3], constraint=constraint)
    first = nn.Linear(4, 4).double()
    first.weight.data.copy_((1 / UNITS).diag())
    first.bias.data.zero_()
    return nn.Sequential(first, *taut.fold(net.double()))


def _rows(count: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 5 * UNITS * torch.randn(count, 4, dtype=torch.float64, generator=generator)


def test_a_linear_classifier_has_the_radius_of_the_formula():
    weight = torch.tensor([[3.0, -40.0, 0.5], [-1.0, 20.0, 0.25]], dtype=torch.float64)
    tolerance = torch.tensor([0.1, 0.01, 2.0], dtype=torch.float64)
    net = nn.Linear(3, 2, bias=False).double()
    net.weight.data.copy_(weight)
    x = torch.tensor([[1.0, 0.03, 4.0], [-2.0, 0.5, 1.0]], dtype=torch.float64)
    lead = ((weight[0] - weight[1]) * x).sum(1).abs()
    for norm, dual in (("linf", 1), ("l2", 2), ("l1", np.inf)):
        cost = float(np.linalg.norm(((weight[0] - weight[1]) * tolerance).numpy(), dual))
        found = taut.certify(net, x, norm, tolerance=tolerance).radius
        exact = lead / cost
        assert (found <= exact).all()
        assert torch.allclose(found, exact, rtol=1e-9)


def test_columns_that_cannot_change_do_not_count():
    weight = torch.tensor([[1.0, 1000.0], [-1.0, -1000.0]], dtype=torch.float64)
    net = nn.Linear(2, 2, bias=False).double()
    net.weight.data.copy_(weight)
    x = torch.tensor([[3.0, 0.002]], dtype=torch.float64)
    assert taut.certify(net, x, "linf", tolerance=[1.0, 1.0]).radius.item() < 0.01
    fixed = taut.certify(net, x, "linf", tolerance=[1.0, 0.0])
    assert fixed.radius.item() == pytest.approx(5.0, rel=1e-6)
    assert fixed.radius.item() < 5.0
    assert "do not change" in str(fixed.hypotheses)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_columns_that_cannot_change_stand_beside_any_unit(unit):
    net = nn.Linear(2, 1, bias=False).double()
    net.weight.data.copy_(torch.tensor([[1.0, 1.0]]))
    x = torch.tensor([[3 * unit, unit]], dtype=torch.float64)
    radius = taut.certify(net, x, "linf", tolerance=[unit, 0.0]).radius.item()
    assert 4 * (1 - 1e-6) < radius < 4


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("arithmetic", ["real", "float64"])
def test_nothing_within_the_tolerances_changes_the_prediction(norm, arithmetic):
    net = _network(constraint="linf" if norm == "linf" else "orthonormal")
    x = _rows(40)
    tolerance = UNITS * torch.tensor([1.0, 0.5, 0.0, 2.0])
    found = taut.certify(net, x, norm, arithmetic=arithmetic, tolerance=tolerance)
    assert found.radius.median() > 0.1
    generator = torch.Generator().manual_seed(2)
    for _ in range(100):
        step = torch.randn(x.shape, dtype=torch.float64, generator=generator)
        step = step.sign() if norm == "linf" else step / step.norm(dim=1, keepdim=True)
        moved = x + 0.999999 * found.radius[:, None] * step * tolerance
        assert torch.equal(
            net(moved).argmax(1)[found.radius > 0], found.prediction[found.radius > 0]
        )
    # Along the gradient of the smallest lead, the steepest way out.
    x.requires_grad_(True)
    outputs = net(x)
    best = outputs.gather(1, found.prediction[:, None])
    rival = outputs.scatter(1, found.prediction[:, None], -torch.inf).amax(1, keepdim=True)
    (slope,) = torch.autograd.grad((best - rival).sum(), x)
    step = slope * tolerance
    step = step.sign() if norm == "linf" else step / step.norm(dim=1, keepdim=True)
    moved = x.detach() - 0.999999 * found.radius[:, None] * step * tolerance
    held = found.radius > 0
    assert torch.equal(net(moved).argmax(1)[held], found.prediction[held])


def test_the_units_of_the_network_cancel():
    """In units that the network was made for, the radius is that of the network without them."""
    net, x = _network(), _rows(20)
    plain = taut.certify(nn.Sequential(*list(net)[1:]), x / UNITS, "linf").radius
    scaled = taut.certify(net, x, "linf", tolerance=UNITS).radius
    assert torch.allclose(plain, scaled, rtol=1e-9)
    assert scaled.median() > 100 * taut.certify(net, x, "linf").radius.median()


def test_a_first_layer_that_is_not_dense_is_followed_too():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2).double()

        def forward(self, x):
            return self.inner(torch.tanh(x))

    net, x = Wrapped(), torch.tensor([[0.5, -0.3]], dtype=torch.float64)
    wide = taut.certify(net, x, "linf", tolerance=[1.0, 0.25]).radius
    assert wide >= taut.certify(net, x, "linf").radius * (1 - 1e-9)


@pytest.mark.parametrize("wrong", [[-1.0, 1.0], [0.0, 0.0], [torch.inf, 1.0], [1.0, 1.0, 1.0]])
def test_what_has_no_proof_is_refused(wrong):
    net, x = nn.Linear(2, 2), torch.zeros(1, 2)
    with pytest.raises(ArgumentError, match="tolerance"):
        taut.certify(net, x, "linf", tolerance=wrong)


def test_float32_and_images_are_refused():
    with pytest.raises(ArgumentError, match="real and float64"):
        taut.certify(
            nn.Linear(2, 2), torch.zeros(1, 2), "linf", arithmetic="float32", tolerance=1.0
        )
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    with pytest.raises(NoRuleError, match="dense layer first"):
        taut.certify(images, torch.zeros(1, 1, 3, 3), "linf", tolerance=1.0)


def test_what_overflows_has_no_radius():
    net = nn.Linear(2, 2).double()
    with pytest.raises(ArgumentError, match="from 1e-150 to 1e150"):
        taut.certify(net, torch.ones(1, 2).double(), "linf", tolerance=[1e-320, 1.0])
    far = torch.tensor([[1e300, 1.0]], dtype=torch.float64)
    assert taut.certify(net, far, "linf", tolerance=[1e-20, 1.0]).radius == 0


def test_products_that_underflow_are_refused():
    """Weights of 1e-200 and 1e200 in a row: a tolerance of 1e-130 would hide the input."""
    first, second, last = (nn.Linear(2, 2).double() for _ in range(3))
    for layer, size in ((first, 1e-200), (second, 1e100), (last, 1e100)):
        layer.weight.data = size * torch.eye(2, dtype=torch.float64)
        layer.bias.data.zero_()
    last.bias.data[0] = 1.0
    net, x = nn.Sequential(first, second, last), torch.zeros(1, 2, dtype=torch.float64)
    assert taut.certify(net, x, "linf", tolerance=1e-100).radius <= 0.5e100
    with pytest.raises(ArgumentError, match="underflow"):
        taut.certify(net, x, "linf", tolerance=1e-130)
