import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import taut
from cases import ACTIVATIONS, DENSE, SHAPES, operator_norm
from taut.errors import ArgumentError, NonFiniteError, NoRuleError
from taut.linalg import bound_operator_norm

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
dense = pytest.mark.parametrize("case", DENSE, ids=str)


def wild(model, scale=3.0):
    """Numbers as a careless optimiser would leave them."""
    for value in model.parameters():
        value.data = scale * torch.randn_like(value)
    return model


def snapshot(model):
    """Everything a module holds that could change: bits of state, identities, modes, memories."""
    return [
        (
            name,
            id(module),
            type(module),
            module.training,
            {
                k: (id(v), v._version, v.requires_grad)
                for k, v in module._parameters.items()
                if v is not None
            },
            {k: id(v) for k, v in module._modules.items()},
            {k: v.detach().clone().numpy().tobytes() for k, v in module.state_dict().items()},
        )
        for name, module in model.named_modules()
    ]


def assert_equal_outputs(folded, model, x):
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        wanted, got = model(x), folded(x)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    assert (got - wanted).abs().max() <= 1e-6 * wanted.abs().max()


@dense
@dtypes
@pytest.mark.parametrize("shape", ["tall", "wide", "square", "scalar"])
def test_a_layer_folds_to_a_linear_layer_of_proven_norm(case, dtype, shape):
    n, m = SHAPES[shape]
    for layer in (case.make(n, m, dtype=dtype), wild(case.make(n, m, dtype=dtype))):
        before = snapshot(layer)
        folded = taut.fold(layer)
        assert snapshot(layer) == before
        assert type(folded) is nn.Linear and not folded.training
        assert folded.weight.dtype == dtype and not folded.weight.requires_grad
        assert bound_operator_norm(folded.weight, case.input_norm, case.output_norm).value <= 1
        seen = operator_norm(folded.weight.double().numpy(), case.input_norm, case.output_norm)
        assert seen <= 1 + 1e-14
        assert_equal_outputs(folded, layer, torch.randn(9, n, dtype=dtype))


@dtypes
def test_large_float64_orthonormal_weights_are_shrunk_until_proven(dtype, size=150):
    layer = taut.nn.OrthonormalLinear(size, size, dtype=dtype)
    folded = taut.fold(layer)
    assert taut.bound_lipschitz(folded).value <= 1
    assert np.linalg.svd(folded.weight.double().numpy(), compute_uv=False).min() >= 0.998
    assert_equal_outputs(folded, layer, torch.randn(5, size, dtype=dtype))


@pytest.mark.parametrize("case", ACTIVATIONS, ids=str)
@dtypes
def test_activations_stay(case, dtype):
    width = 2 * max(2, case.group)
    model = nn.Sequential(taut.nn.OrthonormalLinear(5, width), case.make(width)).to(dtype)
    folded = taut.fold(model)
    assert type(folded[1]) is case.layer
    assert folded[1] is not model[1]
    assert_equal_outputs(folded, model, torch.randn(20, 5, dtype=dtype))


@pytest.mark.parametrize("lipschitz", [0.3, 10.0])
@pytest.mark.parametrize(
    "constraint", ["orthonormal", "bjorck", "spectral", "parseval", "linf", "l1"]
)
@dtypes
def test_the_constant_of_a_folded_network_is_proven(lipschitz, constraint, dtype):
    model = taut.nn.mlp([6, 16, 16, 3], constraint=constraint, lipschitz=lipschitz).to(dtype)
    model = wild(model)
    norm = constraint if constraint in ("linf", "l1") else "l2"
    folded = taut.fold(model)
    # The builder's factors are K^(1/3) as stored; their product is K but for two roundings.
    target = math.prod(m.factor for m in model if isinstance(m, taut.nn.Scale))
    assert taut.bound_lipschitz(folded, norm).value <= target * (1 + 4e-16)
    assert target == pytest.approx(lipschitz, rel=1e-15)
    assert_equal_outputs(folded, model, torch.randn(50, 6, dtype=dtype))


