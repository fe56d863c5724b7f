import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from taut.errors import ArgumentError, DtypeError, NonFiniteError
from taut.linalg import bound_convolution, convolution_norm
from taut.linalg.convolution_symbol import bound_symbol, widen_grid

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
MODES = ["zeros", "circular", "reflect", "replicate"]


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense(kernel, size, *, padding_mode="zeros", transposed=False, **options):
    """The matrix of torch's own layer, from its images of the basis vectors."""
    dims = kernel.dim() - 2
    groups = options.get("groups", 1)
    kind = f"Conv{'Transpose' if transposed else ''}{dims}d"
    first, second = kernel.shape[0], kernel.shape[1] * groups
    channels = (first, second) if transposed else (second, first)
    layer = getattr(torch.nn, kind)(
        *channels, kernel.shape[2:], bias=False, padding_mode=padding_mode, **options
    ).double()
    n = channels[0] * math.prod(size)
    with torch.no_grad():
        layer.weight.copy_(kernel)
        return layer(torch.eye(n).double().reshape(n, channels[0], *size)).reshape(n, -1).T.numpy()


def check(kernel, size, norm, tol=math.inf, **options):
    """The bound of a known size and that of every size are above the truth; the first is near it."""
    truth = np.linalg.norm(dense(kernel, size, **options), ORDERS[norm])
    known = bound_convolution(kernel, norm, **options, input_size=size)
    anywhere = bound_convolution(kernel, norm, **options)
    assert known.value >= truth * (1 - 1e-12), (known.method, options)
    assert anywhere.value >= truth * (1 - 1e-12), (anywhere.method, options)
    assert math.isinf(tol) or known.value <= truth * (1 + tol), (known.method, options)
    return known.value, anywhere.value, truth


@st.composite
def layers(draw):
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 2))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    taps = each(1, 4 if dims < 3 else 2)
    size = each(1, {1: 9, 2: 5, 3: 3}[dims])
    options = {"groups": groups, "stride": each(1, 3), "padding": each(0, 3)}
    options["dilation"] = each(1, 3)
    if draw(st.booleans()):
        options |= {"transposed": True, "output_padding": each(0, 2)}
    else:
        options["padding_mode"] = draw(st.sampled_from(MODES))
    kernel = randn(groups * draw(st.integers(1, 2)), draw(st.integers(1, 2)), *taps)
    sign = draw(st.sampled_from(["mixed", "positive", "single"]))
    if sign == "positive":
        kernel = kernel.abs()
    if sign == "single":
        kernel = torch.where(kernel == kernel.amax(), kernel, 0.0)
    return kernel, size, options


@settings(max_examples=120)
@given(layers())
def test_every_convolution_of_torch_is_below_its_bound(layer):
    kernel, size, options = layer
    try:
        matrix = dense(kernel, size, **options)
    except RuntimeError:  # torch refuses: a window or a padding longer than the input
        assume(False)
        return
    assume(matrix.size)
    for norm in ORDERS:
        check(kernel, size, norm, **options)


# where the bound is the norm


