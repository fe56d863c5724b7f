"""
Audit your own ResNet
=====================

`taut.bound_lipschitz` takes a model that knows nothing of taut: plain layers of torch, a custom
`forward`, residual sums. It proves an upper bound on the Lipschitz constant, and its breakdown shows
which layers to work on.
"""

import torch
from torch import nn

import taut
from taut.data import load_labelled
from taut.plotting import COLOURS, Figure


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(out)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


digits = load_labelled("digits")
images, labels = torch.as_tensor(digits.train.inputs), torch.as_tensor(digits.train.labels)


def train(model, num_epochs=8):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(num_epochs):
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


torch.manual_seed(0)
model = train(ResNet())
bound = taut.bound_lipschitz(model, input_shape=(1, 8, 8))
print(bound)

# %%
# One line for each operation, with its factor and what proves it. An operation without a proven constant
# would raise an error that names it.

print(bound.layers)

# %%
# How much of the bound is real? The steepest slope that sampling finds is a lower estimate; the
# truth lies between the two.

test = torch.as_tensor(digits.test.inputs)
slopes = taut.evaluation.jacobian_norms(model, test, taut.L2)
print(f"steepest of {len(test)} inputs: {slopes.max():.1f}; proven bound: {bound.value:.0f}")

# %%
# The breakdown as a picture: batch normalisation divides by small running deviations, and the
# convolutions behind it grow too. These are the layers to constrain, or to replace by
# `taut.nn.OrthonormalConv2d` and `taut.nn.LipschitzBatchNorm`.

rows = [row for row in bound.layers if row.kind in ("Conv2d", "BatchNorm2d", "Linear")]


def paint(axes):
    colours = {"Conv2d": "blue", "BatchNorm2d": "vermilion", "Linear": "green"}
    for place, row in enumerate(rows):
        axes.barh(place, row.value, color=COLOURS[colours[row.kind]])
        axes.annotate(f"{row.value:.2f}", (row.value, place), (4, -3), textcoords="offset points")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="proven factor of the layer", xlim=(0, 1.15 * max(row.value for row in rows)))


breakdown = Figure(paint, alt="Proven factor of each layer of the ResNet.", size=(5.6, 3.6))
