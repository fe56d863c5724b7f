"""Radii by interval propagation: known ones, ordered ones, and none that an attack crosses."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import taut
from taut.certificates import direct_executor
from taut.errors import ArgumentError
from taut.nn import Centering, LinfDistance, MaxMin, Residual, SortDistance, mlp


def plain() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4)
    )


def images() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU())
    head = [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)]
    return nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Upsample(scale_factor=2), Residual(body), *head
    )


NETWORKS: dict[str, Any] = {
    "relu": plain,
    "convolutions": images,
    "sorting": lambda: mlp([12, 20, 20, 4], constraint="linf", lipschitz=5.0),
    "distances": lambda: nn.Sequential(
        LinfDistance(12, 20),
        Centering(20),
        LinfDistance(20, 20),
        Centering(20),
        LinfDistance(20, 4),
    ),
    "order statistics": lambda: nn.Sequential(SortDistance(12, 20), MaxMin(), SortDistance(20, 4)),
    "sign": lambda: nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 1)),
    "no last layer": lambda: nn.Sequential(
        nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4), nn.Tanh()
    ),
}


def make(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return NETWORKS[name]().eval(), torch.rand(16, 12)


def predict(model: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = model(x)
    return (y[:, 0] > 0).long() if y.shape[1] == 1 else y.argmax(1)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("arithmetic", ["real", "float64", "float32"])
@pytest.mark.parametrize("input_range", [None, (0.0, 1.0)])
def test_no_attack_changes_a_prediction_within_its_radius(name, arithmetic, input_range):
    model, x = make(name)
    if arithmetic != "float32":
        model, x = model.double(), x.double()
    found = taut.certify(
        model, x, "linf", arithmetic=arithmetic, method="interval", input_range=input_range
    )
    assert bool((found.radius > 0).all()) and found.method == "interval propagation"
    run = direct_executor(model, (12,)) if arithmetic == "float32" else model
    assert torch.equal(found.prediction, predict(run, x))
    low, high = input_range or (-math.inf, math.inf)
    reach = found.radius.clamp(max=100)[:, None]
    generator = torch.Generator().manual_seed(1)
    near, share = x.double(), 1 - (1e-5 if arithmetic == "float32" else 1e-9)
    for step in range(60):
        if step % 3:
            near = near.detach().requires_grad_()
            y = model.double()(near)
            lead = y[:, 0] if y.shape[1] == 1 else 2 * y.gather(1, found.prediction[:, None]) - y
            (gradient,) = torch.autograd.grad((lead * torch.ones_like(lead)).sum(), near)
            way = -gradient.sign()
            if y.shape[1] == 1:
                way = way * (2 * found.prediction[:, None] - 1)
        else:
            way = torch.randn(x.shape, generator=generator).sign().double()
        near = (x.double() + way * reach * share).clamp(low, high)
        model.to(x.dtype)
        point = near.detach().to(x.dtype)
        inside = ((point.double() - x.double()).abs() < reach).all(1)
        assert bool((predict(run, point) == found.prediction)[inside].all())
    assert bool(inside.any())


def test_radii_of_a_linear_map_are_the_exact_ones():
    torch.manual_seed(0)
    model, x = nn.Linear(12, 4).double(), torch.randn(9, 12).double()
    margins = taut.certify(model, x, "linf")
    boxes = taut.certify(model, x, "linf", method="interval")
    torch.testing.assert_close(boxes.radius, margins.radius, rtol=2.0**-11, atol=0)
    assert bool((boxes.radius <= margins.radius * (1 + 1e-9)).all())


def test_the_range_of_the_data_is_used():
    """x1 + x2 at (0.3, 0): only x1 can fall; a network that is positive at 0 is so on all the range."""
    model = nn.Linear(2, 1, bias=False)
    model.weight.data.copy_(torch.tensor([[1.0, -1.0]]))
    x = torch.tensor([[0.3, 0.0], [1.0, 0.0]])
    options: dict[str, Any] = {"norm": "linf", "method": "interval"}
    assert taut.certify(model, x, **options).radius.tolist() == pytest.approx([0.15, 0.5], rel=1e-3)
    model.weight.data.copy_(torch.tensor([[1.0, 1.0]]))
    cut = taut.certify(model, x, **options, input_range=(0.0, 1.0))
    assert cut.radius.tolist() == pytest.approx([0.3, 1.0], rel=1e-3)
    assert any("between 0.0 and 1.0" in text for text in cut.hypotheses.statements)
    shifted = nn.Sequential(model, nn.ReLU(), nn.Linear(1, 1))
    shifted[2].weight.data.fill_(1.0)  # type: ignore[union-attr]
    shifted[2].bias.data.fill_(0.1)  # type: ignore[union-attr]
    assert taut.certify(shifted, x, **options, input_range=(0.0, 1.0)).radius.isinf().all()


@pytest.mark.parametrize("name", ["distances", "order statistics"])
def test_boxes_are_never_looser_than_the_constant_of_distance_networks(name):
    model, x = make(name)
    margins = taut.certify(model, x, "linf")
    boxes = taut.certify(model, x, "linf", method="interval")
    assert bool((boxes.radius >= margins.radius * (1 - 2.0**-11)).all())


@pytest.mark.parametrize("name", NETWORKS)
def test_best_takes_the_larger_radius_of_each_input(name):
    model, x = make(name)
    radii = {
        method: taut.certify(model, x, "linf", method=method, input_range=(0.0, 1.0))
        for method in ("lipschitz", "interval", "best")
    }
    larger = torch.maximum(radii["lipschitz"].radius, radii["interval"].radius)
    # Above a known radius bisection starts only where it gains more than a 64th.
    assert bool((radii["best"].radius >= larger * (1 - 2.0**-6)).all())
    assert bool((radii["best"].radius >= radii["lipschitz"].radius).all())
    assert radii["best"].method == f"{radii['lipschitz'].method} or interval propagation"


def test_margins_as_linear_maps_prove_more_than_single_outputs():
    """Two outputs that move together: their difference hardly moves."""
    model = nn.Sequential(nn.ReLU(), nn.Linear(2, 2, bias=False))
    model[1].weight.data.copy_(torch.tensor([[5.0, 1.0], [5.0, -1.0]]))  # type: ignore[union-attr]
    found = taut.certify(model, torch.tensor([[1.0, 0.5]]), "linf", method="interval")
    assert found.radius.item() == pytest.approx(0.5, rel=1e-3)


def test_inputs_that_are_no_numbers_have_radius_zero_and_spoil_no_other():
    model, x = make("relu")
    x[3, 2], x[5, 0] = math.nan, math.inf
    found = taut.certify(model, x, "linf", method="interval")
    others = [row for row in range(16) if row not in (3, 5)]
    assert found.radius[[3, 5]].tolist() == [0, 0]
    alone = taut.certify(model, x[others], "linf", method="interval")
    assert torch.equal(found.radius[others], alone.radius)
    assert len(taut.certify(model, x[:0], "linf", method="best")) == 0


def test_what_cannot_be_proven_by_boxes_is_refused():
    model, x = make("relu")
    with pytest.raises(ArgumentError, match="'lipschitz' for norms other than linf"):
        taut.certify(model, x, "l2", method="interval")
    with pytest.raises(ArgumentError, match="`method`"):
        taut.certify(model, x, "linf", method="boxes")  # type: ignore[arg-type]
    for wrong in ((0.5, 1.0), (1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)):
        with pytest.raises(ArgumentError, match="with all of `x` between"):
            taut.certify(model, x, "linf", method="interval", input_range=wrong)
