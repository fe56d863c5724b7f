"""Losses of scores and distances, against plain Python and numpy."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from taut.errors import ArgumentError
from taut.losses import (
    HKR,
    KR,
    AnnealedCrossEntropy,
    CategoricalHinge,
    CosineLoss,
    LseHKR,
    OneVsRestHinge,
    SoftHKR,
    TemperatureBCE,
)

MAKE = {
    "kr": KR,
    "one-vs-rest": lambda **more: OneVsRestHinge(1.3, **more),
    "categorical": lambda **more: CategoricalHinge(1.3, **more),
    "hkr": lambda **more: HKR(0.8, 1.3, **more),
    "soft-hkr": lambda **more: SoftHKR(0.8, 1.3, 4.0, **more),
    "lse-hkr": lambda **more: LseHKR(0.8, 1.3, 4.0, **more),
    "bce": lambda **more: TemperatureBCE(3.0, **more),
    "cosine": CosineLoss,
    "annealed": lambda **more: AnnealedCrossEntropy(0.5, 2.0, 0.3, 1.5, 2.0, **more),
}
losses = pytest.mark.parametrize("name", MAKE)
several = pytest.mark.parametrize("name", [n for n in MAKE if n != "annealed"])


def batch(classes, n=30):
    generator = torch.Generator().manual_seed(classes)
    logits = 2 * torch.randn(n, classes, dtype=torch.float64, generator=generator)
    return logits, torch.randint(max(classes, 2), (n,), generator=generator)


def truth(logits, labels):
    if logits.shape[1] == 1:
        return labels.numpy()[:, None] == 1
    return np.arange(logits.shape[1]) == labels.numpy()[:, None]


def distance(values, inside):
    """The mean over all classes of the differences of means, 0 where there is none."""
    found = []
    for column, here in zip(values.T, inside.T, strict=True):
        both = 0 < here.sum() < len(here)
        found.append(column[here].mean() - column[~here].mean() if both else 0.0)
    return np.mean(found)


def expected(name, values, inside) -> Any:
    """The mean loss, by loops over samples and classes."""
    rows = []
    for row, here in zip(values, inside, strict=True):
        signed = np.where(here, row, -row)
        hinge = np.maximum(0, 1.3 - signed)
        if name in ("one-vs-rest", "hkr"):
            rows.append(hinge.mean())
        elif name == "bce":
            rows.append(np.mean([math.log1p(math.exp(-3 * s)) / 3 for s in signed]))
        elif name == "cosine":
            rows.append(-row[here].sum() / np.linalg.norm(row) / math.sqrt(here.sum()))
        elif len(row) == 1:
            smooth = math.log1p(math.exp(8 * (1.3 - signed[0]))) / 8
            if name == "annealed":
                pair = np.array([-row[0], row[0]]) / math.sqrt(2)
                rows.append(annealed(pair, int(here[0])))
            else:
                rows.append(smooth if name == "lse-hkr" else hinge[0])
        elif name == "categorical":
            rows.append(max(0, 1.3 - (row[here].min() - row[~here].max())))
        elif name == "soft-hkr":
            share = np.exp(4 * row[~here]) / np.exp(4 * row[~here]).sum()
            rows.append((hinge[here].mean() + (share * hinge[~here]).sum()) / 2)
        elif name == "lse-hkr":
            terms = np.exp(4 * (1.3 - (row[here].min() - row[~here])))
            rows.append(math.log(1 + terms.sum()) / 4)
        elif name == "annealed":
            rows.append(annealed(row, int(here.argmax())))
    if name == "kr":
        return -distance(values, inside)
    mean = np.mean(rows)
    return 0.8 * mean - 0.2 * distance(values, inside) if "hkr" in name else mean


def annealed(row, label):
    reach = math.sqrt(2) * 2.0 * 0.5
    moved = row + np.clip((row[label] - row) / reach, 0.01, 1) * reach
    moved[label] = row[label] - 0.3
    p = np.exp(1.5 * moved)[label] / np.exp(1.5 * moved).sum()
    return -((1 - p) ** 2) * math.log(p)


@losses
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_the_formulas(name, classes):
    logits, labels = batch(classes)
    if name == "cosine" and classes == 1:
        with pytest.raises(ArgumentError, match="must have two classes at least"):
            CosineLoss()(logits, labels)
        return
    inside = truth(logits, labels)
    wanted = expected(name, logits.numpy(), inside)
    loss: Any = MAKE[name]()
    assert float(loss(logits, labels)) == pytest.approx(wanted, rel=1e-9)
    # Class indices and 0-1 rows say the same, and so do the ways of reducing.
    assert float(loss(logits, torch.from_numpy(inside).long())) == pytest.approx(wanted, rel=1e-9)
    each = MAKE[name](reduction="none")(logits, labels)
    assert each.shape == (len(logits),)
    assert float(each.mean()) == pytest.approx(wanted, rel=1e-9)
    assert float(MAKE[name](reduction="sum")(logits, labels)) == pytest.approx(30 * wanted)


@several
def test_several_classes_may_be_true(name):
    logits, _ = batch(4)
    inside = torch.rand(30, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    inside[:, 0], inside[:, 1] = True, False  # so that each row has both
    wanted = expected(name, logits.numpy(), inside.numpy())
    assert float(MAKE[name]()(logits, inside.to(torch.float64))) == pytest.approx(wanted, rel=1e-9)
    # Rows without a true class, or without another one, are no error and no NaN.
    inside[0], inside[1] = True, False
    z = logits.clone().requires_grad_()
    value = MAKE[name]()(z, inside.long())
    value.backward()
    assert value.isfinite() and z.grad is not None and z.grad.isfinite().all()


@losses
def test_a_sample_of_weight_two_counts_twice(name):
    logits, labels = batch(3)
    weight = torch.ones(30, dtype=torch.float64)
    weight[:7] = 2
    twice = torch.cat([logits, logits[:7]]), torch.cat([labels, labels[:7]])
    got = MAKE[name]()(logits, labels, sample_weight=weight)
    torch.testing.assert_close(got, MAKE[name]()(*twice))
    torch.testing.assert_close(
        MAKE[name](reduction="sum")(logits, labels, weight), MAKE[name](reduction="sum")(*twice)
    )


@losses
def test_weights_of_classes(name):
    logits, labels = batch(3)
    alike = MAKE[name](class_weight=torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(alike(logits, labels), MAKE[name]()(logits, labels))
    weight = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    assert MAKE[name](class_weight=weight)(logits, labels).isfinite()
    with pytest.raises(ArgumentError, match="`class_weight` must be one number for each class"):
        MAKE[name](class_weight=weight[:2])(logits, labels)


def test_the_distance_of_a_1_lipschitz_critic_is_below_that_of_the_samples():
    from scipy.stats import wasserstein_distance

    x = torch.randn(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 2
    first, second = x[labels == 1, 0].numpy(), x[labels == 0, 0].numpy()
    for critic in (x, x.abs(), x.sin()):
        assert -float(KR()(critic, labels)) <= wasserstein_distance(first, second) + 1e-12


def test_the_smooth_hinge_is_above_the_hinge_by_a_logarithm_at_most():
    logits, labels = batch(6)
    hard = CategoricalHinge(1.3)(logits, labels)
    for temperature in (1.0, 10.0, 1000.0):
        soft = LseHKR(1.0, 1.3, temperature)(logits, labels)
        assert hard <= soft + 1e-12 and soft <= hard + math.log(6) / temperature + 1e-12


@losses
def test_gradients_and_functions_of_torch(name):
    logits, labels = batch(3, n=6)
    loss = MAKE[name]()
    if name not in ("annealed", "soft-hkr"):  # both take a part of the scores as a constant
        assert torch.autograd.gradcheck(lambda z: loss(z, labels), (logits.requires_grad_(),))
    grad = torch.func.grad(lambda z: loss(z, torch.arange(3)[:, None].eq(torch.arange(3)).long()))
    assert grad(logits.detach()[:3]).isfinite().all()


@losses
def test_refusals_teach(name):
    logits, labels = batch(3)
    with pytest.raises(ArgumentError, match="`labels` must lie in 0..2"):
        MAKE[name]()(logits, labels + 1)
    with pytest.raises(ArgumentError, match="`targets` must be 0 or 1 in each row"):
        MAKE[name]()(logits, torch.full_like(logits, 0.5))
    with pytest.raises(ArgumentError, match="`sample_weight` must be one number for each row"):
        MAKE[name]()(logits, labels, torch.ones(3))
    with pytest.raises(ArgumentError, match="`reduction` must be one of"):
        MAKE[name](reduction="median")


def test_one_true_class_is_asked_for_where_only_one_makes_sense():
    with pytest.raises(ArgumentError, match="must name one true class"):
        AnnealedCrossEntropy(1.0)(torch.zeros(1, 3), torch.tensor([[1, 1, 0]]))
