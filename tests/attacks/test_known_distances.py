"""Where the closest adversarial example is known, attacks find it, and nothing closer."""

from typing import Any

import pytest
import torch
from linear import exact_distance, linear, samples
from torch import nn

from taut.attacks import fgsm, minimal_perturbation, pgd

NORMS = ["l2", "linf"]
OPEN: dict[str, Any] = {"low": None, "high": None}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", ["cw", "cross_entropy"])
@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_pgd_succeeds_beyond_the_distance_and_never_within(norm, loss, classes, dtype):
    model = linear(classes, dtype=dtype)
    x, labels = samples(model)
    truth = exact_distance(model, x, labels, norm)
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {
        "norm": norm,
        "loss": loss,
        "num_steps": 60,
        "generator": generator,
        **OPEN,
    }
    beyond = pgd(model, x, labels, radius=1.01 * truth, num_restarts=3, **options)
    assert beyond.success.all() and beyond.error == 1
    assert (beyond.distance <= 1.01 * truth).all()
    assert (beyond.distance >= truth * (1 - 1e-5)).all()
    within = pgd(model, x, labels, radius=0.999 * truth, **options)
    assert not within.success.any() and within.error == 0 and within.accuracy == 1
    assert within.distance.isinf().all() and torch.equal(within.examples, x)


@pytest.mark.parametrize("norm", NORMS)
def test_one_step_is_enough_for_two_classes(norm):
    model = linear(2)
    x, labels = samples(model)
    truth = exact_distance(model, x, labels, norm)
    assert fgsm(model, x, labels, radius=1.0001 * truth, norm=norm, **OPEN).success.all()
    assert not fgsm(model, x, labels, radius=0.9999 * truth, norm=norm, **OPEN).success.any()


@pytest.mark.parametrize("norm", NORMS)
def test_the_closest_examples_are_the_closest(norm):
    model = linear(4)
    x, labels = samples(model, n=16)
    truth = exact_distance(model, x, labels, norm)
    generator = torch.Generator().manual_seed(0)
    found = minimal_perturbation(
        model, x, labels, radius=8.0, norm=norm, num_steps=25, generator=generator, **OPEN
    )
    assert found.success.all()
    assert (found.distance >= truth * (1 - 1e-9)).all()
    assert (found.distance <= truth * 1.02).all()
    far = minimal_perturbation(
        model, x, labels, radius=0.99 * truth, norm=norm, num_rounds=1, **OPEN
    )
    assert not far.success.any() and far.distance.isinf().all()


@pytest.mark.parametrize("norm", NORMS)
def test_limits_can_save_a_prediction(norm):
    """f = (0, x0 - 1.05): only x0 > 1.05 is fooled, which data in [0, 1] never has."""
    model = nn.Linear(1, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))
        model.bias.copy_(torch.tensor([0.0, -1.05]))
    x, labels = torch.tensor([[0.9]], dtype=torch.float64), torch.tensor([0])
    assert not pgd(model, x, labels, radius=0.5, norm=norm, num_steps=20).success.any()
    assert pgd(model, x, labels, radius=0.5, norm=norm, num_steps=20, high=None).success.all()
    wide = pgd(model, x, labels, radius=0.5, norm=norm, num_steps=20, high=1.2)
    assert wide.success.all() and wide.examples.max() <= 1.2


def test_restarts_find_what_one_start_misses():
    """A narrow wrong region on one side: downhill from x leads to the other side."""

    class Bump(nn.Module):
        def forward(self, x):
            away = (x[:, :1] - 0.5) * 4
            lead = 1 - away.abs() + 3 * (x[:, :1] > 0.5) * (away - 0.2).relu()
            return torch.cat([lead, torch.full_like(lead, 0.4)], 1)

    x = torch.full((40, 1), 0.501, dtype=torch.float64)
    labels = torch.zeros(40, dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {
        "radius": 0.2,
        "num_steps": 20,
        "generator": generator,
        "start": 0.02,
    }
    once = pgd(Bump(), x, labels, **options)
    often = pgd(Bump(), x, labels, num_restarts=8, **options)
    assert 0.1 < once.error < 0.9 and often.error > 0.95
