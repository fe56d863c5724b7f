"""What stands between convolutions: pooling, downsampling, centring, residual blocks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import taut
import taut.export.architecture
from taut import checker
from taut.errors import ArgumentError


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def jacobian(module, x):
    rows = torch.autograd.functional.jacobian(lambda v: module(v[None])[0].flatten(), x)
    return rows.reshape(len(rows), -1).numpy()


def test_l2_pooling_is_the_length_of_each_window_and_keeps_lengths():
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    windows = x.numpy().reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 2, 4, 3, 5).reshape(2, 3, 2, 3, 4)
    y = taut.nn.L2Pool2d(2)(x)
    np.testing.assert_allclose(y.numpy(), np.linalg.norm(windows, axis=-1))
    torch.testing.assert_close(y.flatten(1).norm(dim=1), x.flatten(1).norm(dim=1))


@pytest.mark.parametrize(("kernel", "stride"), [(2, None), (3, 1), (3, 2), ((1, 2), (2, 1))])
def test_l2_pooling_stays_below_its_proven_constant(kernel, stride):
    module = taut.nn.L2Pool2d(kernel, stride)
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        bound = taut.bound_lipschitz(module, norm, input_shape=(1, 5, 6)).value
        for _ in range(5):
            matrix = jacobian(module, torch.randn(1, 5, 6, dtype=torch.float64))
            assert np.linalg.norm(matrix, order) <= bound * (1 + 1e-12)


def test_l2_pooling_of_zeros_has_derivative_zero():
    x = torch.zeros(1, 1, 2, 2, requires_grad=True)
    taut.nn.L2Pool2d(2)(x).sum().backward()
    assert x.grad is not None and not x.grad.any()


def test_downsampling_is_a_permutation_that_undoes_itself():
    layer = taut.nn.InvertibleDownsampling2d(3)
    x = torch.arange(2 * 36.0).view(1, 2, 6, 6)
    y = layer(x)
    assert y.shape == (1, 18, 2, 2)
    assert sorted(y.flatten().tolist()) == sorted(x.flatten().tolist())
    assert torch.equal(layer.inverse(y), x)
    with pytest.raises(ArgumentError, match=r"`factor` must divide height and width; got factor=3"):
        layer(torch.zeros(1, 1, 4, 6))


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5), (8, 3, 4, 4)], ids=str)
def test_centering_centres_batches_and_leaves_samples_alone_in_evaluation(shape):
    layer = taut.nn.Centering(3, momentum=0.5)
    x = torch.randn(shape) + 2
    y = layer(x)
    assert y.transpose(0, 1).flatten(1).mean(1).abs().max() < 1e-6
    mean = x.transpose(0, 1).flatten(1).mean(1)
    torch.testing.assert_close(layer.running_mean, 0.5 * mean)
    layer.eval()
    before = layer.running_mean.clone()
    torch.testing.assert_close(layer(x[:1]), layer(x)[:1])
    assert torch.equal(layer.running_mean, before)
    torch.testing.assert_close(layer(x) - layer(x.flip(0)), x - x.flip(0))
    assert taut.bound_lipschitz(layer, input_shape=shape[1:]).value == 1


def test_the_gradient_of_centering_takes_the_mean_as_a_constant():
    x = torch.randn(4, 2, requires_grad=True)
    weight = torch.randn(4, 2)
    (taut.nn.Centering(2)(x) * weight).sum().backward()
    torch.testing.assert_close(x.grad, weight)


@pytest.mark.parametrize(
    ("options", "constant"),
    [
        ({}, 1.0),
        ({"scale": 0.25}, 1.0),
        ({"mode": "add"}, 2.0),
        ({"mode": "add", "scale": -0.5}, 1.5),
    ],
    ids=str,
)
def test_residual_constants_follow_from_the_body(options, constant):
    block = taut.nn.Residual(taut.nn.OrthonormalLinear(4, 4, dtype=torch.float64), **options)
    block.eval()
    bound = taut.bound_lipschitz(block, input_shape=(4,)).value
    assert constant * 0.998 <= bound <= constant * (1 + 1e-9)
    matrix = jacobian(block, torch.randn(4, dtype=torch.float64))
    assert np.linalg.norm(matrix, 2) <= bound * (1 + 1e-12)
    body = matrix_of(block.body)
    weight = {"average": block.scale, "add": block.scale}[block.mode]
    rest = 1 - block.scale if block.mode == "average" else 1
    np.testing.assert_allclose(matrix, rest * np.eye(4) + weight * body)


def matrix_of(layer):
    return layer.effective_weight().detach().numpy()


def test_a_learned_residual_weight_is_held_in_the_interval(tmp_path):
    block: Any = taut.nn.Residual(taut.nn.OrthonormalLinear(4, 4), learned=True)
    x = torch.randn(5, 4)
    for value, held in ((0.3, 0.3), (7.0, 1.0), (-2.0, 0.0)):
        block.weight.data.fill_(value)
        assert block.scale == pytest.approx(held)
        wanted = (1 - held) * x + held * block.body(x)
        torch.testing.assert_close(block(x), wanted)
        torch.testing.assert_close(taut.fold(block)(x), wanted)
        assert taut.bound_lipschitz(block, input_shape=(4,)).value <= 1
    block.weight.data.fill_(0.3)
    block(x).sum().backward()
    assert block.weight.grad.abs() > 0
    net = nn.Sequential(block, taut.nn.Residual(nn.Sequential(block)))
    taut.save(net, tmp_path / "net", input_shape=(4,))
    assert checker.check((tmp_path / "net").read_bytes())["constant"] <= 1 + 1e-6
    torch.testing.assert_close(taut.load(tmp_path / "net")(x), net(x))


def test_concatenating_and_root_mean_square_residuals(tmp_path):
    body = taut.nn.OrthonormalConv2d(2, 2, 1, bias=False, dtype=torch.float64)
    block = taut.nn.Residual(body, mode="concat").eval()
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64)
    matrix = jacobian(block, x[0])
    np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False), 1, atol=1e-3)
    assert taut.bound_lipschitz(block, input_shape=(2, 3, 3)).value <= 1
    lengths = nn.Sequential(block, taut.nn.PairLength(1)).eval()
    wanted = (0.5 * x.square() + 0.5 * body(x).square()).sqrt()
    torch.testing.assert_close(lengths(x), wanted)
    assert taut.bound_lipschitz(lengths, input_shape=(2, 3, 3)).value <= 1
    assert np.linalg.norm(jacobian(lengths, x[0]), 2) <= 1 + 1e-9
    zero = torch.zeros_like(x, requires_grad=True)
    lengths(zero).sum().backward()
    assert zero.grad is not None and not zero.grad.any()
    taut.save(block, tmp_path / "net", input_shape=(2, 3, 3))
    torch.testing.assert_close(taut.load(tmp_path / "net")(x), block(x))


@pytest.mark.parametrize("size", [(4, 6), (5, 7), (3, 3), (6, 4)], ids=str)
@pytest.mark.parametrize("kind", ["ScaledAdaptiveAvgPool2d", "AdaptiveL2Pool2d"])
def test_adaptive_pooling_against_windows_by_hand(kind, size):
    layer = getattr(taut.nn, kind)((2, 3))
    x = torch.randn(2, *size, dtype=torch.float64)
    y = layer(x[None])[0]
    constants = {}
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        constants[norm] = taut.bound_lipschitz(layer, norm, input_shape=(2, *size)).value
        assert np.linalg.norm(jacobian(layer, x), order) <= constants[norm] * (1 + 1e-12)
    divisible = size == (4, 6)
    if "Avg" in kind:
        assert np.linalg.norm(jacobian(layer, x), 2) == pytest.approx(1, rel=1e-6)
        assert constants["l2"] <= 1
    elif divisible:
        assert constants["l2"] == 1
    for i, j in np.ndindex(2, 3):
        rows = slice(i * size[0] // 2, -(-(i + 1) * size[0] // 2))
        columns = slice(j * size[1] // 3, -(-(j + 1) * size[1] // 3))
        window = x[:, rows, columns].flatten(1).numpy()
        if "Avg" in kind and divisible:
            wanted = window.mean(1) * np.sqrt(window.shape[1])
        elif "Avg" in kind:
            wanted = window.mean(1) * (y[:, 0, 0] / first_mean(x)).numpy()
        else:
            wanted = np.linalg.norm(window, axis=1)
        np.testing.assert_allclose(y[:, i, j].numpy(), wanted, rtol=1e-9)


def first_mean(x):
    return x[:, : -(-x.shape[1] // 2), : -(-x.shape[2] // 3)].flatten(1).mean(1)


def test_a_separable_convolution_is_its_two_parts():
    block = taut.nn.separable_conv2d(3, 5, 3, 2, 1, multiplier=2, padding_mode="reflect").eval()
    x = torch.randn(2, 3, 6, 6)
    assert block(x).shape == (2, 5, 3, 3)
    layers: Any = block
    assert [layer.groups for layer in layers] == [3, 1]
    assert taut.bound_lipschitz(block, input_shape=(3, 6, 6)).value <= 1
    exact = block.double()
    assert np.linalg.norm(jacobian(exact, x[0].double()), 2) <= 1 + 1e-9


def test_a_second_order_householder_folds_twice():
    layer: nn.Module = taut.nn.make_activation("householder2", 4).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    for row in x:
        values = np.linalg.svd(jacobian(layer, row), compute_uv=False)
        np.testing.assert_allclose(values, 1, atol=1e-9)
    a, b = layer(x).chunk(2, 1)
    assert (b <= 1e-12).all() and (a >= b - 1e-12).all()
    assert taut.bound_lipschitz(layer, input_shape=(4,)).value == 1


def test_residual_refusals_teach():
    with pytest.raises(ArgumentError, match=r"`scale` must lie in \[0, 1\]; got scale"):
        taut.nn.Residual(nn.Identity(), scale=2.0)
    with pytest.raises(ArgumentError, match="`learned` needs mode='average'"):
        taut.nn.Residual(nn.Identity(), mode="add", learned=True)
    with pytest.raises(ArgumentError, match="`mode` must be one of 'average', 'add', 'concat'"):
        taut.nn.Residual(nn.Identity(), mode="sum")
    with pytest.raises(ArgumentError, match="`body` must keep the shape of its input"):
        taut.nn.Residual(nn.Linear(3, 1))(torch.zeros(2, 3))


def test_files_keep_all_of_them(tmp_path):
    net = nn.Sequential(
        taut.nn.InvertibleDownsampling2d(2),
        taut.nn.Centering(4),
        taut.nn.Residual(
            nn.Sequential(taut.nn.OrthonormalConv2d(4, 4, 3, padding=1), taut.nn.MaxMin(dim=1)),
            mode="add",
            scale=0.5,
        ),
        taut.nn.L2Pool2d(2, ceil_mode=True),
        nn.AvgPool2d(1),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    net(torch.randn(6, 1, 8, 8))
    net.eval()
    taut.save(net, tmp_path / "net.taut", input_shape=(1, 8, 8))
    loaded = taut.load(tmp_path / "net.taut")
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(loaded(x), net(x))
    parts = list(loaded.children())[:4]
    assert list(map(repr, parts)) == list(map(repr, list(net.children())[:4]))


@pytest.mark.parametrize(
    "layer", [nn.AvgPool2d(2, divisor_override=1), nn.MaxPool2d(2, return_indices=True)], ids=str
)
def test_files_refuse_pooling_that_they_cannot_say(layer, tmp_path):
    with pytest.raises(ArgumentError, match="must be left out; got"):
        taut.export.architecture.describe(layer)


def test_centering_copies_no_channel():
    layer = taut.nn.Centering(64)
    for mode in (True, False):
        with pytest.raises(ArgumentError, match="`num_features` must be the channel count"):
            layer.train(mode)(torch.randn(2, 1, 4, 4))
    with pytest.raises(ArgumentError, match=r"input shape \(3,\)"):
        taut.nn.Centering(3)(torch.zeros(3))


def test_an_empty_batch_leaves_the_mean_alone():
    layer = taut.nn.Centering(3)
    assert layer(torch.zeros(0, 3, 4, 4)).shape == (0, 3, 4, 4)
    assert torch.equal(layer.running_mean, torch.zeros(3))


def test_downsampling_teaches_what_is_no_image():
    layer = taut.nn.InvertibleDownsampling2d(2)
    with pytest.raises(ArgumentError, match="must be"):
        layer(torch.zeros(4))
    with pytest.raises(ArgumentError, match="multiples of 4"):
        layer.inverse(torch.zeros(1, 3, 2, 2))


def test_shifts_move_five_parts_around_the_borders():
    x = np.random.default_rng(0).normal(size=(2, 7, 4, 5))
    got = taut.nn.ChannelShift2d(2)(torch.from_numpy(x)).numpy()
    up, down, left, right, kept = np.array_split(x, 5, axis=1)
    moved = [np.roll(up, -2, 2), np.roll(down, 2, 2), np.roll(left, -2, 3), np.roll(right, 2, 3)]
    np.testing.assert_array_equal(got, np.concatenate([*moved, kept], axis=1))
    with pytest.raises(taut.errors.NoRuleError, match="mixes the samples of a batch"):
        taut.bound_lipschitz(taut.nn.ChannelShift2d(), input_shape=(4, 4))


def test_blocks_of_shifts_and_rotations_have_orthogonal_jacobians():
    block = taut.nn.shift_rotate(6).double().eval()
    matrix = jacobian(block, torch.randn(6, 3, 3, dtype=torch.float64))
    singular = np.linalg.svd(matrix, compute_uv=False)
    assert 0.99 <= singular.min() and singular.max() <= 1 + 1e-14
    for folded in (block, taut.fold(block)):
        assert taut.bound_lipschitz(folded, input_shape=(6, 3, 3)).value <= 1


def test_only_layers_without_momentum_count_their_batches():
    assert set(taut.nn.Centering(3).state_dict()) == {"running_mean", "bias"}
    for layer in (
        taut.nn.Centering(3, momentum=None),
        taut.nn.LipschitzBatchNorm(3, momentum=None),
    ):
        batches = [torch.randn(4, 3) + i for i in range(3)]
        for batch in batches:
            layer(batch)
        assert layer.state_dict()["num_batches_tracked"] == 3
        torch.testing.assert_close(layer.running_mean, torch.cat(batches).mean(0))


def test_without_momentum_the_running_mean_is_that_of_all_batches(tmp_path):
    layer = taut.nn.Centering(3, momentum=None)
    batches = [torch.randn(4, 3) + i for i in range(5)]
    for batch in batches:
        layer(batch)
    torch.testing.assert_close(layer.running_mean, torch.cat(batches).mean(0))
    taut.save(layer.eval(), tmp_path / "net.taut", input_shape=(3,))
    loaded = taut.load(tmp_path / "net.taut")
    assert torch.equal(loaded(batches[0]), layer(batches[0]))
    checker.check((tmp_path / "net.taut").read_bytes())


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 4, 4)], ids=str)
def test_layer_centering_is_a_projection_with_exact_constants(shape):
    layer = taut.nn.LayerCentering()
    matrix = jacobian(layer, torch.randn(shape, dtype=torch.float64))
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        bound = taut.bound_lipschitz(layer, norm, input_shape=shape).value
        seen = np.linalg.norm(matrix, order)
        assert seen * (1 - 1e-12) <= bound <= seen * (1 + 1e-12)
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-14)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shape", [(16, 3), (8, 3, 4, 4)], ids=str)
def test_one_factor_for_all_channels_never_stretches(spread, shape):
    layer = taut.nn.LipschitzBatchNorm(3, momentum=1.0).double()
    sizes = torch.tensor([1.0, 0.1, 0.5]).view(-1, *(1,) * (len(shape) - 2))
    x = 2 + spread * sizes * torch.randn(shape, dtype=torch.float64)
    variances = x.transpose(0, 1).flatten(1).numpy().var(1)
    factor = 1 / np.sqrt(max(1, variances.max()) + 1e-5)
    mean = x.transpose(0, 1).flatten(1).mean(1).view(sizes.shape)
    torch.testing.assert_close(layer(x), (x - mean) * factor)
    layer.eval()
    torch.testing.assert_close(layer(x), (x - mean) * factor)
    for norm in ("l1", "l2", "linf"):
        bound = taut.bound_lipschitz(layer, norm, input_shape=shape[1:]).value
        assert factor <= bound <= min(1, factor * (1 + 1e-9))


def test_slopes_of_lprelu_are_held_whatever_the_parameter():
    layer = taut.nn.LPReLU(3)
    layer.weight.data = torch.tensor([-7.0, 0.3, 1e30])
    x = torch.tensor([[-2.0, -2.0, -2.0], [1.0, 2.0, 3.0]])
    expected = torch.tensor([[2.0, -0.6, -2.0], [1.0, 2.0, 3.0]])
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(taut.fold(layer)(x), expected)
    for norm in ("l1", "l2", "linf"):
        assert taut.bound_lipschitz(layer, norm, input_shape=(3,)).value == 1


def test_upsampling_undoes_downsampling():
    x = torch.randn(2, 3, 6, 9)
    down, up = taut.nn.InvertibleDownsampling2d(3), taut.nn.InvertibleUpsampling2d(3)
    assert torch.equal(up(down(x)), x) and torch.equal(up(x := down(x)), down.inverse(x))
    assert taut.bound_lipschitz(up, input_shape=(9, 2, 2)).value == 1
    with pytest.raises(ArgumentError, match="multiples of 9"):
        up(torch.zeros(1, 3, 2, 2))


@pytest.mark.parametrize("delta", [1e-3, 0.3, 20.0])
def test_soft_huber_is_a_rounded_absolute_value_of_slope_at_most_one(delta):
    layer = taut.nn.SoftHuber(delta)
    x = torch.cat([torch.linspace(-50, 50, 201), torch.tensor([1e-9, 1e6])]).double()
    got = layer(x).numpy()
    np.testing.assert_allclose(got, np.hypot(x.numpy(), delta) - delta, rtol=1e-9, atol=1e-12)
    size = np.abs(x.numpy())
    assert (np.abs(got - size) <= delta + 1e-15 * size).all()
    assert np.abs(np.diag(jacobian(layer, x))).max() <= 1
    for norm in ("l1", "l2", "linf"):
        assert taut.bound_lipschitz(layer, norm, input_shape=(3,)).value == 1


@pytest.mark.parametrize("kernel", [1, 2, 3, (1, 2), (2, 3)], ids=str)
def test_scaled_means_have_norm_one_and_exact_constants(kernel):
    layer = taut.nn.ScaledAvgPool2d(kernel)
    x = torch.randn(2, 7, 6, dtype=torch.float64)  # the last row of pixels may be left over
    torch.testing.assert_close(
        layer(x[None]), nn.AvgPool2d(kernel)(x[None]) * np.prod(layer.kernel_size) ** 0.5
    )
    matrix = jacobian(layer, x)
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        bound = taut.bound_lipschitz(layer, norm, input_shape=(2, 7, 6)).value
        seen = np.linalg.norm(matrix, order)
        assert seen * (1 - 1e-14) <= bound <= seen * (1 + 1e-12)
    assert taut.bound_lipschitz(layer, input_shape=(2, 7, 6)).value <= 1


def test_adaptive_pooling_is_bounded_before_it_has_run():
    layer = taut.nn.ScaledAdaptiveAvgPool2d((3, 4))
    assert taut.bound_lipschitz(layer, "l2", (1, 7, 9)).value <= 1
