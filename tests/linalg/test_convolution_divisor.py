"""The quick bound of the norm of a kernel, against dense operators and finite differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut.linalg import bound_kernel_norm, norm_on_grid

CONVOLVE = {1: nn.functional.conv1d, 2: nn.functional.conv2d, 3: nn.functional.conv3d}


def dense_norm(kernel, size, **options):
    """The norm of the map on inputs of one size with zeros beyond, by numpy."""
    dims = kernel.dim() - 2
    inside = kernel.shape[1] * options.get("groups", 1)
    reach = [d * (k - 1) for d, k in zip(options["dilation"], kernel.shape[2:], strict=True)]
    n = inside * size**dims
    basis = torch.eye(n, dtype=torch.float64).view(n, inside, *(size,) * dims)
    images = CONVOLVE[dims](basis, kernel.double(), padding=tuple(reach), **options)
    return float(np.linalg.norm(images.flatten(1).numpy(), 2))


@settings(max_examples=60, deadline=None)
@given(
    dims=st.integers(1, 2),
    channels=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    groups=st.integers(1, 2),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    exponent=st.integers(-30, 30),
    seed=st.integers(0, 10**6),
)
def test_no_dense_operator_passes_the_bound(
    dims, channels, groups, taps, stride, dilation, dtype, exponent, seed
):
    draw = torch.Generator().manual_seed(seed)
    kernel = torch.randn(channels[0] * groups, channels[1], *(taps,) * dims, generator=draw)
    kernel = (kernel * 10.0**exponent).to(dtype)
    options = {"stride": (stride,) * dims, "dilation": (dilation,) * dims, "groups": groups}
    bound, gradient = bound_kernel_norm(kernel, **options)
    truth = dense_norm(kernel, 7 if dims == 1 else 5, **options)
    assert truth <= bound
    assert float((gradient * kernel.double()).sum()) == pytest.approx(bound, rel=1e-6)
    assert float(norm_on_grid(kernel.double(), **options)) == pytest.approx(bound, rel=1e-2)


@pytest.mark.parametrize(
    "shape", [(64, 64, 3, 3), (8, 3, 5, 5), (4, 4, 3), (300, 2, 3, 3)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_bound_is_within_a_tenth_of_the_supremum(shape, dtype):
    kernel = torch.randn(shape, dtype=dtype)
    steps = {"stride": (1,) * (len(shape) - 2), "dilation": (1,) * (len(shape) - 2)}
    bound, _ = bound_kernel_norm(kernel, **steps)
    dims = tuple(range(2, len(shape)))
    seen = torch.fft.fftn(kernel.double(), s=(32,) * len(dims), dim=dims).flatten(2)
    truth = torch.linalg.matrix_norm(seen.permute(2, 0, 1), 2).amax().item()
    assert truth <= bound <= 1.1 * truth


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_is_that_of_the_norm_on_the_grid(stride):
    kernel = torch.randn(6, 4, 3, 3, dtype=torch.float64)
    steps = {"stride": (stride, stride), "dilation": (1, 1), "groups": 2}
    bound, gradient = bound_kernel_norm(kernel, **steps)
    for _ in range(5):
        direction = 1e-6 * torch.randn_like(kernel)
        ends = [norm_on_grid(kernel + sign * direction, **steps) for sign in (1, -1)]
        # The gradient carries the small slack of the bound.
        slack = bound / norm_on_grid(kernel, **steps)
        expected = float((ends[0] - ends[1]) / 2 * slack)
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-10)


def test_zeros_and_a_single_tap():
    steps = {"stride": (1, 1), "dilation": (1, 1)}
    bound, gradient = bound_kernel_norm(torch.zeros(2, 2, 3, 3), **steps)
    assert bound == 0 and not gradient.any()
    bound, _ = bound_kernel_norm(torch.full((1, 1, 1, 1), 3.0), **steps)
    assert 3 <= bound <= 3 * math.sqrt(1.01)
