import math

import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support import randn
from taut.errors import ArgumentError, NonFiniteError
from taut.linalg import even_vector, polar, project_tangent, retract, retract_once

SHAPES = [(7, 4), (4, 7), (5, 5), (1, 6), (6, 1), (1, 1)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def orthonormal(rows, columns, generator=None):
    wide = rows < columns
    a = torch.randn(
        max(rows, columns), min(rows, columns), dtype=torch.float64, generator=generator
    )
    q = torch.linalg.qr(a).Q
    return q.mT.contiguous() if wide else q


def singular_values(weight):
    return np.linalg.svd(weight.detach().double().numpy(), compute_uv=False)


def with_singular_values(values, rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.as_tensor(values, dtype=torch.float64)
    u = orthonormal(rows, len(values), generator)
    v = orthonormal(columns, len(values), generator)
    return (u * values) @ v.mT


# polar


@shapes
def test_polar_equals_scipy(shape):
    weight = randn(*shape)
    if shape[0] >= shape[1]:
        expected = scipy.linalg.polar(weight.numpy())[0]
    else:
        expected = scipy.linalg.polar(weight.numpy().T)[0].T
    np.testing.assert_allclose(polar(weight).numpy(), expected, atol=1e-12)


@shapes
def test_polar_is_nearer_than_other_orthonormal_matrices(shape):
    weight = randn(*shape)
    nearest = torch.linalg.matrix_norm(polar(weight) - weight)
    for _ in range(20):
        assert torch.linalg.matrix_norm(orthonormal(*shape) - weight) >= nearest - 1e-12


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 1e-3, 1e-7, 1e-12],
        [1.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
        [1e300, 1e299, 3e300, 1e300],
        [1e-300, 2e-300, 1e-301, 1e-300],
        [1e-320, 1e-320, 1e-320, 1e-320],
        [1e200, 1.0, 1e-200, 0.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (4, 4)], ids=str)
def test_polar_always_has_an_outcome(values, shape):
    weight = with_singular_values(values, *shape)
    q = polar(weight)
    np.testing.assert_allclose(singular_values(q), 1, atol=1e-13)
    assert torch.equal(polar(weight), q)


def test_polar_keeps_float32_and_takes_its_whole_range():
    weight = 3e38 * (2 * torch.rand(6, 4) - 1)
    q = polar(weight)
    assert q.dtype == torch.float32
    np.testing.assert_allclose(singular_values(q), 1, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 7, 4), (2, 3, 4, 7), (0, 4, 4)], ids=str)
def test_polar_of_a_batch_is_polar_one_by_one(shape):
    weight = randn(*shape)
    batch = polar(weight)
    assert batch.shape == shape
    for one, many in zip(
        weight.reshape(-1, *shape[-2:]), batch.reshape(-1, *shape[-2:]), strict=True
    ):
        torch.testing.assert_close(polar(one), many, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 4, 3), (2, 3, 4)], ids=str)
def test_polar_gradcheck(shape):
    assert torch.autograd.gradcheck(polar, randn(*shape).requires_grad_())


def test_polar_has_a_finite_derivative_where_it_jumps():
    weight = with_singular_values([1.0, 0.5, 0.0], 5, 3).requires_grad_()
    polar(weight).square().sum().backward()
    zero = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    polar(zero).sum().backward()
    assert zero.grad is not None and not zero.grad.any()
    assert torch.isfinite(weight.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [polar, retract])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", [(12, 10), (3, 4), (1, 1)], ids=str)
def test_a_matrix_that_is_not_finite_raises(function, value, shape):
    weight = torch.randn(shape)
    weight[-1, -1] = value
    with pytest.raises(NonFiniteError, match="`weight` must be finite; got NaN or infinity"):
        function(weight)


# project_tangent


@shapes
def test_tangent_directions_are_tangent_and_the_rest_is_normal(shape):
    q, g = orthonormal(*shape), randn(*shape)
    t = project_tangent(q, g)
    inner = q.mT @ t if shape[0] >= shape[1] else q @ t.mT
    np.testing.assert_allclose((inner + inner.mT).numpy(), 0, atol=1e-13)
    torch.testing.assert_close(project_tangent(q, t), t, rtol=0, atol=1e-13)
    other = project_tangent(q, randn(*shape))
    assert abs(((g - t) * other).sum()) <= 1e-12


@shapes
def test_the_tangent_projection_is_the_derivative_of_polar(shape):
    q, g = orthonormal(*shape), randn(*shape)
    step = 1e-5
    difference = (polar(q + step * g) - polar(q - step * g)) / (2 * step)
    torch.testing.assert_close(project_tangent(q, g), difference, rtol=0, atol=1e-8)


