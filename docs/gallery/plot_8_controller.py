r"""
A learned controller that cannot destabilise
============================================

A cart on a line is held by a linear controller. A network adds to it, trained to spend less force. If
its constant is small enough, the loop contracts whatever the network has learned: a small-gain argument.

In the norm :math:`\|x\|_P = \|P^{1/2} x\|` the linear loop contracts by :math:`\rho < 1`. With
:math:`\|P^{1/2} B\|` the size of the input and :math:`K` the constant of the network from
:math:`P^{1/2} x` to the force, one step of the whole loop contracts by at most
:math:`\rho + \|P^{1/2} B\| K`.
"""

import numpy as np
import torch
from scipy.linalg import solve_discrete_lyapunov

import taut
from taut.plotting import COLOURS, Figure

dt = 0.1
A = np.array([[1.0, dt], [0.0, 1.0]])
B = np.array([[0.0], [dt]])
F = np.array([[4.0, 3.0]])
closed = A - B @ F

# %%
# The norm in which the linear loop contracts, from a Lyapunov equation:

P = solve_discrete_lyapunov(closed.T / 0.95, np.eye(2))
values, vectors = np.linalg.eigh(P)
half = vectors @ np.diag(np.sqrt(values)) @ vectors.T
rho = np.linalg.norm(half @ closed @ np.linalg.inv(half), 2)
size = np.linalg.norm(half @ B)
room = 0.98 * (1 - rho) / size
print(f"the linear loop contracts by {rho:.4f}; the network may have a constant of {room:.3f}")

# %%
# A network of that constant, without biases, so that it leaves the origin where it is. It learns to trade
# force for distance over three seconds, from random starts:

S, Ac, Bt = (torch.tensor(m, dtype=torch.float32) for m in (half, closed, B))
torch.manual_seed(0)
layers = [taut.nn.OrthonormalLinear(2, 16, bias=False), taut.nn.MaxMin()]
layers += [taut.nn.OrthonormalLinear(16, 1, bias=False), taut.nn.Scale(room)]
net = torch.nn.Sequential(*layers)


def run(controller, x, steps=30):
    """States and forces; the force has the linear part."""
    states, forces = [x], []
    gain = torch.tensor(F, dtype=x.dtype)
    for _ in range(steps):
        more = controller(x @ S.to(x).mT)
        forces.append(more - x @ gain.mT)
        x = x @ Ac.to(x).mT + more @ Bt.to(x).mT
        states.append(x)
    return torch.stack(states), torch.stack(forces)


def cost(states, forces):
    return states.square().sum(2).mean() + 0.3 * forces.square().mean()


optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(150):
    start = 4 * torch.rand(64, 2) - 2
    loss = cost(*run(net, start))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()

# %%
# Proven for the network as it is stored, whatever training did:

gain = taut.bound_lipschitz(net).value
print(f"one step contracts by at most {rho + size * gain:.4f}")
start = 4 * torch.rand(500, 2, generator=torch.Generator().manual_seed(1)) - 2
with torch.no_grad():
    states, forces = run(net, start, 200)
    plain, plain_forces = run(lambda x: torch.zeros(len(x), 1), start, 200)
lengths = (states.double() @ torch.tensor(half)).norm(dim=2)
print(f"largest ratio of two steps seen {(lengths[1:41] / lengths[:40]).max():.4f}")
print(f"cost {cost(states, forces):.4f} with the network, {cost(plain, plain_forces):.4f} without")


def paint(axes):
    for way, colour, label in (
        (plain, "#999999", "linear"),
        (states, COLOURS["blue"], "with network"),
    ):
        axes.plot(way[:80, :5, 0], color=colour, linewidth=1)
        axes.plot([], [], color=colour, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("position")
    axes.legend()


loop = Figure(paint, alt="Positions return to zero with and without the network.")
