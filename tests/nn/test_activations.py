import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import taut.nn
from cases import ACTIVATIONS
from support import randn
from taut.errors import ArgumentError
from taut.norms import L2

cases = pytest.mark.parametrize("case", ACTIVATIONS, ids=str)
SORTING = [case for case in ACTIVATIONS if case.permutes]
sorting = pytest.mark.parametrize("case", SORTING, ids=str)


def width_of(case, groups=2):
    return groups * max(2, case.group)


def make(case, width):
    return case.make(width).double()


@cases
@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (0,)], ids=str)
def test_equals_numpy(case, leading):
    width = width_of(case, 3)
    x = randn(*leading, width)
    module = make(case, width)
    if len(leading) > 1 and hasattr(module, "dim"):
        module.dim = -1
    y = module(x).detach()
    expected = case.oracle(x.numpy())
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-7)


@sorting
@settings(max_examples=15)
@given(st.data())
def test_sorting_equals_numpy_to_the_bit_with_ties_and_infinities(case, data):
    groups = data.draw(st.integers(1, 3))
    x = data.draw(
        hnp.arrays(
            np.float32,
            (2, width_of(case, groups)),
            elements=st.one_of(
                st.sampled_from([0.0, 1.0, -1.0, math.inf, -math.inf, 1e-45]),
                st.floats(width=32, allow_nan=False),
            ),
        )
    )
    y = case.make(x.shape[-1])(torch.from_numpy(x)).numpy()
    assert (y == case.oracle(x)).all()


@cases
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_dimension(case, dim):
    if case.layer in (taut.nn.Abs, taut.nn.Scale):
        pytest.skip("acts entry by entry")
    width = width_of(case)
    module = make(case, width)
    module.dim = dim
    shape = [3, 4, 5]
    shape[dim] = width
    x = randn(*shape)
    expected = np.moveaxis(case.oracle(np.moveaxis(x.numpy(), dim, -1)), -1, dim)
    np.testing.assert_allclose(module(x).detach().numpy(), expected, atol=1e-7)


GROUPED = [case for case in ACTIVATIONS if hasattr(case.make(2 * case.group), "dim")]


@pytest.mark.parametrize("case", GROUPED, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (1, 2, 3, 3)], ids=str)
def test_the_dimension_must_be_given_beyond_batch_and_features(case, shape):
    width = width_of(case)
    module, x = make(case, width), randn(*shape, width)
    assert module.dim is None and "dim" not in repr(module)
    name = case.layer.__name__
    with pytest.raises(
        ArgumentError, match=rf"{name}: `dim` must be given for inputs of more than"
    ):
        module(x)
    module.dim = -1
    assert "dim=-1" in repr(module)
    y = module(x)
    module.dim = None
    torch.testing.assert_close(y.flatten(0, -2), module(x.flatten(0, -2)), rtol=0, atol=0)


@cases
def test_jacobian_norm_is_the_constant_in_every_norm_claimed(case):
    width = width_of(case)
    module = make(case, width)
    for _ in range(5):
        x = randn(width)
        jacobian = torch.autograd.functional.jacobian(module, x).numpy()  # type: ignore
        for norm in case.norms:
            order = {"l1": 1, "l2": 2, "linf": np.inf}[norm.name]
            size = np.linalg.norm(jacobian, order)
            assert size <= case.constant * (1 + 1e-12)
            assert size == pytest.approx(case.constant, rel=1e-12)
        if case.isometry:
            values = np.linalg.svd(jacobian, compute_uv=False)
            np.testing.assert_allclose(values, case.constant, rtol=1e-12)
        if case.permutes:
            assert set(np.unique(jacobian)) <= {0.0, 1.0}
            assert (jacobian.sum(0) == 1).all() and (jacobian.sum(1) == 1).all()


@cases
@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from([1e-9, 1e-3, 1.0, 1e3]))
def test_slopes_never_pass_the_constant(case, seed, distance):
    width = width_of(case)
    generator = torch.Generator().manual_seed(seed)
    x, d = torch.randn(2, 16, width, dtype=torch.float64, generator=generator)
    module = make(case, width)
    moved = x + distance * d
    with torch.no_grad():
        difference = module(x) - module(moved)
    for norm in case.norms:
        size = norm.vector(x - moved)
        rounding = 1e-12 * size + 1e-14 * width
        assert (norm.vector(difference) <= case.constant * size + rounding).all()


@cases
def test_gradcheck_twice(case):
    width = width_of(case, 1)
    # Far from ties: finite differences must not cross a kink.
    spread = torch.linspace(-1, 1, 2 * width, dtype=torch.float64) + 0.013
    x = spread[torch.randperm(2 * width)].view(2, width).requires_grad_()
    module = make(case, width)
    assert torch.autograd.gradcheck(module, x)
    assert torch.autograd.gradgradcheck(module, x)


@sorting
@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_ties_get_a_permutation_for_a_gradient(case, seed):
    width = width_of(case)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 2, (width,), generator=generator).double()
    jacobian = torch.autograd.functional.jacobian(make(case, width), x).numpy()  # type: ignore
    assert set(np.unique(jacobian)) <= {0.0, 1.0}
    assert (jacobian.sum(0) == 1).all() and (jacobian.sum(1) == 1).all()
    # A permutation that sorts: the derivative of one of the orders that tie.
    np.testing.assert_array_equal(jacobian @ x.numpy(), case.oracle(x.numpy()))


