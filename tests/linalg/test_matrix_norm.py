import functools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch

from taut.errors import ArgumentError, DtypeError, NonFiniteError
from taut.linalg import ball_projections
from taut.linalg.matrix_norm import bound_operator_norm, bound_spectral_norm, power_iteration
from taut.norms import L1, L2, LINF


def exact_spectral_norm(weight):
    """The largest singular value to fifty digits."""
    return _exact_spectral_norm(tuple(map(tuple, weight.double().tolist())))


@functools.cache
def _exact_spectral_norm(rows):
    with mpmath.workdps(50):
        entries = mpmath.matrix([[mpmath.mpf(x) for x in row] for row in rows])
        largest = max(abs(x) for x in entries)
        if largest == 0:
            return mpmath.mpf(0)
        return largest * max(mpmath.svd_r(entries / largest, compute_uv=False))


def check_upper(value, weight, tol=1e-9):
    truth = exact_spectral_norm(weight)
    assert mpmath.mpf(value) >= truth * (1 - mpmath.mpf(10) ** -40)
    assert mpmath.mpf(value) <= truth * (1 + mpmath.mpf(tol)) + 5e-324


def random_matrix(rows, cols, seed=0, dtype=torch.float64):
    return torch.randn(rows, cols, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def clustered(n=6, gap=1e-3):
    """Orthogonal times (1, 1 - gap, 1 - 2 gap, ...): power iteration crawls."""
    q = torch.linalg.qr(random_matrix(n, n, seed=1)).Q
    p = torch.linalg.qr(random_matrix(n, n, seed=2)).Q
    return q @ torch.diag(1 - gap * torch.arange(n, dtype=torch.float64)) @ p


HILBERT = torch.from_numpy(scipy.linalg.hilbert(6))
CASES = {
    "hilbert": HILBERT,
    "hilbert32": HILBERT.float(),
    "random": random_matrix(6, 6),
    "wide": random_matrix(2, 9),
    "tall": random_matrix(9, 2),
    "row": random_matrix(1, 7),
    "column": random_matrix(7, 1),
    "single": torch.tensor([[-0.1]]),
    "rank one": random_matrix(6, 1) @ random_matrix(1, 5),
    "repeated": torch.full((5, 5), 0.1),
    "clustered": clustered(),
    "tight cluster": clustered(gap=1e-12),
    "graded": random_matrix(6, 6) * torch.logspace(0, -200, 6, dtype=torch.float64),
    "1e-30": random_matrix(5, 5, dtype=torch.float32) * 1e-30,
    "1e30": random_matrix(5, 5, dtype=torch.float32) * 1e30,
    "1e-300": random_matrix(5, 5) * 1e-300,
    "1e300": random_matrix(5, 5) * 1e300,
    "denormal32": (random_matrix(4, 4) * 1e-43).float(),
    "denormal64": random_matrix(4, 4) * 1e-320,
    "both ends": torch.tensor([[1e300, 1e-300], [1e-300, 3e299]], dtype=torch.float64),
    "half": random_matrix(4, 4).half(),
    "bfloat": random_matrix(4, 4).bfloat16(),
}


@pytest.mark.parametrize("weight", CASES.values(), ids=CASES)
def test_bound_is_never_below_the_truth_and_close(weight):
    bound = bound_spectral_norm(weight)
    assert (bound.side, bound.norm, bound.confidence) == ("upper", L2, 1.0)
    check_upper(bound.value, weight)
    check_upper(bound_spectral_norm(weight.T).value, weight)


@pytest.mark.parametrize("seed", range(30))
def test_bound_on_many_small_matrices(seed):
    rows, cols = 1 + seed % 5, 1 + (seed // 5) % 4
    check_upper(
        bound_spectral_norm(random_matrix(rows, cols, seed)).value,
        random_matrix(rows, cols, seed),
        tol=1e-13,
    )


@pytest.mark.parametrize("n", [1, 2, 16, 128])
def test_hadamard_matrices_have_norm_root_n(n):
    hadamard = torch.from_numpy(scipy.linalg.hadamard(n)).float()
    assert Fraction(bound_spectral_norm(hadamard).value) ** 2 >= n
    assert bound_spectral_norm(hadamard).value <= math.sqrt(n) * (1 + 1e-10)


def test_diagonal_and_integer_rank_one_matrices():
    diagonal = torch.diag(torch.tensor([0.1, -7.0, 3.0]))
    assert 7 <= bound_spectral_norm(diagonal).value <= 7.1
    a, b = torch.tensor([3.0, 4.0, 12.0]), torch.tensor([8.0, 15.0])
    assert 13 * 17 <= bound_spectral_norm(torch.outer(a, b)).value <= 13 * 17 * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
def test_zero_and_empty_matrices_have_norm_zero(shape):
    assert bound_spectral_norm(torch.zeros(shape)).value == 0
    assert bound_operator_norm(torch.zeros(shape), "linf").value == 0


@pytest.mark.parametrize("orthonormal", [False, True])
def test_bound_is_tight_at_256(orthonormal):
    weight = random_matrix(256, 256)
    if orthonormal:
        weight = torch.linalg.qr(weight).Q
    weight = weight.float()
    truth = scipy.linalg.svdvals(weight.double().numpy())[0]
    value = bound_spectral_norm(weight).value
    # The oracle itself is only good to about 1e-14.
    assert truth * (1 - 1e-13) <= value <= truth * (1 + 1e-10)


def test_the_check_can_fail_an_estimate_lies_below_the_truth():
    weight = clustered()
    start = random_matrix(6, 1, seed=3).squeeze()
    estimate = float(power_iteration(weight, start, num_steps=20)[0])
    assert mpmath.mpf(estimate) < exact_spectral_norm(weight)
    with pytest.raises(AssertionError):
        check_upper(estimate, weight)


def test_the_check_can_fail_a_bound_without_its_slack():
    below = [math.nextafter(float(exact_spectral_norm(w)), 0) for w in (HILBERT, CASES["random"])]
    for value, weight in zip(below, (HILBERT, CASES["random"]), strict=True):
        with pytest.raises(AssertionError):
            check_upper(value, weight)


def test_the_theorem_needs_no_trust_in_the_factor(monkeypatch):
    # A factorisation that lies makes the bound loose, never wrong.
    honest = torch.linalg.cholesky_ex

    def lying(matrix):
        factor, info = honest(matrix)
        return 0.5 * factor, info

    monkeypatch.setattr(torch.linalg, "cholesky_ex", lying)
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda g: 0.3 * torch.linalg.eigh(g)[0])
    check_upper(bound_spectral_norm(HILBERT).value, HILBERT, tol=10)


def test_power_iteration_has_the_derivative_of_the_norm():
    weight = random_matrix(5, 4).requires_grad_()
    sigma, u, v = power_iteration(weight, torch.ones(4, dtype=torch.float64), 500)
    left, singular, right = np.linalg.svd(weight.detach().numpy())
    assert sigma.item() == pytest.approx(singular[0])
    (grad,) = torch.autograd.grad(sigma, weight)
    torch.testing.assert_close(grad, torch.from_numpy(np.outer(left[:, 0], right[0])))
    assert not u.requires_grad and not v.requires_grad
    again, _, _ = power_iteration(weight, v, 1)
    assert again.item() == pytest.approx(singular[0], rel=1e-14)


def test_power_iteration_of_zero_is_zero_not_nan():
    sigma, u, v = power_iteration(torch.zeros(3, 2), torch.ones(2), 2)
    assert sigma == 0 and u.isfinite().all() and v.isfinite().all()


PAIRS = [(L1, L1), (LINF, LINF), (L1, LINF), (L2, LINF), (L1, L2), (L2, L2)]


def exact_operator_norm(weight, p, q):
    """Closed forms in fifty digits; the norm 2 -> 2 by mpmath's singular values."""
    if p == q == L2:
        return exact_spectral_norm(weight)
    rows = weight.double() if q == LINF else weight.double().T
    index = (p.dual if q == LINF else q).p
    with mpmath.workdps(50):
        if index == math.inf:
            return mpmath.mpf(float(rows.abs().max()))
        return max(
            mpmath.fsum(mpmath.mpf(abs(x)) ** int(index) for x in row) ** (1 / mpmath.mpf(index))
            for row in rows.tolist()
        )


@pytest.mark.parametrize("p, q", PAIRS)
@pytest.mark.parametrize("weight", CASES.values(), ids=CASES)
def test_operator_norms_are_never_below_the_truth(p, q, weight):
    bound = bound_operator_norm(weight, p, q)
    truth = exact_operator_norm(weight, p, q)
    assert bound.norm == p
    assert mpmath.mpf(bound.value) >= truth * (1 - mpmath.mpf(10) ** -40)
    assert mpmath.mpf(bound.value) <= truth * (1 + mpmath.mpf("1e-10")) + 5e-324


@pytest.mark.parametrize("p, q", PAIRS)
def test_operator_norms_bound_the_action(p, q):
    weight = random_matrix(7, 5)
    value = bound_operator_norm(weight, str(p), str(q)).value
    x = random_matrix(5, 500, seed=4)
    x = torch.cat([x, x.sign(), torch.eye(5, dtype=torch.float64)], dim=1)
    stretch = q.vector(weight @ x, 0) / p.vector(x, 0)
    assert float(stretch.max()) <= value * (1 + 1e-14)


def test_row_sums_that_are_floats_are_bounded_by_themselves():
    assert bound_operator_norm(torch.eye(9), "linf").value == 1
    assert bound_operator_norm(torch.full((8, 64), -(2.0**-6)), "linf").value == 1
    assert bound_operator_norm(torch.full((64, 8), 2.0**-6), "l1").value == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projected_weights_are_proven_to_be_inside(dtype):
    weight = random_matrix(64, 100, dtype=dtype)
    for radius in (1.0, 0.1, 3.7):
        rows = ball_projections.project_l1_ball(weight, radius)
        columns = ball_projections.project_l1_ball(weight, radius, dim=-2)
        assert bound_operator_norm(rows, "linf").value <= radius
        assert bound_operator_norm(columns, "l1").value <= radius


@pytest.mark.parametrize("p, q", [(L2, L1), (LINF, L1), (LINF, L2)])
def test_hard_pairs_are_refused(p, q):
    with pytest.raises(ArgumentError, match="hard to compute. Use equal norms"):
        bound_operator_norm(torch.eye(2), p, q)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_weights_are_refused_by_name(bad):
    weight = torch.ones(3, 3)
    weight[1, 2] = bad
    with pytest.raises(NonFiniteError, match="bound_spectral_norm: `weight` must be finite"):
        bound_spectral_norm(weight)
    with pytest.raises(NonFiniteError, match="bound_operator_norm: `weight`"):
        bound_operator_norm(weight, "l1")


def test_wrong_arguments_are_explained():
    with pytest.raises(ArgumentError, match=r"must be a matrix \(out, in\); got shape \(3,\)"):
        bound_spectral_norm(torch.ones(3))
    with pytest.raises(DtypeError, match="got dtype=torch.int64"):
        bound_spectral_norm(torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(ArgumentError, match="one entry per column"):
        power_iteration(torch.ones(3, 2), torch.ones(3))
    with pytest.raises(ArgumentError, match="`num_steps`"):
        power_iteration(torch.ones(3, 2), torch.ones(2), 0)
