"""Constrained convolutions against a dense float64 oracle, over a grid of shapes and abuses."""

import copy
import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import taut
from cases import ABOVE, CONVOLUTIONS, operator_norm
from taut import checker
from taut.errors import ArgumentError
from taut.norms import L2
from test_contracts import ways

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

convolutions = pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
plain = pytest.mark.parametrize("case", [c for c in CONVOLUTIONS if not c.transposed], ids=str)
orthonormal = pytest.mark.parametrize("case", [c for c in CONVOLUTIONS if c.orthonormal], ids=str)
modes = pytest.mark.parametrize("mode", ["train", "eval"])

SIZES = {1: (8,), 2: (4, 6), 3: (2, 4, 2)}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def scramble(layer, scale=1.0):
    with torch.no_grad():
        layer.weight.copy_(scale * torch.randn_like(layer.weight))
    return layer


def feasible(case, layer, size):
    """Norms in both modes; None where torch has no output for this size, or the layer refuses it."""
    for mode in (True, False):
        layer.train(mode)
        try:
            matrix = case.dense(layer, size)
        except (RuntimeError, ArgumentError):
            return None
        if matrix.size == 0:
            return None
        assert np.isfinite(matrix).all()
        assert operator_norm(matrix, case.norm, case.norm) <= 1 + ABOVE, layer
    return matrix


# The grid


@plain
def test_every_accepted_shape_is_1_lipschitz(case):
    """Shapes, strides, dilations, paddings and groups; wild weights, both modes."""
    kernels = {1: (1, 2, 3, 4), 2: (1, 3, (2, 4)), 3: (2, (1, 2, 2))}[case.dims]
    channels = {1: ((2, 3, 1), (4, 2, 2), (1, 1, 1)), 2: ((2, 3, 1), (4, 2, 2))}
    paddings = ((0, "zeros"), (1, "zeros"), ("same", "zeros"), ("same", "circular"))
    paddings += ((1, "circular"), (1, "reflect"), (1, "replicate"), (2, "symmetric"))
    accepted = refused = 0
    steps = (1, 2, 3) if case.dims == 1 else (1, 2)
    cases: list[Any] = [channels.get(case.dims, channels[2]), kernels, steps, (1, 2), paddings]
    for (a, b, groups), k, stride, dilation, (padding, padding_mode) in itertools.product(*cases):
        options = dict(stride=stride, dilation=dilation, groups=groups, bias=False)
        try:
            layer = case.make(a, b, k, padding=padding, padding_mode=padding_mode, **options)
        except ArgumentError as error:
            refused += 1
            assert case.layer.__name__ in str(error) and "; got" in str(error)
            continue
        accepted += feasible(case, scramble(layer), SIZES[case.dims]) is not None
    assert accepted > 50 and refused > 10


@pytest.mark.parametrize("case", [c for c in CONVOLUTIONS if c.transposed], ids=str)
def test_every_accepted_transposed_shape_is_1_lipschitz(case):
    kernels = {1: (1, 2, 3, 4), 2: (1, 3, (2, 4)), 3: (2,)}[case.dims]
    accepted = 0
    cases: list[Any] = [((2, 3, 1), (4, 2, 2)), kernels, (1, 2), (1, 2), (0, 1), (0, 1)]
    for (a, b, groups), k, stride, dilation, padding, extra in itertools.product(*cases):
        try:
            layer = case.make(a, b, k, stride, padding, extra, groups, False, dilation)
        except ArgumentError as error:
            assert case.layer.__name__ in str(error) and "; got" in str(error)
            continue
        accepted += (
            feasible(case, scramble(layer), (3,) * min(case.dims, 2) + (2,) * (case.dims - 2))
            is not None
        )
    assert accepted > 15


