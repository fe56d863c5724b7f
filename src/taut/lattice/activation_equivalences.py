r"""Activations made from one another (appendix A of the paper).

Each function gives a `Sequential` on the last dimension that computes one activation by another,
with weights that its formula fixes. `num_channels` is the number of inputs $n$, and of outputs
unless the function says otherwise. `dtype` is that of the weights, torch's default if None. `bound`
is $B > 0$ with $|x_i| \le B$ for all inputs; beyond it the result is wrong.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from taut.errors import (
    ArgumentError,
    check_choice,
    check_count,
    check_even,
    check_positive,
    check_within,
)
from taut.lattice.affine_maps import as_linear, beside_zeros
from taut.nn import Abs, FullSort, GroupSort, MaxMin


def relu_from_max_min(num_channels: int, dtype: torch.dtype | None = None) -> nn.Sequential:
    r"""ReLU by MaxMin, exactly: $\max(x, 0) = [I\ 0]\,\mathrm{MaxMin}([I; 0]\,x)$.

    Both weights have norm 1 in every p-norm.

    Example:
        >>> relu_from_max_min(3)(torch.tensor([-1.0, 0.0, 2.0])).tolist()
        [0.0, 0.0, 2.0]
    """
    return leaky_relu_from_max_min(num_channels, 0.0, dtype)


def leaky_relu_from_max_min(
    num_channels: int, negative_slope: float = 0.01, dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""Leaky ReLU by MaxMin, exactly: $\max(x, ax) = [I\ 0]\,\mathrm{MaxMin}([I; aI]\,x)$.

    Both weights have norm 1 in L-inf. In L2 the first has $\sqrt{1 + a^2}$, so there the layer is
    1-Lipschitz but its factors do not prove it. The slope $a$ lies in [-1, 1]; -1 gives $|x|$.

    Example:
        >>> leaky_relu_from_max_min(2, 0.5)(torch.tensor([-4.0, 2.0])).tolist()
        [-2.0, 2.0]
    """
    check_count("leaky_relu_from_max_min", "num_channels", num_channels)
    remedy = "Use 0.01, as torch does; the layer would not be 1-Lipschitz."
    check_within("leaky_relu_from_max_min", "negative_slope", negative_slope, "[-1, 1]", remedy)
    eye = torch.eye(num_channels, dtype=dtype)
    return _max_min_between(torch.cat([eye, negative_slope * eye]), beside_zeros(eye))


