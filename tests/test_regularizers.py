"""Penalties against dense float64 Jacobians."""

import pytest
import torch
from torch import nn

import taut
from taut.errors import ArgumentError
from taut.regularizers import estimate_jacobian_norms, gradient_penalty, spectral_jacobian


def network(kind, out=4):
    torch.manual_seed(1)
    if kind == "tanh":
        return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, out)).double()
    if kind == "relu":
        return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, out)).double()
    return taut.nn.mlp([6, 8, 8, out], "groupsort4", kind, lipschitz=3.0).double()


def dense_norms(model, x):
    jacobians = torch.stack(
        [torch.autograd.functional.jacobian(lambda z: model(z[None])[0], row) for row in x]
    )
    return torch.linalg.svdvals(jacobians)[:, 0].detach()


KINDS = ["tanh", "relu", "bjorck", "spectral", "linf"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_rises_to_the_dense_norm(kind):
    model = network(kind).eval()
    x = torch.randn(8, 6, dtype=torch.float64)
    truth = dense_norms(model, x)
    for num_steps in (1, 3, 80):
        generator = torch.Generator().manual_seed(0)
        found = estimate_jacobian_norms(model, x, num_steps=num_steps, generator=generator)
        assert not found.requires_grad and found.shape == (8,)
        assert (found <= truth * (1 + 1e-12)).all()
    assert torch.allclose(found, truth, rtol=1e-3)


@pytest.mark.parametrize("kind", ["tanh", "relu", "linf"])
def test_the_penalty_has_the_gradient_of_the_largest_singular_value(kind):
    """Against central differences of the dense singular value with respect to one weight matrix."""
    model = network(kind)
    x = torch.randn(3, 6, dtype=torch.float64)
    weight = next(model.parameters())
    generator = torch.Generator().manual_seed(0)
    penalty = spectral_jacobian(model, x, num_steps=80, generator=generator)
    assert penalty.item() == pytest.approx(dense_norms(model, x).mean().item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(penalty, weight)
    direction = torch.randn(weight.shape, dtype=torch.float64)
    if kind == "linf":
        # A kept weight is put back into its set, where only moves inside it have a derivative.
        direction = -weight.detach()
    step = 1e-6
    with torch.no_grad():
        home = weight.clone()
        weight.copy_(home + step * direction)
        above = dense_norms(model, x).mean()
        weight.copy_(home - (0 if kind == "linf" else step) * direction)
        below = dense_norms(model, x).mean()
    width = step if kind == "linf" else 2 * step
    slope = ((above - below) / width).item()
    assert slope != 0
    assert (gradient * direction).sum().item() == pytest.approx(slope, rel=2e-3)


def test_training_on_the_penalty_lowers_the_norm():
    model = network("tanh")
    x = torch.randn(10, 6, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    before = dense_norms(model, x).mean()
    for _ in range(8):
        penalty = spectral_jacobian(model, x, generator=generator)
        weights = [p for p in model.parameters() if p.dim() == 2]
        with torch.no_grad():
            for weight, slope in zip(weights, torch.autograd.grad(penalty, weights), strict=True):
                weight -= 0.1 * slope
    assert dense_norms(model, x).mean() < before / 2


def test_images_and_flat_functions():
    model = nn.Conv2d(2, 3, 3)
    x = torch.randn(2, 2, 5, 5)
    assert spectral_jacobian(model, x).item() > 0
    assert torch.equal(estimate_jacobian_norms(lambda z: 0 * z.flatten(1), x), torch.zeros(2))


def test_no_grad_and_gradients_elsewhere_do_not_matter():
    model = network("tanh").requires_grad_(False)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        assert estimate_jacobian_norms(model, x).shape == (3,)
    assert x.grad is None


def test_the_same_generator_gives_the_same_numbers():
    model, x = network("tanh"), torch.randn(3, 6, dtype=torch.float64)
    first, second = (
        spectral_jacobian(model, x, generator=torch.Generator().manual_seed(4)) for _ in range(2)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("target", [0.3, 1.0, 10.0])
def test_the_gradient_penalty_is_that_of_dense_gradients(one_sided, target):
    critic = network("tanh", out=1)
    x, y = torch.randn(2, 12, 6, dtype=torch.float64)
    t = torch.rand(12, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    norms = dense_norms(critic, t * x + (1 - t) * y)
    excess = (norms - target).clamp(min=0) if one_sided else norms - target
    found = gradient_penalty(
        critic, x, y, target=target, one_sided=one_sided, generator=torch.Generator().manual_seed(3)
    )
    assert found.item() == pytest.approx(excess.square().mean().item(), rel=1e-10)
    if found.item():
        found.backward()
        assert all(p.grad is not None for name, p in critic.named_parameters() if "weight" in name)


def test_a_critic_of_slope_one_pays_nothing():
    torch.manual_seed(0)
    critic = taut.nn.mlp([8, 8, 8, 1]).double()
    x, y = torch.randn(2, 40, 8, dtype=torch.float64)
    # MaxMin and square orthonormal layers keep gradients at 1.
    assert gradient_penalty(critic, x, y).item() < 1e-10
    assert gradient_penalty(critic, x, y, target=0.5, one_sided=True).item() == pytest.approx(
        0.25, rel=1e-4
    )


def test_a_flat_critic_has_finite_gradients():
    weight = torch.zeros(3, 1, requires_grad=True)
    gradient_penalty(lambda z: z @ weight, torch.ones(2, 3), torch.zeros(2, 3)).backward()
    assert weight.grad is not None and weight.grad.isfinite().all()


def test_wrong_arguments():
    x = torch.zeros(2, 3)
    with pytest.raises(ArgumentError, match="`x` and `y` must be batches of one shape; got"):
        gradient_penalty(lambda z: z.sum(1), x, x[:1])
    with pytest.raises(ArgumentError, match="must give one number per point; got output of shape"):
        gradient_penalty(lambda z: z, x, x)
    with pytest.raises(ArgumentError, match="`num_steps` must be a whole number"):
        spectral_jacobian(torch.abs, x, num_steps=0)
