import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from taut import functional
from taut.errors import ArgumentError
from taut.linalg import bound_adaptive_pooling, bound_padding, bound_pooling

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
norms = pytest.mark.parametrize("norm", ORDERS)


def dense(op, size):
    """The matrix of a linear map, from its images of the basis vectors."""
    n = math.prod(size)
    basis = torch.eye(n, dtype=torch.float64).reshape(n, 1, *size)
    return op(basis).reshape(n, -1).T.numpy()


def dense_norm(op, size, norm):
    return np.linalg.norm(dense(op, size), ORDERS[norm])


def at_least(bound, truth):
    return bound.value >= truth * (1 - 1e-13)


# padding

MODES = ["constant", "replicate", "reflect", "symmetric", "circular"]


@norms
@pytest.mark.parametrize("mode", MODES)
def test_padding_of_a_known_size_is_exact_and_of_unknown_size_the_worst_case(mode, norm):
    for front, behind in itertools.product(range(4), range(4)):
        truths = []
        for n in range(1, 12):
            if mode == "reflect" and max(front, behind) >= n:
                continue
            if mode in ("circular", "symmetric") and max(front, behind) > n:
                continue
            pad = (front, behind)
            truth = dense_norm(lambda x, pad=pad: functional.pad(x, pad, mode), (n,), norm)
            bound = bound_padding(pad, mode, norm, input_size=(n,))
            assert at_least(bound, truth) and bound.value <= truth * (1 + 1e-12)
            truths.append(truth)
        worst = bound_padding((front, behind), mode, norm).value
        assert worst >= max(truths) * (1 - 1e-12)
        assert worst <= max(truths) * (1 + 1e-12)


@norms
@pytest.mark.parametrize("mode", MODES)
def test_padding_pairs_run_from_the_last_dimension(mode, norm):
    pad, size = (0, 2, 1, 1), (3, 4)
    truth = dense_norm(lambda x: functional.pad(x, pad, mode), size, norm)
    assert bound_padding(pad, mode, norm, size).value == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("pad", [(2, 1), (0, 3), (1, 0, 2, 3), (3, 3, 1, 1)], ids=str)
def test_symmetric_padding_is_numpy_s(pad):
    x = torch.randn(2, 2, 3, 4)
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    wanted = np.pad(x.numpy(), [(0, 0)] * (4 - len(pairs)) + pairs, "symmetric")
    np.testing.assert_array_equal(functional.pad(x, pad, "symmetric").numpy(), wanted)
    with pytest.raises(ArgumentError, match="`pad` must be at most the size of the input"):
        functional.pad(x, (5, 0), "symmetric")


