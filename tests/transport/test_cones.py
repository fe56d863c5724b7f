"""Minima of cones: never steeper than 1, right next to a centre too, and they find the distance."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import nn

from support import seeded
from taut.audit import bound_lipschitz
from taut.errors import ArgumentError, NonFiniteError, NoRuleError
from taut.nn import ConeCritic
from taut.norms import L1, L2, LINF
from taut.transport import (
    absolute_value,
    cone,
    fit_cones,
    fit_critic,
    funnels,
    three_cones,
)


def random_critic(num_centres: int = 40, dim: int = 5, sign: int = 1, **options: Any) -> ConeCritic:
    critic = ConeCritic(num_centres, dim, sign=sign, generator=seeded(), **options).double()
    nn.init.normal_(critic.offsets, generator=seeded(1))
    return critic


@pytest.mark.parametrize("sign", [1, -1])
def test_evaluation_is_the_minimum(sign: int) -> None:
    critic = random_critic(sign=sign).eval()
    x = torch.randn(200, 5, dtype=torch.float64)
    heights = cdist(x, critic.centres.detach()) + critic.offsets.detach().numpy()
    np.testing.assert_allclose(critic(x)[:, 0].detach(), sign * heights.min(1), atol=1e-13)
    assert critic(x.reshape(4, 50, 5)).shape == (4, 50, 1)
    assert critic(x[0]).shape == (1,)


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 10.0])
def test_training_is_the_soft_minimum_and_not_far_above(temperature: float) -> None:
    critic = random_critic(temperature=temperature)
    x = torch.randn(100, 5, dtype=torch.float64)
    heights = cdist(x, critic.centres.detach()) + critic.offsets.detach().numpy()
    expected = -temperature * np.logaddexp.reduce(-heights / temperature, axis=1)
    np.testing.assert_allclose(critic(x)[:, 0].detach(), expected, atol=1e-7)
    gap = critic.eval()(x)[:, 0].detach().numpy() - expected
    assert (gap >= -1e-7).all() and (gap <= temperature * np.log(40) + 1e-7).all()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", [L1, L2, LINF])
def test_no_slope_above_the_proven_bound(norm: Any, training: bool) -> None:
    critic = random_critic().train(training)
    bound = bound_lipschitz(critic, norm).value
    assert bound == (pytest.approx(5**0.5) if norm == LINF else 1.0)
    x = 2 * torch.randn(500, 5, dtype=torch.float64)
    x[:40] = critic.centres.detach()
    # Straight up a cone is the steepest way in every norm.
    steepest = torch.ones(500, 5, dtype=torch.float64)
    for step in (torch.randn(500, 5, dtype=torch.float64), 1e-2 * steepest, 100 * steepest):
        rise = (critic(x + step) - critic(x)).abs()[:, 0]
        assert (rise <= bound * norm.vector(step) + 1e-6).all()


def test_the_bound_is_attained() -> None:
    critic = random_critic(num_centres=1).eval()
    far = critic.centres.detach() + torch.tensor([[300.0, 400, 0, 0, 0]])
    rise = critic(far) - critic(critic.centres)
    assert rise.item() == pytest.approx(500.0)


def test_the_bound_composes_and_refuses() -> None:
    critic = ConeCritic(3, 2).eval()
    net = nn.Sequential(nn.Linear(2, 2, bias=False), critic)
    nn.init.eye_(net[0].weight).data.mul_(3)  # type: ignore[arg-type]
    assert bound_lipschitz(net).value == pytest.approx(3.0)
    # Seven points in, seven numbers out: together they may rise by more than each alone.
    assert bound_lipschitz(critic, "l2", (7, 2)).value == 1.0
    bound = bound_lipschitz(critic, "linf", (7, 2), "l1").value
    far = torch.full((1, 7, 2), 1e4)
    rise = (critic(far + 100) - critic(far)).abs().sum() / 100
    assert rise.item() == pytest.approx(7 * 2**0.5, rel=1e-3)
    assert bound >= 7 * 2**0.5
    critic.sign.fill_(-2.0)
    assert bound_lipschitz(critic).value == 2.0
    nn.init.constant_(critic.offsets, float("nan"))
    with pytest.raises((NonFiniteError, NoRuleError), match="finite"):
        bound_lipschitz(critic)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_unit_vectors_or_zero_and_never_nan(training: bool) -> None:
    critic = ConeCritic(6, 3, temperature=1e-3, generator=seeded()).train(training)
    centres = critic.centres.detach() + 100
    critic.centres.data.copy_(centres)
    x = torch.cat([centres, centres + 1e-6, centres + 5.0]).requires_grad_()
    critic(x).sum().backward()
    for tensor in (x.grad, critic.centres.grad, critic.offsets.grad):
        assert tensor is not None and torch.isfinite(tensor).all()
    assert x.grad is not None
    norms = x.grad.norm(dim=-1)
    assert (norms <= 1.05).all()
    assert (norms[:6] == 0).all()


def test_gradients_match_differences() -> None:
    critic = random_critic(num_centres=4, dim=3, temperature=0.5)
    x = torch.randn(5, 3, dtype=torch.float64, generator=seeded(7)).requires_grad_()
    for mode in (True, False):
        critic.train(mode)

        def value(x: torch.Tensor, centres: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            given = {"centres": centres, "offsets": offsets}
            return torch.func.functional_call(critic, given, x)

        inputs = (
            x,
            critic.centres.detach().requires_grad_(),
            critic.offsets.detach().requires_grad_(),
        )
        # Moving the origin with the centres is invisible in the value, and so in the gradient.
        assert torch.autograd.gradcheck(value, inputs)


def test_evaluation_is_accurate_far_from_the_origin_and_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    critic = ConeCritic(30, 4, generator=seeded()).eval()
    critic.centres.data.add_(1000)
    x = critic.centres.detach() + 1e-2
    exact = np.minimum.reduce(cdist(x.double(), critic.centres.detach().double()), axis=1)
    np.testing.assert_allclose(critic(x)[:, 0].detach(), exact, rtol=1e-5)
    whole = critic(x)
    monkeypatch.setattr("taut.nn.cone_critic._CHUNK", 100)
    assert torch.equal(critic(x), whole)


def test_every_lipschitz_function_on_a_finite_set_is_a_minimum_of_cones() -> None:
    """McShane: centres at the points, offsets the values."""
    points = torch.randn(50, 3, dtype=torch.float64)
    values = torch.sin(points).sum(-1) / 3**0.5
    critic = ConeCritic(50, 3).double().eval()
    critic.load_state_dict({"centres": points, "offsets": values, "sign": torch.tensor(1.0)})
    torch.testing.assert_close(critic(points)[:, 0], values)


def test_orientation_travels_with_the_weights() -> None:
    critic = random_critic(sign=-1).eval()
    other = ConeCritic(40, 5).double().eval()
    other.load_state_dict(critic.state_dict())
    x = torch.randn(3, 5, dtype=torch.float64)
    for twin in (other, copy.deepcopy(critic), pickle.loads(pickle.dumps(critic))):
        assert torch.equal(twin(x), critic(x))


def test_fit_critic_takes_cones() -> None:
    fit = fit_critic(
        ConeCritic(4, 2, generator=seeded()), cone(2), num_steps=150, generator=seeded(), lr=0.03
    )
    assert 0.97 < fit.estimate.value <= 1 + 1e-5


@pytest.mark.parametrize(
    "problem", [absolute_value(), three_cones(), cone(8)], ids=lambda p: p.name
)
def test_the_distance_is_found_and_not_passed(problem: Any) -> None:
    told: list[int] = []
    fit = fit_cones(
        problem,
        num_centres=16,
        num_steps=150,
        batch_size=128,
        num_fresh=2000,
        generator=seeded(),
        on_step=lambda step, dual: told.append(step),
    )
    assert 0.97 < fit.estimate.value < 1.05
    assert told == list(range(1, 151)) and len(fit.history) == 150
    assert not fit.critic.training
    assert bound_lipschitz(fit.critic).value == 1.0
    # Mass of one point spread over a sphere is one cone, with its tip at that point.
    assert fit.critic.sign == (-1 if problem.name == "three cones" else 1)


def test_many_creases_are_found() -> None:
    problem = funnels(2, 8, seed=0, num_pairs=2**14)
    fit = fit_cones(
        problem, num_centres=128, num_steps=200, batch_size=256, tips="p", generator=seeded()
    )
    assert problem.draw_paired is not None
    x, y = problem.draw_paired(4096, seeded(9))
    with torch.no_grad():
        value = (fit.critic(x) - fit.critic(y)).mean().item()
    assert 0.93 < value / (x - y).norm(dim=-1).mean().item() <= 1 + 1e-6


def test_units_do_not_matter() -> None:
    def fit(unit: float) -> float:
        def sample(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
            x, y = three_cones().sample(n, generator)
            return unit * x, unit * y

        options: dict[str, Any] = {"num_centres": 8, "num_steps": 60, "num_fresh": 500}
        return fit_cones(sample, generator=seeded(), **options).estimate.value / unit

    assert fit(1.0) == pytest.approx(fit(1024.0), rel=1e-3)


def test_the_generator_decides_the_fit() -> None:
    options: dict[str, Any] = {"num_centres": 64, "num_steps": 20, "batch_size": 64}
    fit, again, other = (fit_cones(cone(3), generator=seeded(s), **options) for s in (0, 0, 1))
    assert fit.history == again.history != other.history
    assert torch.equal(fit.critic.centres, again.critic.centres)


def test_the_default_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    fit_cones(cone(2), num_centres=4, num_steps=3, num_fresh=10, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_points_that_never_move_are_no_error() -> None:
    def sample(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(n, 2), torch.ones(n, 2)

    assert fit_cones(sample, num_steps=5, generator=seeded()).estimate.value == 0.0


def test_nan_is_never_silent() -> None:
    def sample(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((n, 2), float("nan")), torch.zeros(n, 2)

    with pytest.raises(
        NonFiniteError, match="fit_cones: distances and the dual value must stay finite"
    ):
        fit_cones(sample, num_centres=4, num_steps=3, generator=seeded())


def test_wrong_arguments_teach() -> None:
    with pytest.raises(ArgumentError, match="ConeCritic: `sign` must be 1 or -1; got sign=0"):
        ConeCritic(2, 2, sign=0)
    with pytest.raises(
        ArgumentError, match="ConeCritic: `x` must have last dimension 2; got shape"
    ):
        ConeCritic(2, 2)(torch.zeros(3, 5))
    with pytest.raises(ArgumentError, match="fit_cones: `tips` must be one of 'p', 'q', 'best'"):
        fit_cones(cone(2), num_steps=1, generator=seeded(), tips="r")  # type: ignore[arg-type]
    for argument in ("num_centres", "num_steps", "batch_size", "num_fresh"):
        with pytest.raises(ArgumentError, match=f"fit_cones: `{argument}` must be"):
            fit_cones(cone(2), generator=seeded(), **{argument: 0})  # type: ignore[arg-type]
