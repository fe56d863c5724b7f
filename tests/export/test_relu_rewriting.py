from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import taut
from cases import ACTIVATIONS, DENSE
from taut.errors import ArgumentError
from taut.export import rewrite_relu
from taut.functional import sorting_stages

PIECEWISE_LINEAR = [case for case in ACTIVATIONS if case.layer is not taut.nn.PairLength]
PERMUTING = [case for case in ACTIVATIONS if case.permutes]


def after_identity(case, width):
    """The activation alone, behind a layer that changes nothing."""
    model = nn.Sequential(nn.Linear(width, width, bias=False), case.make(width))
    nn.init.eye_(model[0].weight)  # type: ignore[arg-type]
    return model


def test_a_curved_function_has_no_form_in_relu():
    with pytest.raises(
        ArgumentError, match=r"`0` \(PairLength\) must be a layer with an exact form in ReLU"
    ):
        rewrite_relu(nn.Sequential(taut.nn.PairLength()))


@pytest.mark.parametrize("case", PIECEWISE_LINEAR, ids=str)
def test_the_function_is_exactly_the_same(case):
    """On whole numbers every sum is exact, so that equality holds to the bit."""
    width = 2 * max(3, case.group)
    model = after_identity(case, width).double()
    rewritten = rewrite_relu(model)
    assert all(type(m) in (nn.Linear, nn.ReLU) for m in rewritten)
    x = torch.randint(-9, 10, (200, width)).double()
    with torch.no_grad():
        wanted = case.oracle(x.numpy())
        got = rewritten(x).numpy()
    if case.layer is taut.nn.Householder:
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)  # its angle is a float32
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("case", PERMUTING, ids=str)
def test_weights_are_zero_and_one(case):
    rewritten = rewrite_relu(after_identity(case, 2 * max(3, case.group)))
    for weight in rewritten.parameters():
        assert set(weight.unique().tolist()) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("size", range(1, 13))
def test_stages_sort_by_the_zero_one_principle(size):
    """A network of comparators that sorts all sequences of zeros and ones sorts everything."""
    numbers = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    for stage in sorting_stages(size):
        lanes = [lane for pair in stage for lane in pair]
        assert len(set(lanes)) == len(lanes)
        for low, high in stage:
            numbers[:, [low, high]] = np.sort(numbers[:, [low, high]], axis=1)
    assert (np.diff(numbers, axis=1) >= 0).all()


@pytest.mark.parametrize("case", DENSE, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_whole_networks(case, dtype):
    model: Any = nn.Sequential(
        nn.Flatten(),
        case.make(6, 8),
        taut.nn.MaxMin(),
        nn.Dropout(0.5),
        nn.Sequential(case.make(8, 12), taut.nn.GroupSort(4), taut.nn.Scale(1.5)),
        case.make(12, 6),
        taut.nn.Maxout(3),
        case.make(2, 2, bias=False),
        nn.ReLU(),
    ).to(dtype)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    rewritten = rewrite_relu(model)
    assert model.training and not rewritten.training
    assert {type(m) for m in rewritten} == {nn.Flatten, nn.Linear, nn.ReLU}
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
    x = 3 * torch.randn(64, 2, 3, dtype=dtype)
    with torch.no_grad():
        wanted, got = model.eval()(x), rewritten(x)
    assert got.dtype == dtype
    tol = 3e-6 if dtype == torch.float32 else 1e-12
    assert (got - wanted).abs().max() <= tol * wanted.abs().max()


def test_norms_of_the_layers_are_lost_though_the_function_is_not():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), taut.nn.MaxMin())
    norms = [np.linalg.norm(value.numpy(), 2) for value in rewrite_relu(model).parameters()]
    assert norms[1:] == pytest.approx([2.288, 2.236], abs=1e-3)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            nn.Sequential(nn.Linear(2, 2), nn.Tanh()),
            "`1` (Tanh) must be a layer with an exact form",
        ),
        (nn.Sequential(taut.nn.MaxMin()), "`0` (MaxMin) must come after a dense layer"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Flatten(), taut.nn.MaxMin()),
            "`2` (MaxMin) must come after a dense layer",
        ),
        (
            nn.Sequential(nn.Linear(2, 2), taut.nn.MaxMin(dim=1)),
            "must work over the last dimension; got dim=1",
        ),
        (nn.Sequential(nn.Linear(2, 65), taut.nn.FullSort()), "groups of at most 64"),
        (nn.Sequential(nn.Linear(2, 5), taut.nn.MaxMin()), "must divide 5 channels"),
        (nn.ModuleList([nn.Linear(2, 2)]), "`model` (ModuleList) must be a layer"),
    ],
    ids=lambda value: "",
)
def test_what_has_no_such_form_is_refused_by_name(model, sentence):
    with pytest.raises(ArgumentError) as caught:
        rewrite_relu(model)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("rewrite_relu: ")
