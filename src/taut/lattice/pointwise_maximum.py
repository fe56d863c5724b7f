r"""The lattice operations: pointwise maxima and minima of networks, as networks."""

from collections.abc import Iterable

import torch
from torch import nn

from taut.errors import ArgumentError
from taut.lattice.affine_maps import Affine, as_linear, beside_zeros, take_apart
from taut.nn import GroupSort, MaxMin

# Affine maps with a MaxMin between each and the next.
Chain = list[Affine]


def maximum(f: nn.Module, g: nn.Module) -> nn.Sequential:
    r"""The pointwise maximum of two networks, $h(x) = \max(f(x), g(x))$, as one network.

    **Theorem** (the lattice step of Theorem 3). $h$ is a network of linear layers and MaxMin, one
    layer deeper than the deeper of the two. If $f$ and $g$ are of the class $LN_p$, that is
    $\|W_1\|_{p,\infty} \le 1$ and $\|W_i\|_\infty \le 1$ from then on, so is $h$, and so it is
    1-Lipschitz from the p-norm to L-inf.

    *Proof.* The first weights are stacked and the others put on a diagonal, so both networks run
    side by side; the halves of their channels are interleaved, because MaxMin compares the first
    half of all with the second. A network that is too short ends in $(y, y)$ instead of $y$, which
    MaxMin leaves as it is, and reads off the first copy. One more MaxMin makes
    $(f, g)$ into $(\max, \min)$ and a last layer selects. Each row of a new weight is a row of an
    old one, amid zeros, or a unit vector: no norm grows, not even by a rounding. $\square$

    With weights of spectral norm 1 the values are the same, but two of them stacked may have norm
    $\sqrt 2$: the class is one of row norms.

    Args:
        f: a `Sequential` of linear layers (`torch.nn.Linear`, or constrained layers of `taut.nn`,
            taken with the weight they use now) and `MaxMin` or `GroupSort(2)`; or one such layer.
        g: another, with the same numbers of inputs and of outputs; depths and widths are free.

    Returns:
        A `Sequential` of `torch.nn.Linear` and `MaxMin` with its own parameters, elementwise in
        the outputs.

    Raises:
        ArgumentError: other layers, or sizes, dtypes or devices that do not match.

    Example:
        >>> f, g = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> for layer, slope in ((f, 1.0), (g, -1.0)):
        ...     _ = layer.weight.data.fill_(slope), layer.bias.data.zero_()
        >>> maximum(f, g)(torch.tensor([[-2.0], [3.0]])).tolist()  # the absolute value
        [[2.0], [3.0]]
    """
    return _reduce("maximum", (f, g), first=True)


def minimum(f: nn.Module, g: nn.Module) -> nn.Sequential:
    r"""The pointwise minimum of two networks, $h(x) = \min(f(x), g(x))$, as one network.

    Like `maximum`, with the other half selected.

    Example:
        >>> f = torch.nn.Linear(3, 4)
        >>> g = torch.nn.Sequential(torch.nn.Linear(3, 2), taut.nn.MaxMin(), torch.nn.Linear(2, 4))
        >>> x = torch.randn(5, 3)
        >>> torch.allclose(minimum(f, g)(x), torch.minimum(f(x), g(x)))
        True
    """
    return _reduce("minimum", (f, g), first=False)


def maximum_of(networks: Iterable[nn.Module]) -> nn.Sequential:
    r"""The pointwise maximum of many networks as one, $\lceil\log_2 k\rceil$ layers deeper.

    A balanced tree of `maximum`, with all that holds of it.

    Example:
        >>> f, g, h = (torch.nn.Linear(2, 1) for _ in range(3))
        >>> len([layer for layer in maximum_of([f, g, h]) if isinstance(layer, torch.nn.Linear)])
        3
    """
    return _reduce("maximum_of", networks, first=True)


def minimum_of(networks: Iterable[nn.Module]) -> nn.Sequential:
    r"""The pointwise minimum of many networks as one, like `maximum_of`."""
    return _reduce("minimum_of", networks, first=False)


def _reduce(subject: str, networks: Iterable[nn.Module], first: bool) -> nn.Sequential:
    chains = [_read(subject, network) for network in networks]
    _check_alike(subject, chains)
    while len(chains) > 1:
        joined = [_join(f, g, first) for f, g in zip(chains[::2], chains[1::2], strict=False)]
        chains = joined + chains[2 * len(joined) :]
    return _write(chains[0])


