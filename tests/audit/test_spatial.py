"""Convolutions, padding and pooling in networks, against the dense matrix of torch's own operation."""

import numpy as np
import pytest
import torch
from torch import nn

import taut
from taut.audit import bound_lipschitz
from taut.errors import NoRuleError

NORMS = {"l1": 1, "l2": 2, "linf": np.inf}

LINEAR = {
    "zeros": lambda: nn.Conv2d(2, 3, 3, padding=1),
    "stride": lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1),
    "reflect": lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
    "replicate": lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="replicate"),
    "circular": lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
    "groups": lambda: nn.Conv2d(2, 4, 3, groups=2, dilation=2),
    "same": lambda: nn.Conv2d(2, 2, 3, padding="same"),
    "transposed": lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1),
    "average": lambda: nn.AvgPool2d(3, stride=2, padding=1),
    "adaptive": lambda: nn.AdaptiveAvgPool2d((2, None)),
    "reflection pad": lambda: nn.ReflectionPad2d(2),
    "replication pad": lambda: nn.ReplicationPad2d((1, 2, 0, 3)),
    "circular pad": lambda: nn.CircularPad2d(1),
    "zero pad": lambda: nn.ZeroPad2d(2),
    "shuffle": lambda: nn.PixelUnshuffle(1),
}


def dense(module, shape):
    """The matrix of an affine map of one sample, in float64."""
    basis = torch.eye(int(np.prod(shape)), dtype=torch.float64).reshape(-1, *shape)
    module = module.double()
    with torch.no_grad():
        rows = module(basis) - module(torch.zeros(1, *shape, dtype=torch.float64))
    return rows.flatten(1).mT.numpy()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("known", [True, False])
def test_never_below_the_dense_operator_norm(kind, norm, known):
    if not known and kind == "adaptive":
        pytest.skip("needs a size")
    torch.manual_seed(0)
    module, shape = LINEAR[kind](), (2, 6, 7)
    truth = np.linalg.norm(dense(module, shape), NORMS[norm])
    bound = bound_lipschitz(module, norm, shape if known else None).value
    assert truth <= bound * (1 + 1e-12)
    assert bound <= 9 * truth  # padding of an unknown size may copy an entry nine times


def test_padding_that_copies_is_not_taken_for_one_that_does_not():
    def shift(mode):
        module = nn.Conv2d(1, 1, 3, padding=1, padding_mode=mode, bias=False)
        module.weight.data.zero_()[0, 0, 0, 0] = 1.0
        return module

    truth = np.linalg.norm(dense(shift("replicate"), (1, 3, 3)), 2)
    assert bound_lipschitz(shift("zeros"), "l2", (1, 3, 3)).value < truth - 0.5
    assert bound_lipschitz(shift("replicate"), "l2", (1, 3, 3)).value >= truth


@pytest.mark.parametrize("norm", NORMS)
def test_a_convolutional_network_is_never_steeper_than_its_bound(norm):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), taut.nn.MaxMin(dim=1), nn.MaxPool2d(3, stride=2, padding=1),
        nn.BatchNorm2d(4), nn.Conv2d(4, 4, 2, stride=2), nn.ReLU(), nn.AdaptiveMaxPool2d(1),
        nn.Flatten(), nn.Linear(4, 3),
    ).double().eval()  # fmt: skip
    bound = bound_lipschitz(net, norm, (1, 8, 8)).value
    for _ in range(30):
        x = torch.randn(1, 1, 8, 8, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(net, x)
        assert isinstance(jacobian, torch.Tensor)
        assert np.linalg.norm(jacobian.reshape(3, 64).numpy(), NORMS[norm]) <= bound


def test_adaptive_pooling_asks_for_a_size():
    with pytest.raises(NoRuleError, match="Give `input_shape`"):
        bound_lipschitz(nn.AdaptiveAvgPool2d(1))