def test_nested_trees_shared_layers_and_names_are_kept():
    class Block(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.inner = nn.ModuleDict({"a": layer, "b": taut.nn.LinfLinear(8, 8)})
            self.again = layer

        def forward(self, x):
            return self.again(x + self.inner["b"](torch.relu(self.inner["a"](x))))

    shared = taut.nn.OrthonormalLinear(8, 8)
    model = nn.Sequential(shared, nn.Sequential(Block(shared), nn.Dropout(0.5)), shared)
    before = snapshot(model)
    folded: Any = taut.fold(model)
    assert snapshot(model) == before
    assert folded[0] is folded[2] is folded[1][0].again is folded[1][0].inner["a"]
    assert type(folded[1][0]) is Block
    assert not any(isinstance(m, taut.nn.ConstrainedLinear) for m in folded.modules())
    assert not any(m.training for m in folded.modules())
    assert list(folded.state_dict()) == list(model.state_dict())
    assert_equal_outputs(folded, model, torch.randn(4, 8))


def test_the_original_trains_on_and_the_copy_stays():
    model: Any = taut.nn.mlp([4, 8, 1])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.randn(16, 4)
    model(x).square().mean().backward()
    folded: Any = taut.fold(model)
    kept = {name: value.clone() for name, value in folded.state_dict().items()}
    optimiser.step()
    model(x)
    assert not torch.equal(model[0].weight, folded[0].weight)
    for name, value in folded.state_dict().items():
        assert torch.equal(value, kept[name])
    twin = copy.deepcopy(model).eval()
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(taut.fold(twin)(x), twin(x), rtol=1e-6, atol=1e-6)


def test_training_mode_folds_to_what_evaluation_computes():
    model = wild(taut.nn.mlp([4, 8, 2], constraint="bjorck")).train()
    assert_equal_outputs(taut.fold(model), model, torch.randn(5, 4))
    assert model.training


@pytest.mark.parametrize(
    "make",
    [
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        parametrizations.weight_norm,
        lambda layer: parametrize.register_parametrization(layer, "bias", nn.Softsign()),
    ],
)
def test_parametrised_layers_become_plain_and_the_original_survives(make):
    """`remove_parametrizations` on a deep copy takes the property away from the original's class."""
    layer = nn.Linear(6, 6)
    make(layer)
    model = nn.Sequential(layer, taut.nn.OrthonormalLinear(6, 3)).train()
    model(torch.randn(2, 6))
    before = snapshot(model)
    folded = taut.fold(model)
    assert snapshot(model) == before
    assert type(folded[0]) is nn.Linear and type(folded[1]) is nn.Linear
    assert not parametrize.is_parametrized(folded[0])
    assert parametrize.is_parametrized(model[0])
    assert sorted(folded[0].state_dict()) == ["bias", "weight"]
    x = torch.randn(7, 6)
    assert_equal_outputs(folded, model, x)
    model(x).sum().backward()  # the original still trains


def test_a_parametrised_container_has_its_inside_folded():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.tensor(0.3))
            self.layer = taut.nn.L1Linear(3, 3)

        def forward(self, x):
            return self.gain * self.layer(x)

    model = nn.Sequential(Gate())
    parametrize.register_parametrization(model[0], "gain", nn.Tanh())
    folded: Any = taut.fold(model)
    assert type(folded[0]) is Gate and type(folded[0].layer) is nn.Linear
    assert_equal_outputs(folded, model, torch.randn(4, 3))


def test_no_bias_stays_no_bias():
    folded = taut.fold(taut.nn.SpectralLinear(3, 2, bias=False))
    assert folded.bias is None
    assert "bias=False" in repr(folded)


def test_random_numbers_are_left_alone():
    model = taut.nn.mlp([3, 4, 1])
    state = torch.get_rng_state()
    taut.fold(model)
    assert torch.equal(torch.get_rng_state(), state)


def test_folding_twice_changes_nothing():
    once = taut.fold(taut.nn.mlp([3, 8, 2]).double())
    twice = taut.fold(once)
    assert repr(twice) == repr(once)
    for a, b in zip(twice.parameters(), once.parameters(), strict=True):
        assert torch.equal(a, b) and a is not b


def test_hooks_and_own_forwards_are_refused_by_name():
    model = taut.nn.mlp([3, 4, 1])
    model[2].register_forward_hook(lambda module, args, out: out.neg())
    with pytest.raises(NoRuleError, match="fold: `2` .OrthonormalLinear. has forward hooks"):
        taut.fold(model)

    class Doubled(taut.nn.ConstrainedLinear):
        input_norm = output_norm = taut.L2

        def constrain(self, weight):
            return weight / weight.norm()

        constrain_traceable = constrain

        def forward(self, x):
            return 2 * super().forward(x)

    layer = Doubled(3, 3)
    layer.reset_parameters()
    with pytest.raises(NoRuleError, match="has a forward of its own"):
        taut.fold(layer)


def test_what_is_broken_is_refused():
    layer = taut.nn.SpectralLinear(3, 2)
    layer.weight.data[0, 0] = math.nan
    with pytest.raises(NonFiniteError, match="must be finite"):
        taut.fold(layer)
    model = nn.Sequential(taut.nn.SpectralLinear(3, 2))
    model.extra = torch.ones(1, requires_grad=True) * 2  # part of a graph: torch does not copy it
    with pytest.raises(
        ArgumentError, match="fold: `model` must be one that copy.deepcopy can copy"
    ):
        taut.fold(model)
