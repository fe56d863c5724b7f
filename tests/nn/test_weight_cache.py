import copy
import pickle

import pytest
import torch

import taut
from cases import DENSE
from taut.errors import NonFiniteError
from taut.nn.weight_cache import WeightCache


def holding(weight, value):
    cache = WeightCache()
    cache.keep(weight, value)
    return cache


def test_an_empty_cache_knows_nothing():
    assert WeightCache().recall(torch.ones(2)) is None


def test_equal_numbers_are_recognised_wherever_they_lie():
    weight, value = torch.randn(3, 2), torch.randn(3, 2)
    cache = holding(weight, value)
    for same in (weight, weight.clone(), weight.t().contiguous().t()):
        found = cache.recall(same)
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
    cache = holding(weight, 2 * weight)
    change(weight)
    assert cache.recall(weight) is None


def test_nan_never_equals_what_was_kept():
    weight = torch.full((2,), float("nan"))
    assert holding(weight, weight).recall(weight) is None


def test_what_is_kept_does_not_follow_the_weight():
    weight = torch.ones(3)
    cache = holding(weight, weight)
    weight.data.zero_()
    found = cache.recall(torch.ones(3))
    assert found is not None and torch.equal(found, torch.ones(3))


def test_a_cache_holds_no_graph():
    weight = torch.nn.Parameter(torch.ones(3))
    found = holding(weight, 2 * weight).recall(weight)
    assert found is not None and not found.requires_grad


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_are_empty(duplicate):
    weight = torch.ones(3)
    cache = holding(weight, 2 * weight)
    assert duplicate(cache).recall(weight) is None
    assert cache.recall(weight) is not None


# Other devices, played by the CPU


@pytest.fixture
def accelerator(monkeypatch):
    """Has the layers take the CPU for a device that is costly to wait for; counts comparisons."""
    for module in ("weight_cache", "constrained"):
        monkeypatch.setattr(f"taut.nn.{module}.compares_numbers", lambda tensor: False)
    count = []
    equal = torch.equal
    monkeypatch.setattr(torch, "equal", lambda *args: count.append(args) or equal(*args))
    return count


def optimiser_step(kind, **options):
    def step(layer):
        optimiser = kind(layer.parameters(), lr=0.5, **options)
        layer(torch.randn(3, 5)).square().sum().backward()
        layer(torch.randn(3, 5))  # stamps are taken after the backward pass too
        optimiser.step()

    return step


def by_no_grad(layer):
    with torch.no_grad():
        layer.weight.mul_(-2)


def by_load(layer):
    layer.load_state_dict({**layer.state_dict(), "weight": torch.randn(4, 5)})


def by_assignment(layer):
    layer.load_state_dict({**layer.state_dict(), "weight": torch.randn(4, 5)}, assign=True)


def by_new_parameter(layer):
    layer.weight = torch.nn.Parameter(torch.randn(4, 5))


def by_new_data(layer):
    layer.weight.data = torch.randn(4, 5)


def by_new_data_twice(layer):
    # The allocator likes to hand out the address that has just become free.
    layer.weight.data = torch.randn(4, 5)
    layer.weight.data = torch.randn(4, 5)


def by_cast(layer):
    layer.weight.data.mul_(-1)
    layer.double().float()


SIGNED = {
    "sgd": optimiser_step(torch.optim.SGD),
    "adam-foreach": optimiser_step(torch.optim.Adam, foreach=True),
    "adam-fused": optimiser_step(torch.optim.Adam, fused=True),
    "sgd-fused": optimiser_step(torch.optim.SGD, fused=True),
    **{f.__name__: f for f in (by_no_grad, by_load, by_assignment, by_new_parameter, by_new_data)},
    **{f.__name__: f for f in (by_new_data_twice, by_cast)},
}
dense = pytest.mark.parametrize("case", DENSE, ids=str)
modes = pytest.mark.parametrize("mode", ["train", "eval"])


def expected(layer, x):
    """What a copy, whose cache is empty, computes."""
    return copy.deepcopy(layer)(x)


@dense
@modes
def test_forwards_of_an_unchanged_weight_compare_nothing(case, mode, accelerator):
    layer, x = case.make(5, 4).train(mode == "train"), torch.randn(3, 5)
    layer(x)
    accelerator.clear()
    for _ in range(3):
        layer(x).sum().backward()
    with torch.no_grad():
        layer(x)
    assert not accelerator


@dense
@modes
@pytest.mark.parametrize("change", SIGNED.values(), ids=SIGNED)
def test_every_change_with_a_sign_is_seen_by_the_next_forward(case, mode, change, accelerator):
    layer, x = case.make(5, 4).train(mode == "train"), torch.randn(3, 5)
    for _ in range(2):
        layer(x)
        change(layer)
        wanted = expected(layer, x)
        torch.testing.assert_close(layer(x), wanted)


@dense
@modes
@pytest.mark.parametrize("mend", [lambda layer: layer.eval(), lambda layer: layer.train()])
def test_writes_without_a_sign_count_from_the_next_change_of_mode(case, mode, mend, accelerator):
    layer, x = case.make(5, 4).train(mode == "train"), torch.randn(3, 5)
    layer(x)
    layer.weight.data.copy_(3 * torch.randn(4, 5))
    mend(layer)
    wanted = expected(layer, x)
    torch.testing.assert_close(layer(x), wanted)


@dense
@modes
def test_proofs_always_look_at_the_numbers(case, mode, accelerator):
    layer = case.make(5, 4).train(mode == "train")
    layer(torch.randn(3, 5))
    layer.weight.data.copy_(3 * torch.randn(4, 5))
    torch.testing.assert_close(layer.evaluation_weight(), copy.deepcopy(layer).evaluation_weight())


def test_steps_of_other_networks_do_not_move_a_weight(accelerator):
    layer, x = taut.nn.ParsevalLinear(6, 6, beta=0.1), torch.randn(3, 6)
    with torch.no_grad():
        layer.weight.mul_(0.5)
    layer(x)
    before = layer.weight.detach().clone()
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0).step()
    layer(x)
    assert torch.equal(layer.weight, before)


def test_a_weight_that_is_not_finite_is_seen_again(accelerator):
    layer = taut.nn.SpectralLinear(4, 4)
    layer(torch.randn(2, 4))
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    for _ in range(2):
        with pytest.raises(NonFiniteError):
            layer(torch.randn(2, 4))
