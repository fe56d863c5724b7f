"""The GroupSort network of the critic benchmarks."""

import torch
from torch import Generator, nn

from taut.nn import Scale, mlp


def scaled_network(dim: int, width: int, length: float, generator: Generator) -> nn.Sequential:
    """A 1-Lipschitz network with two hidden layers, whose inputs are divided by `length`.

    Example:
        >>> net = scaled_network(3, 16, 10.0, torch.Generator().manual_seed(0))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 1])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        net = mlp([dim, width, width, 1], activation="groupsort8")
    return nn.Sequential(Scale(1 / length), net, Scale(length))