@pytest.mark.parametrize("size", [(7,), (2,), (1,), (6, 5), (3, 2), (3, 2, 2)], ids=str)
def test_l2_is_exact_on_a_circle(size):
    for taps, dilation in ((3, 1), (3, 2), (5, 1)):
        if (taps - 1) * dilation // 2 > min(size) or taps ** len(size) > 100:
            continue  # torch pads by at most one full circle; and the test has little time
        kernel = randn(3, 2, *(taps,) * len(size))
        options = {"padding": (taps - 1) * dilation // 2, "dilation": dilation}
        check(kernel, size, "l2", tol=1e-6, padding_mode="circular", **options)


@pytest.mark.parametrize("stride", [2, 3])
def test_l2_is_exact_on_a_circle_that_the_stride_divides(stride):
    check(randn(3, 2, 3), (12,), "l2", 1e-6, padding=1, padding_mode="circular", stride=stride)
    check(randn(2, 1, 3, 3), (6, 6), "l2", 1e-6, padding=1, padding_mode="circular", stride=stride)


@pytest.mark.parametrize("taps", [(4,), (2, 2), (2, 3), (2, 2, 2)], ids=str)
def test_l2_is_exact_for_patches_side_by_side(taps):
    size = [2 * k for k in taps]
    known, anywhere, _ = check(randn(3, 2, *taps), size, "l2", tol=1e-8, stride=taps)
    assert anywhere == pytest.approx(known, rel=1e-8)
    check(randn(3, 2, *taps), [2] * len(taps), "l2", tol=1e-8, stride=taps, transposed=True)


@pytest.mark.parametrize("groups", [1, 2])
def test_l2_with_zero_padding_is_close(groups):
    for seed in range(2):
        kernel = randn(2, 2 // groups, 3, 3, seed=seed)
        known, anywhere, truth = check(kernel, (12, 12), "l2", 0.05, padding=1, groups=groups)
        assert known <= anywhere * (1 + 1e-8)
        assert anywhere <= truth * 1.06


def test_a_single_pixel_sees_the_centre_of_the_kernel_alone():
    kernel = randn(4, 3, 3, 3)
    for norm in ORDERS:
        check(kernel, (1, 1), norm, tol=1e-8, padding=1)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_sums_are_exact_when_the_kernel_fits(norm, stride, transposed):
    for dilation in (1, 2):
        options = {"stride": stride, "padding": 1, "dilation": dilation, "transposed": transposed}
        check(randn(3, 2, 3), (20,), norm, tol=1e-12, **options)
        check(randn(4, 1, 3, 2), (11, 11), norm, tol=1e-12, groups=2, **options)


def test_dilation_and_size_do_not_change_the_bound_of_every_size():
    kernel = randn(3, 2, 3, 3)
    plain = bound_convolution(kernel, "l2").value
    assert bound_convolution(kernel, "l2", dilation=(2, 5), padding=4).value == plain


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_same_is_the_padding_that_keeps_the_size():
    for taps in (2, 3, 4):
        for mode in MODES:
            check(randn(2, 2, taps), (9,), "l2", padding="same", padding_mode=mode)


def test_huge_sizes_take_a_grid_that_covers_all_frequencies():
    kernel = randn(2, 2, 3, 3)
    known = bound_convolution(kernel, "l2", padding=1, input_size=(10**5, 10**5)).value
    limit = bound_convolution(kernel, "l2", padding=1).value
    exact = bound_convolution(
        kernel, "l2", padding=1, padding_mode="circular", input_size=(300, 300)
    ).value
    assert known == limit
    assert exact <= limit <= exact * 1.003


# what a bound must not do


@pytest.mark.parametrize("norm", ["l1", "l2"])  # copies do not enlarge the largest entry
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_ignoring_what_the_padding_copies_would_be_below_the_truth(mode, norm):
    kernel = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    kernel[..., 1:, 1:] = 4.0
    known, _, truth = check(kernel, (5, 5), norm, padding=1, padding_mode=mode)
    ignorant = bound_convolution(kernel, norm, padding=1, input_size=(5, 5)).value
    assert ignorant < truth <= known


def test_the_adjoint_has_the_dual_norm():
    kernel = randn(3, 2, 3, 3)
    for norm, dual in (("l1", "linf"), ("linf", "l1"), ("l2", "l2")):
        there = bound_convolution(kernel, norm, stride=2, padding=1)
        back = bound_convolution(kernel, dual, stride=2, padding=1, transposed=True)
        assert there.value == back.value
        assert str(back.norm) == dual


def test_without_a_grid_the_flattened_kernel_proves(monkeypatch):
    monkeypatch.setattr(convolution_norm, "_MOST", 0)
    monkeypatch.setattr(convolution_norm, "_QUICK", 0)
    cases: list[dict[str, Any]] = [
        {},
        {"stride": 2},
        {"transposed": True, "stride": 2},
        {"groups": 2},
    ]
    for options in cases:
        kernel = randn(4, 3, 3, 3)
        check(kernel, (5, 5), "l2", padding=1, **options)
        method = bound_convolution(kernel, "l2", padding=1, **options).method
        assert "flattened" in method or "Schur" in method


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-30, 1e30, 1e200, 1e306])
def test_every_range_of_numbers(scale):
    unit = randn(2, 2, 3)
    for norm in ORDERS:
        expected = bound_convolution(unit, norm).value
        kernel = unit * scale
        assert bound_convolution(kernel, norm).value == pytest.approx(
            expected * scale, rel=1e-8 if scale > 1e-300 else 0.1
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_types_are_bounded_as_they_are(dtype):
    kernel = randn(3, 2, 3).to(dtype)
    for norm in ORDERS:
        expected = bound_convolution(kernel.double(), norm).value
        assert bound_convolution(kernel.requires_grad_(), norm).value == expected


def test_zero_and_empty_kernels():
    for norm in ORDERS:
        assert bound_convolution(torch.zeros(2, 2, 3), norm).value == 0
        assert bound_convolution(torch.zeros(0, 2, 3), norm).value == 0


def test_groups_of_very_different_size():
    kernel = randn(3, 1, 3) * torch.tensor([0.0, 1e-200, 1.0], dtype=torch.float64)[:, None, None]
    check(kernel, (9,), "l2", 0.05, padding=1, groups=3)


def test_the_identity_has_norm_one_exactly():
    kernel = torch.zeros(4, 4, 3, 3)
    kernel[range(4), range(4), 1, 1] = 1
    for norm in ORDERS:
        assert bound_convolution(kernel, norm, padding=1).value == 1


# the symbol


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 2, 3, 2, 2), (2, 3, 2, 3)], ids=str)
def test_symbol_is_above_the_truth_to_thirty_digits(shape):
    taps = randn(*shape)
    places = [list(range(k)) for k in shape[3:]]
    points = [5, 4][: len(places)]
    truth = mpmath.mpf(0)
    with mpmath.workdps(30):
        for group in taps:
            for frequency in np.ndindex(*points):
                matrix = mpmath.zeros(*shape[1:3])
                for q in np.ndindex(*shape[3:]):
                    turns = sum(
                        mpmath.mpf(a * b) / n for a, b, n in zip(frequency, q, points, strict=True)
                    )
                    entries = group[(slice(None), slice(None), *q)].tolist()
                    matrix += mpmath.matrix(entries) * mpmath.expjpi(2 * turns)
                truth = max(truth, max(mpmath.svd_c(matrix, compute_uv=False)))
    assert truth <= bound_symbol(taps, places, points) <= truth * (1 + mpmath.mpf(10) ** -8)


