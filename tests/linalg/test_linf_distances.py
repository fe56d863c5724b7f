"""Distances to rows of a weight: exact values, derivatives, and three ways to compute them."""

import math

import numpy as np
import pytest
import torch

from taut.errors import ArgumentError
from taut.linalg import linf_distances
from taut.linalg.linf_distances import linf_distance

EXPONENTS = [8, 12.5, 64, 1024, math.inf]


def points(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cube(x: torch.Tensor, w: torch.Tensor) -> np.ndarray:
    return np.abs(x.detach().numpy()[..., None, :] - w.detach().numpy())


def definition(x: torch.Tensor, w: torch.Tensor, p: float) -> torch.Tensor:
    """The formula of the module; its maximum is constant to the derivative."""
    u = (x[..., None, :] - w).abs()
    if math.isinf(p):
        return u.amax(-1)
    largest = u.amax(-1, keepdim=True).detach()
    terms = (1 + p / 8 * (u**2 / largest**2 - 1)).clamp(min=0) ** 4
    return largest[..., 0] * terms.sum(-1) ** (1 / p)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_distances_are_those_of_the_definition(p, scale):
    x, w = scale * points(2, 3, 5), scale * points(4, 5, seed=1)
    wanted = definition(x, w, p)
    for leaf in (x, x.clone().requires_grad_()):
        torch.testing.assert_close(linf_distance(leaf, w, p).detach(), wanted, rtol=1e-12, atol=0)


def test_they_lie_between_the_maximum_and_the_norm_of_the_smallest_exponent():
    x, w = points(20, 9).requires_grad_(), points(7, 9, seed=1)
    u = cube(x, w)
    largest, norm = u.max(-1), np.linalg.norm(u, 8, -1)
    np.testing.assert_allclose(linf_distance(x, w, 8).detach(), norm)
    before = norm
    for p in (10, 30, 100, 1000):
        y = linf_distance(x, w, p).detach().numpy()
        assert (y <= before * (1 + 1e-12)).all() and (y >= largest * (1 - 1e-12)).all()
        before = y
    np.testing.assert_allclose(before, largest, rtol=3e-3)


@pytest.mark.parametrize("p", [8, 18, 66, 1026])
@pytest.mark.parametrize("gap", [1.0, 0.1, 1e-3, 1e-6, 0.0])
def test_near_and_far_points_of_one_batch_lose_no_digits(p, gap):
    w = 8 * points(6, 40, seed=1).float()
    x = torch.cat([w[:3] + gap * points(3, 40).float(), 8 * points(3, 40, seed=2).float()])
    leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
    grad = points(6, 6, seed=3).float()
    y = linf_distance(*leaves, p)
    y.backward(grad)
    exact = x.double().requires_grad_(), w.double().requires_grad_()
    wanted = linf_distances._distance(*exact, p)[0]
    wanted.backward(grad.double())
    torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-30)
    for leaf, true in zip(leaves, exact, strict=True):
        assert leaf.grad is not None and true.grad is not None
        # Equal points have no derivative; here both ways call it 0.
        torch.testing.assert_close(leaf.grad.double(), true.grad, rtol=2e-3, atol=2e-5)


def test_gradients_far_below_the_largest_are_zero_and_none_is_subnormal():
    x, w = points(3, 300).float().requires_grad_(), points(4, 300, seed=1).float()
    grad = torch.full((3, 4), 1e-5)
    grad[0] = 1e-30
    linf_distance(x, w, 66).backward(grad)
    assert x.grad is not None and (x.grad[0] == 0).all()
    seen = x.grad[x.grad != 0].abs()
    assert len(seen) > 0 and seen.min() > torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("p", [8, math.inf])
def test_derivatives_are_those_of_finite_differences(p):
    x, w = points(3, 5).requires_grad_(), points(4, 5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: linf_distance(x, w, p), (x, w), eps=1e-7)
    assert torch.autograd.gradgradcheck(lambda x, w: linf_distance(x, w, p), (x, w))


