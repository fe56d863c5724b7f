import math

import numpy as np
import pytest
import torch

from taut.training import TrainConfig
from taut.training.learning_rate_schedule import learning_rate
from taut.training.seeds import batches, seed_at


def rates(steps_per_epoch, **given):
    config = TrainConfig(**given)
    assert config.epochs is not None
    return [learning_rate(config, step, steps_per_epoch) for step in range(7 * config.epochs)]


def test_cosine_is_the_cosine_at_the_middle_of_each_step():
    found = rates(7, lr=0.2, epochs=5)
    t = (np.arange(35) + 0.5) / 35
    np.testing.assert_allclose(found, 0.1 * (1 + np.cos(np.pi * t)), rtol=1e-12)
    assert min(found) > 0
    assert math.fsum(found) == pytest.approx(0.1 * 35)


def test_steps_fall_at_the_beginning_of_the_milestones_epochs():
    found = rates(7, lr=1.0, epochs=4, schedule="step", milestones=(1, 3), decay=0.5)
    assert found == [1.0] * 7 + [0.5] * 14 + [0.25] * 7


def test_warm_up_grows_in_equal_parts_and_never_stands_still():
    found = rates(7, lr=1.0, epochs=4, schedule="constant", warmup=2.0)
    np.testing.assert_allclose(found[:14], (np.arange(14) + 0.5) / 14)
    assert found[0] > 0 and found[14:] == [1.0] * 14


@pytest.mark.parametrize(("rows", "batch_size"), [(1, 1), (10, 3), (12, 4), (5, 100), (101, 10)])
def test_an_epoch_sees_every_row_once_in_even_batches(rows, batch_size):
    parts = batches(rows, batch_size, seed=3, epoch=2)
    assert sorted(torch.cat(parts).tolist()) == list(range(rows))
    sizes = [len(part) for part in parts]
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1


def test_order_is_a_function_of_seed_and_epoch_alone():
    def order(seed, epoch):
        return torch.cat(batches(50, 8, seed, epoch)).tolist()

    torch.manual_seed(1)
    first = order(0, 0)
    torch.manual_seed(2)
    assert order(0, 0) == first
    assert len({tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}) == 16


def test_every_position_has_a_seed_of_its_own():
    pairs = [(a, b) for a in range(20) for b in range(20)]
    seeds = {seed_at(seed, *pair) for seed in (0, 1) for pair in pairs}
    seeds |= {seed_at(0, a) for a in range(20)}
    assert len(seeds) == 820
    assert all(0 <= seed < 2**63 for seed in seeds)
