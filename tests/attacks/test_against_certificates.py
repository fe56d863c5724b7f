"""No attack of anyone succeeds inside a certified radius, and a false certificate is found out."""

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from linear import exact_distance, linear, samples
from torch import nn

import taut
from taut.attacks import autoattack, check_certificates, evaluate, minimal_perturbation, pgd
from taut.errors import ArgumentError, MissingExtraError, ViolatedCertificateError

pytestmark = pytest.mark.slow

OPEN: dict[str, Any] = {"low": None, "high": None}


@cache
def certified(norm, classes=4, size=9, n=12):
    """A network that was trained a little, so that radii are worth attacking."""
    torch.manual_seed(3)
    constraint = {"l2": "bjorck", "linf": "linf"}[norm]
    model = taut.nn.mlp([size, 16, 16, classes], "maxmin", constraint, 4.0)
    centres = torch.rand(max(classes, 2), size)
    labels = torch.randint(0, max(classes, 2), (n,))
    x = (centres[labels] + 0.1 * torch.randn(n, size)).clamp(0, 1)
    loss = taut.losses.loss_for_radius(0.2, lipschitz=4.0, norm=norm, binary=classes == 1)
    for _ in range(20):
        value = loss(model(x), labels)
        slopes = torch.autograd.grad(value, list(model.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(model.parameters(), slopes, strict=True):
                parameter -= 0.1 * slope
    model.eval()
    return model, x, labels, taut.certify(model, x, norm, labels)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("classes", [1, 4])
def test_pgd_and_the_closest_examples_keep_outside(norm, classes):
    model, x, labels, proven = certified(norm, classes)
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"norm": norm, "generator": generator}
    inside = pgd(
        model, x, proven.prediction, radius=0.9999 * proven.radius, num_steps=40, **options
    )
    assert not inside.success.any()
    found = minimal_perturbation(
        model, x, labels, radius=3.0, num_steps=15, num_rounds=3, num_restarts=2, **options
    )
    assert found.error > 0.5
    check_certificates(found, proven)
    right = proven.correct
    assert right is not None and right.any()
    assert (found.distance[right] >= proven.radius[right]).all()


@pytest.fixture
def _few_iterations(monkeypatch):
    """Hundreds of iterations and thousands of queries are for the record, not for a test."""
    kind = pytest.importorskip("pyautoattack").AutoAttack
    run = kind.run_standard_evaluation

    def shorter(self, *args, **kwargs):
        self.apgd.n_iter = self.apgd_targeted.n_iter = 12
        self.fab.n_iter, self.square.n_queries, self.apgd.eot_iter = 6, 40, 1
        return run(self, *args, **kwargs)

    monkeypatch.setattr(kind, "run_standard_evaluation", shorter)


@pytest.mark.usefixtures("_few_iterations")
@pytest.mark.parametrize(("norm", "classes"), [("l2", 1), ("linf", 3), ("l2", 4), ("linf", 4)])
def test_autoattack_keeps_outside(norm, classes):
    model, x, labels, proven = certified(norm, classes)
    radius = float(proven.radius.median())
    assert radius > 0
    found = autoattack(model, x, labels, radius=radius, norm=norm)
    check_certificates(found, proven, model)
    assert proven.correct is not None
    assert not found.success[proven.correct & (proven.radius > radius)].any()
    wide = autoattack(model, x, labels, radius=0.9, norm=norm, version="rand")
    check_certificates(wide, proven, model)
    assert wide.error > 0.4
    assert (wide.distance[wide.success] <= 0.9).all()


@pytest.mark.usefixtures("_few_iterations")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_autoattack_and_pgd_agree_on_a_linear_network(norm):
    model = linear(3, dtype=torch.float64)
    x, labels = samples(model, n=12)
    truth = exact_distance(model, x, labels, norm)
    radius = float(truth.median())
    # Data of the range [-8, 8] is rescaled for AutoAttack and back.
    found = autoattack(
        model, x, labels, radius=radius, norm=norm, low=-8.0, high=8.0, version="rand"
    )
    assert not found.success[truth > radius].any()
    assert found.success[truth < 0.97 * radius].double().mean() > 0.7
    assert (found.distance[found.success] <= radius).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_foolbox_as_a_second_opinion(norm):
    foolbox = pytest.importorskip("foolbox")
    model, x, labels, proven = certified(norm)
    kind = foolbox.attacks.L2PGD if norm == "l2" else foolbox.attacks.LinfPGD
    radius = 1.5 * float(proven.radius.median())
    theirs = kind(steps=40)(
        foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu"), x, labels, epsilons=radius
    )[1]
    judged = evaluate(model, x, theirs, labels, radius=radius, norm=norm, attack="foolbox")
    check_certificates(judged, proven)
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"num_restarts": 4, "num_steps": 50, "generator": generator}
    ours = pgd(model, x, labels, radius=radius, norm=norm, **options)
    assert 0 < judged.error < 1
    assert ours.error >= judged.error