def test_the_tangent_projection_of_a_batch():
    q = torch.stack([orthonormal(3, 5), orthonormal(3, 5)])
    g = randn(2, 3, 5)
    both = project_tangent(q, g)
    for i in range(2):
        torch.testing.assert_close(both[i], project_tangent(q[i], g[i]))


# retract


def check_retracted(weight, tol=9e-4):
    q = retract(weight, tol)
    assert q.shape == weight.shape and q.dtype == weight.dtype
    s = singular_values(q)
    assert s.max() <= 1
    assert s.min() >= 1 - tol
    return q


SPREADS = {
    "tiny": lambda u: 1 + 1e-5 * u,
    "near": lambda u: 1 + 1e-3 * u,
    "order1": lambda u: 1 + 2e-2 * u,
    "order2": lambda u: 1 + 6e-2 * u,
    "order3": lambda u: 1 + 0.12 * u,
    "far": lambda u: 1 + 0.6 * u,
    "further": lambda u: 1.0 + 0.999 * u,
    "below": lambda u: 0.05 + 0.02 * u,
    "above": lambda u: 30 + 20 * u,
    "decades": lambda u: 10 ** (6 * u),
    "deficient": lambda u: np.maximum(u, 0),
}


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(SPREADS)),
    st.sampled_from([(1, 1), (1, 9), (9, 1), (2, 2), (12, 12), (30, 18), (18, 30), (33, 33)]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 10**6),
)
def test_retraction_of_a_zoo(spread, shape, dtype, seed):
    draw = np.random.default_rng(seed)
    values = SPREADS[spread](draw.uniform(-1, 1, min(shape)))
    check_retracted(with_singular_values(values, *shape, seed=seed).to(dtype))


@settings(max_examples=25)
@given(
    st.sampled_from([1e-3, 1e-2, 4e-2, 0.1, 0.3]),
    st.sampled_from([-4.0, -3.0, -2.0, -1.5, -1.2, 1.2, 1.5, 2.0, 3.0, 4.0]),
    st.sampled_from([1, 2, 5]),
    st.integers(0, 10**6),
)
def test_retraction_of_a_bulk_with_outliers(width, reach, count, seed):
    # A short look at the spectrum from inside may miss a few values beyond the bulk.
    draw = np.random.default_rng(seed)
    values = 1 + width * draw.uniform(-1, 1, 96)
    values[:count] = np.maximum(1 + reach * width, 0.01)
    check_retracted(with_singular_values(values, 96, 96, seed=seed))


@settings(max_examples=12)
@given(st.sampled_from([2.0, 3.0, 5.0, 30.0]), st.integers(0, 10**6))
def test_a_matrix_with_a_few_small_singular_values_is_not_taken_for_orthonormal(reach, seed):
    draw = np.random.default_rng(seed)
    values = 1 - 8e-4 * draw.uniform(0.01, 1, 96)
    values[0] = 1 - reach * 8e-4
    check_retracted(with_singular_values(values, 96, 96, seed=seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.3, 0.9, 1.1, 3.0, 100.0])
@pytest.mark.parametrize("n", [12, 40])
def test_retraction_sees_a_direction_that_the_start_vector_does_not(dtype, value, n):
    # All singular values are 1 but one, whose vector is orthogonal to the start and its rolls.
    start = even_vector(n, torch.empty(0, dtype=torch.float64))
    krylov = torch.stack([start.roll(k) for k in range(9)], 1)
    v = torch.linalg.svd(krylov).U[:, -1]
    weight = torch.eye(n, dtype=torch.float64) + (value - 1) * torch.outer(v, v)
    check_retracted(weight.to(dtype))
    check_retracted((weight * (1 - 1e-5)).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.3, 0.9, 1.1, 1.7, 2.0, 2.5, 100.0])
@pytest.mark.parametrize("width", [1e-4, 1e-2, 0.05, 0.08])
def test_retraction_sees_a_direction_outside_every_krylov_space(dtype, value, width):
    # The bulk fills the complement of one vector that is orthogonal to the start of Lanczos, so
    # no power of the Gram matrix leads from the start to that vector.
    n = 40
    start = even_vector(n, torch.empty(0, dtype=torch.float64))
    basis = torch.linalg.qr(torch.cat([start[:, None], randn(n, n - 1)], 1)).Q
    unseen, rest = basis[:, 1:2], basis[:, [0, *range(2, n)]]
    rest = rest @ orthonormal(n - 1, n - 1)
    values = 1 + width * torch.linspace(-1, 1, n - 1, dtype=torch.float64)
    weight = (rest * values) @ rest.mT + value * unseen @ unseen.mT
    check_retracted((orthonormal(n, n) @ weight).to(dtype))


