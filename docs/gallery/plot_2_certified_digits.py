"""
Certified digits: a radius for each prediction
==============================================

A classifier whose constant is known gives every prediction a radius within which nothing changes it.
Training takes that radius as its target: the loss and its margin follow from it.
"""

import torch

import taut
from taut.plotting import COLOURS, Figure
from taut.training import TrainConfig, train

config = TrainConfig(
    data="digits",
    radius=0.5,
    hidden=(128, 128),
    epochs=12,
    lr=0.005,
    seed=0,
)
run = train(config)
test = run.data().test

# %%
# Every test digit is certified, in exact arithmetic; the roundoff of the computation is subtracted:

certificates = taut.certify(run.model, test.inputs, "l2", labels=test.labels)
print(certificates.summary())

# %%
# No gradient attack can change a prediction within its certified radius; `check_certificates` would
# raise an error if one did.

attack = taut.attacks.pgd(
    run.model,
    test.inputs,
    test.labels,
    radius=0.5,
    norm="l2",
    num_steps=40,
)
taut.attacks.check_certificates(attack, certificates, run.model)
proven = certificates.certified_accuracy(0.5)
print(f"within 0.5: proven {proven:.3f}, accuracy under PGD {attack.accuracy:.3f}")

# %%
# Certified accuracy is the share of digits that are classified correctly at every point within the radius:

radii = torch.linspace(0, 1.5, 101)


def paint(axes):
    accuracy = certificates.certified_accuracy(radii)
    axes.plot(radii, accuracy, color=COLOURS["blue"], label="proven")
    axes.plot(
        [0.5],
        [attack.accuracy],
        "o",
        color=COLOURS["vermilion"],
        label="under PGD",
    )
    axes.axvline(0.5, color=COLOURS["black"], linewidth=0.8, linestyle=":")
    axes.text(0.52, 0.03, "trained for")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("L2 radius, pixels from 0 to 1")
    axes.set_ylabel("accuracy")
    axes.legend()


curve = Figure(paint, alt="Certified accuracy falls as the radius grows.")
