"""Interval propagation through random networks of every family, against a hundred thousand points each."""

import pytest
import torch
from torch import nn

import taut
from taut import nn as tnn
from taut.errors import DtypeError, NoRuleError

IMAGE, VECTOR = (2, 6, 6), (9,)


def normalised() -> nn.Sequential:
    """As interval training makes them, with factors of either sign."""
    norm = nn.BatchNorm1d(20)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm(3 * torch.randn(50, 20) + 1)
    return nn.Sequential(
        tnn.Clip(-0.4, 0.8), nn.Linear(9, 20, bias=False), norm, nn.ReLU(), nn.Linear(20, 5)
    )


FAMILIES = {
    "dense": (lambda: nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 5)), VECTOR),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, 2, 1), nn.LeakyReLU(), nn.Conv2d(4, 3, 2), nn.Flatten()
        ),
        IMAGE,
    ),
    "normalisation": (normalised, VECTOR),
    "pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()
        ),
        IMAGE,
    ),
    "residual": (
        lambda: nn.Sequential(
            tnn.Residual(nn.Sequential(nn.Linear(9, 9), nn.ReLU()), "add"), nn.Linear(9, 4)
        ),
        VECTOR,
    ),
    "sorting": (
        lambda: nn.Sequential(
            tnn.LinfLinear(9, 12), tnn.GroupSort(4), nn.Linear(12, 8), tnn.FullSort()
        ),
        VECTOR,
    ),
    "distances": (
        lambda: nn.Sequential(
            tnn.LinfDistance(9, 12), tnn.Centering(12), tnn.SortDistance(12, 6, 0.6)
        ),
        VECTOR,
    ),
    "patches": (
        lambda: nn.Sequential(
            tnn.Clip(-0.4, 0.8), tnn.LinfDistance2d(2, 4, 3, 2, 1), nn.Conv2d(4, 2, 3), nn.Flatten()
        ),
        IMAGE,
    ),
}
POINTS, BOXES = 10_000, 10


@pytest.mark.parametrize("arithmetic", ["real", "float32"])
@pytest.mark.parametrize("name", FAMILIES)
def test_no_output_leaves_its_box(name, arithmetic):
    make, shape = FAMILIES[name]
    torch.manual_seed(0)
    model = make().eval()
    centre = torch.randn(BOXES, *shape)
    radius = torch.rand(BOXES, *shape) * torch.logspace(-4, 0.3, BOXES).view(-1, *(1,) * len(shape))
    lower, upper = centre - radius, centre + radius
    low, high = taut.bound_outputs(model, lower, upper, arithmetic)
    run = model if arithmetic == "float32" else model.double()
    seen = torch.stack([torch.full_like(low, torch.inf), torch.full_like(low, -torch.inf)])
    for start in range(0, POINTS, 1000):
        way = torch.rand(1000, *centre.shape)
        # Points inside, corners, and faces: half of the coordinates at an end.
        way = (way, way.round(), torch.where(torch.rand_like(way) < 0.5, way, way.round()))[
            start // 1000 % 3
        ]
        x = torch.minimum(torch.maximum(lower + way * (upper - lower), lower), upper)
        x = x if arithmetic == "float32" else x.double()
        with torch.no_grad():
            y = run(x.flatten(0, 1)).double().view(1000, BOXES, -1)
        seen = torch.stack([torch.minimum(seen[0], y.amin(0)), torch.maximum(seen[1], y.amax(0))])
    assert (low <= seen[0]).all() and (seen[1] <= high).all()
    # The boxes are no excuse: the narrowest is filled to a good part by what was seen.
    filled = (seen[1] - seen[0])[0] / (high - low)[0]
    assert filled.max() > 0.3


class Rescaled(nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.number


@pytest.mark.parametrize("number", [1e39, 1e-46, 2**24 + 1])
def test_numbers_that_float32_changes_are_refused(number):
    """1e39 times anything is infinite in float32."""
    x = torch.tensor([[1e-2]])
    with pytest.raises(NoRuleError, match="hardly fits float32"):
        taut.bound_outputs(Rescaled(number), x, x, arithmetic="float32")
    low, high = taut.bound_outputs(Rescaled(number), x, x)
    assert low <= x.double() * number <= high


def test_models_that_are_not_float32_are_not_executed_in_it():
    """Rounding stored points to float32 is no rounding of an execution."""
    model, x = taut.nn.LinfDistance(6, 4, dtype=torch.float64), torch.zeros(1, 6)
    with pytest.raises(DtypeError, match="that of the model"):
        taut.bound_outputs(model, x, x, arithmetic="float32")
    low, high = taut.bound_outputs(model.float(), x, x, arithmetic="float32")
    assert ((low <= model(x)) & (model(x) <= high)).all()


class Summed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, 2, 1, divisor_override=-3)


def test_a_negative_divisor_turns_no_box_over():
    model, x = Summed(), torch.randn(1, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    for reach in (0.0, 1.0):
        low, high = taut.bound_outputs(model, x - reach, x + reach)
        for point in (x - reach, x, x + reach):
            value = model(point.double())
            assert ((low <= value) & (value <= high)).all()
