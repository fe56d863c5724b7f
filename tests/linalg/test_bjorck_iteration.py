import math

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from support import randn
from taut.errors import ArgumentError, NotConvergedError
from taut.linalg import SCALINGS, apply_bjorck, bjorck, bound_by_scaling

SHAPES = [(7, 4), (4, 7), (5, 5), (1, 6), (6, 1), (2, 6, 3), (2, 2, 3, 6), (0, 3, 3)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
orders = pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
scalings = pytest.mark.parametrize("scaling", SCALINGS)
matrices = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e3, 1e3, allow_subnormal=False),
)


def scalar_step(s, order):
    """The same series for one singular value, from the binomial series of (1 - q)^(-1/2)."""
    q = 1 - s**2
    return s * sum(abs(scipy.special.binom(-0.5, k)) * q**k for k in range(order + 1))


def norm(weight):
    return np.linalg.norm(weight.numpy(), 2, axis=(-2, -1))


@orders
@shapes
def test_each_step_moves_singular_values_by_the_series(order, shape):
    weight = randn(*shape)
    weight = weight / (1.05 * torch.linalg.matrix_norm(weight, 2, keepdim=True))
    u, s, vh = np.linalg.svd(weight.numpy(), full_matrices=False)
    for num_steps in range(4):
        made = bjorck(weight, order=order, num_steps=num_steps, scaling=None)
        assert made.shape == shape
        np.testing.assert_allclose(made.numpy(), (u * s[..., None, :]) @ vh, atol=1e-12)
        s = scalar_step(s, order)


@orders
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)], ids=str)
def test_converges_to_the_polar_factor(order, shape):
    weight = randn(*shape)
    made = bjorck(weight, order=order, tol=1e-12)
    tall = weight.numpy() if shape[0] >= shape[1] else weight.numpy().T
    expected = scipy.linalg.polar(tall)[0]
    expected = expected if shape[0] >= shape[1] else expected.T
    np.testing.assert_allclose(made.numpy(), expected, atol=1e-10)


def test_higher_orders_need_fewer_steps():
    weight = 0.5 * torch.eye(3, dtype=torch.float64)
    rest = [
        float((1 - bjorck(weight, order=order, num_steps=3, scaling=None).diagonal()).max())
        for order in (1, 2, 3, 4, 5)
    ]
    assert rest == sorted(rest, reverse=True) and rest[0] > rest[-1] >= 0


@settings(max_examples=100)
@given(matrices, st.sampled_from(SCALINGS))
def test_every_scaling_bounds_the_norm(matrix, scaling):
    bound = bound_by_scaling(torch.from_numpy(matrix), scaling)
    assert bound.shape == (1, 1)
    # Squares below 1e-150 of the largest entry may underflow in "gram".
    assert bound.item() * (1 + 1e-13) + 1e-150 >= np.linalg.norm(matrix, 2)


def test_scalings_equal_their_formulas():
    w = randn(5, 3)
    a = w.numpy()
    expected = {
        "max": math.sqrt(15) * np.abs(a).max(),
        "one": math.sqrt(3) * np.linalg.norm(a, 1),
        "inf": math.sqrt(5) * np.linalg.norm(a, np.inf),
        "gram": math.sqrt(np.linalg.norm(a.T @ a, np.inf)),
        "spectral": np.linalg.norm(a, 2),
    }
    assert set(expected) == set(SCALINGS)
    for scaling, value in expected.items():
        assert bound_by_scaling(w, scaling).item() == pytest.approx(value, rel=1e-14)


def test_a_batch_is_scaled_one_by_one():
    w = randn(2, 3, 5, 4)
    for scaling in SCALINGS:
        bounds = bound_by_scaling(w, scaling)
        assert bounds.shape == (2, 3, 1, 1)
        torch.testing.assert_close(bounds[1, 2], bound_by_scaling(w[1, 2], scaling))


