"""Networks as people write them: ResNet-18, a VGG and a U-Net, bounded and certified."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import taut
from taut.certificates import direct_executor

pytestmark = pytest.mark.slow


class BasicBlock(nn.Module):
    """Two convolutions and a way around them, with work in place as torchvision has it."""

    def __init__(self, channels: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or channels != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, channels = [], width
        for index in range(4):
            planes = width * 2**index
            stages += [BasicBlock(channels, planes, 1 if index == 0 else 2)]
            stages += [BasicBlock(planes, planes)]
            channels = planes
        self.layers = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


class VGG(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in (8, "pool", 16, "pool", 16, "pool"):
            if isinstance(width, str):
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(16 * 4, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1] == 3
        x = F.adaptive_avg_pool2d(self.features(x), (2, 2))
        return self.classifier(x.view(x.size(0), -1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace=True))
        self.down2 = nn.Sequential(nn.Conv2d(6, 12, 3, padding=1), nn.ReLU(inplace=True))
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.grow = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.join = nn.Conv2d(6 + 6 + 12, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, kernel_size=2))
        joined = torch.cat([first, self.up(second), self.grow(second)], dim=1)
        return self.join(joined).mean(dim=(2, 3))


def lively(model: nn.Module, seed: int = 0) -> Any:
    """Running statistics as training would leave them."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.8, 1.5)
    return model.eval()


NETWORKS = {
    "ResNet-18, narrow": (lambda: ResNet18(width=8), (3, 64, 64)),
    "VGG": (VGG, (3, 16, 16)),
    "U-Net": (UNet, (3, 8, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_as_people_write_them(name):
    make, shape = NETWORKS[name]
    model = lively(make())
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(1))
    bound = taut.bound_lipschitz(model, input_shape=shape)
    exact = copy.deepcopy(model).double()
    z = x[:1].double().requires_grad_()
    (gradient,) = torch.autograd.grad(exact(z)[0, 0], z)
    assert float(gradient.norm()) <= bound.value
    for arithmetic in ("real", "float32"):
        found = taut.certify(model, x, arithmetic=arithmetic)  # type: ignore[arg-type]
        assert found.lipschitz.value == pytest.approx(bound.value)
        run = direct_executor(model, shape) if arithmetic == "float32" else model
        with torch.no_grad():
            assert torch.equal(run(x).argmax(1), found.prediction)
        assert found.hypotheses.input_shape == shape


def test_float32_certificates_name_what_deployment_must_keep():
    model = lively(VGG())
    found = taut.certify(model, torch.rand(2, 3, 16, 16), arithmetic="float32")
    told = str(found.hypotheses)
    assert "no Winograd, no FFT" in told and "float32" in told and "evaluation mode" in told
    assert "no Winograd" not in str(taut.certify(model, torch.rand(2, 3, 16, 16)).hypotheses)
