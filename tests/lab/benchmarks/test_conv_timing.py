"""`taut bench conv` and `taut bench distances` on tiny sizes."""

import numpy as np
import pytest
import torch

from taut_lab.benchmarks import ConvSettings, DistanceSettings, run_conv, run_distances
from taut_lab.benchmarks.timed_distance_kernels import DENSE
from taut_lab.benchmarks.timed_layers import PLAIN_CONV, circle_errors

TINY = ConvSettings(
    shapes=((2, 4, 5), (4, 2, 4)), batch=2, peers=False, rounds=2, min_rounds=1, warmup=1
)


@pytest.fixture(scope="module")
def record():
    return run_conv(TINY)


def test_every_comparison_is_run_and_taut_layers_have_no_excess(record):
    assert [dict(comparison.sizes) for comparison in record.comparisons] == [
        {"in": 2, "out": 4, "side": 5, "batch": 2},
        {"in": 4, "out": 2, "side": 4, "batch": 2},
    ]
    for comparison in record.comparisons:
        assert comparison.kind == "conv" and comparison.ratio(PLAIN_CONV) == 1
        entries = {entry.timing.name: entry for entry in comparison.entries}
        assert entries["taut OrthonormalConv2d"].error <= 1e-6
        for name, entry in entries.items():
            assert entry.timing.failure is None
            assert not name.startswith("taut") or entry.excess <= 1e-6


def test_errors_are_those_of_the_dense_circular_convolution():
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False).double()
    n = 2 * 4 * 4
    with torch.no_grad():
        dense = layer(torch.eye(n).double().view(n, 2, 4, 4)).reshape(n, -1).numpy()
    deviation = np.linalg.svd(dense, compute_uv=False) - 1
    error, excess = circle_errors(layer.weight.detach(), 4)
    assert error == pytest.approx(np.abs(deviation).max())
    assert excess == pytest.approx(deviation.max())
    assert circle_errors(torch.full((1, 1, 3, 3), float("nan")), 4) == (None, None)


def test_every_way_is_timed_for_every_exponent():
    small = {"batch": 5, "width": 7, "exponents": (8, 16)}
    settings = DistanceSettings(**small, rounds=2, min_rounds=1, warmup=1)
    (comparison,) = run_distances(settings).comparisons
    assert comparison.kind == "distances" and comparison.ratio(DENSE) == 1
    names = {entry.timing.name for entry in comparison.entries}
    ways = ("taut, compiled", "taut, in chunks", "torch cdist")
    assert names == {DENSE, *(f"{way}, p = {p}" for way in ways for p in ("8", "16", "inf"))}
    assert all(entry.timing.failure is None for entry in comparison.entries)
