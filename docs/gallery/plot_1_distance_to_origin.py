"""
Regression with slope 1: MaxMin against ReLU
============================================

The distance to the origin has slope 1 everywhere. A network with constant 1 can fit it only by using
all the slope it has: networks of ReLU layers cannot, networks that sort can.
"""

import torch

import taut
from taut.plotting import COLOURS, Figure


def fit_cone(activation):
    torch.manual_seed(0)
    net = taut.nn.mlp([2, 64, 64, 1], activation=activation, lipschitz=1.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(300):
        x = 2 * torch.rand(256, 2) - 1
        loss = (net(x).squeeze(-1) - x.norm(dim=-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


networks = {"ReLU": fit_cone("relu"), "MaxMin": fit_cone("maxmin")}
colours = {"ReLU": COLOURS["vermilion"], "MaxMin": COLOURS["blue"]}

# %%
# Both have the same constant, proven from the stored weights:

for name, net in networks.items():
    print(f"{name:7}", taut.bound_lipschitz(net))

# %%
# Both fits and the target, along a line across the square:

line = torch.linspace(-1, 1, 201)
points = torch.stack([line, torch.zeros(201)], dim=1)


def paint(axes):
    axes.plot(line, line.abs(), color="#cccccc", linewidth=5, label="distance")
    for name, net in networks.items():
        with torch.no_grad():
            axes.plot(line, net(points).squeeze(-1), color=colours[name], label=name)
    axes.set_xlabel("first coordinate, the second is 0")
    axes.set_ylabel("output")
    axes.legend()


section = Figure(paint, alt="MaxMin follows the distance; ReLU stays flatter.")

# %%
# The target has slope 1 everywhere. How close do the fits come? Their gradient norms at fresh points:

generator = torch.Generator().manual_seed(1)
x = 2 * torch.rand(2000, 2, generator=generator) - 1
x.requires_grad_()
norms = {}
for name, net in networks.items():
    (gradients,) = torch.autograd.grad(net(x).sum(), x)
    norms[name] = gradients.norm(dim=1)
    print(f"{name:7} mean {norms[name].mean():.3f}, largest {norms[name].max():.4f}")


def paint_norms(axes):
    bins = torch.linspace(0, 1.02, 52).tolist()
    for name, norm in norms.items():
        axes.hist(norm.numpy(), bins=bins, color=colours[name], label=name)
    axes.set_xlabel("gradient norm")
    axes.set_ylabel("points")
    axes.legend(loc="upper left")


histogram = Figure(paint_norms, alt="Norms of MaxMin pile up near 1, of ReLU below.")