def concatenated_relu_from_max_min(
    num_channels: int, dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""Concatenated ReLU by MaxMin, exactly: $x \mapsto (\max(x, 0), \max(-x, 0))$.

    MaxMin of $(x, 0)$ is $(\max(x, 0), -\max(-x, 0))$, and the last weight turns the sign of the
    second half: $2n$ outputs. Both weights have norm 1 in every p-norm.

    Example:
        >>> concatenated_relu_from_max_min(2)(torch.tensor([-1.0, 2.0])).abs().tolist()
        [0.0, 2.0, 1.0, 0.0]
    """
    check_count("concatenated_relu_from_max_min", "num_channels", num_channels)
    eye = torch.eye(num_channels, dtype=dtype)
    return _max_min_between(beside_zeros(eye).T, torch.block_diag(eye, -eye))


def maxout_from_group_sort(
    num_channels: int, group_size: int, dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""Maxout by GroupSort, exactly: sort each group, keep its last member.

    Equal to `taut.nn.Maxout(group_size)`, with the same channels in a group; `group_size` divides
    $n$, and there is one output per group. The weight has norm 1 in every p-norm.

    Example:
        >>> maxout_from_group_sort(4, 2)(torch.tensor([1.0, -2.0, 3.0, -4.0])).tolist()
        [3.0, -2.0]
    """
    check_count("maxout_from_group_sort", "num_channels", num_channels)
    check_count("maxout_from_group_sort", "group_size", group_size)
    if num_channels % group_size:
        rule = "must divide `num_channels`"
        got = f"group_size={group_size}, num_channels={num_channels}"
        raise ArgumentError("maxout_from_group_sort", "group_size", rule, got)
    kept = range(num_channels - num_channels // group_size, num_channels)
    return nn.Sequential(GroupSort(group_size, dim=-1), as_linear(_pick(kept, num_channels, dtype)))


def abs_from_max_min(
    num_channels: int, norm: str = "l2", dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""The absolute value by MaxMin, with weights of norm 1 in `norm`.

    - `"l2"`: $|x| = [\tfrac1{\sqrt2}\ {-\tfrac1{\sqrt2}}]\,\mathrm{MaxMin}([\tfrac1{\sqrt2};
      -\tfrac1{\sqrt2}]\,x)$, orthonormal weights, equal to $|x|$ up to three roundings;
    - `"linf"`: $|x| = [1\ 0]\,\mathrm{MaxMin}([1; -1]\,x)$, row norms 1, exact.

    Example:
        >>> abs_from_max_min(2)(torch.tensor([-3.0, 1.0])).round(decimals=5).tolist()
        [3.0, 1.0]
    """
    check_choice("abs_from_max_min", "norm", norm, ("l2", "linf"))
    if norm == "linf":
        return leaky_relu_from_max_min(num_channels, -1.0, dtype)
    check_count("abs_from_max_min", "num_channels", num_channels)
    eye = torch.eye(num_channels, dtype=dtype) * math.sqrt(0.5)
    both = torch.cat([eye, -eye])
    return _max_min_between(both, both.T)


def max_min_from_abs(
    num_channels: int, bound: float, dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""MaxMin by the absolute value, for $|x_i| \le B$, with orthonormal weights.

    With $M = \tfrac1{\sqrt2}\begin{pmatrix}1 & 1\\ 1 & -1\end{pmatrix}$ on each pair,

    $$\mathrm{MaxMin}(x, y) = M \left| M (x, y)^\top + (\sqrt2 B, 0)^\top \right| - (B, B)^\top .$$

    *Proof.* The first entry, $(x + y)/\sqrt2 + \sqrt2 B$, is not negative, so the absolute value
    acts on $(x - y)/\sqrt2$ alone; and $\tfrac12(x + y \pm |x - y|)$ are maximum and minimum.
    $\square$ (The paper takes the offset off the first entry only; both carry it.)

    For even $n$; equal to `taut.nn.MaxMin` up to rounding errors of the size of $B$.

    Example:
        >>> network = max_min_from_abs(4, bound=10.0, dtype=torch.float64)
        >>> x = torch.tensor([1.0, -2.0, 3.0, -4.0], dtype=torch.float64)
        >>> network(x).round(decimals=9).tolist()
        [3.0, -2.0, 1.0, -4.0]
    """
    check_positive("max_min_from_abs", "bound", bound)
    check_even("max_min_from_abs", "num_channels", num_channels)
    half = num_channels // 2
    eye = torch.eye(half, dtype=dtype) * math.sqrt(0.5)
    mix = torch.cat([torch.cat([eye, eye], 1), torch.cat([eye, -eye], 1)])
    offset = torch.cat([mix.new_full((half,), math.sqrt(2) * bound), mix.new_zeros(half)])
    return nn.Sequential(
        as_linear(mix, offset), Abs(), as_linear(mix, mix.new_full((num_channels,), -bound))
    )


def max_min_from_full_sort(
    num_channels: int, bound: float, dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""MaxMin by FullSort, for $|x_i| \le B$: offsets keep the pairs apart.

    $$\mathrm{MaxMin}(x) = Q\,(\mathrm{FullSort}(P x + b) - b), \qquad b_{2i} = b_{2i+1} = 2Bi - c$$

    with permutations $P$, which puts partners side by side, and $Q$, which puts larger ones into
    the first half. Pair $i$ lies in $[2Bi - B, 2Bi + B] - c$, and these intervals meet in their
    ends only: sorting all sorts each pair. (So the steps are $2B$; with the paper's, $B$, pairs
    mix.) The constant $c$ centres the offsets. Permutations have norm 1 in every p-norm.

    For even $n$; equal to `taut.nn.MaxMin` up to rounding errors of the size of $nB$.

    Example:
        >>> network = max_min_from_full_sort(4, bound=4.0)
        >>> network(torch.tensor([1.0, -2.0, 3.0, -4.0])).tolist()
        [3.0, -2.0, 1.0, -4.0]
    """
    check_positive("max_min_from_full_sort", "bound", bound)
    check_even("max_min_from_full_sort", "num_channels", num_channels)
    half = num_channels // 2
    beside = [channel for pair in range(half) for channel in (pair, pair + half)]
    apart = [*range(1, num_channels, 2), *range(0, num_channels, 2)]
    steps = torch.arange(half, dtype=torch.float64) - (half - 1) / 2
    offset = (2 * bound * steps).to(dtype or torch.get_default_dtype()).repeat_interleave(2)
    return nn.Sequential(
        as_linear(_pick(beside, num_channels, dtype), offset),
        FullSort(dim=-1),
        as_linear(_pick(apart, num_channels, dtype), -offset[apart]),
    )


def full_sort_from_max_min(num_channels: int, dtype: torch.dtype | None = None) -> nn.Sequential:
    r"""FullSort by `n` layers of MaxMin, exactly: a bubble sort, odd-even transposition.

    Round by round channels $(0, 1), (2, 3), \dots$ and then $(1, 2), (3, 4), \dots$ are compared
    and swapped into order; `n` rounds sort anything.

    For even `n` all weights are permutations, of norm 1 in every p-norm. The odd rounds leave
    channels 0 and $n - 1$ without a partner, so MaxMin compares these two. *They do no harm:* order
    the 0-1 inputs (which suffice, by the 0-1 principle) by the counts $c_j$ of ones in channels
    $\ge j$. A comparison of $j$ with $j + 1$ replaces $c_{j+1}$ by $\min(c_j, c_{j+2} + 1)$, so it
    keeps the order between inputs; the extra comparison never lowers a count; hence each round
    leaves every count at least as high as without the extra ones, at the top after `n`. $\square$
    For odd `n` the channel without a partner is compared with a copy of itself: the rows still have
    one 1 each, so the norm in L-inf is 1.

    Example:
        >>> full_sort_from_max_min(5)(torch.tensor([3.0, 1.0, 5.0, 4.0, 2.0])).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    check_count("full_sort_from_max_min", "num_channels", num_channels)
    modules: list[nn.Module] = []
    place = list(range(num_channels))  # where each channel lies in the output so far
    width = num_channels
    for turn in range(num_channels):
        low, high = _partners(num_channels, turn % 2)
        pairs = [place[at] for at in low + high]
        modules += [as_linear(_pick(pairs, width, dtype)), MaxMin(dim=-1)]
        width = len(low + high)
        for position, (smaller, larger) in enumerate(zip(low, high, strict=True)):
            place[larger] = position
            place[smaller] = position + width // 2
    return nn.Sequential(*modules, as_linear(_pick(place, width, dtype)))


def _max_min_between(first: Tensor, last: Tensor) -> nn.Sequential:
    return nn.Sequential(as_linear(first), MaxMin(dim=-1), as_linear(last))


def _partners(num_channels: int, start: int) -> tuple[list[int], list[int]]:
    """The channels to hold the smaller and the larger of each pair in one round."""
    low = list(range(start, num_channels - 1, 2))
    high = [at + 1 for at in low]
    alone = sorted(set(range(num_channels)) - {*low, *high})
    return (low + alone[:1], high + alone[-1:]) if alone else (low, high)


def _pick(kept: Sequence[int], width: int, dtype: torch.dtype | None) -> Tensor:
    """The matrix whose rows are the unit vectors `kept`."""
    return torch.eye(width, dtype=dtype)[list(kept)]