def test_cropping_does_not_enlarge():
    assert bound_padding((-1, -2), "constant", "l2").value == 1
    assert bound_padding((1, 1), "zeros", "l1").value == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (((1,), "reflect", "l2"), "`pad` must hold pairs .* got 1 numbers"),
        (((1, 1), "reflect", "l2", (3, 3)), "one size per padded dimension; got 2 sizes for 1"),
        (((3, 0), "reflect", "l2", (3,)), "shorter than the input"),
        (((-1, 0), "replicate", "l2"), "must be non-negative"),
        (((1, 1), "mirror", "l2"), "`mode` must be one of"),
    ],
)
def test_padding_refuses(arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        bound_padding(*arguments)


# average pooling


@st.composite
def pools(draw, dims):
    k = [draw(st.integers(1, 5 if dims == 1 else 3)) for _ in range(dims)]
    s = [draw(st.integers(1, 4)) for _ in range(dims)]
    pad = [draw(st.integers(0, each // 2)) for each in k]
    n = [draw(st.integers(1, {1: 14, 2: 7, 3: 4}[dims])) for _ in range(dims)]
    assume(all(size + 2 * p >= each for size, p, each in zip(n, pad, k, strict=True)))
    return k, s, pad, n


POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
LP = {1: F.lp_pool1d, 2: F.lp_pool2d, 3: F.lp_pool3d}


@settings(max_examples=80)
@given(st.data(), st.integers(1, 3), st.booleans(), st.booleans())
def test_average_pooling_is_never_above_its_bound(data, dims, ceil_mode, counts_pad):
    k, s, pad, n = data.draw(pools(dims))
    # torch wants whole windows in three dimensions.
    assume(dims < 3 or all(size >= each for size, each in zip(n, k, strict=True)))
    matrix = dense(lambda x: POOL[dims](x, k, s, pad, ceil_mode, counts_pad), n)
    options = {"dims": dims, "ceil_mode": ceil_mode, "count_include_pad": counts_pad}
    for norm, order in ORDERS.items():
        truth = np.linalg.norm(matrix, order)
        known = bound_pooling("average", norm, k, s, pad, **options, input_size=n)
        assert at_least(known, truth)
        anywhere = bound_pooling("average", norm, k, s, pad, **options)
        assert at_least(anywhere, truth)
        # Known sizes are exact wherever the divisors differ from window to window.
        varying = all(ceil_mode or (p and not counts_pad) for p in pad)
        if varying and norm != "linf":
            assert known.value <= truth * (1 + 1e-7)


@norms
@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_average_pooling_has_the_least_constant_over_all_sizes(k, s, norm):
    truths = [dense_norm(lambda x: F.avg_pool1d(x, k, s), (n,), norm) for n in [*range(k, 20), 400]]
    value = bound_pooling("average", norm, k, s, dims=1).value
    assert max(truths) <= value * (1 + 1e-13)
    assert value <= max(truths) * (1 + (1e-3 if norm == "l2" else 1e-12))


@pytest.mark.parametrize("k", [(2,), (3,), (2, 2), (3, 2), (2, 2, 2)])
def test_average_pooling_without_overlap_is_exact(k):
    size = [2 * each for each in k]
    truth = dense_norm(lambda x: POOL[len(k)](x, k), size, "l2")
    bound = bound_pooling("average", "l2", k, dims=len(k))
    assert bound.value == pytest.approx(math.prod(k) ** -0.5, rel=1e-15)
    assert truth == pytest.approx(bound.value, rel=1e-12)


@norms
@pytest.mark.parametrize("divisor", [1, 3, -2, 100])
def test_a_given_divisor(divisor, norm):
    def pool(x):
        return F.avg_pool2d(x, 3, 2, 1, True, False, divisor)

    bound = bound_pooling(
        "average", norm, 3, 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=divisor
    )
    truths = [dense_norm(pool, (n, n), norm) for n in range(2, 12)]
    assert at_least(bound, max(truths))
    if norm != "l2":
        assert bound.value == pytest.approx(max(truths), rel=1e-12)


def test_taking_every_divisor_for_full_would_be_below_the_truth():
    truth = dense_norm(lambda x: F.avg_pool1d(x, 3, 1, 1, False, False), (9,), "l1")
    full = bound_pooling("average", "l1", 3, 1, 1, dims=1).value
    honest = bound_pooling("average", "l1", 3, 1, 1, dims=1, count_include_pad=False).value
    assert full < truth <= honest * (1 + 1e-15)


def test_long_inputs_take_the_bound_of_every_size():
    options = {"dims": 1, "count_include_pad": False}
    long = bound_pooling("average", "l2", 4, 1, 2, **options, input_size=(10**6,))
    assert long.value == bound_pooling("average", "l2", 4, 1, 2, **options).value


# max and L2 pooling


def slopes(op, size, order, generator, tries=60):
    """Slopes between random points and near single peaks, where the constants are attained."""
    for _ in range(tries):
        x = torch.randn(1, 1, *size, dtype=torch.float64, generator=generator)
        step = torch.zeros_like(x)
        at = torch.randint(x.numel(), (), generator=generator)
        step.view(-1)[at] = 1e-4
        peak = torch.zeros_like(x)
        peak.view(-1)[at] = 10.0
        noise = 1e-3 * torch.randn(x.shape, dtype=torch.float64, generator=generator)
        flat = torch.ones_like(x)
        for start, moved in ((x, noise), (x, step), (peak, step), (flat, 1e-4 * flat)):
            # A window with no cell but padding holds -inf before and after: no change.
            change = (op(start + moved) - op(start)).flatten().nan_to_num(nan=0)
            yield float(torch.linalg.vector_norm(change, order)) / float(
                torch.linalg.vector_norm(moved.flatten(), order)
            )


@settings(max_examples=25)
@given(st.data(), st.integers(1, 3), st.booleans(), st.integers(1, 3), st.integers(0, 10**6))
def test_max_pooling_has_no_steeper_slope(data, dims, ceil_mode, dilation, seed):
    k, s, pad, n = data.draw(pools(dims))
    assume(all(m + 2 * p > dilation * (j - 1) for m, p, j in zip(n, pad, k, strict=True)))
    generator = torch.Generator().manual_seed(seed)
    for norm, order in ORDERS.items():
        options = {"dims": dims, "dilation": dilation, "ceil_mode": ceil_mode}
        bound = bound_pooling("max", norm, k, s, pad, **options, input_size=n).value
        assert bound <= bound_pooling("max", norm, k, s, pad, **options).value
        found = slopes(lambda x: MAX[dims](x, k, s, pad, dilation, ceil_mode), n, order, generator)
        assert max(itertools.islice(found, 24)) <= bound * (1 + 1e-9)


@settings(max_examples=25)
@given(st.data(), st.integers(1, 3), st.booleans(), st.integers(0, 10**6))
def test_l2_pooling_has_no_steeper_slope(data, dims, ceil_mode, seed):
    k, s, _, n = data.draw(pools(dims))
    assume(all(size >= each for size, each in zip(n, k, strict=True)))
    generator = torch.Generator().manual_seed(seed)
    for norm, order in ORDERS.items():
        options = {"dims": dims, "ceil_mode": ceil_mode}
        bound = bound_pooling("lp", norm, k, s, **options).value
        found = slopes(
            lambda x: LP[dims](x, 2.0, k[0] if dims == 1 else k, s, ceil_mode), n, order, generator
        )
        assert max(itertools.islice(found, 24)) <= bound * (1 + 1e-9)
        bound = bound_pooling("lp", norm, k, s, **options, input_size=n).value
        assert max(itertools.islice(found, 24)) <= bound * (1 + 1e-9)


@norms
@pytest.mark.parametrize(("k", "s", "dilation"), [(2, 2, 1), (3, 2, 1), (3, 1, 1), (3, 2, 2)])
def test_constants_of_max_pooling_are_attained(k, s, dilation, norm):
    generator = torch.Generator().manual_seed(0)
    bound = bound_pooling("max", norm, k, s, dilation=dilation).value
    found = slopes(
        lambda x: F.max_pool2d(x, k, s, 0, dilation), (9, 9), ORDERS[norm], generator, tries=200
    )
    assert max(found) == pytest.approx(bound, rel=1e-6)


@norms
def test_constants_of_l2_pooling_are_attained(norm):
    generator = torch.Generator().manual_seed(0)
    bound = bound_pooling("lp", norm, 3, 2).value
    found = slopes(lambda x: F.lp_pool2d(x, 2.0, 3, 2), (9, 9), ORDERS[norm], generator, 200)
    assert max(found) == pytest.approx(bound, rel=1e-6)


# adaptive pooling


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9)), min_size=1, max_size=2))
def test_adaptive_average_pooling_is_exact(sides):
    output, size = zip(*sides, strict=True)
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d}[len(sides)]
    matrix = dense(lambda x: pool(x, output), size)
    for norm, order in ORDERS.items():
        bound = bound_adaptive_pooling("average", norm, output, size)
        truth = np.linalg.norm(matrix, order)
        assert at_least(bound, truth)
        assert bound.value <= truth * (1 + 1e-7)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9)), min_size=1, max_size=2))
