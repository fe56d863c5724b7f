"""
Train a certified convolutional network
=======================================

A CNN of orthonormal convolutions is trained like any other: no penalty, no clipping, no extra call in
the loop. Its Lipschitz constant is 1 at every step, so every prediction comes with a certified radius.
"""

import torch
from torch import nn

import taut
from taut.data import load_labelled
from taut.plotting import COLOURS, Figure

digits = load_labelled("digits")  # 1797 images of 8 x 8 pixels, part of the package
images, labels = torch.as_tensor(digits.train.inputs), torch.as_tensor(digits.train.labels)

# %%
# Orthonormal layers keep the length of gradients, and MaxMin keeps it too: nothing fades on the way
# back. Strided convolutions replace pooling.

torch.manual_seed(0)
net = nn.Sequential(
    taut.nn.OrthonormalConv2d(1, 16, 3, padding=1),
    taut.nn.MaxMin(dim=1),
    taut.nn.OrthonormalConv2d(16, 32, 3, stride=2, padding=1),
    taut.nn.MaxMin(dim=1),
    nn.Flatten(),
    taut.nn.OrthonormalLinear(32 * 4 * 4, 128),
    taut.nn.MaxMin(),
    taut.nn.OrthonormalLinear(128, 10),
)
loss_function = taut.losses.loss_for_radius(0.5, lipschitz=1.0)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)

for _ in range(12):
    for batch in torch.randperm(len(images)).split(50):
        loss = loss_function(net(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()

print(taut.bound_lipschitz(net.eval(), input_shape=(1, 8, 8)))

# %%
# Certify the test images. The radius is in pixel units: the L2 norm of a perturbation of an image
# with values in [0, 1].

test = torch.as_tensor(digits.test.inputs)
certificates = taut.certify(net, test, labels=torch.as_tensor(digits.test.labels))
print(certificates.summary())

radii = torch.linspace(0, 1.6, 161)
accuracy = certificates.certified_accuracy(radii)


def paint(axes):
    axes.plot(radii, 100 * accuracy, color=COLOURS["blue"])
    for radius in (0.0, 0.5, 1.0):
        share = 100 * float(certificates.certified_accuracy(radius))
        axes.plot([radius], [share], "o", color=COLOURS["blue"])
        axes.annotate(f"{share:.0f} %", (radius + 0.03, share + 2))
    axes.set(xlabel="L2 radius", ylabel="certified accuracy, %", ylim=(0, 105))


curve = Figure(paint, alt="Certified accuracy falls from clean accuracy as the radius grows.")
