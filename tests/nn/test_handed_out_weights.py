"""What `effective_weight` and `evaluation_weight` hand out is the caller's to change."""

import contextlib
import copy
from typing import Any

import numpy as np
import pytest
import torch

import taut
from cases import CONVOLUTIONS, DENSE

cases = pytest.mark.parametrize("case", [*DENSE, *CONVOLUTIONS], ids=str)
modes = pytest.mark.parametrize("mode", ["train", "eval"])
methods = pytest.mark.parametrize("method", ["effective_weight", "evaluation_weight"])


def make(case) -> Any:
    layer = case.make(4, 6) if case in DENSE else case.make(4, 6, 2)
    with torch.no_grad():
        layer.weight.copy_(2 * torch.randn_like(layer.weight))
    return layer


def inputs(case):
    return torch.randn(3, 4, *(3,) * getattr(case, "dims", 0))


def write_by_operators(weight):
    weight *= 3
    weight[0] = 7.0


def write_by_data(weight):
    weight.data.mul_(3)


def write_by_numpy(weight):
    weight.detach().numpy()[...] = 5.0


CONTEXTS = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@cases
@modes
@methods
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_writing_into_a_weight_changes_nothing(case, mode, method, context):
    layer, x = make(case).train(mode == "train"), inputs(case)
    twin = copy.deepcopy(layer)
    for write in (write_by_operators, write_by_data, write_by_numpy):
        with context():
            weight = getattr(layer, method)()
            getattr(twin, method)()
            write(weight)
    with context():
        for name in ("effective_weight", "evaluation_weight"):
            assert torch.equal(getattr(layer, name)(), getattr(twin, name)())
    for training in (mode == "train", False, True):
        layer.train(training)
        twin.train(training)
        assert torch.equal(layer(x), twin(x))
        assert torch.equal(copy.deepcopy(layer)(x), copy.deepcopy(twin)(x))
        assert torch.equal(layer.evaluation_weight(), twin.evaluation_weight())
        assert torch.equal(layer.effective_weight(), twin.effective_weight())
    for name, value in twin.state_dict().items():
        assert torch.equal(layer.state_dict()[name], value)


@cases
@methods
def test_a_proof_and_a_forward_read_the_same_numbers(case, method):
    layer, x = make(case).eval(), inputs(case)
    weight = getattr(layer, method)()
    with torch.no_grad():
        weight.mul_(3)
    shape = (4, *(3,) * getattr(case, "dims", 0))
    norm = layer.input_norm
    if layer.input_norm == layer.output_norm:
        bound = taut.bound_lipschitz(layer, norm, input_shape=shape).value
        with torch.no_grad():
            slope = norm.vector((layer(x) - layer(-x)).flatten(1)) / norm.vector(2 * x.flatten(1))
        assert slope.max() <= bound * (1 + 1e-6)
        assert bound <= 1 + 1e-6
    folded: Any = taut.fold(layer)
    np.testing.assert_allclose(folded(x).detach(), layer(x).detach(), rtol=1e-5, atol=1e-6)


@cases
@modes
def test_a_copy_is_part_of_the_graph_where_a_forward_is(case, mode):
    layer = make(case).train(mode == "train")
    weight = layer.effective_weight()
    (weight * torch.randn_like(weight)).sum().backward()
    assert torch.isfinite(layer.weight.grad).all() and layer.weight.grad.any()
    assert not layer.evaluation_weight().requires_grad
