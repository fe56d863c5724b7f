import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support import randn
from taut import functional
from taut.errors import ArgumentError


@pytest.mark.parametrize("size", range(2, 11))
def test_sorting_networks_sort_every_sequence_of_zeros_and_ones(size):
    # By the 0-1 principle a network that sorts these sorts everything.
    x = torch.tensor(list(itertools.product([0.0, 1.0], repeat=size)))
    assert torch.equal(functional.group_sort(x, size), x.sort(-1).values)


@pytest.mark.parametrize("size", range(11, 17))
def test_larger_sorting_networks_sort_too(size):
    x = torch.randint(0, 2, (4000, size)).float()
    assert torch.equal(functional.group_sort(x, size), x.sort(-1).values)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 10**6))
def test_group_sort_sorts_channels_that_are_spread_out(size, groups, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, size * groups, generator=generator)
    y = functional.group_sort(x, size)
    for i in range(groups):
        np.testing.assert_array_equal(y[:, i::groups].numpy(), np.sort(x[:, i::groups].numpy()))


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 10**6))
def test_maxout_takes_the_largest_of_each_group(size, groups, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, size * groups, generator=generator)
    y = functional.maxout(x, size)
    assert y.shape == (3, groups)
    for i in range(groups):
        np.testing.assert_array_equal(y[:, i].numpy(), x[:, i::groups].numpy().max(1))


def test_max_min_keeps_strided_memory_right():
    x = randn(4, 6, 5)
    for view in (x.transpose(0, 1), x.permute(2, 1, 0), x[:, ::3], x.expand(4, 6, 5).mT):
        for dim in range(3):
            if view.shape[dim] % 2 == 0:
                a, b = np.split(view.numpy(), 2, axis=dim)
                expected = np.concatenate([np.maximum(a, b), np.minimum(a, b)], axis=dim)
                np.testing.assert_array_equal(functional.max_min(view, dim).numpy(), expected)


def test_channels_last_images():
    x = randn(2, 8, 3, 3).to(memory_format=torch.channels_last)
    y = functional.max_min(x, 1)
    assert torch.equal(y, functional.max_min(x.contiguous(), 1))
    z = functional.group_sort(x, 4, 1)
    assert torch.equal(z, functional.group_sort(x.contiguous(), 4, 1))


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 8, 16, 20]))
def test_gradients_are_carried_along_with_the_values(seed, size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 2 * size, dtype=torch.float64, generator=generator).requires_grad_()
    g = torch.randn(4, 2 * size, dtype=torch.float64, generator=generator)
    functional.group_sort(x, size).backward(g)
    assert x.grad is not None
    # Tag each value with its gradient: sorting the values must sort the tags along.
    for i in range(2):
        values, tags = x.detach()[:, i::2], x.grad[:, i::2]
        order = values.argsort(1)
        torch.testing.assert_close(tags.gather(1, order), g[:, i::2])


def test_the_input_is_left_alone():
    x = randn(3, 8)
    before = x.clone()
    functional.max_min(x)
    functional.group_sort(x, 4)
    functional.full_sort(x)
    functional.maxout(x, 2)
    functional.householder(x, torch.tensor(1.0).double())
    assert torch.equal(x, before)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 2, math.pi, 5.0, -1.0])
def test_householder_is_continuous_across_its_line(angle):
    # Points of the line itself are fixed; both sides agree there.
    t = angle / 2
    line = randn(50, 1) * torch.tensor([[math.cos(t), math.sin(t)]], dtype=torch.float64)
    normal = torch.tensor([[math.sin(t), -math.cos(t)]], dtype=torch.float64)
    given_angle = torch.tensor(angle, dtype=torch.float64)
    for offset in (1e-9, 0.0, -1e-9):
        y = functional.householder(line + offset * normal, given_angle)
        torch.testing.assert_close(y, line, rtol=0, atol=1e-8)


def test_householder_takes_an_angle_for_each_pair_along_any_dimension():
    angles = randn(3)
    x = randn(6, 4)
    y = functional.householder(x, angles, 0)
    for pair in range(3):
        one = functional.householder(x[pair::3], angles[pair], 0)
        torch.testing.assert_close(y[pair::3], one)
    torch.testing.assert_close(functional.householder(x.mT, angles, -1), y.mT)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: functional.group_sort(x, 4), "got group_size=4, channels=6. Use 2, 3 or 6."),
        (lambda x: functional.group_sort(x[:, :1], 2), "Use another number of channels."),
        (lambda x: functional.max_min(x[:, :5]), "MaxMin: `group_size` must divide .*even number"),
        (lambda x: functional.maxout(x, 0), "Maxout: `group_size` must be a whole number >= 1"),
    ],
)
def test_errors_teach(call, text):
    with pytest.raises(ArgumentError, match=text):
        call(randn(2, 6))
