"""Losses against numpy, and the margins that radii need against certificates."""

import math

import numpy as np
import pytest
import torch

import taut
from taut.errors import ArgumentError
from taut.losses import (
    HingeKR,
    MultiClassHinge,
    OffsetCrossEntropy,
    RampLoss,
    loss_for_radius,
    margin_for_radius,
)

LOSSES = [
    MultiClassHinge(1.3),
    OffsetCrossEntropy(0.7, 2.0),
    HingeKR(1.3, 5.0),
    RampLoss(1.3, 2.0, 0.3),
]
NAMES = [type(loss).__name__ for loss in LOSSES]


def batch(classes, n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, max(classes, 2), (n,), generator=generator)
    return logits, labels


def leads(logits, labels):
    """One list of leads over the other classes for each row, in plain Python."""
    rows = []
    for row, t in zip(logits.tolist(), labels.tolist(), strict=True):
        if len(row) == 1:
            rows.append([row[0] if t == 1 else -row[0]])
        else:
            rows.append([row[t] - value for i, value in enumerate(row) if i != t])
    return rows


def transport(logits, labels):
    """Differences of means inside and outside each class, by numpy."""
    values, classes = logits.numpy(), labels.numpy()
    if values.shape[1] == 1:
        return values[classes == 1].mean() - values[classes == 0].mean()
    return np.mean(
        [
            values[classes == c, c].mean() - values[classes != c, c].mean()
            for c in range(values.shape[1])
            if 0 < (classes == c).sum() < len(classes)
        ]
    )


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_the_formulas(classes):
    logits, labels = batch(classes)
    rows = leads(logits, labels)
    hinge = np.mean([sum(max(0.0, 1.3 - m) for m in row) for row in rows])
    entropy = np.mean([math.log1p(sum(math.exp(-2.0 * (m - 0.7)) for m in row)) for row in rows])
    assert MultiClassHinge(1.3)(logits, labels).item() == pytest.approx(hinge, rel=1e-12)
    assert OffsetCrossEntropy(0.7, 2.0)(logits, labels).item() == pytest.approx(entropy, rel=1e-12)
    distance = transport(logits, labels)
    assert HingeKR(1.3, 5.0)(logits, labels).item() == pytest.approx(
        5 * hinge - distance, rel=1e-12
    )


def test_torch_agrees():
    logits, labels = batch(7)
    # torch averages over all classes, the paper sums over the others.
    mean = torch.nn.functional.multi_margin_loss(logits, labels, margin=0.9)
    assert MultiClassHinge(0.9)(logits, labels).item() == pytest.approx(7 * mean.item(), rel=1e-12)
    plain = torch.nn.functional.cross_entropy(logits, labels)
    assert OffsetCrossEntropy(0.0)(logits, labels).item() == pytest.approx(plain.item(), rel=1e-12)
    assert torch.equal(OffsetCrossEntropy(0.0)(logits, labels), plain)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_gradients(loss, classes):
    logits, labels = batch(classes, n=6)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_adding_a_number_to_all_logits_changes_nothing(loss):
    logits, labels = batch(4)
    assert loss(logits + 3.0, labels).item() == pytest.approx(loss(logits, labels).item())


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_one_output_may_lack_its_dimension(loss):
    logits, labels = batch(1)
    assert torch.equal(loss(logits, labels), loss(logits[:, 0], labels))


@pytest.mark.parametrize("loss", LOSSES[1:], ids=NAMES[1:])
def test_large_logits_and_lonely_classes_stay_finite(loss):
    logits = torch.tensor([[1e5, -1e5, 0.0]]).requires_grad_()
    value = loss(logits, torch.tensor([1]))
    value.backward()
    assert value.isfinite() and logits.grad is not None and logits.grad.isfinite().all()


def test_the_transport_term_is_a_lower_bound_of_the_distance():
    """Kantorovich duality: no 1-Lipschitz output separates means by more than W1."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 1), torch.randn(60, 1) + 2
    truth = (y.sort(0).values - x.sort(0).values).abs().mean().item()
    loss = HingeKR(margin=1e-9, alpha=1e-9)
    labels = torch.tensor([0] * 60 + [1] * 60)
    identity = -loss(torch.cat([x, y]), labels).item()
    assert identity == pytest.approx(truth, rel=1e-4)
    folded = -loss(torch.cat([x, y]).abs(), labels).item()
    assert folded < truth


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("lipschitz", [0.5, 1.0, 1000.0])
def test_the_margin_is_that_of_the_certificate(norm, binary, lipschitz):
    """A K-Lipschitz map with exactly this lead has exactly this radius by the audit's rule."""
    margin = margin_for_radius(0.3, lipschitz=lipschitz, norm=norm, binary=binary)
    size = 1 if binary else 4
    model = torch.nn.Sequential(taut.nn.Scale(lipschitz))
    x = torch.zeros(1, size, dtype=torch.float64)
    x[0, 0] = margin / lipschitz
    found = taut.certify(model, x, norm)
    assert found.radius.item() == pytest.approx(0.3, rel=1e-12)