@settings(max_examples=100)
@given(
    matrices,
    st.sampled_from(SCALINGS),
    st.integers(1, 5),
    st.integers(0, 5),
    st.sampled_from([1e-300, 1e-20, 1.0, 1e150, 1e300]),
)
def test_norm_stays_at_most_one_after_any_number_of_steps(matrix, scaling, order, num_steps, size):
    weight = torch.from_numpy(matrix * size)
    made = bjorck(weight, order=order, num_steps=num_steps, scaling=scaling)
    assert norm(made) <= 1 + 1e-12


@scalings
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)], ids=str)
def test_the_size_of_a_weight_changes_nothing(scaling, shape):
    weight = randn(*shape)
    made = bjorck(weight, num_steps=3, scaling=scaling)
    torch.testing.assert_close(bjorck(1e100 * weight, num_steps=3, scaling=scaling), made)


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-11])
@orders
def test_tol_is_reached(tol, order):
    q = bjorck(randn(3, 6, 4), order=order, tol=tol)
    rest = np.linalg.norm(np.eye(4) - q.mT.numpy() @ q.numpy(), axis=(-2, -1))
    assert rest.max() <= tol * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("beta", [0.001, 0.1, 0.5])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)], ids=str)
def test_beta_is_the_parseval_step(beta, shape):
    weight = randn(*shape)
    a = weight.numpy()
    made = bjorck(weight, beta=beta, num_steps=1, scaling=None)
    expected = (1 + beta) * a - beta * a @ a.T @ a
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5), (1, 3)], ids=str)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,)], ids=str)
def test_the_matrix_vector_form_equals_the_matrix_form(num_steps, shape, leading):
    weight = randn(*shape)
    weight = weight / bound_by_scaling(weight, "gram")
    x = randn(*leading, shape[1])
    expected = x @ bjorck(weight, num_steps=num_steps, scaling=None).mT
    torch.testing.assert_close(apply_bjorck(weight, x, num_steps), expected, rtol=0, atol=1e-12)


@orders
@scalings
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 3, 2)], ids=str)
def test_gradcheck(order, scaling, shape):
    def function(w):
        return bjorck(w, order=order, num_steps=2, scaling=scaling)

    weight = randn(*shape).requires_grad_()
    assert torch.autograd.gradcheck(function, weight)
    if order == 1 and scaling == "gram":
        assert torch.autograd.gradgradcheck(function, weight)


@scalings
def test_zero_stays_zero_with_finite_derivatives(scaling):
    weight = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    made = bjorck(weight, num_steps=3, scaling=scaling)
    assert not made.any()
    made.sum().backward()
    assert torch.isfinite(weight.grad).all()  # type: ignore[arg-type]


def test_a_tolerance_that_is_not_reached_raises():
    flat = torch.ones(3, 3, dtype=torch.float64)
    with pytest.raises(NotConvergedError, match=r"tol=0.001 within 100 steps.*\(3, 3\).*Use polar"):
        bjorck(flat, tol=1e-3)
    with pytest.raises(NotConvergedError, match="tol is below rounding"):
        bjorck(randn(5, 5), tol=1e-30)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give `num_steps` or `tol`, and only one of them; got num_steps=None, tol=None"),
        ({"num_steps": 1, "tol": 1.0}, "only one of them; got num_steps=1, tol=1.0"),
        ({"order": 0, "num_steps": 1}, "`order` must be a whole number >= 1; got order=0"),
        ({"order": 2, "beta": 0.1, "num_steps": 1}, "Use order=1 for Parseval steps"),
        ({"beta": -1.0, "num_steps": 1}, "`beta` must be finite and positive; got beta=-1.0"),
        ({"num_steps": -1}, "`num_steps` must be a whole number >= 0; got num_steps=-1"),
        ({"num_steps": 1, "scaling": "two"}, "`scaling` must be one of 'max', 'one', 'inf'"),
    ],
)
def test_arguments_are_checked(arguments, text):
    with pytest.raises(ArgumentError, match=text):
        bjorck(torch.eye(2), **arguments)


def test_matrix_vector_arguments_are_checked():
    with pytest.raises(
        ArgumentError, match="apply_bjorck: `num_steps` must be a whole number >= 0"
    ):
        apply_bjorck(torch.eye(2), torch.ones(2), -1)
