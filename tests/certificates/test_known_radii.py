"""Cases whose radius is known exactly, checked in rational arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

import taut

ARITHMETICS = ("real", "float64", "float32")
NORMS = ("l1", "l2", "linf")


def linear(weight, bias=None, dtype=torch.float32):
    weight = torch.as_tensor(weight, dtype=dtype)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=dtype)
    layer.weight.data = weight
    if bias is not None:
        layer.bias.data = torch.as_tensor(bias, dtype=dtype)
    return layer


def rational(x):
    return [Fraction(v) for v in x.tolist()]


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("k", [1.0, 1e-30, 1e30, 3.7])
def test_two_opposite_logits(k, norm, arithmetic):
    x = torch.tensor([[0.5], [-2.0], [1.7]])
    found = taut.certify(linear([[k], [-k]]), x, norm, arithmetic=arithmetic)
    truth = x.double().abs().flatten()
    assert found.prediction.tolist() == [0, 1, 0]
    assert (found.radius < truth).all()
    assert (found.radius > truth * (1 - (1e-5 if arithmetic == "float32" else 1e-12))).all()


def test_the_factor_in_print_is_refuted():
    """A margin M > K eps / 2 does not suffice in L-inf: here eps = |x| already flips the sign."""
    k, x = 2.0, torch.tensor([[1.0]])
    model = linear([[k], [-k]])
    found = taut.certify(model, x, "linf")
    eps = 1.5 * x.abs().item()
    assert found.margin.item() > k * eps / 2
    assert model(x - eps).argmax() != found.prediction.item()
    assert found.radius.item() < 1


@pytest.mark.parametrize("norm", NORMS)
def test_without_a_last_dense_layer_the_factor_is_that_of_the_norm(norm):
    """The identity on R^2: distance of (1, 0) to the diagonal is 1, 1/sqrt(2), 1/2."""
    found = taut.certify(nn.Identity(), torch.tensor([[1.0, 0.0]]), norm)
    truth = {"l1": 1.0, "l2": math.sqrt(0.5), "linf": 0.5}[norm]
    assert found.method == "vector map"
    assert truth * (1 - 1e-12) < found.radius.item() < truth


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_ties_and_what_is_not_finite_certify_nothing(arithmetic):
    x = torch.tensor([[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1.0, -math.inf], [1.0, 0.0]])
    for model in (linear([[1.0, 0.0], [0.0, 1.0]]), linear([[1.0, 0.0]])):
        found = taut.certify(model, x, arithmetic=arithmetic)
        assert found.radius[:4].tolist() == [0, 0, 0, 0]
        assert found.radius[4] > 0.7


def test_infinity_that_hides_behind_a_rectifier_certifies_nothing():
    """The sum overflows on its way though its true value is finite, and ReLU makes it look small."""
    first = linear([[-1e308, -1e308, 1e308, 1e308], [1.0, 0, 0, 0]], dtype=torch.float64)
    last = linear([[1.0, 0.0], [0.0, 0.5]], dtype=torch.float64)
    model = nn.Sequential(first, nn.ReLU(), last)
    x = torch.tensor([[1.0, 1.0, 1.0, 1.5]], dtype=torch.float64)
    assert taut.certify(model, x).radius.item() == 0


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_linear_networks_have_the_exact_distance_to_the_boundary(norm, classes):
    generator = torch.Generator().manual_seed(classes)
    scale = 10.0 ** torch.randint(-20, 20, (), generator=generator).item()
    model = linear(
        torch.randn(classes, 5, generator=generator) * scale,
        torch.randn(classes, generator=generator) * scale,
    )
    x = torch.randn(40, 5, generator=generator)
    found = taut.certify(model, x, norm)
    weight = [rational(row) for row in model.weight.detach()]
    bias = rational(model.bias.detach())
    for i in range(len(x)):
        point = rational(x[i])
        logits = [sum(w * v for w, v in zip(row, point, strict=True)) for row in weight]
        logits = [z + b for z, b in zip(logits, bias, strict=True)]
        t = max(range(classes), key=logits.__getitem__)
        assert found.prediction[i] == t
        # Squares, so that the Euclidean case stays rational.
        squares = []
        for j in set(range(classes)) - {t}:
            row = [abs(a - b) for a, b in zip(weight[t], weight[j], strict=True)]
            dual = {"l1": max(row) ** 2, "l2": sum(d * d for d in row), "linf": sum(row) ** 2}
            squares.append((logits[t] - logits[j]) ** 2 / dual[norm])
        radius = Fraction(found.radius[i].item())
        assert radius**2 <= min(squares)
        assert radius**2 >= min(squares) * (1 - Fraction(1, 10**9))


@pytest.mark.parametrize("norm", NORMS)
def test_the_sign_of_one_output(norm):
    model = nn.Sequential(linear([[3.0, 4.0]], [-1.0]), taut.nn.Scale(-2.0))
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.2, 0.1]])
    found = taut.certify(model, x, norm)
    dual = {"l1": 4.0, "l2": 5.0, "linf": 7.0}[norm]
    truth = (x.double() @ torch.tensor([3.0, 4.0]).double() - 1).abs() / dual
    assert found.method == "sign"
    assert found.prediction.tolist()[:2] == [0, 1]
    assert (found.radius[:2] <= truth[:2]).all() and (
        found.radius >= truth * (1 - 1e-9) - 1e-15
    ).all()


def test_factors_behind_the_last_layer_cancel():
    bare = linear(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    scaled = nn.Sequential(bare, taut.nn.Scale(1e-3), nn.Identity(), taut.nn.Scale(7.0))
    plain, found = taut.certify(bare, x), taut.certify(scaled, x)
    assert found.method == "last-layer pairs"
    torch.testing.assert_close(found.radius, plain.radius, rtol=1e-9, atol=0)


def test_constant_networks_are_certified_everywhere():
    found = taut.certify(linear([[0.0], [0.0]], [1.0, 2.0]), torch.zeros(1, 1))
    assert found.prediction.item() == 1 and found.radius.item() > 1e100
