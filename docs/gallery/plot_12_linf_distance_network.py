"""
L-inf distance networks, and how much they certify
==================================================

Against attackers who may change every pixel a little, a network of L-inf distance units certifies far
more than one of dense layers: each unit is 1-Lipschitz in L-inf by itself, whatever its parameters are.
"""

import torch

import taut
from taut.plotting import COLOURS, Figure
from taut.training import TrainConfig, train

common = {"data": "digits", "norm": "linf", "radius": 0.1, "seed": 0}
runs = {
    "dense, L-inf constraint": train(
        TrainConfig(**common, arch="dense", hidden=(128, 128), epochs=20)
    ),
    "distance units": train(TrainConfig(**common, arch="distance", hidden=(128, 128), epochs=20)),
}

# %%
# Both constants are proven from the stored weights, and so are the radii of the test digits:

certificates = {}
for name, run in runs.items():
    test = run.data().test
    certificates[name] = taut.certify(run.model, test.inputs, "linf", labels=test.labels)
    print(name, certificates[name].summary(), sep="\n", end="\n\n")

# %%
# For comparison, a network certified in L2. In 64 dimensions an L-inf ball of radius r fits into an
# L2 ball of radius 8 r, so every L2 certificate is also one in L-inf, with an eighth of its radius.

l2 = train(TrainConfig(data="digits", radius=0.8, hidden=(128, 128), epochs=20, seed=0))
certificates["dense, L2 constraint"] = taut.certify(l2.model, test.inputs, labels=test.labels)
radii = torch.linspace(0, 0.25, 126)


def paint(axes):
    colours = (COLOURS["vermilion"], COLOURS["blue"], COLOURS["green"])
    for (name, found), colour in zip(certificates.items(), colours, strict=True):
        factor = 8 if name.endswith("L2 constraint") else 1
        accuracy = 100 * found.certified_accuracy(factor * radii)
        axes.plot(radii, accuracy, color=colour, label=name)
    axes.set(
        xlabel="L-inf radius, pixels from 0 to 1", ylabel="certified accuracy, %", ylim=(0, 102)
    )
    axes.legend()


curve = Figure(paint, alt="Distance units certify more digits than dense layers at every radius.")
