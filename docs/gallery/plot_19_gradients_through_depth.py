"""
Why orthonormal layers: gradients through depth
===============================================

A network with Lipschitz constant 1 may have gradients far shorter than 1, and then it cannot fit a
function of slope 1, however long it is trained. Here the loss of slope is measured layer by layer, for
three ways to build twelve layers of constant 1.
"""

import torch
from torch import nn

import taut
from taut.plotting import COLOURS, Figure

WIDTH, DEPTH = 64, 12


def build(linear, activation):
    torch.manual_seed(0)
    layers = [part for _ in range(DEPTH) for part in (linear(WIDTH, WIDTH), activation())]
    return nn.Sequential(*layers)


networks = {
    "spectral norm, ReLU": build(taut.nn.SpectralLinear, nn.ReLU),
    "orthonormal, ReLU": build(taut.nn.OrthonormalLinear, nn.ReLU),
    "orthonormal, MaxMin": build(taut.nn.OrthonormalLinear, taut.nn.MaxMin),
}
for name, net in networks.items():
    print(f"{name:20}", taut.bound_lipschitz(net))

# %%
# All three have constant 1. Send a vector of length 1 backward from the output to the input, as training
# does, and measure its length on the way, averaged over 500 inputs:

x = torch.randn(500, WIDTH)
sent = nn.functional.normalize(torch.randn(500, WIDTH), dim=1)


def lengths(net):
    states = [x.requires_grad_()]
    for layer in net:
        states.append(layer(states[-1]))
    gradients = torch.autograd.grad(states[-1], states[::2], sent)
    return [float(gradient.norm(dim=1).mean()) for gradient in gradients]


# %%
# Spectral normalisation shortens every direction but one, and ReLU drops half of the units. An orthonormal
# matrix keeps all lengths, and sorting only permutes:


def paint(axes):
    colours = (COLOURS["vermilion"], COLOURS["orange"], COLOURS["blue"])
    for (name, net), colour in zip(networks.items(), colours, strict=True):
        axes.semilogy(range(DEPTH + 1), lengths(net), "o-", color=colour, label=name, markersize=4)
    axes.set(xlabel="layer, from the input", ylabel="length of the gradient")
    axes.legend(loc="lower right")


depth = Figure(
    paint, alt="Gradients fade through ReLU layers and keep their length through MaxMin."
)
