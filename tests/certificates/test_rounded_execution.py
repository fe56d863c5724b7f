"""Errors of evaluation and of execution, against rational arithmetic and neighbouring floats."""

import copy
from fractions import Fraction

import pytest
import torch
from torch import nn

import taut
from taut.audit import find_program, prepare
from taut.certificates.rounded_execution import RoundedExecution, in_double
from taut.norms import L1, L2, LINF, as_norm


def execution(model, norm, dtype):
    program = in_double(find_program(prepare(model, "test"), (6,), "test"), torch.device("cpu"))
    return RoundedExecution(program, as_norm(norm), dtype, "test")


def exact_output(layers, x):
    """The true value of a network of `Linear`, `MaxMin`, `LeakyReLU` and `Scale`, as rationals."""
    point = [Fraction(v) for v in x.tolist()]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            rows = [[Fraction(v) for v in row] for row in layer.weight.tolist()]
            bias = [Fraction(v) for v in layer.bias.tolist()]
            point = [
                sum(w * v for w, v in zip(row, point, strict=True)) + b
                for row, b in zip(rows, bias, strict=True)
            ]
        elif isinstance(layer, taut.nn.Scale):
            point = [v * Fraction(layer.factor) for v in point]
        elif isinstance(layer, nn.LeakyReLU):
            point = [v if v > 0 else v * Fraction(layer.negative_slope) for v in point]
        else:
            half = len(point) // 2
            pairs = list(zip(point[:half], point[half:], strict=True))
            point = [max(p) for p in pairs] + [min(p) for p in pairs]
    return point


def off(computed, truth):
    return torch.tensor(
        [float(Fraction(c) - t) for c, t in zip(computed.tolist(), truth, strict=True)]
    ).double()


def small_network(seed, scale=1.0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 10),
        taut.nn.MaxMin(),
        taut.nn.Scale(0.7),
        nn.Linear(10, 8),
        nn.LeakyReLU(0.3),
        nn.Linear(8, 3),
        taut.nn.Scale(-3.3),
    )
    for parameter in model.parameters():
        parameter.data *= scale
        parameter.data += 0.01 * scale
    return model


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_errors_stay_within_their_bounds(dtype, scale):
    """At x for float64 evaluation, and for an execution anywhere in a ball around x."""
    for seed in range(4):
        model = small_network(seed, scale)
        network = copy.deepcopy(model).double()
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(8, 6, generator=generator) * 3
        run, limit = execution(model, "linf", dtype)(x.double())
        executed = model if dtype == torch.float32 else network
        radius = 0.5
        shift = (torch.rand(8, 6, generator=generator) * 2 - 1) * radius * 0.999
        other = (x + shift).to(dtype)
        there = executed(other).detach().double()
        assert (limit > radius).all()
        allowed = run.bound.far.values + run.bound.slope.values[:, None] * radius
        for i in range(len(x)):
            here = off(run.value[i], exact_output(network, x[i].double()))
            far = off(there[i], exact_output(network, other[i].double()))
            for row, norm in enumerate((L1, L2, LINF)):
                assert norm.vector(here) <= run.bound.error.values[row, i]
                assert norm.vector(far) <= allowed[row, i]
                # Not so wide that they would say nothing.
                size = norm.vector(run.value[i])
                assert run.bound.error.values[row, i] < 1e-11 * (size + scale**3)


def test_values_move_no_further_than_reach():
    model = small_network(0).double()
    run, _ = execution(model, "l1", None)(torch.zeros(1, 6).double())
    step = torch.randn(500, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = (model(step) - model(torch.zeros(1, 6).double())).detach()
    for row, norm in enumerate((L1, L2, LINF)):
        assert (norm.vector(moved) <= run.bound.reach.values[row] * L1.vector(step)).all()


def test_float32_breaks_the_real_radius_but_not_its_own():
    """Next to 1e4 float32 cannot see a lead of 4e-4: the tie falls to the other class."""
    model = nn.Linear(1, 2)
    model.weight.data = torch.tensor([[0.0], [1.0]])
    model.bias.data = torch.tensor([1e4, 1e4])
    x = torch.tensor([[0.0102]])
    real = taut.certify(model, x)
    executed = taut.certify(model, x, arithmetic="float32")
    assert real.prediction.item() == executed.prediction.item() == 1
    inside = torch.linspace(0.0102 - real.radius.item() * 0.999, 0.0102, 4001)[:, None]
    answers = model(inside).argmax(1)
    assert (answers != 1).any()
    assert executed.radius < real.radius
    near = (inside.double() - x.double()).abs().flatten() < executed.radius
    assert (answers[near] == 1).all()
    assert taut.certify(model, torch.tensor([[0.02]]), arithmetic="float32").radius > 0.01


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("constraint", ["orthonormal", "linf", "none"])
def test_neighbouring_floats_at_the_boundary(constraint, norm):
    """Executed in float32 on many floats just inside the radius, along the steepest direction."""
    generator = torch.Generator().manual_seed(5)
    for seed in range(3):
        torch.manual_seed(seed)
        model = taut.nn.mlp([4, 8, 3], constraint=constraint).eval()
        list(model.parameters())[-1].data += 100  # the last bias: loses digits
        x = torch.randn(20, 4, generator=generator)
        found = taut.certify(model, x, norm, arithmetic="float32")
        real = taut.certify(model, x, norm)
        sure = found.radius > 0
        assert sure.double().mean() > 0.5
        assert (found.radius[sure] < real.radius[sure]).all()
        z = x.clone().requires_grad_()
        logits = model(z)
        second = logits.detach().scatter(1, found.prediction[:, None], -torch.inf).argmax(1)
        rows = torch.arange(len(x))
        gap = (logits[rows, found.prediction] - logits[rows, second]).sum()
        (gradient,) = torch.autograd.grad(gap, z)
        kind = taut.L2 if norm == "l2" else taut.LINF
        way = gradient.sign() if norm == "linf" else gradient / gradient.norm(dim=1, keepdim=True)
        for _ in range(60):
            share = 1 - 10 ** (-7 * torch.rand(len(x), 1, generator=generator))
            near = x - way * found.radius.float()[:, None] * share
            toward = torch.randn(x.shape, generator=generator) * torch.inf
            near = torch.nextafter(near, toward)
            inside = kind.vector(near.double() - x.double()) < found.radius
            with torch.no_grad():
                same = model(near).argmax(1) == found.prediction
            assert same[inside & sure].all()


def test_overflow_at_the_other_point_limits_the_radius():
    model = nn.Linear(1, 2, bias=False)
    model.weight.data = torch.tensor([[1e30], [-1e30]])
    found = taut.certify(model, torch.tensor([[1e8]]), arithmetic="float32")
    assert found.radius.item() == 0  # 1e38 is within a factor of four of the largest float32
    assert taut.certify(model, torch.tensor([[1e8]])).radius.item() > 9e7
