"""Bounds and rescalings by autocorrelation against dense and transfer matrices."""

import itertools

import numpy as np
import pytest
import torch

from taut.linalg import (
    TapPairs,
    block_convolution,
    bound_autocorrelation,
    rescale_channels,
    retract_stack,
)
from taut.linalg.rounding import unit_roundoff


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def largest_transfer(kernel, stride, dilation, points=24):
    """The norm on a circle of `points` blocks, by numpy, phase by phase."""
    out, inside, taps = kernel.shape
    largest = 0.0
    for w in 2 * np.pi * np.arange(points) / points:
        transfer = np.zeros((out, inside * stride), complex)
        for j in range(taps):
            block, phase = divmod(j * dilation, stride)
            transfer[:, phase::stride] += kernel[:, :, j] * np.exp(1j * w * block)
        largest = max(largest, np.linalg.norm(transfer, 2))
    return largest


SHAPES = list(itertools.product([(3, 3), (5, 2), (2, 5), (1, 1)], [1, 2, 3, 4], [1, 2, 3], [1, 2]))


@pytest.mark.parametrize(("channels", "taps", "stride", "dilation"), SHAPES, ids=str)
def test_the_bound_is_above_and_the_rescaled_kernel_below(channels, taps, stride, dilation):
    kernel = randn(*channels, taps)
    bound = bound_autocorrelation(kernel, stride=(stride,), dilation=(dilation,))
    assert largest_transfer(kernel.numpy(), stride, dilation) <= bound * (1 + 1e-12)
    pairs = TapPairs.of(channels, (taps,), (stride,), (dilation,))
    scaled = rescale_channels(kernel[None], pairs)[0]
    assert largest_transfer(scaled.numpy(), stride, dilation) <= 1 + 1e-12
    again = bound_autocorrelation(scaled, stride=(stride,), dilation=(dilation,))
    assert again <= 1 + 1e-9


@pytest.mark.parametrize("coupling", [1.0, 1e-3, 1e-6, 1e-9, 0.0])
@pytest.mark.parametrize("spread", [0.0, 2.0, 8.0])
@pytest.mark.parametrize(("channels", "stride"), [((6, 6), 1), ((3, 8), 2), ((8, 3), 2)], ids=str)
def test_rescaled_kernels_of_nearly_independent_channels_are_proven(
    channels, stride, coupling, spread
):
    # Power iteration needs about 1 / coupling steps to see such a kernel.
    kernel = coupling * randn(*channels, 3)
    least = min(channels)
    kernel[range(least), range(least), 0] += 1
    kernel *= torch.exp(spread * randn(channels[0], 1, 1, seed=1))
    pairs = TapPairs.of(channels, (3,), (stride,), (1,))
    scaled = rescale_channels(kernel[None], pairs)
    bound = bound_autocorrelation(scaled[0], stride=(stride,), dilation=(1,))
    assert largest_transfer(scaled[0].numpy(), stride, 1) <= bound
    assert bound <= 1 + pairs.margin(scaled)


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_the_perron_root(seed):
    kernel = randn(4, 5, 3, seed=seed) * torch.exp(3 * randn(4, 1, 1, seed=seed + 100))
    gram = np.zeros((4, 4))
    for lag in range(-2, 3):
        taps = [(j, j + lag) for j in range(3) if 0 <= j + lag < 3]
        gram += np.abs(sum(kernel[:, :, a].numpy() @ kernel[:, :, b].numpy().T for a, b in taps))
    root = np.sqrt(np.abs(np.linalg.eigvals(gram)).max())
    bound = bound_autocorrelation(kernel, stride=(1,), dilation=(1,))
    assert root * (1 - 1e-13) <= bound <= root * (1 + 1e-11)


def test_products_tap_by_tap_are_the_same(monkeypatch):
    kernel = randn(2, 3, 4, 9)
    for stride in (1, 2):
        pairs = TapPairs.of((3, 4), (3, 3), (stride, stride), (1, 1))
        whole = pairs.correlate(kernel)
        with monkeypatch.context() as patch:
            patch.setattr("taut.linalg.autocorrelation._LONGEST", 1)
            torch.testing.assert_close(pairs.correlate(kernel), whole)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e200])
def test_every_range_of_numbers(scale):
    kernel = randn(3, 2, 3)
    bound = bound_autocorrelation(kernel, stride=(1,), dilation=(1,))
    scaled = bound_autocorrelation(scale * kernel, stride=(1,), dilation=(1,))
    assert scaled == pytest.approx(scale * bound, rel=1e-12)
    assert bound_autocorrelation(0 * kernel, stride=(1,), dilation=(1,)) == 0


def test_block_convolutions_are_orthogonal_at_every_frequency():
    planes = torch.linalg.qr(randn(1, 4, 6, 3)).Q
    start = torch.linalg.qr(randn(1, 1, 1, 6, 6, seed=1)).Q
    kernel = block_convolution(start, planes, [0, 1, 1, 0], [1, 1])
    assert kernel.shape == (1, 3, 3, 6, 6)
    transfer = np.fft.fft2(kernel[0].numpy(), s=(7, 5), axes=(0, 1))
    values = np.linalg.svd(transfer, compute_uv=False)
    np.testing.assert_allclose(values, 1, atol=1e-12)


def test_block_convolutions_of_planes_inside_the_ball_never_pass_one():
    planes = 0.7 * torch.linalg.qr(randn(1, 2, 6, 3)).Q
    start = torch.linalg.qr(randn(1, 1, 6, 6, seed=1)).Q
    kernel = block_convolution(start, planes, [0, 0], [1])
    transfer = np.fft.fft(kernel[0].numpy(), n=64, axis=0)
    assert np.linalg.svd(transfer, compute_uv=False).max() <= 1 + 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 8, 4), (2, 4, 8), (1, 5, 5), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("far", [1e-6, 1e-2, 0.3, 10.0])
def test_stacks_are_pulled_back_to_rounding_and_then_left_alone(dtype, shape, far):
    q = torch.linalg.qr(randn(shape[0], max(shape[1:]), min(shape[1:]))).Q
    q = q if shape[1] >= shape[2] else q.mT
    pulled = retract_stack((q + far * randn(*shape, seed=2)).to(dtype))
    values = np.linalg.svd(pulled.double().numpy(), compute_uv=False)
    np.testing.assert_allclose(values, 1, atol=64 * unit_roundoff(dtype))
    assert retract_stack(pulled) is pulled


def test_stacks_of_zeros_and_of_nothing_have_an_outcome():
    values = np.linalg.svd(retract_stack(torch.zeros(2, 4, 3)).numpy(), compute_uv=False)
    np.testing.assert_allclose(values, 1, atol=1e-6)
    assert retract_stack(torch.zeros(2, 1, 0)).shape == (2, 1, 0)
