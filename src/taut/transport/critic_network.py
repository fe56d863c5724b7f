"""Networks that train in convenient units and stay 1-Lipschitz in those of the data."""

import torch
from torch import Generator, Tensor, nn

from taut.nn import ConstrainedLinear, Scale, mlp

__all__ = ["network_critic", "rescale_network"]


def network_critic(
    dim: int, width: int, generator: Generator, *, centre: Tensor | None = None, length: float = 1.0
) -> nn.Sequential:
    """A 1-Lipschitz network of two hidden layers for data around `centre`, of typical size `length`.

    Args:
        dim: number of features.
        width: units of each hidden layer, a multiple of 8.
        generator: source of the initial weights.
        centre: `(dim,)`, subtracted from the inputs; None for the origin.
        length: what inputs are divided by, and outputs multiplied by.

    Example:
        >>> net = network_critic(3, 16, torch.Generator().manual_seed(0), length=10.0)
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 1])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        net = mlp([dim, width, width, 1], activation="groupsort8")
    return rescale_network(net, centre, length)


@torch.no_grad()
def rescale_network(
    network: nn.Sequential,
    centre: Tensor | None,
    length: float,
    lipschitz: float = 1.0,
    offset: float = 0.0,
) -> nn.Sequential:
    r"""$f(x) = b + K s\, g\big((x - c)/s\big)$, of constant $K$ wherever $g$ has constant 1.

    Data far from the origin or of odd size train badly, so $g$ is trained on $u = (x - c)/s$ with
    one centre and one length for all features: shift and scale cancel, which no scaling of single
    features would. The shift goes into the first bias and $b$ into the last, so $f$ is a plain
    sequence of constrained layers, which `taut.certify` can prove.

    Args:
        network: $g$, a sequence that begins and ends with constrained linear layers with biases;
            its layers, biases changed, become those of the result.
        centre: $c$, or None for zero.
        length: $s > 0$.
        lipschitz: $K > 0$.
        offset: $b$.
    """
    first, last = network[0], network[-1]
    assert isinstance(first, ConstrainedLinear) and isinstance(last, ConstrainedLinear)
    assert first.bias is not None and last.bias is not None
    if centre is not None:
        weight = first.effective_weight() if first.training else first.evaluation_weight()
        first.bias.sub_(weight @ (centre / length))
    if offset:
        last.bias.add_(offset / (lipschitz * length))
    return nn.Sequential(Scale(1 / length), *network, Scale(lipschitz * length))
