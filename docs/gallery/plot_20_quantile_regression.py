"""
Quantile regression with a bounded slope
========================================

Two networks fit the 5 % and the 95 % quantile of a noisy signal. The proven slope keeps the band from
following single points, and bounds how far it can move when a sensor is a little off.
"""

import numpy as np

from taut.plotting import COLOURS, Figure
from taut.sklearn import LipschitzRegressor

random = np.random.default_rng(0)
X = np.sort(random.uniform(-3, 3, 1500))[:, None]
noise = 0.1 + 0.25 * np.abs(np.sin(X[:, 0]))
y = np.sin(X[:, 0]) + noise * random.normal(size=1500)

models = [
    LipschitzRegressor((32, 32), lipschitz=2.0, loss="quantile", quantile=q, epochs=60).fit(X, y)
    for q in (0.05, 0.95)
]
for model in models:
    print(model.quantile, model.lipschitz_)

# %%
# The share of fresh points inside the band, and the widest band when the input is known up to 0.1 only:

fresh = random.uniform(-3, 3, 4000)
signal = np.sin(fresh) + (0.1 + 0.25 * np.abs(np.sin(fresh))) * random.normal(size=4000)
low, high = (model.predict(fresh[:, None]) for model in models)
print(f"inside: {100 * np.mean((low <= signal) & (signal <= high)):.1f} %")

line = np.linspace(-3, 3, 400)[:, None]
inner = [model.predict(line) for model in models]
outer = models[0].bound(line, radius=0.1)[0], models[1].bound(line, radius=0.1)[1]


def paint(axes):
    axes.plot(X[:, 0], y, ".", color="#999999", markersize=2)
    axes.fill_between(line[:, 0], *outer, color=COLOURS["sky"], alpha=0.3, label="x known to 0.1")
    axes.fill_between(line[:, 0], *inner, color=COLOURS["blue"], alpha=0.35, label="5 % to 95 %")
    axes.set(xlabel="x", ylabel="y", ylim=(-2, 2.4))
    axes.legend(loc="upper left", ncols=2)


band = Figure(paint, alt="A band of quantiles around a sine, and a wider one for uncertain inputs.")
