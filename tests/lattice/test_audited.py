"""The audit, which knows nothing of how these networks were made, proves their constant."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from taut import lattice
from taut.audit import bound_lipschitz
from taut.nn import LinfLinear, MaxMin, MixedLinear

NORMS = {"l1": 1, "l2": 2, "linf": np.inf}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", NORMS)
def test_interpolation(p, dtype):
    points = torch.rand(64, 3, dtype=dtype)
    centre = points.mean(0)
    values = torch.as_tensor(np.linalg.norm((points - centre).numpy(), NORMS[p], axis=1))
    network = lattice.interpolate(points, values, p)
    assert bound_lipschitz(network, norm=p).value <= 1


@pytest.mark.parametrize("p", NORMS)
def test_extrema_of_networks(p):
    def draw(*widths):
        layers = [MixedLinear(3, widths[0], p, dtype=torch.float64)]
        for before, after in pairwise(widths):
            layers += [MaxMin(), LinfLinear(before, after, dtype=torch.float64)]
        for layer in layers[::2]:
            nn.init.normal_(layer.weight)
        return nn.Sequential(*layers)

    networks = [draw(2), draw(4, 2), draw(8, 6, 2)]
    for combined in (lattice.maximum_of(networks), lattice.minimum(*networks[1:])):
        assert bound_lipschitz(combined, norm=p, output_norm="linf").value <= 1 + 1e-14


@pytest.mark.parametrize(
    ("network", "norms"),
    [
        (lattice.relu_from_max_min(4), ("l1", "l2", "linf")),
        (lattice.leaky_relu_from_max_min(4, 0.3), ("linf",)),
        (lattice.concatenated_relu_from_max_min(4), ("l1", "l2", "linf")),
        (lattice.maxout_from_group_sort(6, 3), ("l1", "l2", "linf")),
        (lattice.abs_from_max_min(4, dtype=torch.float64), ("l2",)),
        (lattice.abs_from_max_min(4, "linf"), ("linf",)),
        (lattice.max_min_from_abs(4, 2.0, torch.float64), ("l2",)),
        (lattice.max_min_from_full_sort(4, 2.0), ("l1", "l2", "linf")),
        (lattice.full_sort_from_max_min(6), ("l1", "l2", "linf")),
        (lattice.full_sort_from_max_min(5), ("linf",)),
    ],
)
def test_activations(network, norms):
    channels = next(layer.in_features for layer in network if isinstance(layer, nn.Linear))
    for norm in norms:
        bound = bound_lipschitz(network, norm=norm, input_shape=(channels,))
        assert bound.value <= 1 + 1e-12
