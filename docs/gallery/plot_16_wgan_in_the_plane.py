"""
A Wasserstein GAN whose loss means something
============================================

The critic of a WGAN must be 1-Lipschitz. Clipping and gradient penalties only push towards that; with
layers of taut it holds at every step. So the critic's value on fresh samples is a lower bound on
a real distance, in the units of the plane, and one can watch it fall.
"""

import math

import torch
from torch import nn

import taut
from taut.plotting import COLOURS, Figure

torch.manual_seed(0)


def draw_data(n):
    """Eight clusters on a circle."""
    angle = torch.randint(8, (n,)) * (math.pi / 4)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


generator = nn.Sequential(
    nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
)
critic = taut.nn.mlp([2, 64, 64, 1], activation="groupsort4", lipschitz=1.0)

# %%
# The usual loop, without clipping and without penalty:

to_critic = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.9))
to_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
distances = []
for step in range(1500):
    for _ in range(3):
        real, fake = draw_data(256), generator(torch.randn(256, 2)).detach()
        value = critic(real).mean() - critic(fake).mean()
        to_critic.zero_grad()
        (-value).backward()
        to_critic.step()
    distances.append(value.item())
    to_generator.zero_grad()
    (-critic(generator(torch.randn(256, 2))).mean()).backward()
    to_generator.step()

# %%
# Is the generator close? The critic's constant is proven, and `taut.wasserstein` compares fresh samples
# with a fresh critic, at 95 % confidence:

with torch.no_grad():
    samples = generator(torch.randn(2000, 2))
print(taut.bound_lipschitz(critic))
print("W1 to the data:", taut.wasserstein(samples, draw_data(2000), seed=0).interval)


def paint_training(axes):
    axes.plot(distances, color=COLOURS["blue"], linewidth=0.8)
    axes.set(xlabel="step", ylabel="critic's value", ylim=(0, None))


training = Figure(paint_training, alt="The critic's value falls during the training.")


def paint_samples(axes):
    real = draw_data(500)
    axes.plot(*real.T, ".", color="#bbbbbb", markersize=4, label="data")
    axes.plot(*samples[:500].T, ".", color=COLOURS["blue"], markersize=3, label="generated")
    axes.set_aspect("equal")
    axes.legend(loc="center")


picture = Figure(paint_samples, alt="Generated points on the eight clusters.", size=(4.2, 4.0))
