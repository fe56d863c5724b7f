"""
Time series: a causal filter with a proven gain
===============================================

A convolution over time that looks only backwards, sorted between its layers: a nonlinear filter whose
energy gain is a theorem. Noise of any shape and energy e in the input moves the output by at most e.
"""

import torch
from torch import nn

import taut
from taut.plotting import COLOURS, Figure

LENGTH, TAPS = 200, 9


def causal(inputs, outputs):
    """Zeros in front, none behind: an output depends on the present and the past alone."""
    return [nn.ConstantPad1d((TAPS - 1, 0), 0.0), taut.nn.OrthonormalConv1d(inputs, outputs, TAPS)]


torch.manual_seed(0)
net = nn.Sequential(
    *causal(1, 16), taut.nn.MaxMin(dim=1), *causal(16, 16), taut.nn.MaxMin(dim=1), *causal(16, 1)
)

# %%
# Steps with noise in, steps out:

generator = torch.Generator().manual_seed(0)


def sample(count):
    jumps = (torch.rand(count, 1, LENGTH, generator=generator) < 0.02).float()
    clean = (jumps * torch.randn(count, 1, LENGTH, generator=generator)).cumsum(2)
    return clean + 0.3 * torch.randn(count, 1, LENGTH, generator=generator), clean


optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(150):
    noisy, clean = sample(32)
    loss = (net(noisy) - clean).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net = net.double().eval()
noisy, clean = (x.double() for x in sample(64))
with torch.no_grad():
    output = net(noisy)
print(f"mean squared error {(noisy - clean).square().mean():.4f} before, ", end="")
print(f"{(output - clean).square().mean():.4f} after")

# %%
# The gain over the whole series, proven from the stored weights, beside the steepest input found:

bound = taut.bound_lipschitz(net, "l2", (1, LENGTH))
print(bound)
x = noisy[:1].clone()
step = torch.randn(x.shape, dtype=torch.float64, generator=generator)
for _ in range(30):
    y, pull = torch.func.vjp(net, x)
    _, push = torch.func.jvp(net, (x,), (step,))
    (step,) = pull(push)
    step = step / step.norm()
_, push = torch.func.jvp(net, (x,), (step,))
print(f"largest gain found at one input {push.norm():.4f}")

# %%
# And it is causal: whatever follows in the input, the outputs before it are the same, to the bit.

other = noisy.clone()
other[..., 120:] = 7.0
with torch.no_grad():
    print(bool(torch.equal(net(other)[..., :120], output[..., :120])))


def paint(axes):
    axes.plot(noisy[0, 0], color="#bbbbbb", linewidth=1, label="input")
    axes.plot(clean[0, 0], color="black", linewidth=1, label="truth")
    axes.plot(output[0, 0], color=COLOURS["blue"], label="output")
    axes.set_xlabel("time")
    axes.legend()


series = Figure(
    paint, alt="The output follows the steps of the truth, with less noise than the input."
)
