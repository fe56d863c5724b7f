"""No attack within the radius succeeds, on thousands of random networks and inputs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import taut
from taut.linalg import project_l1_ball

pytestmark = pytest.mark.slow

CONSTRAINTS = ("orthonormal", "spectral", "linf", "l1", "none")
ACTIVATIONS = ("maxmin", "groupsort4", "fullsort", "maxout", "abs", "relu")


def into_ball(step, radius, norm):
    radius = radius[:, None]
    if norm == "linf":
        return step.clamp(-radius, radius)
    if norm == "l2":
        return step * (radius / step.norm(dim=1, keepdim=True).clamp(min=1e-300)).clamp(max=1)
    return project_l1_ball(step / radius, 1.0) * radius


def steepest(gradient, norm):
    if norm == "linf":
        return gradient.sign()
    if norm == "l2":
        return F.normalize(gradient, dim=1, eps=1e-300)
    return F.one_hot(gradient.abs().argmax(1), gradient.shape[1]) * gradient.sign()


def leads(logits, prediction):
    """By how much the prediction leads; the sign of one output counts too."""
    if logits.shape[1] == 1:
        return torch.where(prediction == 1, logits[:, 0], -logits[:, 0])
    others = logits.scatter(1, prediction[:, None], -torch.inf)
    return logits.gather(1, prediction[:, None])[:, 0] - others.amax(1)


def attack(model, x, found, norm, share, generator, num_steps=12):
    """The smallest lead that projected gradient steps found within `share` of the radius."""
    radius = found.radius.to(x.dtype) * share
    step = into_ball(torch.randn(x.shape, dtype=x.dtype, generator=generator), radius / 10, norm)
    lowest = torch.full_like(radius, torch.inf)
    for k in range(num_steps):
        step = step.detach().requires_grad_()
        lead = leads(model(x + step), found.prediction)
        lowest = torch.minimum(lowest, lead.detach())
        (gradient,) = torch.autograd.grad(lead.sum(), step)
        size = radius if k < num_steps // 2 else radius / 8
        step = into_ball(step - steepest(gradient, norm) * size[:, None], radius, norm)
    return torch.minimum(lowest, leads(model(x + step), found.prediction).detach())


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_projected_gradients_change_nothing_inside(constraint, norm):
    generator = torch.Generator().manual_seed(7)
    for index, activation in enumerate(ACTIVATIONS):
        torch.manual_seed(index)
        widths = [3, 8, 16, 8][: 2 + index % 3]
        classes = (1, 2, 5)[(index // 2) % 3]
        model = taut.nn.mlp([*widths, classes], activation, constraint).double().eval()
        x = torch.randn(70, 3, dtype=torch.float64, generator=generator)
        found = taut.certify(model, x, norm)
        sure = found.radius > 0
        assert sure.double().mean() > 0.9
        lead = attack(model, x, found, norm, 0.999999, generator)
        assert (lead[sure] > 0).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_the_attack_has_teeth(norm):
    """One percent outside the radius of a linear network it succeeds."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    model = nn.Linear(4, 3).double()
    x = torch.randn(100, 4, dtype=torch.float64, generator=generator)
    found = taut.certify(model, x, norm)
    lead = attack(model, x, found, norm, 1.01, generator)
    assert (lead < 0).double().mean() > 0.9
    assert (attack(model, x, found, norm, 0.999999, generator) > 0).all()


class Branched(nn.Module):
    """A forward of one's own: standardisation, a sum of branches, functions."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.linspace(-0.5, 0.5, 16))
        self.enter = nn.Linear(16, 12)
        self.left = nn.Linear(12, 12)
        self.norm = nn.BatchNorm1d(12)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        x = (x.flatten(1) - self.mean) / 0.3
        h = torch.relu(self.enter(x))
        h = h + 0.5 * F.relu(self.norm(self.left(h)))
        return self.head(taut.functional.max_min(h))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )


@pytest.mark.parametrize("make", [Branched, convolutional])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_other_graphs(make, norm):
    torch.manual_seed(0)
    model = make().double().eval()
    generator = torch.Generator().manual_seed(1)
    flat = torch.randn(60, 16, dtype=torch.float64, generator=generator)
    found = taut.certify(model, flat.view(-1, 1, 4, 4), norm)
    assert (found.radius > 0).all() and found.method == "last-layer pairs"
    lead = attack(lambda z: model(z.view(-1, 1, 4, 4)), flat, found, norm, 0.999999, generator)
    assert (lead > 0).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_pairs_are_never_worse_than_the_vector_map(norm):
    """Multiplying by one behind the last layer, entry by entry, hides it."""

    class Hidden(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.register_buffer("one", torch.ones(5))

        def forward(self, x):
            return self.inner(x) * self.one

    torch.manual_seed(1)
    constraint = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}[norm]
    inner = taut.nn.mlp([6, 16, 5], constraint=constraint)
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    pairs, vector = taut.certify(inner, x, norm), taut.certify(Hidden(inner), x, norm)
    assert (pairs.method, vector.method) == ("last-layer pairs", "vector map")
    assert (pairs.radius >= vector.radius * (1 - 1e-9)).all()
    assert (vector.radius > 0).all()
