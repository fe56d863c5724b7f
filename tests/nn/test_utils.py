"""Constraints on layers of torch: feasible in every forward, proven, removable; initial weights."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import taut
from cases import ConvCase, operator_norm
from taut.errors import ArgumentError
from taut.norms import L1, L2, LINF

DENSE = {
    "orthonormal": (L2, L2), "spectral": (L2, L2), "aol": (L2, L2), "unit_norm": (L2, LINF),
    "linf": (LINF, LINF), "l1": (L1, L1),
}  # fmt: skip
CONVOLUTIONS = ["orthonormal", "spectral", "aol", "linf"]
dense = pytest.mark.parametrize("name", DENSE)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@dense
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)], ids=str)
def test_a_dense_layer_of_torch_is_feasible_at_any_learning_rate(name, shape):
    layer = getattr(taut.nn.utils, name)(nn.Linear(*shape))
    optimiser = torch.optim.Adam(layer.parameters(), lr=1.0)
    x = torch.randn(4, shape[0])
    before = layer(x).detach()
    for _ in range(3):
        optimiser.zero_grad()
        (3 * layer(x) - 1).square().mean().backward()
        optimiser.step()
        for mode in (False, True):
            layer.train(mode)
            weight = layer.weight.detach().double().numpy()
            assert operator_norm(weight, *DENSE[name]) <= 1 + 2e-6
    assert not torch.allclose(layer(x), before)
    p, q = DENSE[name]
    assert taut.bound_lipschitz(layer, p, output_norm=q).value <= 1 + 1e-6


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("kind", ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d"])
def test_a_convolution_of_torch_is_feasible_at_any_learning_rate(name, kind):
    make = getattr(nn, kind)
    if name == "linf" and kind in ("Conv3d", "ConvTranspose2d"):
        with pytest.raises(ArgumentError, match="must have a constrained counterpart; got Conv"):
            taut.nn.utils.linf(make(2, 3, 2))
        return
    dims = int(kind[-2])
    layer = getattr(taut.nn.utils, name)(make(2, 3, 2, stride=2, bias=False))
    optimiser = torch.optim.Adam(layer.parameters(), lr=1.0)
    x = torch.randn(2, 2, *(4,) * dims)
    norm = LINF if name == "linf" else L2
    for _ in range(2):
        optimiser.zero_grad()
        (3 * layer(x) - 1).square().mean().backward()
        optimiser.step()
        for mode in (False, True):
            layer.train(mode)
            matrix = ConvCase(make, dims).dense(layer, (4,) * dims)
            assert operator_norm(matrix, norm, norm) <= 1 + 2e-6
            if name == "orthonormal":
                np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False), 1, atol=1e-5)
    assert taut.bound_lipschitz(layer, norm, input_shape=x.shape[1:]).value <= 1 + 1e-6


@dense
def test_it_can_be_copied_saved_and_removed(name, tmp_path):
    layer = getattr(taut.nn.utils, name)(nn.Linear(4, 3))
    x = torch.randn(5, 4)
    expected = layer.eval()(x)
    twin = copy.deepcopy(layer)
    state = layer.state_dict()
    assert set(state) == {"bias", "parametrizations.weight.original"}
    other = getattr(taut.nn.utils, name)(nn.Linear(4, 3)).eval()
    other.load_state_dict(state)
    torch.testing.assert_close(other(x), expected)
    plain = taut.nn.utils.remove(twin)
    assert type(plain) is nn.Linear and not parametrize.is_parametrized(plain)
    torch.testing.assert_close(plain(x), expected)
    assert torch.equal(layer(x), expected)
    assert isinstance(plain.weight, nn.Parameter) and len(list(plain.parameters())) == 2
    assert type(taut.fold(layer)) is nn.Linear
    taut.save(nn.Sequential(layer), tmp_path / "net", fold=True)
    torch.testing.assert_close(taut.load(tmp_path / "net")(x), expected)


def test_a_removed_convolution_keeps_its_orthonormal_kernel():
    layer = taut.nn.utils.orthonormal(nn.Conv2d(2, 4, 3, padding=1))
    expected = layer(torch.ones(1, 2, 4, 4))
    with pytest.raises(ArgumentError, match="must be changed through its factors"):
        layer.weight = torch.zeros(4, 2, 3, 3)
    plain = taut.nn.utils.remove(layer)
    assert type(plain) is nn.Conv2d and plain.weight.shape == (4, 2, 3, 3)
    torch.testing.assert_close(plain(torch.ones(1, 2, 4, 4)), expected)


def test_refusals_teach():
    with pytest.raises(ArgumentError, match="`name` must be that of a parameter"):
        taut.nn.utils.spectral(nn.Linear(2, 2, bias=False), "bias")
    with pytest.raises(ArgumentError, match="must be a convolution, or hold a matrix"):
        taut.nn.utils.spectral(nn.BatchNorm1d(3))
    with pytest.raises(ArgumentError, match="must be that of a constrained tensor"):
        taut.nn.utils.remove(nn.Linear(2, 2))


@pytest.mark.parametrize(
    "shape", [(5, 3), (3, 5), (4, 2, 3), (2, 4, 3, 2), (4, 2, 2, 2, 2)], ids=str
)
def test_initial_weights_have_norm_one(shape):
    for groups in (1, 2) if len(shape) > 2 else (1,):
        for fill in (taut.nn.init.orthonormal_, taut.nn.init.spectral_):
            weight = fill(torch.empty(shape), groups=groups).double()
            if len(shape) == 2:
                norm = np.linalg.norm(weight.numpy(), 2)
            else:
                norm = taut.linalg.bound_convolution(weight, "l2", groups=groups).value
            assert 0.99 < norm < 1 + 1e-5
    kernel = taut.nn.init.orthonormal_(torch.empty(2, 3, 4), stride=2)
    spread = torch.nn.functional.conv1d(torch.randn(1, 3, 9), kernel, stride=2)
    assert spread.shape == (1, 2, 3)
    with pytest.raises(ArgumentError, match="must be a matrix or a kernel"):
        taut.nn.init.spectral_(torch.empty(3))


@pytest.mark.parametrize("constrain", ["orthonormal", "spectral", "aol"])
@pytest.mark.parametrize("mode, stride", [("circular", 2), ("reflect", 1), ("replicate", 1)])
def test_paddings_whose_norm_depends_on_the_input_are_refused(constrain, mode, stride):
    layer = nn.Conv1d(2, 3, 3, stride, padding=1, padding_mode=mode)
    with pytest.raises(ArgumentError, match="which a layer of torch does not check"):
        getattr(taut.nn.utils, constrain)(layer)
    assert not parametrize.is_parametrized(layer)


def test_a_constraint_in_a_chain_is_not_removed():
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    layer = taut.nn.utils.spectral(nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "weight", Double())
    with pytest.raises(
        ArgumentError, match="with one parametrization, or the others would go with it"
    ):
        taut.nn.utils.remove(layer)