@pytest.mark.parametrize(
    "shape", [(5, 5), (9, 4), (4, 9), (64, 64), (256, 256), (100, 256)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_retraction_is_idempotent_and_gives_the_same_object_back(shape, dtype, scale):
    weight = (orthonormal(*shape) + scale * randn(*shape)).to(dtype)
    before = weight.clone()
    once = check_retracted(weight)
    assert torch.equal(weight, before)
    assert retract(once) is once


@shapes
@pytest.mark.parametrize("size", [1e8, 1e9, 1e15, 1e30])
def test_retraction_of_huge_numbers_in_float32(shape, size):
    weight = (size * randn(*shape)).float()
    values = singular_values(retract(weight))
    assert values.max() < 1 and values.min() > 1 - 1e-3


def test_retraction_is_close_to_the_nearest_point():
    for scale in (1e-3, 1e-2, 3e-2):
        weight = orthonormal(20, 12) + scale * randn(20, 12)
        error = torch.linalg.matrix_norm(retract(weight) - polar(weight), 2)
        assert error <= 9e-4


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-5, 1e-9])
def test_retraction_keeps_other_tolerances(tol):
    for scale in (1e-3, 0.1, 2.0):
        check_retracted(orthonormal(20, 12) + scale * randn(20, 12), tol)


@pytest.mark.parametrize("tol", [2e-2, 1e-1])
@pytest.mark.parametrize("n", [6, 40, 200])
def test_a_matrix_just_below_the_tolerance_is_not_returned(tol, n):
    # Singular values whose squares are within 2 tol of 1, but which are not within tol of it.
    values = np.linspace(1 - tol - 0.4 * tol**2, 1 - 1e-5, n)
    after = singular_values(retract(with_singular_values(values, n, n, seed=n).float(), tol))
    assert 1 - tol <= after.min() and after.max() < 1


@pytest.mark.parametrize("shape", [(64, 64), (64, 10), (10, 64), (256, 192)], ids=str)
@pytest.mark.parametrize("lr", [1e-4, 1e-3, 1e-2, 5e-2])
def test_a_step_of_equal_entries_is_pulled_back_within_the_tolerance(shape, lr):
    for seed in range(5):
        torch.manual_seed(seed)
        step = lr * torch.randn(shape).sign()
        after = singular_values(retract(orthonormal(*shape).float() + step, 2e-2))
        assert 0.98 <= after.min() and after.max() < 1


@pytest.mark.parametrize("tol", [0.0, -1.0, math.nan, math.inf])
def test_retraction_refuses_a_tolerance_that_is_none(tol):
    with pytest.raises(ArgumentError, match="retract: `tol` must be finite and positive; got tol="):
        retract(torch.eye(2), tol)


def test_the_three_series_lie_below_the_inverse_root_and_within_their_remainders():
    half, three, five = mpmath.mpf(1) / 2, mpmath.mpf(3) / 8, mpmath.mpf(5) / 16
    with mpmath.workdps(40):
        for k in range(-989, 1500, 7):
            e = mpmath.mpf(k) / 1000
            root = 1 / mpmath.sqrt(1 + e)
            first = 1 - half * e
            third = first + three * e**2 - five * e**3
            assert first <= root and third <= root
            if abs(e) <= 0.5:
                # The remainder is stated of the singular value, sqrt(1 + e) times the series.
                size = mpmath.sqrt(1 + e)
                assert 1 - size * first <= three * e**2 * (1 + 2 * abs(e))
                assert 1 - size * third <= mpmath.mpf(35) / 128 * e**4 * (1 + 2 * abs(e))
            for r in (abs(e), 2 * abs(e), mpmath.mpf("1.2")):
                if r >= abs(e):
                    second = first + (three - five * r) * e**2
                    assert second <= root


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(SPREADS)),
    st.sampled_from([(1, 1), (9, 1), (12, 12), (18, 30), (60, 60), (96, 70)]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 10**6),
)
def test_one_round_without_looking_never_passes_one(spread, shape, dtype, seed):
    draw = np.random.default_rng(seed)
    values = SPREADS[spread](draw.uniform(-1, 1, min(shape)))
    weight = with_singular_values(values, *shape, seed=seed).to(dtype)
    after = singular_values(retract_once(weight))
    assert after.max() <= 1
    if spread in ("tiny", "near", "order1", "order2", "order3"):
        assert after.min() >= 0.98


def test_one_round_brings_back_a_bulk_with_far_outliers():
    values = 1 + 0.1 * np.linspace(-1, 1, 200)
    values[:10] = np.linspace(1.2, 1.8, 10)
    after = singular_values(retract_once(with_singular_values(values, 200, 200, seed=0).float()))
    assert after.min() >= 0.98 and after.max() <= 1
