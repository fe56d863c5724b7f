"""
Tolerances in the units of each column
======================================

A radius over columns of different units says little: alcohol comes in per cent, proline in hundreds of
milligrams. Give each column its tolerance, and the statement becomes one that a laboratory can use: no
measurement within *all* tolerances together changes the answer.
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from taut.plotting import COLOURS, Figure
from taut.sklearn import LipschitzClassifier

data = load_wine()
parts = train_test_split(
    data.data, data.target, test_size=0.4, random_state=0, stratify=data.target
)
X, X_test, y, y_test = parts

# %%
# What each instrument can tell apart. Columns that are not named do not change:

tolerance = {
    "alcohol": 0.1,
    "malic_acid": 0.1,
    "alcalinity_of_ash": 0.5,
    "magnesium": 3.0,
    "flavanoids": 0.1,
    "color_intensity": 0.2,
    "hue": 0.03,
    "proline": 20.0,
}
units = [tolerance.get(name, 0.0) for name in data.feature_names]
model = LipschitzClassifier(norm="linf", tolerance=units, radius=1.0, epochs=40).fit(X, y)
found = model.certify(X_test, y_test)
print(f"correct {found.certified_accuracy():.1%}")
print(f"correct and proven within all tolerances {found.certified_accuracy(1.0):.1%}")

# %%
# A radius of 2 covers twice every tolerance:

radii = np.linspace(0, 6, 121)


def paint(axes):
    axes.plot(radii, 100 * found.certified_accuracy(radii), color=COLOURS["blue"])
    axes.axvline(1, color="#999999", linewidth=1)
    axes.set_xlabel("perturbation of all columns at once, in tolerances")
    axes.set_ylabel("% proven correct")


curve = Figure(
    paint, alt="The share of rows that are proven correct falls as the perturbation grows."
)

# %%
# Ten thousand perturbations within the tolerances, half of them at the corners, change no prediction:

held = (found.radius > 1).numpy()
before = model.predict(X_test)
generator = np.random.default_rng(0)
changed = 0
for trial in range(10_000 // held.sum() + 1):
    step = generator.uniform(-1, 1, X_test.shape)
    step = np.sign(step) if trial % 2 else step
    changed += (model.predict(X_test + step * units) != before)[held].sum()
print(f"predictions changed: {changed}")