# a, b, kernel, options, size of a circle on which there are `size / stride` outputs
CIRCLES = [
    (3, 3, 3, dict(padding="same"), 6),
    (2, 5, 3, dict(padding="same"), 5),
    (5, 2, 3, dict(padding="same", dilation=2), 7),
    (4, 4, 2, dict(padding="same"), 5),
    (4, 6, 3, dict(padding=1, groups=2), 4),
    (2, 3, 3, dict(padding=1, stride=2), 6),
    (2, 9, 4, dict(padding=1, stride=2), 6),
    (1, 1, 5, dict(padding="same"), 6),
    (3, 20, 2, dict(stride=2), 4),
    (2, 3, 2, dict(stride=2, dilation=3, padding=1), 6),
    # Some inputs are read by no window: kernels shorter than the stride, divisors in common.
    (3, 3, 1, dict(stride=2), 6),
    (2, 3, 2, dict(stride=3), 6),
    (3, 2, 3, dict(stride=2, dilation=2, padding=2), 8),
    (2, 2, 4, dict(stride=4, dilation=2, padding=2), 8),
    (4, 2, 2, dict(stride=2, dilation=4, groups=2, padding=2), 8),
]


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("given", CIRCLES, ids=str)
def test_all_singular_values_are_one_on_a_circle(given, dims, dtype):
    a, b, k, options, n = given
    case = next(c for c in CONVOLUTIONS if c.orthonormal and c.dims == dims and not c.transposed)
    layer = case.make(a, b, k, bias=False, padding_mode="circular", dtype=dtype, **options)
    matrix = feasible(case, scramble(layer), (n,) * dims)
    assert matrix is not None
    outputs = b * (n // options.get("stride", 1)) ** dims
    assert len(matrix) == outputs, "the case is not what it says"
    error = np.abs(np.linalg.svd(matrix, compute_uv=False) - 1).max()
    assert error <= (1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(
    "given", [(2, 4, 2, dict(padding="same"), 3), (2, 9, 2, dict(stride=2), 4)]
)
def test_all_singular_values_are_one_in_three_dimensions(given):
    a, b, k, options, n = given
    layer = taut.nn.OrthonormalConv3d(a, b, k, bias=False, padding_mode="circular", **options)
    case = next(c for c in CONVOLUTIONS if c.layer is type(layer))
    matrix = feasible(case, scramble(layer), (n,) * 3)
    assert matrix is not None and len(matrix) == b * (n // options.get("stride", 1)) ** 3
    np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False), 1, atol=1e-6)


COPIES = ("reflect", "replicate", "symmetric")


@pytest.mark.parametrize("mode", COPIES)
@pytest.mark.parametrize("kind", ["Spectral", "AOL", "Orthonormal"])
@pytest.mark.parametrize(("k", "padding", "stride", "dilation"), [
    (3, 1, 1, 1), (3, 2, 1, 2), (4, 2, 2, 1), (2, "same", 1, 1),
])  # fmt: skip
def test_padding_by_copies_is_1_lipschitz_and_some_kernel_needs_the_division(
    kind, mode, k, padding, stride, dilation
):
    for dims, size in ((1, (9,)), (2, (6, 6))):
        case = next(c for c in CONVOLUTIONS if str(c) == f"{kind}Conv{dims}d")
        options = dict(stride=stride, dilation=dilation, padding=padding, bias=False)
        layer = scramble(case.make(2, 4, k, padding_mode=mode, dtype=torch.float64, **options))
        truth = operator_norm(case.dense(layer.eval(), size), L2, L2)
        proven = taut.bound_lipschitz(layer, input_shape=(2, *size)).value
        assert truth <= proven * (1 + 1e-12) and proven <= 1 + 1e-12
        # Without the division some kernels of norm 1 pass 1, by as much as is divided by: shifts.
        if stride == 1 and kind == "AOL":
            shift = torch.zeros(4, 2, *(k,) * dims, dtype=torch.float64)
            shift[(0, 0, *(0,) * dims)] = 1  # the first tap reads the padding in front
            with torch.no_grad():
                layer.weight.copy_(shift)
            truth = operator_norm(case.dense(layer, size), L2, L2)
            front = (dilation * (k - 1)) // 2 if padding == "same" else padding
            if front > 0 and 2 * front >= dilation * (k - 1):
                assert truth == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("mode", COPIES)
def test_inputs_whose_two_ends_meet_are_refused(mode):
    layer = taut.nn.SpectralConv1d(1, 1, 5, padding=2, padding_mode=mode)
    with pytest.raises(ArgumentError, match=f"must leave some entries .*'{mode}', size"):
        layer(torch.randn(1, 1, {"reflect": 4, "replicate": 1, "symmetric": 3}[mode]))
    assert layer(torch.randn(1, 1, 6)).shape == (1, 1, 6)


@pytest.mark.parametrize("mode", COPIES)
def test_layers_that_pad_by_copies_fold_and_keep_in_files(mode, tmp_path):
    net = nn.Sequential(taut.nn.OrthonormalConv2d(2, 3, 3, padding=1, padding_mode=mode)).eval()
    x = torch.randn(2, 2, 5, 6)
    torch.testing.assert_close(taut.fold(net)(x), net(x))
    bound = taut.save(net, tmp_path / "net", input_shape=(2, 5, 6))
    assert 0.99 <= bound.value <= 1
    assert checker.check((tmp_path / "net").read_bytes())["constant"] == pytest.approx(bound.value)
    assert torch.equal(taut.load(tmp_path / "net")(x), net(x))


@pytest.mark.parametrize("dims", [1, 2])
def test_the_transposed_layer_is_the_adjoint_of_an_orthonormal_one(dims):
    """Without cropping, more outputs than inputs: an isometry."""
    case = next(c for c in CONVOLUTIONS if c.orthonormal and c.dims == dims and c.transposed)
    for a, b, k, stride in ((2, 2, 3, 1), (3, 3, 4, 2), (4, 1, 2, 2), (2, 5, 3, 1)):
        layer = scramble(case.make(a, b, k, stride, bias=False))
        values = np.linalg.svd(case.dense(layer, (3,) * dims), compute_uv=False)
        if b * stride**dims >= a:
            np.testing.assert_allclose(values, 1, atol=1e-6)
        assert values.max() <= 1 + ABOVE


def test_shapes_on_which_others_fail():
    """Transposed layers of few channels are finite; groups count."""
    for k, stride, groups in ((3, 2, 1), (2, 2, 2), (1, 1, 1), (4, 2, 4)):
        layer = taut.nn.SpectralConvTranspose2d(4, 8, k, stride, groups=groups)
        assert torch.isfinite(layer(torch.randn(1, 4, 3, 3))).all()
        twin = taut.nn.OrthonormalConvTranspose2d(4, 8, k, stride, groups=groups)
        assert torch.isfinite(twin(torch.randn(1, 4, 3, 3))).all()


REFUSED = [
    (dict(kernel_size=1, stride=2), "`out_channels` must be at most 4 .*; got 6, kernel_size"),
    (dict(kernel_size=3, stride=2, dilation=2), "`out_channels` must be at most 4 .*; got 6"),
    (dict(kernel_size=3, padding=2, padding_mode="circular"), "circular `padding` must be at most"),
    (dict(kernel_size=3, stride=2, padding="same"), "`padding` must be a number with a stride"),
    (dict(kernel_size=3, groups=3), "`groups` must divide `in_channels`; got groups=3"),
    (dict(kernel_size=(3, 3, 3)), "`kernel_size` must be one number or one per dimension"),
    (dict(kernel_size=0), "`kernel_size` must be a whole number >= 1"),
    (dict(kernel_size=3, padding="full"), "`padding` must be one of 'same', 'valid'"),
    (dict(kernel_size=3, padding_mode="mirror"), "`padding_mode` must be one of"),
    (dict(kernel_size=3, bias="zeros"), "`bias` must be True or False"),
]


@pytest.mark.parametrize(("options", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_teach(options, text):
    with pytest.raises(ArgumentError, match=f"OrthonormalConv2d: .*{text}"):
        taut.nn.OrthonormalConv2d(4, 6, **options)


def test_a_circle_that_the_stride_does_not_divide_is_refused():
    layer = taut.nn.SpectralConv2d(2, 2, 3, stride=2, padding=1, padding_mode="circular")
    layer(torch.randn(1, 2, 4, 6))
    with pytest.raises(
        ArgumentError, match=r"`stride` must divide the size .* got stride=\(2, 2\)"
    ):
        layer(torch.randn(1, 2, 5, 6))
    with pytest.raises(ArgumentError, match="torch has no other kind"):
        taut.nn.SpectralConvTranspose2d(2, 2, 3, padding_mode="circular")


# Rescaling


def test_a_rescaled_kernel_starts_with_all_of_its_norm():
    for a, b, k, stride in ((3, 8, 3, 1), (8, 8, 3, 1), (8, 4, 4, 2), (4, 4, 1, 1)):
        layer = taut.nn.AOLConv2d(a, b, k, stride)
        bound = taut.linalg.bound_convolution(layer.effective_weight(), "l2", stride=stride)
        assert 1 - 1e-5 <= bound.value <= 1 + 1e-8


@pytest.mark.parametrize("channels", [(3, 5), (64, 64)], ids=str)
def test_a_spectral_kernel_keeps_nine_tenths_of_its_norm_in_training(channels):
    layer = taut.nn.SpectralConv2d(channels[0], channels[1], 3, padding=1)
    x, y = torch.randn(2, 4, channels[0], 6, 6)[0], torch.randn(4, channels[1], 6, 6)
    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(4):
        kernel = layer.effective_weight().detach().double()
        seen = torch.fft.fft2(kernel, s=(24, 24)).permute(2, 3, 0, 1)
        assert 0.9 <= torch.linalg.matrix_norm(seen, 2).amax() <= 1
        optimiser.zero_grad()
        (layer(x) * y).mean().neg().backward()
        optimiser.step()


# Training


OPTIMISERS = {
    "adam-1": partial(torch.optim.Adam, lr=1.0),
    "adam-fused-0.1": partial(torch.optim.Adam, lr=0.1, fused=True),
    "adamw-to-zero": partial(torch.optim.AdamW, lr=2.0, weight_decay=0.5),
    "sgd-100": partial(torch.optim.SGD, lr=100.0),
}


def small(case, **options):
    return case.make(3, 4, 3, **({} if case.transposed else {"padding": 1}), **options)


def inputs(case, batch=4, channels=3, dtype=torch.float32):
    return torch.randn(batch, channels, *SIZES[case.dims], dtype=dtype)


@convolutions
@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_feasible_at_any_learning_rate(case, optimiser):
    layer = small(case, bias=False)
    steps = optimiser(layer.parameters())
    for _ in range(3):
        steps.zero_grad()
        (3 * layer(inputs(case)) - 1).square().mean().backward()
        assert torch.isfinite(layer.weight.grad).all()
        steps.step()
        # Evaluation comes first: it must not lean on what training has tidied up.
        for mode in (False, True):
            layer.train(mode)
            case.check_feasible(layer, SIZES[case.dims])


@convolutions
@modes
@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-3, 30.0, 1e38])
def test_feasible_for_weights_of_any_size(case, mode, scale):
    layer = small(case).train(mode == "train")
    with torch.no_grad():
        layer.weight.copy_(scale * torch.randn_like(layer.weight).clamp(-3, 3))
    case.check_feasible(layer, SIZES[case.dims])
    if scale != 1e-40:  # where the derivative of a map that ignores the scale overflows
        layer(inputs(case)).square().sum().backward()
        assert torch.isfinite(layer.weight.grad).all()


@convolutions
@ways
def test_every_way_to_change_a_weight_is_seen_at_once(case, write):
    layer = small(case, bias=False)
    x = inputs(case)
    for mode in (False, True, False):
        layer.train(mode)
        before = layer(x).detach()
        write(layer, 2 * torch.randn_like(layer.weight))
        assert not torch.allclose(layer(x), before)
        case.check_feasible(layer, SIZES[case.dims])


@orthonormal
def test_the_gradient_is_that_of_the_nearest_factors(case):
    """Finite differences along a curve on the manifold, by an independent retraction."""
    layer = small(case, dtype=torch.float64, bias=False).train()
    x = inputs(case, dtype=torch.float64)
    target = torch.randn_like(layer(x))

    def loss():
        return (layer(x) - target).square().mean()

    loss().backward()
    start, gradient = layer.weight.detach().clone(), layer.weight.grad.clone()
    values = []
    for sign in (1, -1):
        moved = (start + sign * 1e-5 * gradient).clone()
        for part in layer.factors.split(moved):
            for matrix in part.flatten(0, -3):
                u, _, vh = np.linalg.svd(matrix.numpy(), full_matrices=False)
                matrix.copy_(torch.from_numpy(u @ vh))
        with torch.no_grad():
            layer.weight.copy_(moved)
            values.append(loss().item())
    slope = (values[0] - values[1]) / 2e-5
    assert slope == pytest.approx(gradient.square().sum().item(), rel=1e-5)


@pytest.mark.parametrize("name", ["SpectralConv1d", "SpectralConv2d", "SpectralConvTranspose1d"])
def test_rescaling_passes_gradcheck(name):
    layer = getattr(taut.nn, name)(2, 3, 3, 2, bias=False, dtype=torch.float64)
    weight = torch.randn(layer.kernel_shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer.constrain, (weight,))


# Modes and dtypes


@convolutions
def test_training_and_evaluation_agree(case):
    layer = scramble(small(case))
    x = inputs(case)
    trained = layer.train()(x)
    torch.testing.assert_close(layer.eval()(x), trained)
    assert torch.equal(layer.effective_weight(), layer.evaluation_weight())


@convolutions
def test_double_and_back(case):
    layer = small(case)
    for cast in (layer.double, layer.float):
        layer.weight.data.mul_(3)
        cast()
        for mode in (True, False):
            assert (
                layer.train(mode)(inputs(case, dtype=layer.weight.dtype)).dtype
                == layer.weight.dtype
            )
            case.check_feasible(layer, SIZES[case.dims])


@convolutions
def test_torch_would_say_the_same(case):
    """The layer is torch's own with the effective weight: same shapes, same numbers."""
    options = dict(stride=2, groups=2)
    for layer in (case.make(4, 6, 4, padding=1, **options), case.make(4, 2, 3, bias=False)):
        twin = getattr(nn, str(case)[len(str(case).split("Conv")[0]) :])(
            4,
            layer.out_channels,
            layer.kernel_size,
            stride=layer.stride,
            padding=layer.padding,
            groups=layer.groups,
            bias=layer.bias is not None,
        )
        twin.load_state_dict(
            {"weight": layer.effective_weight().detach()}
            | ({} if layer.bias is None else {"bias": layer.bias.detach()})
        )
        x = torch.randn(2, 4, *(6,) * case.dims)
        torch.testing.assert_close(layer(x), twin(x))


# Fold, audit, files


@convolutions
def test_folds_to_a_plain_layer_with_equal_outputs_and_a_proof(case):
    layer = scramble(small(case, bias=False))
    layer(inputs(case))
    folded = taut.fold(layer)
    assert type(folded).__module__.startswith("torch.nn")
    x = inputs(case)
    torch.testing.assert_close(folded(x), layer.eval()(x), rtol=1e-5, atol=1e-5)
    shape = (3, *SIZES[case.dims])
    proven = taut.bound_lipschitz(layer, case.norm, input_shape=shape)
    dense = operator_norm(case.dense(layer, SIZES[case.dims]), case.norm, case.norm)
    assert dense * (1 - 1e-9) <= proven.value <= 1 + 1e-6
    assert taut.bound_lipschitz(folded, case.norm, input_shape=shape).value <= 1 + 1e-9


@convolutions
def test_files_keep_the_layer(case, tmp_path):
    layer = scramble(small(case, groups=1))
    net = nn.Sequential(layer, nn.Flatten())
    net(inputs(case))
    x = inputs(case)
    for fold in (False, True):
        taut.save(
            net,
            tmp_path / "net.taut",
            fold=fold,
            norm=case.norm,
            input_shape=(3, *SIZES[case.dims]),
        )
        loaded = taut.load(tmp_path / "net.taut")
        torch.testing.assert_close(loaded(x), net.eval()(x), rtol=1e-5, atol=1e-5)
        if not fold:
            first = next(loaded.children())
            assert type(first) is case.layer and repr(first) == repr(layer)


@convolutions
def test_printing_names_the_arguments(case):
    text = repr(case.make(4, 4, 3, stride=2, padding=1, groups=2, bias=False))
    assert text.startswith(
        f"{case}(4, 4, kernel_size={(3,) * case.dims}, stride={(2,) * case.dims}"
    )
    assert "groups=2, bias=False" in text


def test_a_convolutional_network_is_certified():
    net = nn.Sequential(
        taut.nn.OrthonormalConv2d(1, 4, 3, padding=1),
        taut.nn.Centering(4),
        taut.nn.MaxMin(dim=1),
        taut.nn.InvertibleDownsampling2d(2),
        taut.nn.Residual(nn.Sequential(taut.nn.SpectralConv2d(16, 16, 3, padding=1))),
        nn.Flatten(),
        taut.nn.OrthonormalLinear(64, 3),
    ).eval()
    x = torch.randn(5, 1, 4, 4)
    before = copy.deepcopy(net.state_dict())
    certificates = taut.certify(net, x)
    assert (certificates.prediction == net(x).argmax(1)).all()
    assert taut.bound_lipschitz(net, input_shape=(1, 4, 4)).value <= 1 + 1e-6
    after = net.state_dict()
    assert all(v.dtype == before[k].dtype and torch.equal(v, before[k]) for k, v in after.items())
    assert math.isfinite(float(certificates.radius.max()))


@pytest.mark.parametrize("small", [1e-150, 1.5e-162, 1e-165])
def test_channels_whose_squares_vanish_are_not_stretched(small):
    layer = taut.nn.SpectralConv2d(50, 2, 1, bias=False, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0] = 1.0
        layer.weight[1, 1:] = small
        layer.weight[1, 1] = 1.1 * small
    weight = layer.effective_weight().detach().flatten(1).numpy()
    assert np.linalg.norm(weight, 2) <= 1 + 1e-12
