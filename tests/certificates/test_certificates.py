"""The result object, and how `certify` treats its arguments."""

import copy
import re

import pytest
import torch
from torch import nn

import taut
from taut.errors import ArgumentError, DtypeError, NoRuleError


@pytest.fixture
def model():
    torch.manual_seed(0)
    return taut.nn.mlp([4, 16, 3], lipschitz=2.0)


@pytest.fixture
def x():
    return torch.randn(33, 4, generator=torch.Generator().manual_seed(2))


def test_batches_change_nothing_of_note(model, x):
    whole = taut.certify(model, x, batch_size=1000)
    parts = taut.certify(model, x, batch_size=4)
    assert torch.equal(whole.prediction, parts.prediction)
    torch.testing.assert_close(whole.radius, parts.radius, rtol=1e-9, atol=1e-12)
    assert whole.radius.dtype == whole.margin.dtype == torch.float64


@pytest.mark.parametrize("arithmetic", ["real", "float64", "float32"])
@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_alone(model, x, training, arithmetic):
    model = nn.Sequential(nn.Dropout(0.5), *model).train(training)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    found = taut.certify(model, x, arithmetic=arithmetic)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert torch.equal(found.prediction, model.eval()(x).argmax(1))


def test_a_trained_weight_that_left_its_constraint_is_certified_as_evaluation_uses_it(model, x):
    model.eval()
    for parameter in model.parameters():
        parameter.data *= 5
    found = taut.certify(model, x)
    assert found.lipschitz.value <= 2.0
    torch.testing.assert_close(
        found.margin,
        (lambda top: top[:, 0] - top[:, 1])(model(x).double().topk(2).values).detach(),
        rtol=1e-4,
        atol=1e-5,
    )


def test_parametrised_layers_are_read_as_evaluation_reads_them(x):
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 3))
    found = taut.certify(layer, x)
    assert torch.equal(found.prediction, layer(x).argmax(1))
    assert found.lipschitz.value < 1 + 1e-5 and found.lipschitz.layers[0].kind == "Linear"


def test_hooks_are_refused(model, x):
    model[0].register_forward_hook(lambda module, args, output: 10 * output)
    with pytest.raises(NoRuleError, match="forward hooks"):
        taut.certify(model, x)


def test_certified_accuracy(model, x):
    found = taut.certify(model, x)
    labels = found.prediction.clone()
    labels[:3] = (labels[:3] + 1) % 3
    found = taut.certify(model, x, labels=labels)
    assert found.correct is not None and found.correct.sum() == 30
    assert found.certified_accuracy().item() == 30 / 33
    middle = found.radius[3:].median().item()
    expected = ((found.radius > middle) & found.correct).double().mean()
    assert found.certified_accuracy(middle) == expected
    curve = found.certified_accuracy(torch.linspace(0, 5, 7))
    assert curve.shape == (7,) and (curve.diff() <= 0).all() and curve[-1] == 0
    with pytest.raises(ArgumentError, match="must not be negative"):
        found.certified_accuracy(-1.0)


def test_clean_accuracy_counts_ties():
    found = taut.certify(nn.Identity(), torch.zeros(1, 2), labels=torch.tensor([0]))
    assert found.certified_accuracy(0) == 1 and found.certified_accuracy(1e-300) == 0


def test_labels_must_be_given_to_be_used(model, x):
    found = taut.certify(model, x)
    assert found.correct is None
    with pytest.raises(ArgumentError, match="Pass labels to certify"):
        found.certified_accuracy(0.1)
    with pytest.raises(ArgumentError, match="one class index for each input"):
        taut.certify(model, x, labels=torch.zeros(5, dtype=torch.long))


def test_it_reads_well(model, x):
    found = taut.certify(model, x, labels=torch.zeros(33, dtype=torch.long))
    assert repr(found).startswith("Certificates(33 inputs, l2, real, median radius ")
    assert "by last-layer pairs" in found.summary() and "correct: " in found.summary()
    assert "OrthonormalLinear" in str(found.lipschitz.layers)


def test_printed_radii_are_not_larger_than_the_proven_ones(model, x):
    found = taut.certify(model, x)
    assert float(repr(found).split()[-1].rstrip(")")) <= found.radius.median()
    line = found.summary().splitlines()[1]
    shown = [float(number) for number in re.findall(r"(?:median|%) (\d[\d.e-]*)", line)]
    for value, quantile in zip(shown, (0.5, 0.1, 0.9), strict=True):
        assert value <= found.radius.quantile(quantile)


def test_no_inputs(model):
    found = taut.certify(model, torch.zeros(0, 4))
    assert len(found) == 0 and repr(found) == "Certificates(0 inputs, l2, real)"


def test_arguments(model, x):
    with pytest.raises(ArgumentError, match="`arithmetic` must be one of 'real'"):
        taut.certify(model, x, arithmetic="float16")  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="must be a real floating-point tensor"):
        taut.certify(model, x.long())
    with pytest.raises(DtypeError, match="that of the model"):
        taut.certify(model, x.double(), arithmetic="float32")
    with pytest.raises(ArgumentError, match="one row of outputs"):
        taut.certify(nn.Unflatten(1, (2, 2)), x)
    taut.certify(model, x.double())
    taut.certify(model, x.half())


def test_reduced_precision_is_refused(model, x):
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ArgumentError, match="full float32 products"):
            taut.certify(model, x, arithmetic="float32")
        taut.certify(model, x)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_what_has_no_rule_is_named(x):
    with pytest.raises(NoRuleError, match="at `1` .LayerNorm."):
        taut.certify(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), x)