def test_adaptive_max_pooling_is_attained_where_windows_overlap_most(sides):
    output, size = zip(*sides, strict=True)
    pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d}[len(sides)]
    peaks = 10 * torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, 1, *size)
    change = (pool(1.5 * peaks, output) - pool(peaks, output)).flatten(1).numpy() / 5
    for norm, order in ORDERS.items():
        bound = bound_adaptive_pooling("max", norm, output, size).value
        assert bound == pytest.approx(np.linalg.norm(change, order, axis=1).max(), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bound_pooling("median", "l2", 2), "`kind` must be one of"),
        (lambda: bound_pooling("average", "l2", 2, dilation=2), "`dilation` must be what torch"),
        (lambda: bound_pooling("lp", "l2", 2, padding=1), "`padding` must be what torch"),
        (lambda: bound_pooling("max", "l2", 2, padding=2), "at most half a window; got padding=2"),
        (lambda: bound_pooling("max", "l2", (2, 2, 2)), "one per dimension; got kernel_size"),
        (lambda: bound_pooling("max", "l2", 2, stride=0), "`stride` must be a whole number >= 1"),
        (lambda: bound_pooling("average", "l2", 2, divisor_override=0), "must not be 0"),
        (lambda: bound_adaptive_pooling("max", "l2", (1,), (4, 4)), "the length of `input_size`"),
        (lambda: bound_adaptive_pooling("median", "l2", (1,), (4,)), "`kind` must be one of"),
    ],
)
def test_pooling_refuses(call, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        call()
