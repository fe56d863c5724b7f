"""
The Wasserstein distance of two samples, with bounds
====================================================

Two clouds in the plane, one of them moved. The distance between the populations behind them is not
known to the program; it is known to us, for a shift moves every point by the same vector.
"""

import torch

import taut
from taut.plotting import COLOURS, Figure

generator = torch.Generator().manual_seed(0)
shift = torch.tensor([0.6, 0.8])  # of length 1
x = torch.rand(1500, 2, generator=generator)
y = torch.rand(1500, 2, generator=generator) + shift

# %%
# As populations: critics are trained on one half, selected on a tenth, evaluated on the rest; transport
# between batches bounds the distance from above. Both bounds hold with probability 0.95.

result = taut.wasserstein(x, y, diameter=2**0.5, num_steps=200, seed=0)
print(result)
print(result.lower)
print(result.upper)

# %%
# Between the two finite sets of points nothing is uncertain: the lower bound from a critic and the upper
# bound from a coupling are both proven, and they meet.

finite = taut.wasserstein(x[:400], y[:400], finite=True)
print(finite.lower, finite.upper)

# %%
# More rows, a narrower interval; the truth is 1.

sizes = (100, 400, 1500)
found = []
for n in sizes[:-1]:
    one = taut.wasserstein(x[:n], y[:n], diameter=2**0.5, num_steps=200, seed=0)
    found.append(one)
found.append(result)


def paint(axes):
    for place, one in enumerate(found):
        ends = one.lower.value, one.upper.value
        axes.plot([place, place], ends, color=COLOURS["blue"], linewidth=6, alpha=0.4)
        axes.plot([place], [one.estimate.value], "o", color=COLOURS["blue"])
    axes.axhline(1, color=COLOURS["black"], linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(sizes)), [f"{n} rows" for n in sizes])
    axes.set_ylabel("W1, at 95 %")
    axes.set_xlim(-0.5, len(sizes) - 0.5)


intervals = Figure(paint, alt="Intervals around 1 narrow with the number of rows.")

# %%
# The critic behind the lower bound says where the difference lies: it is high where a row looks like x,
# low where it looks like y. Its contours lie across the shift.

side = torch.linspace(-0.1, 1.9, 60)
grid = torch.cartesian_prod(side, side)
scores = result.score(grid).reshape(60, 60).T


def paint_critic(axes):
    axes.grid(visible=False)
    axes.contour(side, side, scores, levels=16, colors="#bbbbbb", linewidths=0.8)
    axes.scatter(*x[:200].T, s=6, color=COLOURS["blue"], label="x")
    axes.scatter(*y[:200].T, s=6, color=COLOURS["vermilion"], label="y")
    axes.set_aspect("equal")
    axes.legend(loc="lower right")


critic = Figure(
    paint_critic,
    alt="The critic falls along the shift, from x to y.",
    size=(4.6, 4.2),
)
