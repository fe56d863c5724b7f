"""The page "Certificates in L-inf": what rows in the l1 ball cannot express, and what distances can."""

import pytest
import torch
from torch import nn

from taut.nn import GroupSort, LinfDistance, LinfLinear


def slopes(model: nn.Module, a: torch.Tensor) -> torch.Tensor:
    """One-sided derivatives at `a` along every coordinate: exact, as the maps are piecewise linear."""
    step = 2.0**-30
    with torch.no_grad():
        return (model(a + step * torch.eye(a.shape[-1], dtype=a.dtype)) - model(a[None])) / step


def network(activation, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = [LinfLinear(16, 24)]
    for _ in range(depth):
        layers += [activation(), LinfLinear(24, 24)]
    return nn.Sequential(*layers).double().eval()


@pytest.mark.parametrize(
    "activation, k",
    [(lambda: GroupSort(2), 2), (lambda: GroupSort(4), 4), (nn.ReLU, 1), (nn.Tanh, 1)],
    ids=["maxmin", "groupsort4", "relu", "tanh"],
)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slopes_along_single_coordinates_add_up_to_a_power_of_the_group_size(activation, k, depth):
    for seed in range(20):
        torch.manual_seed(seed)
        model = network(activation, depth)
        if seed % 2:  # equal entries, where sorted ones have several slopes
            for layer in model:
                if isinstance(layer, LinfLinear):
                    layer.bias.data.zero_()  # type: ignore[union-attr]
        a = torch.zeros(16).double() if seed % 2 else torch.randn(16).double()
        assert slopes(model, a).abs().sum(0).max() <= k**depth * (1 + 1e-6)


def test_max_min_reaches_the_bound():
    """The tree of maxima: with three layers, the slopes along eight coordinates are 1."""
    layers: list[nn.Module] = []
    for width in (8, 4, 2):
        sort, select = GroupSort(2), nn.Linear(width, width // 2, bias=False).double()
        larger = sort(torch.randn(1000, width)).mean(0).topk(width // 2).indices
        select.weight.data = torch.eye(width, dtype=torch.float64)[larger]
        layers += [sort, select]
    model = nn.Sequential(*layers)
    x = torch.randn(100, 8, dtype=torch.float64)
    assert torch.equal(model(x)[:, 0], x.amax(1))
    assert slopes(model, torch.zeros(8).double()).sum() == pytest.approx(8, rel=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 7])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_two_layers_of_distances_interpolate_every_lipschitz_sample(dim, count):
    torch.manual_seed(0)
    points = torch.randn(count, dim, dtype=torch.float64)
    apart = (points[:, None] - points).abs().amax(-1)
    # The infimum of cones through arbitrary values is the largest 1-Lipschitz function below them.
    values = (3 * torch.randn(count, dtype=torch.float64) + apart).amin(1)
    first, second = LinfDistance(dim, count).double(), LinfDistance(count, 1).double()
    first.weight.data.copy_(points)
    second.weight.data.copy_(100 - values)
    found = 100 - second.eval()(first.eval()(points))[:, 0]
    torch.testing.assert_close(found, values, rtol=0, atol=1e-12)
