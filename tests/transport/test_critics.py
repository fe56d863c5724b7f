"""Fitting critics: the value never passes the truth, and the right family reaches it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support import seeded
from taut.errors import ArgumentError, NonFiniteError
from taut.optim import AggMo
from taut.transport import absolute_value, cone, dual_value, fit_critic, three_cones


class Cone(nn.Module):
    """`||x - c||` for a learned centre: 1-Lipschitz whatever its weight, and optimal at c = 0."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x - self.centre, dim=-1, keepdim=True)


class Ridge(nn.Module):
    """`u.x` for a unit vector u: 1-Lipschitz, and worth nothing on symmetric problems."""

    def __init__(self) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.tensor([1.0, 0.5]))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.direction / self.direction.norm())


@pytest.mark.parametrize("dim", [1, 3])
def test_the_right_family_reaches_the_distance_and_no_more(dim: int) -> None:
    net = Cone(dim)
    fit = fit_critic(net, cone(dim), num_steps=200, generator=seeded(), lr=0.05)
    assert 0.99 < fit.estimate.value <= 1 + 1e-6
    assert len(fit.history) == 200
    assert fit.history[0] < 0.8


def test_a_family_without_the_potential_stays_below() -> None:
    fit = fit_critic(Ridge(), three_cones(), num_steps=20, generator=seeded())
    assert fit.estimate.value < 0.2


def test_optimizer_is_used_as_given() -> None:
    net = Cone(2)
    optimizer = AggMo(net.parameters(), lr=0.01)
    fit = fit_critic(net, cone(2), num_steps=150, generator=seeded(), optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert fit.estimate.value > 0.95


def test_same_generator_same_fit() -> None:
    fits = [fit_critic(Cone(2), cone(2), num_steps=10, generator=seeded(3)) for _ in range(2)]
    other = fit_critic(Cone(2), cone(2), num_steps=10, generator=seeded(4))
    assert fits[0] == fits[1] != other


def test_any_sampler_will_do_and_every_step_is_told() -> None:
    def shifted(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        y = torch.randn(n, 2, generator=generator)
        return y + torch.tensor([3.0, 4.0]), y

    told: list[tuple[int, float]] = []
    fit = fit_critic(
        Ridge(),
        shifted,
        num_steps=150,
        generator=seeded(),
        lr=0.02,
        on_step=lambda step, dual: told.append((step, dual)),
    )
    assert fit.estimate.value == pytest.approx(5.0, abs=1e-2)
    assert [step for step, _ in told] == list(range(1, 151))
    assert tuple(dual for _, dual in told) == fit.history


@pytest.mark.parametrize("training", [True, False])
def test_training_mode_is_kept(training: bool) -> None:
    net = nn.Sequential(Cone(1), nn.Dropout(0.5)).train(training)
    fit_critic(net, absolute_value(), num_steps=1, generator=seeded())
    assert net.training is training


def test_sizes_may_differ() -> None:
    value = dual_value(torch.abs, torch.tensor([[3.0], [1.0]]), torch.ones(5, 1))
    assert value.item() == 1.0


def test_two_outputs_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"one number per point; got output of shape \(128, 2\)"
    ):
        fit_critic(nn.Linear(1, 2), absolute_value(), num_steps=1, generator=seeded())


def test_nan_is_never_silent() -> None:
    net = Cone(1)
    nn.init.constant_(net.centre, float("nan"))
    with pytest.raises(NonFiniteError, match="at step 1"):
        fit_critic(net, absolute_value(), num_steps=3, generator=seeded())


@pytest.mark.parametrize("argument", ["num_steps", "batch_size", "num_fresh"])
def test_counts_must_be_positive(argument: str) -> None:
    options: dict[str, Any] = {"num_steps": 1, argument: 0}
    with pytest.raises(ArgumentError, match=f"fit_critic: `{argument}` must be"):
        fit_critic(Cone(1), absolute_value(), generator=seeded(), **options)