def test_symbol_in_many_batches_meets_the_largest_frequency():
    taps = randn(1, 24, 20, 3, 3)
    transfer = torch.fft.fft2(taps[0], s=(30, 29)).permute(2, 3, 0, 1)
    truth = float(torch.linalg.matrix_norm(transfer, 2).amax())
    bound = bound_symbol(taps, [[0, 1, 2]] * 2, [30, 29])
    assert truth * (1 - 1e-12) <= bound <= truth * (1 + 1e-8)


@settings(max_examples=60)
@given(st.integers(0, 6), st.integers(1, 30), st.integers(0, 10**6), st.floats(0, 1))
def test_no_frequency_lies_above_the_widened_grid(degree, more, seed, phase):
    points = degree + more
    taps = randn(2, 2, degree + 1, seed=seed)
    if seed % 3 == 0:  # the extremal case: two opposite taps only
        taps[..., 1:-1] = 0
    places = np.arange(degree + 1)

    def largest(angles):
        wave = torch.from_numpy(np.exp(1j * np.outer(places, angles)))
        transfer = (taps.to(wave.dtype) @ wave).permute(2, 0, 1)
        return float(torch.linalg.matrix_norm(transfer, 2).amax())

    # A shifted grid is as good as the grid at 0: the theorem knows no origin.
    grid = largest(2 * math.pi * (np.arange(points) + phase) / points)
    everywhere = largest(np.linspace(0, 2 * math.pi, 2000))
    assert everywhere <= grid * float(widen_grid(degree, points)) * (1 + 1e-12)


def test_the_widened_grid_is_attained_by_two_taps_in_phase():
    # |1 + e^{imw}| is 2 at 0 and 2 cos(m pi / 2N) half a step of the grid away.
    m, points = 3, 20
    grid = 2 * math.cos(math.pi * m / (2 * points))
    assert 2 <= grid * float(widen_grid(m, points)) <= 2 * (1 + 1e-6)


# refusals


@pytest.mark.parametrize(
    ("shape", "options", "sentence"),
    [
        ((3, 3), {}, "one to three sizes; got shape .3, 3."),
        ((3, 3, 1), {"groups": 2}, "`groups` must divide the first size"),
        ((3, 3, 1), {"padding_mode": "mirror"}, "`padding_mode` must be one of"),
        ((3, 3, 1), {"padding_mode": "circular", "transposed": True}, "torch has no other"),
        ((3, 3, 3), {"padding": "same", "stride": 2}, "stride above 1; got padding='same'"),
        ((3, 3, 3), {"padding": "full"}, "`padding` must be one of 'same', 'valid'"),
        ((3, 3, 3), {"stride": (1, 1)}, "one per dimension; got stride=.1, 1. for 1"),
        ((3, 3, 3), {"dilation": 0}, "`dilation` must be a whole number >= 1"),
        ((3, 3, 3), {"input_size": (2,)}, "must hold a window, padding included; got size 2"),
    ],
)
def test_refusals(shape, options, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        bound_convolution(torch.ones(shape), "l2", **options)


def test_kernels_that_are_no_numbers():
    with pytest.raises(NonFiniteError, match="must be finite"):
        bound_convolution(torch.full((1, 1, 3), math.nan), "l2")
    with pytest.raises(DtypeError, match="floating-point"):
        bound_convolution(torch.ones(1, 1, 3, dtype=torch.int64), "l2")
