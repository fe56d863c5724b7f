"""
One-class classification with a certified margin
================================================

The same function detects outliers: positive near the data, negative far from it, with slope at most 1. A
point with value 0.3 stays inside whatever moves it by less than 0.3, and the AUROC has a certified value
under perturbation.
"""

import math

import torch

import taut
from taut.plotting import COLOURS, Figure

generator = torch.Generator().manual_seed(0)


def sample(count):
    """Two half moons."""
    angle = math.pi * torch.rand(count, generator=generator)
    upper = torch.rand(count, generator=generator) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], 1) + 0.06 * torch.randn(count, 2, generator=generator)


def outliers(count):
    return torch.rand(count, 2, generator=generator) * torch.tensor([4.0, 3.0]) - torch.tensor(
        [1.5, 1.25]
    )


# %%
# Data should have values above the margin, points of the whole rectangle below its negative:

torch.manual_seed(0)
net = taut.nn.mlp([2, 64, 64, 64, 1])
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 800)
margin = 0.15
for _ in range(800):
    inner, outer = net(sample(256)), net(outliers(256))
    loss = 3 * torch.relu(margin - inner).mean() + torch.relu(margin + outer).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
net = net.double().eval()

# %%
# Certified: no movement smaller than the radius changes "inside" or "outside".

known, strange = sample(1000).double(), outliers(1000).double()
inner, outer = taut.certify(net, known), taut.certify(net, strange)
print(
    f"data inside {inner.prediction.double().mean():.1%}, by a radius of 0.1 for certain: ", end=""
)
print(f"{((inner.prediction == 1) & (inner.radius > 0.1)).double().mean():.1%}")

# %%
# If every point may move by r, scores change by at most K r: at worst, those of data fall and those of
# outliers rise.

constant = taut.bound_lipschitz(net).value
with torch.no_grad():
    scores, others = net(known), net(strange)
radii = torch.linspace(0, 0.4, 41, dtype=torch.float64)
auroc = [(scores - constant * r > others.T + constant * r).double().mean().item() for r in radii]
print(f"AUROC {auroc[0]:.3f}, certified at 0.05 {auroc[5]:.3f}, at 0.1 {auroc[10]:.3f}")

across, along = torch.meshgrid(
    torch.linspace(-1.5, 2.5, 161), torch.linspace(-1.25, 1.75, 121), indexing="xy"
)
with torch.no_grad():
    values = net(torch.stack([across, along], -1).reshape(-1, 2).double()).reshape(across.shape)


def paint(axes):
    drawn = axes.contourf(across, along, values, levels=20, cmap="RdBu", vmin=-0.9, vmax=0.9)
    axes.contour(across, along, values, levels=[0.0], colors="black")
    axes.scatter(known[:300, 0], known[:300, 1], s=4, color=COLOURS["vermilion"])
    axes.set_aspect("equal")
    axes.figure.colorbar(drawn, ax=axes, label="signed bound of the distance")


field = Figure(paint, alt="Two moons, and the line around them where the score is zero.")
