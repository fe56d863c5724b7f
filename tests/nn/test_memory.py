import copy
import pickle

import pytest
import torch

from taut.nn.memory import Memory


def remembering(weight, value):
    memory = Memory()
    memory.keep(weight, value)
    return memory


def test_an_empty_memory_knows_nothing():
    assert Memory().recall(torch.ones(2)) is None


def test_equal_numbers_are_recognised_wherever_they_lie():
    weight, value = torch.randn(3, 2), torch.randn(3, 2)
    memory = remembering(weight, value)
    for same in (weight, weight.clone(), weight.t().contiguous().t()):
        found = memory.recall(same)
        assert found is not None and torch.equal(found, value)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.data.add_(1e-6),
        lambda w: w.data.view(-1)[-1:].mul_(1.5),
        lambda w: w.detach().numpy().__setitem__((0, 0), 9.0),
        lambda w: setattr(w, "data", w.data.double()),
        lambda w: setattr(w, "data", w.data[:2]),
        lambda w: w.data.fill_(float("nan")),
    ],
)
def test_every_change_is_seen(change):
    weight = torch.nn.Parameter(torch.randn(3, 2))
    memory = remembering(weight, 2 * weight)
    change(weight)
    assert memory.recall(weight) is None


def test_nan_never_equals_what_was_kept():
    weight = torch.full((2,), float("nan"))
    assert remembering(weight, weight).recall(weight) is None


def test_what_is_kept_does_not_follow_the_weight():
    weight = torch.ones(3)
    memory = remembering(weight, weight)
    weight.data.zero_()
    found = memory.recall(torch.ones(3))
    assert found is not None and torch.equal(found, torch.ones(3))


def test_a_memory_holds_no_graph():
    weight = torch.nn.Parameter(torch.ones(3))
    found = remembering(weight, 2 * weight).recall(weight)
    assert found is not None and not found.requires_grad


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_are_empty(duplicate):
    weight = torch.ones(3)
    memory = remembering(weight, 2 * weight)
    assert duplicate(memory).recall(weight) is None
    assert memory.recall(weight) is not None
