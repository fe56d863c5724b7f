import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from taut.errors import ArgumentError, DtypeError, NonFiniteError
from taut.linalg.ball_projections import (
    project_l1_ball,
    project_l1_ball_by_sorting,
    project_l2_ball,
    project_linf_ball,
)

BALLS = [project_l1_ball, project_l2_ball, project_linf_ball]
ALL = [*BALLS, project_l1_ball_by_sorting]


def entries(width):
    return st.one_of(
        st.floats(-3, 3, width=width),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 1e-40, -1e-30, 1e10, -3e30]),
    )


def matrices(width=32):
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)
    dtype = np.float32 if width == 32 else np.float64
    values = entries(width).map(lambda x: float(dtype(x)))
    return hnp.arrays(dtype, shapes, elements=values).map(torch.from_numpy)


radii = st.sampled_from([1.0, 0.1, 1e-3, 7.3, 1e6, 1 / 3])
any_width = st.sampled_from([32, 64]).flatmap(matrices)


def exact_l1_norms(v):
    return [sum(abs(Fraction(x)) for x in row) for row in v.tolist()]


def bisect_l1(row, radius):
    """The projection of one row by bisection on the threshold, in float64."""
    a = np.abs(row)
    if math.fsum(a) <= radius:
        return row
    # Relative to the largest entry, so that huge entries leave bits for the radius.
    below = a - a.max()
    low, high = -radius, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(below - middle, 0).sum() > radius:
            low = middle
        else:
            high = middle
    return np.sign(row) * np.maximum(below - low, 0)


@settings(max_examples=40)
@given(any_width, radii)
def test_l1_result_is_feasible_as_real_numbers(w, radius):
    assert max(exact_l1_norms(project_l1_ball(w, radius))) <= Fraction(radius)


@settings(max_examples=40)
@given(any_width, radii)
def test_l1_is_idempotent_to_the_last_bit(w, radius):
    once = project_l1_ball(w, radius)
    assert torch.equal(project_l1_ball(once, radius), once)


@settings(max_examples=40)
@given(any_width, radii)
def test_l1_rows_inside_are_unchanged(w, radius):
    inside = [norm <= Fraction(radius) for norm in exact_l1_norms(w)]
    v = project_l1_ball(w, radius)
    # Equal as bits: -0.0 too.
    assert v[inside].numpy().tobytes() == w[inside].numpy().tobytes()


def test_l1_rows_exactly_on_the_sphere_are_unchanged():
    w = torch.tensor([[0.5, -0.5, 0.0], [1.0, 0.0, -0.0], [0.25, 0.25, 0.5]])
    for dtype in (torch.float32, torch.float64, torch.float16):
        assert torch.equal(project_l1_ball(w.to(dtype)), w.to(dtype))


@settings(max_examples=40)
@given(any_width, radii)
def test_l1_equals_bisection(w, radius):
    v = project_l1_ball(w, radius)
    expected = np.stack([bisect_l1(row, radius) for row in w.double().numpy()])
    tol = radius * (1e-6 if w.dtype == torch.float32 else 1e-13)
    np.testing.assert_allclose(v.double().numpy(), expected, rtol=0, atol=tol)


@settings(max_examples=40)
@given(any_width, radii)
def test_l1_equals_sorting_where_sorting_is_accurate(w, radius):
    w = w.clamp(-10, 10)
    v, reference = project_l1_ball(w, radius), project_l1_ball_by_sorting(w, radius)
    tol = radius * (1e-6 if w.dtype == torch.float32 else 1e-13) + 1e-14
    torch.testing.assert_close(v, reference, rtol=0, atol=tol)


@settings(max_examples=40)
@given(matrices(64), st.integers(0, 2**31 - 1), radii)
@pytest.mark.parametrize("project", BALLS)
def test_variational_inequality(project, w, seed, radius):
    # v is nearest to w in a convex set exactly when (w - v).(z - v) <= 0 for every z of the set.
    w = w.clamp(-10, 10)
    v = project(w, radius)
    generator = torch.Generator().manual_seed(seed)
    others = torch.randn(20, *w.shape, dtype=w.dtype, generator=generator)
    others *= 10 ** (4 * torch.rand(20, 1, 1, dtype=w.dtype, generator=generator) - 3)
    z = project(others, radius)
    scale = float(w.abs().max()) + radius
    assert float(((w - v) * (z - v)).sum(-1).max()) <= 1e-12 * scale * radius * w.shape[-1]


@settings(max_examples=40)
@given(hnp.arrays(np.float64, 4, elements=st.floats(-3, 3, width=16)), st.sampled_from([0.5, 2.0]))
def test_l1_equals_a_quadratic_programme(row, radius):
    n = len(row)
    options = {"ftol": 1e-14, "maxiter": 500}
    # v = p - q with p, q >= 0 and sum(p + q) <= r.
    ball = scipy.optimize.minimize(
        lambda x: ((x[:n] - x[n:] - row) ** 2).sum(),
        np.full(2 * n, radius / (3 * n)),
        jac=lambda x: np.r_[g := 2 * (x[:n] - x[n:] - row), -g],
        bounds=[(0, None)] * (2 * n),
        constraints={"type": "ineq", "fun": lambda x: radius - x.sum()},
        method="SLSQP",
        options=options,
    )
    w = torch.from_numpy(row)
    np.testing.assert_allclose(project_l1_ball(w, radius), ball.x[:n] - ball.x[n:], atol=1e-5)


