"""Derivatives of networks against dense Jacobians and finite differences."""

import numpy as np
import pytest
import torch
from torch import nn

from taut.evaluation import input_gradients, jacobian_norms, jacobian_singular_values
from taut.norms import L1, L2, LINF


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def dense(model, row):
    found = torch.autograd.functional.jacobian(model, row)
    assert isinstance(found, torch.Tensor)
    return found.numpy()


def test_singular_values_are_those_of_the_dense_jacobian(model):
    x = torch.randn(4, 5, dtype=torch.float64)
    for row, values in zip(x, jacobian_singular_values(model, x).numpy(), strict=True):
        np.testing.assert_allclose(values, np.linalg.svd(dense(model, row), compute_uv=False))


@pytest.mark.parametrize(("norm", "order"), [(L1, 1), (L2, 2), (LINF, np.inf)])
def test_norms_are_operator_norms_of_the_dense_jacobian(model, norm, order):
    x = torch.randn(4, 5, dtype=torch.float64)
    expected = [np.linalg.norm(dense(model, row), order) for row in x]
    np.testing.assert_allclose(jacobian_norms(model, x, norm).numpy(), expected)


def test_input_gradients_are_differences_of_the_margin(model):
    x = torch.randn(2, 5, dtype=torch.float64)

    def margin(row):
        first, second = model(row).topk(2).values
        return (first - second).item()

    step = torch.zeros(5, dtype=torch.float64)
    step[3] = 1e-6
    slope = (margin(x[1] + step) - margin(x[1] - step)) / 2e-6
    assert input_gradients(model, x)[1, 3].item() == pytest.approx(slope, rel=1e-6)
