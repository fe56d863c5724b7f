"""Distances of patches: those of the definition, and 1-Lipschitz in L-inf at any weight."""

import numpy as np
import pytest
import torch

import taut
from taut.errors import ArgumentError
from taut.nn import LinfDistance2d
from taut.training.linf_distance_training import set_exponent

GEOMETRIES = [(1, 1, 0), (3, 1, 0), (3, 2, 1), (2, 3, 2), (4, 1, 3)]
geometries = pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)


def built(geometry, scale: float = 1.0) -> LinfDistance2d:
    torch.manual_seed(0)
    layer = LinfDistance2d(2, 3, *geometry).double().eval()
    layer.weight.data.mul_(scale)
    return layer


def by_loops(layer: LinfDistance2d, x: np.ndarray) -> np.ndarray:
    """The definition, place by place."""
    k, s, p = layer.kernel_size, layer.stride, layer.padding
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    weight = layer.weight.detach().numpy().reshape(-1, x.shape[1], k, k)
    rows, columns = ((side - k) // s + 1 for side in x.shape[2:])
    y = np.empty((len(x), len(weight), rows, columns))
    for i in range(rows):
        for j in range(columns):
            patch = x[:, None, :, i * s : i * s + k, j * s : j * s + k]
            y[:, :, i, j] = np.abs(patch - weight).max((2, 3, 4))
    return y


@geometries
def test_values_are_those_of_the_definition(geometry):
    layer = built(geometry)
    x = torch.randn(4, 2, 6, 5, dtype=torch.float64)
    np.testing.assert_array_equal(layer(x).detach().numpy(), by_loops(layer, x.numpy()))


@geometries
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_no_two_images_are_pushed_apart(geometry, scale):
    layer = built(geometry, scale)
    x, y = scale * torch.randn(2, 300, 2, 6, 5, dtype=torch.float64)
    for other in (y, x + 1e-3 * (y - x), x + scale * 0.1 * (y - x).sign()):
        apart = (layer(x) - layer(other)).abs().flatten(1).amax(1)
        assert (apart <= (x - other).abs().flatten(1).amax(1) * (1 + 1e-12)).all()


@geometries
@pytest.mark.parametrize("p, q", [("l1", "l1"), ("l2", "l2"), ("linf", "l1"), ("l2", "linf")])
def test_constants_between_all_norms_are_above_sampled_slopes(geometry, p, q):
    layer = built(geometry)
    bound = taut.bound_lipschitz(layer, p, (2, 6, 5), output_norm=q).value
    order = {"l1": 1, "l2": 2, "linf": np.inf}
    x = torch.randn(200, 2, 6, 5, dtype=torch.float64)
    step = 1e-4 * torch.randn(200, 2, 6, 5, dtype=torch.float64)
    with torch.no_grad():
        moved = (layer(x + step) - layer(x)).flatten(1).numpy()
    slopes = np.linalg.norm(moved, order[q], 1) / np.linalg.norm(
        step.flatten(1).numpy(), order[p], 1
    )
    assert slopes.max() <= bound


def test_training_uses_the_exponent_and_evaluation_the_maximum():
    layer = built((3, 1, 1))
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64)
    set_exponent(layer, 8)
    exact = layer(x)
    assert (layer.train()(x) > exact).all() and torch.equal(layer.eval()(x), exact)


@pytest.mark.parametrize(
    "name", ["in_channels", "out_channels", "kernel_size", "stride", "padding"]
)
def test_sizes_are_checked(name):
    with pytest.raises(ArgumentError, match=f"LinfDistance2d: `{name}` must be a whole number"):
        LinfDistance2d(**{"in_channels": 1, "out_channels": 1, "kernel_size": 2, name: -1})
    with pytest.raises(ArgumentError, match="must be \\(batch, 2, height, width\\)"):
        built((3, 1, 0))(torch.zeros(1, 3, 6, 6))
