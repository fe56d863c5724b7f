"""What counts as a success, and what an attack leaves behind."""

from typing import Any

import pytest
import torch
from linear import linear, predicted, samples
from torch import nn

import taut
from taut.attacks import AttackResult, adversarial_batch, evaluate, fgsm, pgd
from taut.attacks.ball import Ball, distances
from taut.errors import ArgumentError, DtypeError
from taut.norms import L2, LINF

OPEN: dict[str, Any] = {"low": None, "high": None}
NORMS = ["l2", "linf"]


@pytest.mark.parametrize("norm", [L2, LINF], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_projected_points_are_inside_as_float64_measures(norm, dtype, scale):
    """Rounding never carries a point beyond the radius, however large the data or small the ball."""
    generator = torch.Generator().manual_seed(0)
    x = (scale * torch.rand(200, 30, generator=generator, dtype=torch.float64)).to(dtype)
    for share in (1e-5, 0.1, 1.0):
        radius = share * scale * (0.5 + torch.rand(200, generator=generator, dtype=torch.float64))
        ball = Ball.around(x, radius, norm, 0.0, scale)
        for length in (0.5, 1.0, 1.000001, 30.0):
            step = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            step *= length * (radius / norm.vector(step))[:, None]
            point = ball.project((x + step).to(dtype))
            assert (distances(x, point, norm) <= radius).all()
            assert (point >= 0).all() and (point <= scale).all()
            assert torch.equal(ball.project(point), point) or norm == L2


def test_an_inner_point_of_the_ball_stays():
    x = torch.rand(10, 5)
    ball = Ball.around(x, torch.full((10,), 0.1, dtype=torch.float64), L2, None, None)
    point = x + 0.01
    assert torch.equal(ball.project(point), point)


@pytest.mark.parametrize("norm", NORMS)
def test_examples_beyond_the_radius_are_brought_back_or_do_not_count(norm):
    model = linear(2)
    x, labels = samples(model)
    away = model.weight.detach()[1 - labels] - model.weight.detach()[labels]
    far = evaluate(model, x, x + 100 * away, labels, radius=1e-9, norm=norm, **OPEN)
    assert not far.success.any() and torch.equal(far.examples, x)
    near = evaluate(model, x, x + 100 * away, labels, radius=50.0, norm=norm, **OPEN)
    assert near.success.all() and (near.distance <= 50).all()
    assert torch.equal(near.prediction, 1 - labels)
    taxi = evaluate(model, x, x + 100 * away, labels, radius=50.0, norm="l1", **OPEN)
    assert not taxi.success.any()


def test_examples_that_are_no_numbers_or_out_of_range_do_not_count():
    model = linear(2)
    x = torch.full((2, 6), 0.5, dtype=torch.float64)
    labels = predicted(model, x)
    for bad in (torch.nan, torch.inf):
        found = evaluate(model, x, torch.full_like(x, bad), labels, radius=9.0, norm="l1", **OPEN)
        assert not found.success.any()
    outside = x - 5 * (model.weight[labels] - model.weight[1 - labels]).detach()
    assert evaluate(model, x, outside, labels, radius=1e3, norm="l1", **OPEN).success.all()
    assert not evaluate(model, x, outside, labels, radius=1e3, norm="l1").success.any()


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_what_is_wrong_from_the_start_is_an_error_at_distance_zero(attack):
    model = linear(3)
    x, labels = samples(model)
    wrong = (labels + 1) % 3
    found = attack(model, x, wrong, radius=1e-12, **OPEN)
    assert found.success.all() and found.error == 1 and found.accuracy == 0
    assert (found.distance == 0).all() and torch.equal(found.examples, x)
    assert torch.equal(found.prediction, labels)


def test_a_radius_of_zero_changes_nothing():
    model = linear(3)
    x, labels = samples(model)
    for norm in NORMS:
        assert not pgd(model, x, labels, radius=0.0, norm=norm, num_steps=3, **OPEN).success.any()


class Watched(nn.Module):
    """Batch statistics, dropout and a frozen part, all of which an attack must leave alone."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = taut.nn.OrthonormalLinear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize(
    "attack", [fgsm, pgd, adversarial_batch, evaluate, "minimal_perturbation", "autoattack"]
)
@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_the_model_is_left_as_it_was(attack, context):
    model = Watched().train()
    model.body[1].eval()
    x, labels = torch.rand(20, 4), torch.randint(0, 3, (20,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    with context():
        if attack is evaluate:
            evaluate(model, x, x, labels, radius=0.1, norm="l2")
        elif attack == "minimal_perturbation":
            taut.attacks.minimal_perturbation(
                model, x, labels, radius=0.1, num_steps=2, num_rounds=1
            )
        elif attack == "autoattack":
            drawn = torch.get_rng_state()
            taut.attacks.autoattack(model, x[:2], labels[:2], radius=0.01, version="rand")
            assert torch.equal(drawn, torch.get_rng_state())
        else:
            attack(model, x, labels, radius=0.1)
    assert modes == [module.training for module in model.modules()]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("norm", [L2, LINF], ids=str)
@pytest.mark.parametrize("loss", ["cw", "cross_entropy"])
def test_batches_to_train_on_are_worse_and_near(norm, loss):
    model = taut.nn.mlp([6, 16, 3])
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.rand(50, 6), torch.randint(0, 3, (50,))
    moved = adversarial_batch(
        model, x, labels, radius=0.2, norm=norm, loss=loss, generator=generator
    )
    assert moved.dtype == x.dtype and not moved.requires_grad
    assert (distances(x, moved, norm) <= 0.2).all() and (moved >= 0).all() and (moved <= 1).all()
    entropy = nn.functional.cross_entropy
    assert entropy(model(moved), labels) > entropy(model(x), labels) + 0.05


def test_batches_do_not_change_what_is_found():
    model = linear(3)
    x, labels = samples(model, n=23)
    options: dict[str, Any] = {"radius": 0.3, "num_steps": 20, "start": 0.0, **OPEN}
    whole = pgd(model, x, labels, **options)
    parts = pgd(model, x, labels, batch_size=5, **options)
    assert torch.equal(whole.success, parts.success) and 0 < whole.error < 1


def test_the_same_generator_finds_the_same():
    model = taut.nn.mlp([6, 16, 3])
    x = torch.rand(30, 6)
    labels = predicted(model.eval(), x)
    first, second = (
        pgd(model, x, labels, radius=0.1, generator=torch.Generator().manual_seed(5), num_steps=9)
        for _ in range(2)
    )
    assert torch.equal(first.examples, second.examples)


def test_images_and_empty_batches():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 3))
    x = torch.rand(4, 1, 5, 5)
    labels = predicted(model, x)
    for norm in NORMS:
        found = pgd(model, x, labels, radius=3.0, norm=norm, num_steps=20)
        assert found.examples.shape == x.shape
        empty = pgd(model, x[:0], labels[:0], radius=3.0, norm=norm, num_steps=2)
        assert len(empty) == 0 and empty.examples.shape == (0, 1, 5, 5)
        assert repr(empty).startswith("AttackResult(pgd")


def test_the_nearer_of_two():
    model = linear(2)
    x, labels = samples(model)
    small, large = (fgsm(model, x, labels, radius=r, **OPEN) for r in (0.2, 2.0))
    both = large.nearer(small)
    assert isinstance(both, AttackResult) and both.error == large.error
    assert torch.equal(both.distance, torch.minimum(small.distance, large.distance))


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"x": torch.full((2, 3), 1.5)}, ArgumentError, "got values from 1.5 to 1.5. Give the"),
        ({"x": torch.full((2, 3), torch.nan)}, ArgumentError, "`x` must be finite"),
        ({"x": torch.zeros(3)}, ArgumentError, "Use x[None] for one input."),
        ({"x": torch.zeros(2, 3).long()}, DtypeError, "Convert it with .float()."),
        ({"labels": torch.zeros(3).long()}, ArgumentError, "of shape (3,) for 2 inputs"),
        ({"labels": torch.zeros(2)}, ArgumentError, "`labels` must be one class index"),
        ({"radius": -1.0}, ArgumentError, "`radius` must be finite and >= 0"),
        ({"radius": torch.ones(3)}, ArgumentError, "one for each input; got (3,) for 2 inputs"),
        ({"norm": "l1"}, ArgumentError, "Use autoattack for L1"),
        ({"norm": "l7"}, ArgumentError, "must be 'l1', 'l2' or 'linf'"),
        ({"loss": "f7"}, ArgumentError, "`loss` must be one of 'cw', 'cross_entropy'"),
        ({"low": 1.0, "high": 0.0}, ArgumentError, "`low` must lie below `high`"),
        ({"start": 0.2}, ArgumentError, "`start` must lie in [0, radius]"),
        ({"num_steps": 0}, ArgumentError, "`num_steps` must be a whole number >= 1"),
        ({"radius": torch.ones(2), "step_size": 0.1}, ArgumentError, "Leave it out."),
    ],
    ids=range(15),
)
def test_wrong_arguments(change, error, sentence):
    given: dict[str, Any] = {
        "x": torch.zeros(2, 3),
        "labels": torch.zeros(2, dtype=torch.long),
        "radius": 0.1,
        **change,
    }
    with pytest.raises(error) as caught:
        pgd(nn.Identity(), **given)
    assert sentence in str(caught.value) and str(caught.value).startswith("pgd: ")