def test_a_false_certificate_is_found_out():
    model = linear(3)
    x, labels = samples(model)
    proven = taut.certify(model, x, "l2")
    found = pgd(model, x, labels, radius=1.5 * proven.radius, norm="l2", num_steps=40, **OPEN)
    assert found.success.any()
    check_certificates(found, proven)
    boast = replace(proven, radius=2 * proven.radius)
    for witness in (None, model):
        with pytest.raises(ViolatedCertificateError) as caught:
            check_certificates(found, boast, witness)
        sentence = str(caught.value)
        assert "This is a bug in taut: please report it" in sentence
        assert "pgd changed" in sentence and "l2 distance" in sentence
        row = int(sentence.split("input ")[1].split(" ")[0])
        assert repr(float(boast.radius[row])) in sentence
        assert repr(float(found.distance[row])) in sentence
        assert ("Pass model=" in sentence) == (witness is None)


def test_rounding_in_the_execution_is_told_from_an_error():
    """In float32 the prediction changes where in real numbers it does not."""

    class Cancelling(nn.Module):
        """(x + 1e8) - 1e8: 1-Lipschitz, and coarse in float32."""

        def forward(self, x):
            return (x + 1e8) - 1e8

    model = Cancelling()
    x = torch.tensor([[3.0, 0.0]])
    proven = taut.certify(model, x, "linf")
    assert proven.prediction.item() == 0 and proven.radius.item() == pytest.approx(1.5)
    # In float32, steps of 8: both become 0 or 8.
    moved = torch.tensor([[2.9, 1.0]])
    found = evaluate(
        model, x, moved, torch.tensor([0]), radius=1.2, norm="linf", low=None, high=None
    )
    changed = replace(found, prediction=torch.tensor([1]), distance=found.distance.clamp(max=1.2))
    changed = replace(changed, examples=moved, success=torch.tensor([True]))
    with pytest.raises(ViolatedCertificateError, match="Pass model=... to rule out rounding"):
        check_certificates(changed, proven)
    check_certificates(changed, proven, model)


def test_certificates_of_other_inputs_are_refused():
    model = linear(3)
    x, labels = samples(model)
    found = pgd(model, x, labels, radius=0.1, norm="l2", num_steps=2, **OPEN)
    with pytest.raises(ArgumentError, match="same inputs in the same norm; got 60 in linf"):
        check_certificates(found, taut.certify(model, x, "linf"))
    with pytest.raises(ArgumentError, match="got 3 in l2 for 60 in l2"):
        check_certificates(found, taut.certify(model, x[:3], "l2"))


def test_without_pyautoattack_the_error_tells_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'taut\[attacks\]'"):
        autoattack(nn.Identity(), torch.zeros(1, 2), torch.tensor([0]), radius=0.1)


def test_autoattack_needs_a_range():
    pytest.importorskip("pyautoattack")
    limits: dict[str, Any] = {"low": None, "high": 1.0}
    with pytest.raises(ArgumentError, match="AutoAttack needs bounded data; got low=None"):
        autoattack(nn.Identity(), torch.zeros(1, 2), torch.tensor([0]), radius=0.1, **limits)
