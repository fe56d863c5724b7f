import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.linalg import estimate_extreme_eigenvalues, even_vector, gram, symmetric_product

SHAPES = [(5, 3), (3, 5), (4, 4), (1, 6), (6, 1), (2, 3, 4), (40, 300), (300, 257), (10, 256)]
# Both ways of multiplying: with and without a graph.
graphs = pytest.mark.parametrize("graph", [False, True])


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


@graphs
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gram_equals_numpy_and_is_symmetric_to_the_bit(shape, dtype, graph):
    a = randn(*shape, dtype=dtype)
    with torch.set_grad_enabled(graph):
        product = gram(a)
    dense = a.double().numpy()
    expected = np.swapaxes(dense, -1, -2) @ dense
    tol = 1e-3 if dtype == torch.float32 else 1e-11
    np.testing.assert_allclose(product.double().numpy(), expected, atol=tol)
    assert product.dtype == dtype
    assert torch.equal(product, product.mT)


@graphs
@pytest.mark.parametrize("n", [1, 5, 127, 256, 300])
def test_the_product_of_polynomials_of_one_matrix(n, graph):
    a = randn(n, n) / math.sqrt(n)
    a = (a + a.mT) / 2
    with torch.set_grad_enabled(graph):
        square = symmetric_product(a, a)
        cube = symmetric_product(square, a)
    np.testing.assert_allclose(square.numpy(), a.numpy() @ a.numpy(), atol=1e-11)
    np.testing.assert_allclose(cube.numpy(), np.linalg.matrix_power(a.numpy(), 3), atol=1e-11)
    assert torch.equal(square, square.mT) and torch.equal(cube, cube.mT)


def test_gram_is_differentiable():
    assert torch.autograd.gradcheck(gram, randn(4, 3).requires_grad_())


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_even_vector_is_a_fixed_unit_vector_without_a_pattern(n):
    vector = even_vector(n, torch.empty(0, dtype=torch.float64))
    assert vector.norm().item() == pytest.approx(1, abs=1e-14)
    assert torch.equal(vector, even_vector(n, torch.empty(0, dtype=torch.float64)))
    assert vector.all()
    assert len(vector.unique()) == n
    assert even_vector(n, torch.empty(0)).dtype == torch.float32


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
def test_estimates_lie_inside_the_true_spectrum(n, num_steps, seed, low_rank):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(n, max(1, n // 4 if low_rank else n), dtype=torch.float64, generator=generator)
    symmetric = a @ a.mT - torch.eye(n, dtype=torch.float64)
    low, high = estimate_extreme_eigenvalues(symmetric, num_steps)
    true = np.linalg.eigvalsh(symmetric.numpy())
    slack = 1e-11 * np.abs(true).max()
    assert true[0] - slack <= low <= high + slack
    assert high <= true[-1] + slack
    if n <= num_steps:
        np.testing.assert_allclose([low, high], [true[0], true[-1]], atol=1e-10)


def test_estimates_are_good_for_spectra_without_outliers():
    values = torch.linspace(-1, 1, 200, dtype=torch.float64)
    q = torch.linalg.qr(randn(200, 200)).Q
    low, high = estimate_extreme_eigenvalues((q * values) @ q.mT)
    assert low <= -0.85 and high >= 0.85


@pytest.mark.parametrize("n", [4, 30])
@pytest.mark.parametrize("matrix", ["zero", "identity", "outlier"])
def test_estimates_survive_invariant_subspaces(n, matrix):
    symmetric = {
        "zero": torch.zeros(n, n),
        "identity": torch.eye(n),
        "outlier": torch.diag(torch.tensor([7.0] + [0.0] * (n - 1))),
    }[matrix]
    low, high = estimate_extreme_eigenvalues(symmetric)
    expected = {"zero": (0, 0), "identity": (1, 1), "outlier": (0, 7)}[matrix]
    assert (low, high) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("n", [4, 30])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_estimates_of_a_matrix_that_is_not_finite_are_nan(n, value):
    symmetric = torch.eye(n)
    symmetric[0, 0] = value
    assert all(math.isnan(end) for end in estimate_extreme_eigenvalues(symmetric))