@settings(max_examples=40)
@given(any_width, radii)
@pytest.mark.parametrize("project, p", [(project_l2_ball, 2), (project_linf_ball, math.inf)])
def test_other_balls_are_feasible_and_idempotent(project, p, w, radius):
    v = project(w, radius)
    norms = np.linalg.norm(v.double().numpy(), p, axis=-1)
    assert norms.max() <= radius * (1 + (1e-14 if p == 2 else 0))
    assert torch.equal(project(v, radius), v)
    inside = np.linalg.norm(w.double().numpy(), p, axis=-1) <= radius * (1 - 1e-12)
    assert torch.equal(v[inside], w[inside])


@settings(max_examples=40)
@given(any_width, radii)
def test_l2_points_along_its_argument(w, radius):
    v = project_l2_ball(w, radius).double().numpy()
    x = w.double().numpy()
    length = np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-300)
    tol = 1e-6 if w.dtype == torch.float32 else 1e-13
    np.testing.assert_allclose(v, x * np.minimum(1, radius / length), rtol=tol, atol=1e-44)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "row",
    [
        [3e38, 3e38, 3e38],
        [1e-45, 1e-45],
        [1e30] * 7 + [1e-30],
        [0.1] * 10,
        [1.0, 1.0, 1.0, 1e-8],
        [5.0],
        [-5.0],
        [0.0, 0.0],
    ],
)
@pytest.mark.parametrize("radius", [1.0, 0.1, 1e-45, 1e30])
def test_l1_of_extreme_rows(dtype, row, radius):
    w = torch.tensor([row], dtype=dtype)
    v = project_l1_ball(w, radius)
    (norm,) = exact_l1_norms(v)
    (before,) = exact_l1_norms(w)
    assert norm <= Fraction(radius)
    assert torch.equal(project_l1_ball(v, radius), v)
    if radius > 1e-44:
        assert norm >= min(before, Fraction(radius)) * (1 - Fraction(1, 10**6))


def test_l1_of_entries_at_the_end_of_the_range():
    w = torch.full((2, 5), 1.7e308, dtype=torch.float64)
    w[1, 2:] = 0
    expected = torch.tensor([[0.2] * 5, [0.5, 0.5, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(project_l1_ball(w), expected)
    assert max(exact_l1_norms(project_l1_ball(w, 1.6e308))) <= Fraction(1.6e308)


def test_l1_on_a_wide_matrix_after_a_step():
    generator = torch.Generator().manual_seed(0)
    w = project_l1_ball(torch.randn(300, 1500, generator=generator))
    w = w + 1e-2 * torch.randn(300, 1500, generator=generator)
    v = project_l1_ball(w)
    norms = [math.fsum(row) for row in v.double().abs().tolist()]
    assert 1 - 1e-6 <= min(norms) <= max(norms) <= 1
    torch.testing.assert_close(v, project_l1_ball_by_sorting(w), rtol=3e-7, atol=1e-9)


@pytest.mark.parametrize("project", ALL)
def test_dim_and_leading_dimensions(project):
    w = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).double()
    rows = torch.stack([project(row, 0.7) for row in w.reshape(-1, 5)]).reshape(w.shape)
    torch.testing.assert_close(project(w, 0.7), rows, rtol=1e-13, atol=0)
    for dim in (-2, 0, 1):
        expected = project(w.movedim(dim, -1), 0.7).movedim(-1, dim)
        torch.testing.assert_close(project(w, 0.7, dim=dim), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("project", ALL)
def test_first_and_second_derivatives(project):
    # Far from kinks: every magnitude differs from the thresholds by more than the probe.
    w = torch.tensor(
        [[0.9, -0.7, 0.05, 0.4], [0.1, -0.2, 0.05, 0.3], [3.0, -0.2, 0.1, -2.5]],
        dtype=torch.float64,
        requires_grad=True,
    )
    assert torch.autograd.gradcheck(lambda x: project(x, 0.95), (w,))
    assert torch.autograd.gradgradcheck(lambda x: project(x, 0.95).square(), (w,))
    assert torch.autograd.gradcheck(lambda x: project(x, 0.95, dim=-2), (w,))


def test_l1_derivative_equals_that_of_sorting():
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(20, 30, dtype=torch.float64, generator=generator).requires_grad_()
    cotangent = torch.randn(20, 30, dtype=torch.float64, generator=generator)
    radius = 10.0
    ours, reference = (
        torch.autograd.grad(project(w, radius), w, cotangent)[0]
        for project in (project_l1_ball, project_l1_ball_by_sorting)
    )
    torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("project", ALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_dtype_is_kept_and_the_argument_untouched(project, dtype):
    w = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = w.clone()
    v = project(w, 0.3)
    assert v.dtype == dtype and torch.equal(w, before)
    if project in (project_l1_ball, project_linf_ball):
        assert torch.equal(project(v, 0.3), v)
    # Nothing moves here, and the result is still a tensor of its own.
    inside = project(w, 1e4)
    inside.zero_()
    assert torch.equal(w, before)


@pytest.mark.parametrize("project", BALLS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_tensors_come_back_empty(project, shape):
    assert project(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("project", ALL)
def test_non_finite_entries_are_refused_by_name(project, bad):
    w = torch.ones(3, 3)
    w[1, 1] = bad
    with pytest.raises(NonFiniteError, match=f"{project.__name__}: `w` must be finite"):
        project(w)


@pytest.mark.parametrize("project", ALL)
def test_wrong_arguments_are_explained(project):
    for radius in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="`radius` must be finite and positive"):
            project(torch.ones(2), radius)
    with pytest.raises(DtypeError, match="got dtype=torch.int64"):
        project(torch.ones(2, dtype=torch.int64))


def test_a_radius_beyond_the_dtype_changes_nothing():
    w = torch.full((3,), 6e4, dtype=torch.float16)
    for project in BALLS:
        assert torch.equal(project(w, 1e6), w)