@pytest.mark.parametrize("p", EXPONENTS[:-1])
def test_derivatives_are_those_of_the_definition(p):
    x, w = points(3, 5).requires_grad_(), points(4, 5, seed=1).requires_grad_()
    derivatives = []
    for function in (linf_distance, definition):
        weighted = (function(x, w, p) * points(3, 4, seed=2)).sum()
        first = torch.autograd.grad(weighted, (x, w), create_graph=True)
        second = torch.autograd.grad(
            (first[0] * points(3, 5, seed=3)).sum(), (x, w), materialize_grads=True
        )
        derivatives.append([*first, *second])
    for found, wanted in zip(*derivatives, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("p", [8, math.inf])
def test_every_coordinate_that_attains_the_maximum_gets_its_derivative(p):
    x = torch.tensor([[3.0, -3.0, 1.0]]).requires_grad_()
    linf_distance(x, torch.zeros(1, 3), p).backward()
    assert x.grad is not None
    share = 1.0 if math.isinf(p) else (3 / (2 * 3**8 + 1) ** (1 / 8)) ** 7
    torch.testing.assert_close(x.grad[0, :2], torch.tensor([share, -share]))


@pytest.mark.parametrize("p", [8, 1024, math.inf])
def test_a_point_on_its_row_has_distance_and_derivative_zero_or_less_than_one(p):
    x = torch.ones(2, 3, requires_grad=True)
    y = linf_distance(x, torch.ones(1, 3), p)
    y.sum().backward()
    assert float(y.detach().abs().max()) < 1e-30
    assert x.grad is not None and bool((x.grad.abs() <= 1).all())


@pytest.mark.parametrize("p", [8, 1024, math.inf])
def test_chunks_change_nothing(p, monkeypatch):
    x, w = points(37, 11).float(), points(5, 11, seed=1).float()

    def computed() -> list[torch.Tensor]:
        leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = linf_distance(*leaves, p)
        y.backward(points(37, 5, seed=2).float())
        return [y.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    whole = computed()
    monkeypatch.setattr(linf_distances, "_CHUNK", 60)
    for a, b in zip(whole, computed(), strict=True):
        assert torch.equal(a, b)


def test_without_a_compiler_large_distances_are_computed_in_chunks(monkeypatch, caplog):
    def no_compiler(*args: object, **kwargs: object) -> object:
        raise RuntimeError("no working C++ compiler")

    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: no_compiler)
    monkeypatch.setattr(linf_distances, "_WORTH_COMPILING", 1)
    linf_distances._fused.cache_clear()
    try:
        x, w = points(3, 5).requires_grad_(), points(4, 5, seed=1)
        with caplog.at_level("INFO", logger="taut"):
            y = linf_distance(x, w, 8)
        y.sum().backward()
        assert "without a compiler: no working C++ compiler" in caplog.text
        np.testing.assert_allclose(y.detach(), np.linalg.norm(cube(x, w), 8, -1))
        assert x.grad is not None
    finally:
        linf_distances._fused.cache_clear()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_fused_kernels_compute_the_same(monkeypatch):
    x, w = points(7, 11).float(), points(5, 11, seed=1).float()

    def computed(p: float) -> list[torch.Tensor]:
        leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = linf_distance(*leaves, p)
        y.backward(points(7, 5, seed=2).float())
        return [y.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    for p in (8, 66.5, math.inf):
        eager = computed(p)
        with monkeypatch.context() as patch:
            patch.setattr(linf_distances, "_WORTH_COMPILING", 1)
            fused = computed(p)
        if linf_distances._fused(linf_distances._pulled_back) is None:
            pytest.skip("no C++ compiler")
        for a, b in zip(eager, fused, strict=True):
            torch.testing.assert_close(a, b)


def test_exponents_are_at_least_eight():
    for p in (1, 2, 7.9, 0, -2, math.nan):
        with pytest.raises(ArgumentError, match="infinity or at least 8"):
            linf_distance(torch.zeros(1, 2), torch.zeros(1, 2), p)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", EXPONENTS)
def test_narrow_dtypes_are_computed_too(dtype, p):
    x, w = points(3, 5).to(dtype), points(4, 5, seed=1).to(dtype)
    wanted = definition(x.double(), w.double(), p)
    for leaf in (x, x.clone().requires_grad_()):
        y = linf_distance(leaf, w, p)
        assert y.dtype == dtype
        close = 16 * torch.finfo(dtype).eps
        torch.testing.assert_close(y.detach().double(), wanted, rtol=close, atol=0)
