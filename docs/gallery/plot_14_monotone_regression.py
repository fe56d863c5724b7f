"""
Monotone regression, proven
===========================

A price must not fall when the floor area grows, whatever the noise in the training data says. With
`monotonic_cst` the network rises along that feature as a theorem, with a bounded slope along the
others.
"""

import numpy as np

from taut.plotting import COLOURS, Figure
from taut.sklearn import LipschitzRegressor

random = np.random.default_rng(0)
X = random.uniform(0, 1, (150, 2))  # floor area, distance from the centre
truth = np.where(X[:, 0] > 0.5, 1.4 * X[:, 0] - 0.4, 0.6 * X[:, 0])
y = truth - 0.3 * X[:, 1] + 0.15 * random.normal(size=150)

common = {"hidden_sizes": (64, 64), "lipschitz": 6.0, "norm": "l1", "epochs": 150}
free = LipschitzRegressor(**common).fit(X, y)
monotone = LipschitzRegressor(**common, monotonic_cst=[1, -1]).fit(X, y)

# %%
# Both slopes are proven from the weights: the largest one overall, and the smallest one along the
# constrained features. None of it depends on where the training rows lie.

print("free    ", free.lipschitz_)
print("monotone", monotone.lipschitz_, "and slope along the features", monotone.increase_)

# %%
# Along the floor area, at a fixed distance from the centre. The band holds every prediction when the
# inputs are uncertain by 0.02:

area = np.linspace(0, 1, 300)
line = np.stack([area, np.full(300, 0.5)], axis=1)
low, high = monotone.bound(line, radius=0.02)


def paint(axes):
    axes.plot(X[:, 0], y + 0.3 * (X[:, 1] - 0.5), ".", color="#bbbbbb", markersize=4)
    axes.plot(area, free.predict(line), color=COLOURS["vermilion"], label="free")
    axes.plot(area, monotone.predict(line), color=COLOURS["blue"], label="monotone")
    axes.fill_between(area, low, high, color=COLOURS["blue"], alpha=0.2, linewidth=0)
    axes.set(xlabel="floor area", ylabel="price")
    axes.legend(loc="upper left")


fit = Figure(
    paint, alt="The free fit goes up and down with the noise, the monotone one only rises."
)