def test_losses_for_a_radius():
    l2 = loss_for_radius(1.58, lipschitz=1.0)
    assert isinstance(l2, OffsetCrossEntropy)
    assert l2.offset == pytest.approx(math.sqrt(2) * 1.58) and 1.9 < l2.temperature < 2.1
    hinge = loss_for_radius(0.1, lipschitz=1000, norm="linf", kind="hinge")
    assert isinstance(hinge, MultiClassHinge) and hinge.margin > 200
    assert repr(hinge) == "MultiClassHinge(margin=220)"
    hkr = loss_for_radius(1.0, lipschitz=2, norm="l1", kind="hkr", alpha=3)
    assert repr(hkr) == "HingeKR(margin=2.2, alpha=3)"
    binary = loss_for_radius(1.0, lipschitz=2, norm="linf", binary=True)
    assert isinstance(binary, OffsetCrossEntropy) and binary.offset == 2


@pytest.mark.parametrize("kind", ["cross_entropy", "hinge", "hkr", "ramp"])
@pytest.mark.parametrize("scale", [0.01, 1000.0])
def test_scaling_the_network_scales_the_loss(kind, scale):
    logits, labels = batch(5)
    one = loss_for_radius(0.5, lipschitz=1.0, kind=kind)(logits, labels)
    other = loss_for_radius(0.5, lipschitz=scale, kind=kind)(scale * logits, labels)
    unit = 1 if kind in ("cross_entropy", "ramp") else scale
    assert other.item() == pytest.approx(one.item() * unit)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_the_ramp_lies_between_the_shares_that_lack_a_margin_and_that_are_wrong(classes):
    logits, labels = batch(classes, n=200)
    loss = RampLoss(0.8, weight=0.0)
    if classes == 1:
        margin = logits[:, 0] * (2 * labels - 1)
    else:
        rows = [
            [row[t] - other for i, other in enumerate(row) if i != t]
            for row, t in zip(logits.tolist(), labels.tolist(), strict=True)
        ]
        margin = torch.tensor([min(row) for row in rows])
    value = loss(logits, labels).item()
    assert (margin < 0).double().mean() <= value <= (margin < 0.8).double().mean()
    more = RampLoss(0.8, 2.0, weight=0.5)(logits, labels).item() - value
    assert more == pytest.approx(0.5 * OffsetCrossEntropy(0.0, 2.0)(logits, labels).item())


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), "must lie in 0..2 for 3 classes; got 3. Number"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), "must lie in 0..2 for 3 classes; got -1."),
        (torch.zeros(2, 1), torch.tensor([2, 0]), "got 2. Use 0 and 1 for one output."),
        (torch.zeros(2, 3), torch.tensor([0.0, 1.0]), "got torch.float32 of shape (2,)"),
        (torch.zeros(2, 3), torch.zeros(2, 3).long(), "argmax(1) for one-hot rows"),
        (torch.zeros(2, 3), torch.zeros(3).long(), "of shape (3,) for logits (2, 3)"),
        (torch.zeros(0, 3), torch.zeros(0).long(), "`logits` must be (n, classes)"),
        (torch.zeros(2, 3, 1), torch.zeros(2).long(), "got shape (2, 3, 1)"),
    ],
    ids=["high", "low", "sign", "float", "one-hot", "count", "empty", "rank"],
)
def test_wrong_labels_are_explained(loss, logits, labels, sentence):
    with pytest.raises(ArgumentError) as caught:
        loss(logits, labels)
    assert sentence in str(caught.value) and type(loss).__name__ in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MultiClassHinge(0.0),
        lambda: OffsetCrossEntropy(-1.0),
        lambda: OffsetCrossEntropy(1.0, 0.0),
        lambda: HingeKR(1.0, -1.0),
        lambda: HingeKR(math.nan, 1.0),
        lambda: loss_for_radius(0.0, lipschitz=1.0),
        lambda: loss_for_radius(1.0, lipschitz=math.inf),
        lambda: loss_for_radius(1.0, lipschitz=1.0, norm="l3"),
        lambda: loss_for_radius(1.0, lipschitz=1.0, kind="kappa"),
    ],
)
def test_wrong_numbers(make):
    with pytest.raises(ArgumentError, match="must be"):
        make()