@cases
def test_half_precision_is_kept(case):
    width = width_of(case)
    x = torch.randn(3, width, dtype=torch.bfloat16)
    if case.layer is not taut.nn.Householder:
        y = case.make(width)(x)
        assert y.dtype == torch.bfloat16
        np.testing.assert_allclose(y.float().numpy(), case.oracle(x.float().numpy()), rtol=1e-2)


@sorting
def test_nan_is_never_swallowed(case):
    # NaN has no place in an order: its group holds NaN afterwards, the other groups are untouched.
    width = width_of(case, 3)
    x = randn(width)
    x[0] = math.nan
    y = make(case, width)(x)
    assert y.isnan().any()
    size = width // case.group if case.layer is not taut.nn.FullSort else 1
    group = y[0::size] if case.layer is not taut.nn.FullSort else y
    assert group.isnan().any()
    clean = torch.ones(width, dtype=torch.bool)
    clean[0::size] = False
    assert not y[clean].isnan().any()
    without = case.oracle(torch.nan_to_num(x).numpy())
    np.testing.assert_array_equal(y[clean].numpy(), without[clean.numpy()])


def test_maxout_propagates_nan():
    for position in range(4):
        x = torch.tensor([1.0, 2.0, 3.0, 4.0])
        x[position] = math.nan
        assert taut.nn.Maxout(2)(x).isnan().tolist() == [position % 2 == 0, position % 2 == 1]


def test_maxmin_is_groupsort_of_two_with_the_halves_exchanged():
    x = randn(5, 8)
    y = taut.nn.GroupSort(2)(x)
    assert torch.equal(taut.nn.MaxMin()(x), torch.cat(y.chunk(2, -1)[::-1], -1))


def test_fullsort_is_one_group():
    for width in (5, 16, 17):
        x = randn(3, width)
        assert torch.equal(taut.nn.FullSort()(x), taut.nn.GroupSort(width)(x))


def test_householder_at_a_right_angle_is_maxmin():
    x = randn(5, 8)
    module = taut.nn.Householder(8).double()
    module.angle.data.fill_(math.pi / 2)
    torch.testing.assert_close(module(x), taut.nn.MaxMin()(x), rtol=0, atol=1e-15)


def test_householder_learns_its_angles_unless_told_otherwise():
    assert len(list(taut.nn.Householder(8).parameters())) == 1
    fixed = taut.nn.Householder(8, learnable=False)
    assert not list(fixed.parameters())
    assert set(fixed.state_dict()) == {"angle"}
    x, angle = randn(3, 8), randn(4).requires_grad_()
    assert torch.autograd.gradcheck(taut.functional.householder, (x, angle))


def test_householder_keeps_lengths_at_any_angle():
    module = taut.nn.Householder(8).double()
    module.angle.data = 10 * randn(4)
    jacobian = torch.autograd.functional.jacobian(module, randn(8))
    np.testing.assert_allclose(np.linalg.svd(jacobian.numpy(), compute_uv=False), 1, rtol=1e-12)  # type: ignore


@pytest.mark.parametrize(
    ("build", "channels", "text"),
    [
        (
            lambda: taut.nn.GroupSort(3),
            64,
            "GroupSort: `group_size` must divide the channel count; got group_size=3, "
            "channels=64. Use 2, 4, 8 or 16.",
        ),
        (lambda: taut.nn.MaxMin(), 7, "channels=7. Use an even number of channels."),
        (lambda: taut.nn.Maxout(2), 7, "Maxout: `group_size` must divide the channel count"),
        (lambda: taut.nn.Householder(4), 7, "Householder: .* the channels it was made for; got 7"),
        (lambda: taut.nn.GroupSort(0), 4, "`group_size` must be a whole number >= 1; got"),
        (lambda: taut.nn.GroupSort(2.0), 4, "`group_size` must be a whole number >= 1; got"),  # type: ignore
        (lambda: taut.nn.Maxout(-1), 4, "Maxout: `group_size` must be a whole number >= 1"),
        (lambda: taut.nn.Householder(5), 5, "`num_channels` must be even; got .*Use 6."),
        (lambda: taut.nn.Scale(math.nan), 4, "Scale: `factor` must be finite; got factor=nan."),
        (lambda: taut.nn.Scale(math.inf), 4, "Scale: `factor` must be finite; got factor=inf."),
    ],
)
def test_errors_teach(build, channels, text):
    with pytest.raises(ArgumentError, match=text):
        build()(torch.randn(2, channels))


@cases
def test_composition_with_an_isometry_keeps_lengths_of_gradients(case):
    if not case.isometry or L2 not in case.norms:
        pytest.skip("not an isometry")
    width = width_of(case)
    x = randn(6, width).requires_grad_()
    g = randn(6, width)
    (make(case, width)(x) * g).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.norm(dim=1), case.constant * g.norm(dim=1))
