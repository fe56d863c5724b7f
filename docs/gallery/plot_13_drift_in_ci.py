"""
A drift check for continuous integration
========================================

Today's data should look like the data that the model was trained on. A p-value says whether they differ
at all, which large samples always do; a *lower bound on the distance* says by how much at least, so a
tolerance in the units of the data makes sense.
"""

import torch

import taut
from taut.plotting import COLOURS, Figure

generator = torch.Generator().manual_seed(0)


def day(shift):
    """3000 rows with three sensors; the first two move together."""
    rows = torch.randn(3000, 3, generator=generator)
    return rows + shift * torch.tensor([0.8, 0.6, 0.0])


reference = day(0.0)
week = {"Mon": 0.0, "Tue": 0.02, "Wed": 0.1, "Thu": 0.35, "Fri": 0.6}

# %%
# The rule: fail when the distance is *proven* to exceed the tolerance, at a confidence level of 95 %.
# This is what `taut wasserstein reference.csv today.csv --fail-above 0.2` does, with exit status 1.

TOLERANCE = 0.2
found = {name: taut.wasserstein(reference, day(shift), seed=0) for name, shift in week.items()}
for name, result in found.items():
    verdict = "FAIL" if result.lower.value > TOLERANCE else "pass"
    print(f"{name}: {verdict}, {result.interval}, p = {result.p_value:.3f}")

# %%
# On Wednesday the p-value is small: the data did move. By how much, and that it does not matter, only
# the interval shows.


def paint(axes):
    for place, (shift, result) in enumerate(zip(week.values(), found.values(), strict=True)):
        failed = result.lower.value > TOLERANCE
        colour = COLOURS["vermilion"] if failed else COLOURS["blue"]
        low, high = result.lower.value, result.upper.value
        axes.plot([place, place], [low, high], color=colour, linewidth=7, alpha=0.4)
        axes.plot([place], [result.estimate.value], "o", color=colour)
        label = None if place else "truth"
        axes.hlines(shift, place - 0.25, place + 0.25, color="black", linewidth=1, label=label)
    axes.axhline(TOLERANCE, color=COLOURS["black"], linewidth=0.8, linestyle=":")
    axes.annotate("tolerance", (2.5, TOLERANCE), (12, 3), textcoords="offset points")
    axes.set_xticks(range(len(week)), list(week))
    axes.legend(loc="upper left")
    axes.set(ylabel="W1 from the reference", xlim=(-0.5, len(week) - 0.5))


intervals = Figure(
    paint, alt="Intervals of five days; only Thursday and Friday lie above the tolerance."
)

# %%
# The critic behind Friday's bound can be saved. Scoring new rows with it takes milliseconds and no
# training (`--save` and `--score` on the command line). Saturday's data look like Friday's:

from_reference, from_friday = found["Fri"].saved.lower_bounds(day(0.6))
print(from_reference)
print(from_friday)