def _read(subject: str, network: nn.Module) -> Chain:
    parts = take_apart(subject, network)
    if not isinstance(parts[-1], Affine):
        last = next(part for part in reversed(parts) if isinstance(part, Affine))
        parts.append(_identity_after(last))
    chain: Chain = []
    activation: nn.Module | None = None
    for part in parts:
        if not isinstance(part, Affine):
            if not chain or activation is not None or not _is_max_min(part, chain[-1]):
                raise ArgumentError(
                    subject,
                    rule="a network must be linear layers with MaxMin() between them, even "
                    "widths before each",
                    got=f"{part} where that does not hold",
                    remedy="Build other activations from MaxMin with taut.lattice.",
                )
            activation = part
            continue
        if chain and activation is None:
            chain[-1] = _twice(chain[-1])
            part = Affine(beside_zeros(part.weight), part.bias)
        elif isinstance(activation, GroupSort):
            low, high = part.weight.chunk(2, 1)
            part = Affine(torch.cat([high, low], 1), part.bias)
        chain.append(part)
        activation = None
    return chain


def _is_max_min(module: nn.Module, before: Affine) -> bool:
    pairs = isinstance(module, MaxMin) or (isinstance(module, GroupSort) and module.group_size == 2)
    return pairs and module.dim in (None, -1) and len(before.bias) % 2 == 0


def _identity_after(affine: Affine) -> Affine:
    zeros = torch.zeros_like(affine.bias)
    return Affine(torch.diag(zeros + 1), zeros)


def _twice(affine: Affine) -> Affine:
    """The outputs two times over: MaxMin finds each beside itself and moves nothing."""
    return Affine(affine.weight.repeat(2, 1), affine.bias.repeat(2))


def _lengthen(chain: Chain, depth: int) -> Chain:
    chain = list(chain)
    while len(chain) < depth:
        end = _identity_after(chain[-1])
        chain[-1] = _twice(chain[-1])
        chain.append(Affine(beside_zeros(end.weight), end.bias))
    return chain


def _join(f: Chain, g: Chain, first: bool) -> Chain:
    depth = max(len(f), len(g))
    f, g = _lengthen(f, depth), _lengthen(g, depth)
    joined: Chain = []
    for at, (left, right) in enumerate(zip(f, g, strict=True)):
        if at == 0:
            weight = torch.cat([left.weight, right.weight])
        else:
            columns = _interleave(left.weight.shape[1], right.weight.shape[1])
            weight = torch.block_diag(left.weight, right.weight)[:, columns]
        bias = torch.cat([left.bias, right.bias])
        if at < depth - 1:
            rows = _interleave(len(left.bias), len(right.bias))
            weight, bias = weight[rows], bias[rows]
        joined.append(Affine(weight, bias))
    select = _identity_after(f[-1])
    return [*joined, Affine(beside_zeros(select.weight, first), select.bias)]


def _interleave(a: int, b: int) -> list[int]:
    """Both first halves, then both second halves, of `a` channels followed by `b`."""
    left, right = range(a), range(a, a + b)
    return [*left[: a // 2], *right[: b // 2], *left[a // 2 :], *right[b // 2 :]]


def _write(chain: Chain) -> nn.Sequential:
    first, *others = (as_linear(*affine) for affine in chain)
    return nn.Sequential(first, *(module for layer in others for module in (MaxMin(dim=-1), layer)))


def _check_alike(subject: str, chains: list[Chain]) -> None:
    if not chains:
        remedy = "The extremum of nothing is infinite."
        raise ArgumentError(subject, "networks", "must hold at least one network", "none", remedy)
    signatures = dict.fromkeys(
        f"{chain[0].weight.shape[1]} -> {len(chain[-1].bias)} in {chain[0].bias.dtype} on "
        f"{chain[0].bias.device}"
        for chain in chains
    )
    if len(signatures) > 1:
        rule = "all networks must agree in inputs, outputs, dtype and device"
        remedy = "Convert them, or change their first or last layer."
        raise ArgumentError(subject, rule=rule, got=" and ".join(signatures), remedy=remedy)
