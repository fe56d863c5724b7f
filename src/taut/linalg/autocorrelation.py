r"""The autocorrelation of a kernel: norms and rescalings of convolutions without frequencies.

With taps $K_q$ the transfer matrices satisfy $T(\omega)^* T(\omega) = \sum_l R_l e^{i\omega l}$,
$R_l = \sum_q K_q^\top K_{q+l}$. So the entries of $T^*T$ are at most those of
$A = \sum_l |R_l|$, at every frequency: on every circle and on the whole lattice, and hence for zero
padding of any size. Two facts about the positive matrix $A$ follow.

- **Rescaling** (Prach and Lampert 2022). With $d_i = (A 1)_i^{-1/2}$ the matrix
  $\mathrm{diag}(A1) - T^*T$ is diagonally dominant, so $\|T\,\mathrm{diag}(d)\|_2 \le 1$.
- **Norm**. $\|T\|_2^2 \le \rho(A) \le \max_i (Aq)_i / q_i$ for every positive $q$
  (Collatz and Wielandt). The two agree: rescaling turns $A$ into $DAD$, of which $q = d^{-1}$ is
  the Perron vector with ratio 1, so the norm of a rescaled kernel is proven to be at most 1.

A stride makes channels of phases (`taut.linalg.convolution_axis`). Both facts hold for $TT^*$,
too, with the sum over output channels; that side is the better one where it is the shorter.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from taut.linalg.convolution_axis import ConvAxis
from taut.linalg.rounding import exact_double, float_up, gamma, scale_to_unit, sqrt_up

# Rows of products that are formed at once.
_LONGEST = 1024
_MOST_ROUNDS = 30


@dataclass(frozen=True)
class TapPairs:
    """Which pairs of taps meet at the same lag, for one shape, stride and dilation.

    Attributes:
        outputs: whether pairs are of output channels ($TT^*$) or of input channels ($T^*T$).
        pairs: places `t * taps + t'` of the pairs that meet.
        lags: for each of them the number of its lag, phases included.
        first: for each lag the phase of `t`; a single one for outputs.
        second: for each lag the phase of `t'`.
        phase: for each tap its phase.
        num_phases: how many phases there are.
    """

    outputs: bool
    pairs: Tensor
    lags: Tensor
    first: Tensor
    second: Tensor
    phase: Tensor
    num_phases: int

    @classmethod
    @lru_cache(64)
    def of(
        cls,
        channels: tuple[int, int],
        taps: tuple[int, ...],
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
    ) -> "TapPairs":
        """The pairs on the shorter side of a kernel with `channels = (out, in)` in each group."""
        arguments = zip(taps, stride, dilation, strict=True)
        axes = [ConvAxis(k, s, d, (0, 0), None).blocks() for k, s, d in arguments]
        phases = list(itertools.product(*(axis.phases for axis in axes)))
        offsets = list(itertools.product(*(axis.offsets for axis in axes)))
        known = sorted(set(phases))
        phase = [known.index(each) for each in phases]
        outputs = channels[0] < channels[1] * len(known)
        numbers: dict[tuple[int, ...], int] = {}
        pairs, lags = [], []
        for a, b in itertools.product(range(len(phases)), repeat=2):
            lag = tuple(y - x for x, y in zip(offsets[a], offsets[b], strict=True))
            if outputs and phase[a] != phase[b]:
                continue
            key = lag if outputs else (phase[a], phase[b], *lag)
            pairs.append(a * len(phases) + b)
            lags.append(numbers.setdefault(key, len(numbers)))
        ends = [(0, 0) if outputs else key[:2] for key in numbers]
        first, second = (torch.tensor([end[i] for end in ends]) for i in (0, 1))
        return cls(
            outputs,
            torch.tensor(pairs),
            torch.tensor(lags),
            first,
            second,
            torch.tensor(phase),
            1 if outputs else len(known),
        )

    def correlate(self, kernel: Tensor) -> Tensor:
        """`(lags, groups, channels, channels)` of a kernel `(groups, out, in, taps)`."""
        rows = kernel.permute(0, 3, 1, 2) if self.outputs else kernel.permute(0, 3, 2, 1)
        groups, taps, channels, _ = rows.shape
        rows = rows.reshape(groups, taps * channels, -1)
        lagged = kernel.new_zeros(len(self.first), groups, channels, channels)
        # All products at once are quicker, and all of them at once would not fit where they are many.
        for part in (range(taps),) if taps * channels <= _LONGEST else ([t] for t in range(taps)):
            some = rows[:, part[0] * channels : (part[-1] + 1) * channels]
            gram = (some @ rows.mT).view(groups, len(part), channels, taps, channels)
            paired = gram.permute(1, 3, 0, 2, 4).flatten(0, 1)
            first, last = part[0] * taps, (part[-1] + 1) * taps
            # The choice is made on the CPU, so that no other device is waited for.
            inside = (self.pairs >= first) & (self.pairs < last)
            lags, places = self.lags[inside], self.pairs[inside] - first
            lagged = lagged.index_add(0, lags.to(kernel.device), paired[places.to(kernel.device)])
        return lagged

    def roundings(self, kernel: Tensor) -> int:
        """At most how many roundings a number sees on its way from the kernel to a row sum of `A`."""
        _, out, inside, taps = kernel.shape
        channels, others = (out, inside) if self.outputs else (inside, out)
        return taps * others + len(self.first) + channels * self.num_phases + 8

    def margin(self, kernel: Tensor) -> float:
        """What a proof in float64 may add to a norm of 1, by rounding alone.

        A channel of length 1 or less has products of magnitudes that sum up to at most 1 per channel
        and lag, and the norm is a root.
        """
        channels = kernel.shape[1] if self.outputs else kernel.shape[2]
        return gamma(self.roundings(kernel)) * (1 + channels * len(self.first))


def rescale_channels(kernel: Tensor, pairs: TapPairs) -> Tensor:
    r"""The kernel with its channels rescaled so that its norm, without rounding, is at most 1.

    $K \mathrm{diag}(d)$ with $d_i = (\sum_{j,l} |R_l|_{ij})^{-1/2}$, on the side of `pairs`. An
    orthonormal kernel is not changed, and one that is nearly orthonormal hardly.
    Differentiable; a channel of zeros stays.

    Args:
        kernel: `(groups, out, in, taps)`, finite.
        pairs: those of its shape.

    Example:
        >>> pairs = TapPairs.of((1, 1), (2,), (1,), (1,))
        >>> rescale_channels(torch.tensor([[[[3.0, 3.0]]]]), pairs)
        tensor([[[[0.5000, 0.5000]]]])
    """
    largest = kernel.detach().abs().amax()
    kernel = kernel / torch.where(largest > 0, largest, 1.0)
    sums = pairs.correlate(kernel).abs().sum(-1)  # (lags, groups, channels)
    if pairs.num_phases > 1:
        split = sums.new_zeros(pairs.num_phases, *sums.shape[1:])
        sums = split.index_add(0, pairs.first.to(sums.device), sums)
        sums = sums[pairs.phase.to(sums.device)]  # (taps, groups, channels)
    else:
        sums = sums.sum(0, keepdim=True)
    # Squares near the smallest number lose digits, and a sum that is too low stretches too far.
    least = torch.finfo(sums.dtype).tiny * 2**20
    scale = torch.where(sums > 0, sums.clamp_min(least), 1.0).rsqrt().movedim(0, -1)
    return kernel * (scale.unsqueeze(2) if pairs.outputs else scale.unsqueeze(1))


def bound_autocorrelation(
    kernel: Tensor,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> float:
    r"""A proven upper bound $\sqrt{\max_i (Aq)_i / q_i}$ of the L2 norm, for zeros beyond the input.

    It holds on every circle that the stride divides as well, and is 1 to rounding for orthonormal
    kernels and at most 1 for those of `rescale_channels`; others it overestimates. The kernel is
    `(out, in / groups, *taps)`, or what a transposed convolution holds: the norms of a map and its
    adjoint are equal.

    Example:
        >>> kernel = torch.tensor([[[0.0, 1.0, 0.0]]])
        >>> 1 <= bound_autocorrelation(kernel, stride=(1,), dilation=(1,)) < 1 + 1e-14
        True
    """
    exact = exact_double("bound_autocorrelation", kernel).unflatten(0, (groups, -1)).flatten(3)
    scaled, exponent, _ = scale_to_unit(exact)
    if not scaled.any():
        return 0.0
    channels = (scaled.shape[1], scaled.shape[2])
    pairs = TapPairs.of(channels, tuple(kernel.shape[2:]), tuple(stride), tuple(dilation))
    sums = _sum_lags(pairs, pairs.correlate(scaled).abs())
    # Sums of magnitudes bound the rounding of all products and, in the end, of all sums.
    reach = _sum_lags(pairs, pairs.correlate(scaled.abs()))
    terms = pairs.roundings(scaled)
    majorant = sums + gamma(terms) * (1 + 2.0**-20) * reach + 2.0**-500
    ratio = float(_bound_perron_root(majorant).amax())
    root = Fraction(sqrt_up(Fraction(ratio) * (1 + Fraction(gamma(terms))) ** 2))
    return float_up(root * Fraction(2) ** exponent)


def _bound_perron_root(positive: Tensor) -> Tensor:
    r"""$\min_q \max_i (Aq)_i / q_i$ for each of a stack of positive matrices, up to rounding.

    By Noda's iteration: with the present ratio $\lambda \ge \rho(A)$,
    $q \leftarrow (\lambda I - A)^{-1} q$ stays positive, lowers the ratio and converges
    quadratically, also where power iteration hardly moves (channels that are nearly independent).
    Matrices are rescaled by the present $q$, so that entries of all sizes keep their digits. Each
    ratio is a bound, whatever the solver did.
    """
    n = positive.shape[-1]
    eye = torch.eye(n, dtype=positive.dtype)
    q = torch.ones_like(positive[..., :1])
    best = torch.full_like(positive[..., :1, :1], math.inf)
    for _ in range(_MOST_ROUNDS):
        ratios = (positive @ q) / q
        ratio, before = ratios.amax(-2, keepdim=True), best
        best = torch.fmin(best, ratio)
        if not bool((best < before * (1 - 2.0**-50)).any()):
            break
        # One power step in between smooths what the solver has rounded.
        q = q * ratios / ratio
        scaled = positive * q.mT / q
        shifted = best * (1 + n * 2.0**-52) * eye - scaled
        step = torch.linalg.solve_ex(shifted, torch.ones_like(q)).result.abs()
        q = (q * step / (q * step).amax(-2, keepdim=True)).clamp_min(1e-30)
        q = torch.where(q.isfinite(), q, 1.0)
    return best


def _sum_lags(pairs: TapPairs, lagged: Tensor) -> Tensor:
    """`(groups, phases * channels, phases * channels)` from `(lags, groups, channels, channels)`."""
    _, groups, channels, _ = lagged.shape
    n = pairs.num_phases
    total = lagged.new_zeros(n * n, groups, channels, channels)
    total.index_add_(0, pairs.first * n + pairs.second, lagged)
    square = total.view(n, n, groups, channels, channels).permute(2, 0, 3, 1, 4)
    return square.reshape(groups, n * channels, n * channels)
